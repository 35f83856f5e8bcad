//! Import of searches from CSV files (RFC 4180) with a header. A file is imported completely or not at all, and counts
//! once.
//!
//! A file has either events (`query`, `time` and optionally `clickedPage`), or totals of terms in the format that
//! `docwharf analytics searches --format csv` writes (`searchQuery`, `hits`, `ctr`, `topClickedPage`,
//! `lastSearchedAt`). Columns may be in any order, and unknown columns are ignored. A row of totals stands for `hits`
//! searches, all at the time of the last one, and all of its clicks are on its page. So an exported file gives the same
//! totals after an import, with rates to four decimals. Rates are percentages if any of them in the file is above 1, as
//! in reports.

use std::cell::Cell;
use std::io::{self, Cursor, Read};
use std::rc::Rc;

use jiff::Timestamp;
use rusqlite::Error::ToSqlConversionFailure;

use super::analytics_limits::{AnalyticsLimits, BatchRefusal};
use super::import_spool::{self, ImportSpool};
use crate::database::{Database, DatabaseError};
use docwharf_agent::analytics::period::parse_period_end;
use docwharf_analytics::delivery::{MAX_PAGE_CHARS, MAX_TERM_CHARS, SearchEvent, is_too_far_ahead};
use docwharf_analytics::searches::rows::{BatchSize, BatchWriter, bytes_of_batch, find_batch};
use docwharf_analytics::searches::term::fold_term;
use docwharf_analytics::searches::time::floor_to_millisecond;

/// The largest number of searches of one row. The sum of 9,000 such rows is still below 2^53, so a JSON number
/// represents it exactly (RFC 8259, section 6).
const MAX_HITS_PER_ROW: f64 = 1e12;
/// The largest size of a row, in bytes. A longer row has a quotation mark that is never closed.
const MAX_ROW_BYTES: usize = 1 << 20;

/// The result of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportResult {
    /// The number of rows.
    pub rows: u64,
    /// The number of searches that the rows stand for.
    pub searches: u64,
    /// Whether the same file was imported before. Then nothing was added, and the numbers are those of the first
    /// import.
    pub duplicate: bool,
}

