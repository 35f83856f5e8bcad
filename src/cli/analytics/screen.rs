//! Draws a report for a terminal: sections of columns with small bars. No I/O.

use std::fmt::Write;

use docwharf_agent::analytics::number_format::{
    count_or_dash, count_terms, group_thousands, percent_or_dash, signed_number,
};
use docwharf_agent::analytics::report::{ReportTerm, SearchReport, TermList};
use docwharf_base::error_chain::OneLine;

use super::super::text_columns::{cut, cut_or_pad, display_width};

/// Width of a bar in columns.
const BAR_COLUMNS: usize = 16;
/// Minimum width of terms in columns. If less is left, the pages are dropped, then the bars.
const MIN_TERM_COLUMNS: usize = 18;
const GAP_COLUMNS: usize = 2;

/// The kind of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ColumnKind {
    /// Terms: left-aligned, in the width that numbers and bars leave.
    Term,
    /// Addresses of pages: left-aligned, in the width that numbers and bars leave.
    Page,
    /// Numbers: right-aligned, never cut.
    Number,
    /// Bars: left-aligned, never cut.
    Bar,
}

/// A column: its heading, and one cell for each row.
#[derive(Debug)]
struct ScreenColumn {
    heading: &'static str,
    kind: ColumnKind,
    cells: Vec<String>,
}

impl ScreenColumn {
    fn new(heading: &'static str, kind: ColumnKind, cells: impl Iterator<Item = String>) -> ScreenColumn {
        ScreenColumn { heading, kind, cells: cells.collect() }
    }

    fn width(&self) -> usize {
        self.cells.iter().map(|cell| display_width(cell)).chain([display_width(self.heading)]).max().unwrap_or(0)
    }
}

/// Adds colour to text, if colour is wanted.
#[derive(Debug, Clone, Copy)]
struct ColourPainter(bool);

impl ColourPainter {
    fn paint(self, code: &str, text: &str) -> String {
        if self.0 && !text.trim().is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// Colours a bar: the clicked part cyan, the part without clicks yellow.
    fn bar(self, cells: &str) -> String {
        let clicked = cells.find(|c| c != CLICKED_CELL).unwrap_or(cells.len());
        let unclicked = cells[clicked..].find(|c| c != UNCLICKED_CELL).map_or(cells.len(), |len| clicked + len);
        let (clicked, unclicked, rest) = (&cells[..clicked], &cells[clicked..unclicked], &cells[unclicked..]);
        format!("{}{}{rest}", self.paint("36", clicked), self.paint("33", unclicked))
    }
}

const CLICKED_CELL: char = '━';
const UNCLICKED_CELL: char = '╌';

/// Returns the report in at most `columns` columns; with `None`, nothing is cut.
pub(super) fn draw_report(report: &SearchReport, columns: Option<usize>, colour: bool) -> String {
    let screen = ReportScreen { columns, paint: ColourPainter(colour), is_compared: report.previous.is_some() };
    let project = OneLine(&report.project).to_string();
    if report.is_empty() {
        return format!(
            "{}\n",
            screen.cut_line(&format!("Nobody searched in {project}: {}", report.period.period_text()))
        );
    }
    let mut out = String::new();
    let title = screen.cut_line(&format!("Searches in {project}, {}", report.period.period_text()));
    let _ = writeln!(out, "{}\n", screen.paint.bold(&title));
    screen.add_totals(&mut out, report);
    screen.add_ranked_terms(&mut out, "What readers search for", &report.top);
    let list = &report.unclicked;
    screen.add_ranked_terms(
        &mut out,
        &format!("Searched for, but no result was clicked: {}", describe_terms(list)),
        &list.list,
    );
    let (list, parameters) = (&report.low_ctr, &report.parameters);
    let rule = format!("under {}% of at least {} searches", parameters.low_percent, parameters.fewest_hits);
    screen.add_ranked_terms(&mut out, &format!("Clicked, but in {rule}: {}", describe_terms(list)), &list.list);
    if let Some(trends) = &report.trends {
        screen.add_changed_terms(&mut out, "More often than before", &trends.risen);
        screen.add_changed_terms(&mut out, "Less often than before", &trends.fallen);
        screen.add_ranked_terms(&mut out, "New", &trends.new);
        let terms = &trends.gone;
        let columns = vec![
            ScreenColumn::new("TERM", ColumnKind::Term, terms.iter().map(|term| format_term(&term.search_query))),
            ScreenColumn::new("BEFORE", ColumnKind::Number, terms.iter().map(|term| count_or_dash(term.before.hits))),
            ScreenColumn::new("CLICKED", ColumnKind::Number, terms.iter().map(|term| percent_or_dash(term.before.ctr))),
        ];
        screen.add_section(&mut out, "Not searched for any more", columns);
    }
    out
}

/// Formats a term on one line, with control characters escaped.
fn format_term(text: &str) -> String {
    if text.trim().is_empty() { "(nothing typed)".to_owned() } else { OneLine(text).to_string() }
}

fn format_change(term: &ReportTerm) -> String {
    match (term.before, term.change) {
        (None, Some(_)) => "new".to_owned(),
        (_, Some(change)) => signed_number(change),
        (_, None) => "–".to_owned(),
    }
}

fn describe_terms(list: &TermList) -> String {
    let share =
        list.share.map_or_else(String::new, |share| format!(", {} of all searches", percent_or_dash(Some(share))));
    if list.terms == 0 { "no term".to_owned() } else { format!("{}{share}", count_terms(list.terms)) }
}

/// Returns the bar of a term. Its length is relative to `max` searches. Its first part shows the searches with a click.
fn bar(term: &ReportTerm, max: u64) -> String {
    let hits = term.hits.unwrap_or(0);
    let count_cells = |length: f64, max: usize| (0..max).filter(|cell| *cell as f64 + 0.5 <= length).count();
    // A term with any search has at least one cell.
    let cells =
        count_cells(hits as f64 * BAR_COLUMNS as f64 / max.max(1) as f64, BAR_COLUMNS).max(usize::from(hits > 0));
    let clicked = count_cells(cells as f64 * term.ctr.unwrap_or(0.0) / 100.0, cells);
    std::iter::repeat_n(CLICKED_CELL, clicked).chain(std::iter::repeat_n(UNCLICKED_CELL, cells - clicked)).collect()
}

struct ReportScreen {
    columns: Option<usize>,
    paint: ColourPainter,
    is_compared: bool,
}

impl ReportScreen {
    /// Returns the line, cut to the width of the terminal.
    fn cut_line(&self, text: &str) -> String {
        self.columns.map_or_else(|| text.to_owned(), |columns| cut(text, columns))
    }

