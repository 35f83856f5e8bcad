//! The temporary file with the rows of an import. Nothing is written to the database before all rows are read and
//! validated, and the size of a file is not limited by memory.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Seek, SeekFrom};
use std::path::Path;

use docwharf_analytics::searches::rows::{BatchSize, SearchRow, bytes_of_row};

/// A row as it was read. Whether rates are percentages or fractions of 1 is known only after all rows were read.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpooledRow<'a> {
    pub(super) time: i64,
    pub(super) query: &'a str,
    /// The page; empty if there is none.
    pub(super) page: &'a str,
    pub(super) count: u64,
    pub(super) rate: f64,
}

/// Writes rows to an unnamed temporary file.
#[derive(Debug)]
pub(super) struct ImportSpool {
    rows: csv::Writer<BufWriter<File>>,
    size: BatchSize,
    bytes: u64,
    highest_rate: f64,
}

/// Reads the rows from the temporary file.
#[derive(Debug)]
pub(super) struct ImportSpoolReader {
    rows: csv::Reader<BufReader<File>>,
    size: BatchSize,
    bytes: u64,
    /// The factor that converts a rate to a fraction of 1.
    factor: f64,
}

impl ImportSpool {
    /// Creates the file in `folder`, on the disk of the database, which needs space for the rows anyway.
    pub(super) fn new(folder: &Path) -> io::Result<ImportSpool> {
        let rows =
            csv::WriterBuilder::new().has_headers(false).from_writer(BufWriter::new(tempfile::tempfile_in(folder)?));
        Ok(ImportSpool { rows, size: BatchSize { rows: 0, searches: 0 }, bytes: 0, highest_rate: 0.0 })
    }

    pub(super) fn push(&mut self, row: SpooledRow<'_>) -> io::Result<()> {
        let SpooledRow { time, query, page, count, rate } = row;
        self.size.rows += 1;
        self.bytes += bytes_of_row("", query, Some(page));
        self.size.searches = self.size.searches.saturating_add(count);
        self.highest_rate = self.highest_rate.max(rate);
        let (time, count, rate) = (time.to_string(), count.to_string(), rate.to_string());
        self.rows.write_record([time.as_str(), &count, &rate, query, page]).map_err(io::Error::from)
    }

    pub(super) fn finish(self) -> io::Result<ImportSpoolReader> {
        let mut file = self.rows.into_inner().map_err(csv::IntoInnerError::into_error)?.into_inner()?;
        file.seek(SeekFrom::Start(0))?;
        let rows = csv::ReaderBuilder::new().has_headers(false).from_reader(BufReader::new(file));
        let factor = docwharf_agent::analytics::report::percent_factor([self.highest_rate]) / 100.0;
        Ok(ImportSpoolReader { rows, size: self.size, bytes: self.bytes, factor })
    }
}

impl ImportSpoolReader {
    pub(super) fn size(&self) -> BatchSize {
        self.size
    }

    /// Returns the bytes that the rows take in the database, without the names of their project.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Calls `visit` with each row.
    pub(super) fn for_each_row<E: From<csv::Error>>(
        mut self,
        mut visit: impl FnMut(SearchRow<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut record = csv::StringRecord::new();
        while self.rows.read_record(&mut record)? {
            visit(decode_row(&record, self.factor).ok_or_else(|| {
                csv::Error::from(io::Error::other("the temporary file of searches was changed while it was read"))
            })?)?;
        }
        Ok(())
    }
}

fn decode_row(record: &csv::StringRecord, factor: f64) -> Option<SearchRow<'_>> {
    let count: u64 = record.get(1)?.parse().ok()?;
    let rate: f64 = record.get(2)?.parse().ok()?;
    #[expect(clippy::cast_sign_loss, reason = "neither is below zero")]
    let clicks = (rate * factor * count as f64).round() as u64;
    let page = record.get(4).filter(|page| !page.is_empty());
    Some(SearchRow {
        time: record.get(0)?.parse().ok()?,
        query: record.get(3)?,
        page,
        count,
        clicks: clicks.min(count),
        results: None,
        source: None,
    })
}