/// The reason why nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A row of the file is invalid.
    #[error("cannot import searches: line {line}: {problem}; correct the file, of which nothing was imported")]
    Line {
        /// The line at which the row begins; the first line is 1.
        line: u64,
        /// The mistake in the row.
        problem: String,
    },
    /// The file cannot be read to its end.
    #[error("cannot read the searches to import after line {line}")]
    Read {
        /// The line at which the last complete row begins.
        line: u64,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The temporary file with the rows cannot be written.
    #[error("cannot store the searches to import in a temporary file beside the database; is its disk full?")]
    TemporaryFile(#[source] io::Error),
    /// A limit is reached.
    #[error("cannot import the searches (none was imported)")]
    Refused(#[from] BatchRefusal),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

/// Imports a file into `project`, within the `limits` of its organization. `id` is the SHA-256 digest of
/// the file, by which a repeated import is recognized. This blocks, and the database accepts no other changes while the
/// rows are written: a few seconds for a million rows.
pub fn import_csv(
    db: &Database,
    project: &str,
    csv: impl Read,
    id: &str,
    limits: Option<AnalyticsLimits>,
) -> Result<ImportResult, ImportError> {
    // The id of a batch from a client cannot have a space, so there is no conflict.
    let id = format!("import {id}");
    if let Some(size) = db.read(|connection| find_batch(connection, project, &id))? {
        return Ok(imported(size, true));
    }
    let now = floor_to_millisecond(Timestamp::now());
    let spool = read_rows(csv, db, now)?.finish().map_err(ImportError::TemporaryFile)?;
    let project = project.to_owned();
    let imported = db.write(move |transaction| {
        if let Some(size) = find_batch(transaction, &project, &id)? {
            return Ok(Ok(imported(size, true)));
        }
        let size = spool.size();
        let bytes = spool.bytes() + size.rows * project.len() as u64 + bytes_of_batch(&project, &id);
        if let Some(limits) = limits
            && let Err(refusal) = limits.check_space(transaction, size.rows + 1, bytes)?
        {
            return Ok(Err(refusal));
        }
        let mut writer = BatchWriter::begin(transaction, &project, &id, now, size)?;
        spool.for_each_row(|row| writer.push(row).map_err(RowCopyError)).map_err(|RowCopyError(error)| error)?;
        Ok(Ok(imported(size, false)))
    })?;
    Ok(imported?)
}

fn imported(size: BatchSize, duplicate: bool) -> ImportResult {
    ImportResult { rows: size.rows, searches: size.searches, duplicate }
}

/// An error that occurs while rows are copied from the temporary file to the database.
struct RowCopyError(rusqlite::Error);

impl From<csv::Error> for RowCopyError {
    fn from(error: csv::Error) -> RowCopyError {
        RowCopyError(ToSqlConversionFailure(Box::new(error)))
    }
}

/// Reads and validates all rows into a temporary file.
fn read_rows(csv: impl Read, db: &Database, now: i64) -> Result<ImportSpool, ImportError> {
    let remaining_bytes = Rc::new(Cell::new(MAX_ROW_BYTES));
    let csv = RowBoundedReader {
        inner: skip_byte_order_mark(csv).map_err(|source| ImportError::Read { line: 0, source })?,
        remaining_bytes,
    };
    let remaining_bytes = Rc::clone(&csv.remaining_bytes);
    let mut csv = csv::ReaderBuilder::new().has_headers(false).from_reader(csv);
    let mut record = csv::StringRecord::new();
    let mut line = 0;
    let mut next_row = |record: &mut csv::StringRecord| {
        remaining_bytes.set(MAX_ROW_BYTES);
        let has_row = csv.read_record(record).map_err(|error| read_error(error, line))?;
        line = record.position().map_or(line, csv::Position::line);
        Ok::<_, ImportError>(has_row.then_some(line))
    };
    let Some(first) = next_row(&mut record)? else {
        return Err(ImportError::Line { line: 1, problem: "the file is empty; it needs a header".to_owned() });
    };
    let columns = ImportColumns::from_header(&record).map_err(|problem| ImportError::Line { line: first, problem })?;
    let mut spool = ImportSpool::new(db.folder()).map_err(ImportError::TemporaryFile)?;
    while let Some(line) = next_row(&mut record)? {
        let row = columns.parse_row(&record, now).map_err(|problem| ImportError::Line { line, problem })?;
        let ImportRow { time, query, page, count, rate } = &row;
        let row = import_spool::SpooledRow { time: *time, query, page, count: *count, rate: *rate };
        spool.push(row).map_err(ImportError::TemporaryFile)?;
    }
    Ok(spool)
}

fn read_error(error: csv::Error, line: u64) -> ImportError {
    let error_line = error.position().map(csv::Position::line);
    match error.into_kind() {
        csv::ErrorKind::Io(source) => ImportError::Read { line, source },
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => ImportError::Line {
            line: error_line.unwrap_or(line),
            problem: format!("it has {len} fields where the header has {expected_len}"),
        },
        csv::ErrorKind::Utf8 { .. } => {
            ImportError::Line { line: error_line.unwrap_or(line), problem: "it is not UTF-8".to_owned() }
        }
        other => ImportError::Line { line: error_line.unwrap_or(line), problem: format!("it is not CSV: {other:?}") },
    }
}

/// The positions of the columns of a row.
#[derive(Debug)]
enum ImportColumns {
    Events { query: usize, time: usize, page: Option<usize> },
    Totals { query: usize, hits: usize, rate: usize, page: usize, last: usize },
}

/// A validated row.
#[derive(Debug)]
struct ImportRow {
    time: i64,
    query: String,
    page: String,
    count: u64,
    rate: f64,
}

impl ImportColumns {
    fn from_header(header: &csv::StringRecord) -> Result<ImportColumns, String> {
        let find = |name: &str| {
            let mut found =
                header.iter().enumerate().filter(|(_, column)| column.trim() == name).map(|(index, _)| index);
            let first = found.next();
            if found.next().is_some() { Err(format!("the header has the column {name} twice")) } else { Ok(first) }
        };
        if let (Some(query), Some(time)) = (find("query")?, find("time")?) {
            return Ok(ImportColumns::Events { query, time, page: find("clickedPage")? });
        }
        let totals =
            (find("searchQuery")?, find("hits")?, find("ctr")?, find("topClickedPage")?, find("lastSearchedAt")?);
        if let (Some(query), Some(hits), Some(rate), Some(page), Some(last)) = totals {
            return Ok(ImportColumns::Totals { query, hits, rate, page, last });
        }
        let events = "query and time, and perhaps clickedPage";
        Err(format!("the header needs {events}; or searchQuery, hits, ctr, topClickedPage and lastSearchedAt"))
    }

    fn parse_row(&self, record: &csv::StringRecord, now: i64) -> Result<ImportRow, String> {
        let field = |index: usize| record.get(index).unwrap_or_default();
        match *self {
            ImportColumns::Events { query, time, page } => {
                let page = page.map(field).filter(|page| !page.is_empty()).map(str::to_owned);
                let event = SearchEvent { clicked_page: page, ..SearchEvent::new(field(query), field(time)) };
                let event = event.check(now)?;
                let rate = if event.page.is_some() { 1.0 } else { 0.0 };
                let page = event.page.unwrap_or_default();
                Ok(ImportRow { time: event.time, query: event.query, page, count: 1, rate })
            }
            ImportColumns::Totals { query, hits, rate, page, last } => {
                let query = fold_term(field(query));
                // Folding to lower case makes at most two characters of one.
                if query.is_empty() || query.chars().count() > 2 * MAX_TERM_CHARS {
                    return Err(format!("searchQuery: it has 1 to {MAX_TERM_CHARS} characters"));
                }
                let page = field(page);
                if page.chars().count() > MAX_PAGE_CHARS {
                    return Err(format!("topClickedPage: it has at most {MAX_PAGE_CHARS} characters"));
                }
                let time = parse_period_end(field(last))
                    .map(floor_to_millisecond)
                    .map_err(|reason| format!("lastSearchedAt: {reason}"))?;
                if is_too_far_ahead(time, now) {
                    return Err("lastSearchedAt: it is more than a day ahead".to_owned());
                }
                Ok(ImportRow {
                    time,
                    query,
                    page: page.to_owned(),
                    count: parse_hits(field(hits))?,
                    rate: parse_rate(field(rate))?,
                })
            }
        }
    }
}

fn parse_hits(text: &str) -> Result<u64, String> {
    let number = text.trim().parse::<f64>().ok().filter(|n| (1.0..=MAX_HITS_PER_ROW).contains(n) && n.fract() == 0.0);
    #[expect(clippy::cast_sign_loss, reason = "it is 1 at least")]
    let number = number.map(|number| number as u64);
    number.ok_or_else(|| format!("hits: {text:?} is not a whole number from 1 to {MAX_HITS_PER_ROW}"))
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let number = if text.is_empty() { Some(0.0) } else { text.parse::<f64>().ok() };
    let number = number.filter(|number| (0.0..=100.0).contains(number));
    number.ok_or_else(|| format!("ctr: {text:?} is not a rate: neither a fraction of 1 nor a percentage"))
}

/// Removes a byte order mark from the beginning of the file; UTF-8 does not need one.
fn skip_byte_order_mark(mut csv: impl Read) -> io::Result<impl Read> {
    let mut first_bytes = Vec::new();
    csv.by_ref().take(3).read_to_end(&mut first_bytes)?;
    if first_bytes == "\u{feff}".as_bytes() {
        first_bytes.clear();
    }
    Ok(Cursor::new(first_bytes).chain(csv))
}

/// A reader that fails if a row is too long.
struct RowBoundedReader<R> {
    inner: R,
    /// The number of bytes that the current row may still have. The caller resets it before each row.
    remaining_bytes: Rc<Cell<usize>>,
}

impl<R: Read> Read for RowBoundedReader<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let remaining_bytes = self.remaining_bytes.get();
        if remaining_bytes == 0 && !bytes.is_empty() {
            return Err(io::Error::other("the row is longer than 1 MiB; is a quotation mark never closed?"));
        }
        let len = bytes.len().min(remaining_bytes);
        let n = self.inner.read(&mut bytes[..len])?;
        self.remaining_bytes.set(remaining_bytes - n);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use docwharf_analytics::searches::Aggregate;

    use super::super::tests::{database, query_page};
    use super::*;

    fn import(db: &Database, csv: &str) -> Result<ImportResult, ImportError> {
        import_csv(
            db,
            "p",
            csv.as_bytes(),
            &docwharf_base::model::digest::Digest::compute(csv.as_bytes()).to_hex(),
            None,
        )
    }

    fn error_line(db: &Database, csv: &str) -> u64 {
        match import(db, csv) {
            Err(ImportError::Line { line, .. }) => line,
            result => panic!("{csv:?}: {result:?}"),
        }
    }

    /// The format of `docwharf analytics searches --format csv`.
    fn to_csv(terms: &[Aggregate]) -> String {
        let mut csv = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
        csv.write_record(["searchQuery", "hits", "ctr", "topClickedPage", "lastSearchedAt"]).unwrap();
        for term in terms {
            csv.serialize(term).unwrap();
        }
        String::from_utf8(csv.into_inner().unwrap()).unwrap()
    }

    fn term(query: &str, hits: u64, ctr: f64, page: Option<&str>, last: &str) -> Aggregate {
        Aggregate {
            search_query: query.to_owned(),
            hits,
            ctr,
            top_clicked_page: page.map(str::to_owned),
            last_searched_at: last.to_owned(),
        }
    }

    #[test]
    fn imported_totals_are_exported_unchanged() {
        let terms = [
            term("much, \"quoted\"ü", 1_000_000_000, 0.1234, Some("/a,b"), "2026-10-01T00:00:00Z"),
            term("three", 3, 0.3333, Some("/x"), "2026-10-02T00:00:00.25Z"),
            term("few clicks", 2, 0.0, Some("guides/no-slash"), "2026-10-03T00:00:00Z"),
            term("no page", 1, 1.0, None, "1999-12-31T23:59:59Z"),
            term("none", 1, 0.0, None, "2026-10-03T00:00:00Z"),
        ];
        let (_folder, db) = database();
        let file = to_csv(&terms);
        let first_import = ImportResult { rows: 5, searches: 1_000_000_007, duplicate: false };
        assert_eq!(import(&db, &file).unwrap(), first_import);
        let page = query_page(&db, "");
        assert_eq!((page.searches.as_slice(), page.total_searches), (&terms[..], 1_000_000_007));
        // The same file adds nothing, and the output is the file again.
        assert_eq!(import(&db, &file).unwrap(), ImportResult { duplicate: true, ..first_import });
        assert_eq!(to_csv(&page.searches), file);
        assert_eq!(query_page(&db, ""), page);
    }

    #[test]
    fn one_rate_above_one_means_that_all_rates_of_a_file_are_percentages() {
        let (_folder, db) = database();
        let rows = "2026-10-01,0.5,x,1000,A,/a\r\n2026-10-01T08:00,45,x,10.0, B  b,\r\n";
        let head = "\u{feff}lastSearchedAt,ctr,note,hits,searchQuery,topClickedPage\r\n";
        import(&db, &format!("{head}{rows}")).unwrap();
        let rates: Vec<_> =
            query_page(&db, "").searches.into_iter().map(|term| (term.search_query, term.ctr)).collect();
        assert_eq!(rates, [("a".to_owned(), 0.005), ("b b".to_owned(), 0.5)]);
    }

    #[test]
    fn events_are_counted_like_those_of_a_batch() {
        let (_folder, db) = database();
        let rows = [
            "/x,2026-10-01T10:00:00Z,\"How  to\nInstall\"",
            ",2026-10-01T11:00:00+02:00,how to install",
            "",
            "/y,2026-10-01T00:00:00Z,b",
        ];
        let imported = import(&db, &format!("clickedPage,time,query\n{}", rows.join("\n"))).unwrap();
        assert_eq!(imported, ImportResult { rows: 3, searches: 3, duplicate: false });
        let first = &query_page(&db, "").searches[0];
        assert_eq!(first, &term("how to install", 2, 0.5, Some("/x"), "2026-10-01T10:00:00Z"));
        assert_eq!(import(&db, "time,query\n2026-10-01T00:00:00Z,b\n").unwrap().searches, 1);
        assert_eq!(query_page(&db, "").total_searches, 4);
        assert_eq!(import(&db, "query,time\n").unwrap(), ImportResult { rows: 0, searches: 0, duplicate: false });
    }

    #[test]
    fn invalid_csv_reports_its_line_and_imports_no_rows() {
        let (_folder, db) = database();
        let good = "query,time\na,2026-10-01T00:00:00Z\n\"b\nb\",2026-10-01T00:00:00Z\n";
        for row in ["c,yesterday", ",2026-10-01T00:00:00Z", "c,9999-10-01T00:00:00Z", "c,2026-10-01T00:00:00Z,d"] {
            assert_eq!(error_line(&db, &format!("{good}{row}\n")), 5, "{row}");
        }
        for header in ["", "query", "query,query,time", "searchQuery,hits", "query;time"] {
            assert_eq!(error_line(&db, &format!("{header}\n")), 1, "{header}");
        }
        let head = "searchQuery,hits,ctr,topClickedPage,lastSearchedAt\na,1,0,,2026-10-01\n";
        for row in [
            ",1,0,,2026-10-01",
            "a,,0,,2026-10-01",
            "a,0,0,,2026-10-01",
            "a,1.5,0,,2026-10-01",
            "a,-1,0,,2026-10-01",
            "a,1e13,0,,2026-10-01",
            "a,1,x,,2026-10-01",
            "a,1,101,,2026-10-01",
            "a,1,-0.1,,2026-10-01",
            "a,1,NaN,,2026-10-01",
            "a,1,0,,",
            "a,1,0,,9999-01-01",
            &format!("{},1,0,,2026-10-01", "x".repeat(2 * MAX_TERM_CHARS + 1)),
            &format!("a,1,0,/{},2026-10-01", "x".repeat(MAX_PAGE_CHARS)),
        ] {
            assert_eq!(error_line(&db, &format!("{head}{row}\n")), 3, "{row}");
        }
        let not_text = import_csv(&db, "p", &b"query,time\n\xff,2026-10-01T00:00:00Z\n"[..], "x", None);
        assert!(matches!(not_text, Err(ImportError::Line { line: 2, .. })), "{not_text:?}");
        let endless = Cursor::new(b"query,time\n\"a").chain(io::repeat(b'a'));
        let endless = import_csv(&db, "p", endless, "x", None);
        assert!(matches!(endless, Err(ImportError::Read { line: 1, .. })), "{endless:?}");
        assert_eq!(query_page(&db, "").total_searches, 0);
    }
}
