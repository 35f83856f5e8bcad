//! The rows of a table, in the form of GFM (section 4.10 of its specification).

/// The maximum number of columns. The text of further cells is in the last one.
const MAX_COLUMNS: usize = 64;
/// The maximum number of rows that a cell covers.
const MAX_ROW_SPAN: u32 = 1000;

/// A row that is being read.
#[derive(Debug)]
struct OpenRow {
    /// The cells, each after a `|`.
    text: String,
    columns: usize,
    has_text: bool,
    /// Whether all cells are `th`.
    has_only_heads: bool,
}

impl OpenRow {
    fn new() -> Self {
        OpenRow { text: String::new(), columns: 0, has_text: false, has_only_heads: true }
    }

    fn push_cell(&mut self, text: &str) {
        self.text.push_str("| ");
        self.text.push_str(text);
        if !text.is_empty() {
            self.text.push(' ');
        }
    }

    /// Adds empty cells for those of rows above that reach into the row.
    fn skip_covered_columns(&mut self, covered_rows: &mut [u32]) {
        while let Some(rows) = covered_rows.get_mut(self.columns).filter(|rows| **rows > 0) {
            *rows -= 1;
            self.push_cell("");
            self.columns += 1;
        }
    }
}

/// A cell that is being read.
#[derive(Debug, Clone, Copy)]
struct OpenCell {
    is_head: bool,
    column_span: usize,
    row_span: u32,
}

/// A table that is being read.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// The cells of the head, each after a `|`.
    head: Option<String>,
    /// The rows of the body, each after a line feed.
    body: String,
    row: Option<OpenRow>,
    cell: Option<OpenCell>,
    /// The greatest number of columns of a row.
    columns: usize,
    /// The number of open `thead` elements.
    pub(super) open_heads: u32,
    /// For each column, the number of further rows that a cell above covers.
    covered_rows: Vec<u32>,
    /// The number of rows with text that have been read.
    rows: usize,
    max_bytes: usize,
    is_cut: bool,
}

impl Table {
    pub(super) fn new(max_bytes: usize) -> Self {
        Table { max_bytes, ..Table::default() }
    }

    /// Discards the cells so far.
    pub(super) fn restart(&mut self, max_bytes: usize) {
        let row = self.row.take().map(|_| OpenRow::new());
        *self = Table { max_bytes, row, cell: self.cell, open_heads: self.open_heads, ..Table::default() };
    }

    /// Whether a cell is open.
    pub(super) fn is_cell_open(&self) -> bool {
        self.cell.is_some()
    }

    pub(super) fn start_row(&mut self) {
        self.end_row();
        self.row = Some(OpenRow::new());
    }

    /// Starts a cell, which may cover several columns and rows.
    pub(super) fn start_cell(&mut self, is_head: bool, column_span: usize, row_span: u32) {
        self.row.get_or_insert_with(OpenRow::new).skip_covered_columns(&mut self.covered_rows);
        self.cell = Some(OpenCell {
            is_head,
            column_span: column_span.clamp(1, MAX_COLUMNS),
            row_span: row_span.clamp(1, MAX_ROW_SPAN),
        });
    }

    /// Ends the cell with its text, which has one line.
    pub(super) fn end_cell(&mut self, text: &str) {
        let (Some(cell), Some(row)) = (self.cell.take(), &mut self.row) else { return };
        if row.text.len() + text.len() > self.max_bytes {
            self.is_cut = true;
            return;
        }
        row.has_only_heads &= cell.is_head;
        row.has_text |= !text.is_empty();
        if row.columns >= MAX_COLUMNS {
            row.text.push_str(text);
            row.text.push(' ');
            return;
        }
        let end = MAX_COLUMNS.min(row.columns + cell.column_span);
        if self.covered_rows.len() < end {
            self.covered_rows.resize(end, 0);
        }
        row.push_cell(text);
        for _ in row.columns + 1..end {
            row.push_cell("");
        }
        self.covered_rows[row.columns..end].fill(cell.row_span - 1);
        row.columns = end;
    }