    fn add_totals(&self, out: &mut String, report: &SearchReport) {
        let mut rows = Vec::new();
        let previous = report.previous.as_ref().map_or_else(String::new, |previous| {
            let period_text = previous.period_text();
            // Both periods have the same length, which the title shows already.
            let days = period_text.split(" (").next().unwrap_or_default();
            let comparison = format!("than {} in {days}", count_or_dash(previous.total_searches));
            match report.change.as_ref().and_then(|change| change.percent) {
                Some(percent) if percent > 0.0 => format!("{percent:.1}% more {comparison}"),
                Some(percent) if percent < 0.0 => format!("{:.1}% fewer {comparison}", percent.abs()),
                Some(_) => format!("as many as in {days}"),
                None => format!("{} in {days}", count_or_dash(previous.total_searches)),
            }
        });
        rows.push(("Searches", count_or_dash(report.period.total_searches), previous));
        let points = match report.change.as_ref().and_then(|change| change.points) {
            Some(points) if points > 0.0 => format!("{points:.1} points more"),
            Some(points) if points < 0.0 => format!("{:.1} points less", points.abs()),
            Some(_) => "as before".to_owned(),
            None => String::new(),
        };
        rows.push(("Led to a click", percent_or_dash(report.period.click_through_rate), points));
        let period = &report.period;
        let share = period.share_read();
        let share =
            share.map_or_else(String::new, |share| format!(" ({} of all searches)", percent_or_dash(Some(share))));
        let note = format!("read, and there are more{share}: --terms N or --all");
        let note = if period.all_terms_read { String::new() } else { note };
        rows.push(("Terms", group_thousands(report.period.terms_read as u64), note));
        let list = &report.unclicked;
        rows.push(("Nobody clicked", group_thousands(list.searches), describe_terms(list)));
        let widest = rows.iter().map(|(_, value, _)| display_width(value)).max().unwrap_or(0);
        for (name, value, note) in rows {
            let name = cut_or_pad(name, 16);
            let value = format!("{}{value}", " ".repeat(widest - display_width(&value)));
            let note_columns = self.columns.map(|columns| columns.saturating_sub(16 + widest + 2 * GAP_COLUMNS));
            let note = note_columns.map_or_else(|| note.clone(), |columns| cut(&note, columns));
            let line = format!("  {}{}  {}", name, self.paint.bold(&value), self.paint.dim(&note));
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }

    /// Appends a section of terms with their bars.
    fn add_ranked_terms(&self, out: &mut String, heading: &str, list: &[ReportTerm]) {
        let max_hits = list.iter().filter_map(|term| term.hits).max().unwrap_or(0);
        let format_page =
            |page: &Option<String>| page.as_deref().map_or_else(|| "–".to_owned(), |page| OneLine(page).to_string());
        let mut columns = vec![
            ScreenColumn::new("TERM", ColumnKind::Term, list.iter().map(|term| format_term(&term.search_query))),
            ScreenColumn::new("", ColumnKind::Bar, list.iter().map(|term| bar(term, max_hits))),
            ScreenColumn::new("SEARCHES", ColumnKind::Number, list.iter().map(|term| count_or_dash(term.hits))),
            ScreenColumn::new("SHARE", ColumnKind::Number, list.iter().map(|term| percent_or_dash(term.share))),
            ScreenColumn::new("CLICKED", ColumnKind::Number, list.iter().map(|term| percent_or_dash(term.ctr))),
        ];
        if self.is_compared {
            columns.push(ScreenColumn::new("CHANGE", ColumnKind::Number, list.iter().map(format_change)));
        }
        if list.iter().any(|term| term.top_clicked_page.is_some()) {
            columns.push(ScreenColumn::new(
                "TOP PAGE",
                ColumnKind::Page,
                list.iter().map(|term| format_page(&term.top_clicked_page)),
            ));
        }
        self.add_section(out, heading, columns);
    }

    /// Appends a section of terms that the previous period has as well.
    fn add_changed_terms(&self, out: &mut String, heading: &str, list: &[ReportTerm]) {
        let before = |term: &ReportTerm| count_or_dash(term.before.and_then(|before| before.hits));
        let rank = |term: &ReportTerm| {
            term.before.map_or_else(|| "–".to_owned(), |before| format!("{} → {}", before.rank, term.rank))
        };
        let columns = vec![
            ScreenColumn::new("TERM", ColumnKind::Term, list.iter().map(|term| format_term(&term.search_query))),
            ScreenColumn::new("BEFORE", ColumnKind::Number, list.iter().map(before)),
            ScreenColumn::new("NOW", ColumnKind::Number, list.iter().map(|term| count_or_dash(term.hits))),
            ScreenColumn::new("CHANGE", ColumnKind::Number, list.iter().map(format_change)),
            ScreenColumn::new("RANK", ColumnKind::Number, list.iter().map(rank)),
            ScreenColumn::new("CLICKED", ColumnKind::Number, list.iter().map(|term| percent_or_dash(term.ctr))),
        ];
        self.add_section(out, heading, columns);
    }

    fn add_section(&self, out: &mut String, heading: &str, mut columns: Vec<ScreenColumn>) {
        let rows = columns.first().map_or(0, |column| column.cells.len());
        let suffix = if rows == 0 && !heading.ends_with("no term") { ": no term" } else { "" };
        let _ = writeln!(out, "\n{}", self.paint.bold(&self.cut_line(&format!("{heading}{suffix}"))));
        if rows == 0 {
            return;
        }
        let widths = self.column_widths(&mut columns);
        let headings: Vec<String> = columns
            .iter()
            .zip(&widths)
            .map(|(column, width)| align_cell(column.kind, column.heading, *width))
            .collect();
        let _ = writeln!(out, "{}", self.paint.dim(format!("  {}", headings.join("  ")).trim_end()));
        for row in 0..rows {
            let cells = columns.iter().zip(&widths).map(|(column, width)| {
                let cell = align_cell(column.kind, &column.cells[row], *width);
                if column.kind == ColumnKind::Bar { self.paint.bar(&cell) } else { cell }
            });
            let line = cells.collect::<Vec<_>>().join("  ");
            let _ = writeln!(out, "  {}", line.trim_end());
        }
    }

    /// Returns the width of each column, after it has removed the columns that do not fit.
    fn column_widths(&self, columns: &mut Vec<ScreenColumn>) -> Vec<usize> {
        let Some(screen_width) = self.columns else { return columns.iter().map(ScreenColumn::width).collect() };
        let width_for_text = |columns: &[ScreenColumn]| {
            let is_fixed_width = |column: &&ScreenColumn| matches!(column.kind, ColumnKind::Number | ColumnKind::Bar);
            let fixed: usize = columns.iter().filter(is_fixed_width).map(ScreenColumn::width).sum();
            screen_width.saturating_sub(fixed + columns.len() * GAP_COLUMNS)
        };
        let widest = columns.iter().find(|column| column.kind == ColumnKind::Term).map_or(0, ScreenColumn::width);
        if width_for_text(columns) < MIN_TERM_COLUMNS.min(widest) + 12 {
            columns.retain(|column| column.kind != ColumnKind::Page);
        }
        if width_for_text(columns) < MIN_TERM_COLUMNS.min(widest) {
            columns.retain(|column| column.kind != ColumnKind::Bar);
        }
        // Numbers that would leave almost nothing of the term are dropped as well, the last first.
        while columns.len() > 2 && width_for_text(columns) < 8.min(widest) {
            columns.pop();
        }
        let text_width = width_for_text(columns).max(1);
        let page = columns.iter().find(|column| column.kind == ColumnKind::Page).map_or(0, ScreenColumn::width);
        let page = page.min((text_width / 2).max(text_width.saturating_sub(widest)));
        let width = |column: &ScreenColumn| match column.kind {
            ColumnKind::Term => widest.min(text_width - page),
            ColumnKind::Page => page,
            ColumnKind::Number | ColumnKind::Bar => column.width(),
        };
        columns.iter().map(width).collect()
    }
}

fn align_cell(kind: ColumnKind, cell: &str, columns: usize) -> String {
    match kind {
        ColumnKind::Number => format!("{}{cell}", " ".repeat(columns.saturating_sub(display_width(cell)))),
        _ => cut_or_pad(cell, columns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use docwharf_agent::analytics::period::Period;
    use docwharf_agent::analytics::report::{MIN_RATED_HITS, PeriodTerms, ReportParameters};
    use docwharf_agent::api::analytics::{SearchPage, SearchTerm};

    fn report(terms: &[(&str, u64, u64)]) -> SearchReport {
        let search = |(term, hits, ctr): &(&str, u64, u64)| SearchTerm {
            search_query: (*term).to_owned(),
            hits: Some((*hits).into()),
            ctr: Some((*ctr).into()),
            top_clicked_page: (*ctr > 0).then(|| format!("/guides/{term}")),
            last_searched_at: None,
        };
        let page =
            SearchPage { searches: terms.iter().map(search).collect(), total_searches: Some(500), next_cursor: None };
        let read = PeriodTerms { period: Period::default(), page };
        let before = PeriodTerms { period: Period::default(), page: SearchPage::default() };
        let parameters = ReportParameters { top: 100, low_percent: 20.0, fewest_hits: MIN_RATED_HITS };
        SearchReport::new("p", "now", &read, Some(&before), parameters)
    }

    #[test]
    fn report_lines_never_exceed_the_terminal_width_for_any_search_term() {
        let long = "x".repeat(3000);
        let terms = [
            ("webhooks", 120, 80),
            (long.as_str(), 100, 10),
            ("\x1b[31m\u{202e}red\r\n\x07", 90, 0),
            ("潮汐表潮汐表潮汐表潮汐表潮汐表", 80, 5),
            ("", 70, 0),
            ("👩‍👩‍👧‍👦 مرحبا", 3, 50),
        ];
        let report = report(&terms);
        for columns in [20, 30, 40, 60, 79, 80, 81, 100, 120, 200] {
            let drawn = draw_report(&report, Some(columns), false);
            assert!(!drawn.chars().any(|c| c.is_control() && c != '\n'), "{drawn:?}");
            let max_columns = if columns < 40 { 40 } else { columns };
            for line in drawn.lines() {
                assert!(display_width(line) <= max_columns, "{} columns of {columns}: {line}", display_width(line));
            }
        }
        // Without a width, only a very long term is shortened, in its middle.
        assert!(draw_report(&report, None, false).contains(&"x".repeat(450)));
    }

    #[test]
    fn search_term_bar_shows_clicked_and_unclicked_searches() {
        let report = report(&[("a", 160, 50), ("b", 80, 0), ("c", 1, 100)]);
        let bars: Vec<String> = report.top.iter().map(|term| bar(term, 160)).collect();
        assert_eq!(bars, ["━━━━━━━━╌╌╌╌╌╌╌╌", "╌╌╌╌╌╌╌╌", "━"]);
        let coloured = draw_report(&report, Some(80), true);
        assert!(coloured.contains("\x1b[36m━━━━━━━━\x1b[0m\x1b[33m╌╌╌╌╌╌╌╌\x1b[0m"), "{coloured}");
        assert!(!draw_report(&report, Some(80), false).contains('\x1b'));
    }
}