    /// Ends the current row. One without text is left out.
    pub(super) fn end_row(&mut self) {
        let Some(mut row) = self.row.take() else { return };
        row.skip_covered_columns(&mut self.covered_rows);
        if !row.has_text {
            return;
        }
        let len = self.head.as_ref().map_or(0, String::len) + self.body.len();
        self.is_cut |= len + row.text.len() + 2 > self.max_bytes;
        if self.is_cut {
            return;
        }
        self.columns = self.columns.max(row.columns);
        if self.rows == 0 && (self.open_heads > 0 || row.has_only_heads) {
            self.head = Some(row.text);
        } else {
            self.body.push('\n');
            self.body.push_str(&row.text);
            self.body.push('|');
        }
        self.rows += 1;
    }

    /// Whether rows were left out because of the limit.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Ends the table and returns it; `None` if it has no text. The head has as many cells as the longest row, because
    /// further cells of a row would be ignored.
    pub(super) fn finish(mut self) -> Option<String> {
        self.end_row();
        if self.rows == 0 {
            return None;
        }
        let mut text = self.head.unwrap_or_default();
        let head_cells = count_cells(&text);
        for _ in head_cells..self.columns {
            text.push_str("| ");
        }
        text.push_str("|\n");
        for _ in 0..self.columns {
            text.push_str("| --- ");
        }
        text.push('|');
        text.push_str(&self.body);
        Some(text)
    }
}

/// Counts the cells of a row, each of which begins with a `|` that is not escaped.
fn count_cells(row: &str) -> usize {
    let mut is_escaped = false;
    let mut cells = 0;
    for byte in row.bytes() {
        cells += usize::from(byte == b'|' && !is_escaped);
        is_escaped = byte == b'\\' && !is_escaped;
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads rows of cells: `th` if the text begins with `!`.
    fn read(rows: &[&[(&str, usize, u32)]]) -> Option<String> {
        let mut table = Table::new(10_000);
        for row in rows {
            table.start_row();
            for &(text, column_span, row_span) in *row {
                table.start_cell(text.starts_with('!'), column_span, row_span);
                table.end_cell(text.trim_start_matches('!'));
            }
        }
        table.finish()
    }

    #[test]
    fn first_row_is_the_head_if_it_has_only_heads() {
        let table = read(&[&[("!A", 1, 1), ("!B", 1, 1)], &[("1", 1, 1), ("", 1, 1)]]);
        assert_eq!(table.as_deref(), Some("| A | B |\n| --- | --- |\n| 1 | |"));
        let table = read(&[&[("!A", 1, 1), ("b", 1, 1), ("c", 1, 1)], &[("", 1, 1)], &[("!d\\|", 1, 1)]]);
        assert_eq!(table.as_deref(), Some("| | | |\n| --- | --- | --- |\n| A | b | c |\n| d\\| |"));
        assert_eq!(read(&[&[("", 1, 1)]]), None);
        assert_eq!(read(&[]), None);
    }

    #[test]
    fn cells_that_cover_others_leave_empty_ones() {
        let table =
            read(&[&[("!A\\|", 2, 1), ("!B", 1, 1)], &[("1", 1, 2), ("2", 1, 1)], &[("3", 1, 1)], &[("4", 1, 1)]]);
        let expected = "| A\\| | | B |\n| --- | --- | --- |\n| 1 | 2 |\n| | 3 |\n| 4 |";
        assert_eq!(table.as_deref(), Some(expected));
    }

    #[test]
    fn size_is_bounded() {
        let mut table = Table::new(1000);
        for _ in 0..1000 {
            table.start_row();
            for _ in 0..100 {
                table.start_cell(false, usize::MAX, u32::MAX);
                table.end_cell("x");
            }
        }
        assert!(table.is_cut());
        let text = table.finish().unwrap();
        assert!(text.len() < 1000 + 2 * MAX_COLUMNS * 6, "{}", text.len());
    }
}
