//! Rows of an import, kept aside: nothing goes into the database before the last row has been read and found good, and no
//! file is too large for memory.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Seek, SeekFrom};
use std::path::Path;

use super::rows::{Row, Size, bytes_of_row};

/// A row as it was read; its rate may be in percent or a part of one, which only all rows tell.
#[derive(Debug, Clone, Copy)]
pub(super) struct Read<'a> {
    pub(super) time: i64,
    pub(super) query: &'a str,
    /// Empty if there is none.
    pub(super) page: &'a str,
    pub(super) count: u64,
    pub(super) rate: f64,
}

/// Rows on their way into a file without a name.
#[derive(Debug)]
pub(super) struct Spool {
    rows: csv::Writer<BufWriter<File>>,
    size: Size,
    bytes: u64,
    highest_rate: f64,
}

/// The same rows on their way out.
#[derive(Debug)]
pub(super) struct Kept {
    rows: csv::Reader<BufReader<File>>,
    size: Size,
    bytes: u64,
    /// What a rate has to be multiplied by to be a part of one.
    factor: f64,
}

impl Spool {
    /// In `folder`, where there must be room for the rows anyway.
    pub(super) fn new(folder: &Path) -> io::Result<Spool> {
        let rows =
            csv::WriterBuilder::new().has_headers(false).from_writer(BufWriter::new(tempfile::tempfile_in(folder)?));
        Ok(Spool { rows, size: Size { events: 0, searches: 0 }, bytes: 0, highest_rate: 0.0 })
    }

    pub(super) fn push(&mut self, row: Read<'_>) -> io::Result<()> {
        let Read { time, query, page, count, rate } = row;
        self.size.events += 1;
        self.bytes += bytes_of_row("", query, Some(page));
        self.size.searches = self.size.searches.saturating_add(count);
        self.highest_rate = self.highest_rate.max(rate);
        let (time, count, rate) = (time.to_string(), count.to_string(), rate.to_string());
        self.rows.write_record([time.as_str(), &count, &rate, query, page]).map_err(io::Error::from)
    }

    pub(super) fn done(self) -> io::Result<Kept> {
        let mut file = self.rows.into_inner().map_err(csv::IntoInnerError::into_error)?.into_inner()?;
        file.seek(SeekFrom::Start(0))?;
        let rows = csv::ReaderBuilder::new().has_headers(false).from_reader(BufReader::new(file));
        let factor = docwharf_agent::analytics::report::percent_factor([self.highest_rate]) / 100.0;
        Ok(Kept { rows, size: self.size, bytes: self.bytes, factor })
    }
}

impl Kept {
    pub(super) fn size(&self) -> Size {
        self.size
    }

    /// Bytes of the rows in the database, but for the names of their project.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Hands out each row.
    pub(super) fn each<E: From<csv::Error>>(mut self, mut take: impl FnMut(Row<'_>) -> Result<(), E>) -> Result<(), E> {
        let mut record = csv::StringRecord::new();
        while self.rows.read_record(&mut record)? {
            take(row(&record, self.factor).ok_or_else(|| {
                csv::Error::from(io::Error::other("the temporary file of searches was changed while it was read"))
            })?)?;
        }
        Ok(())
    }
}

fn row(record: &csv::StringRecord, factor: f64) -> Option<Row<'_>> {
    let count: u64 = record.get(1)?.parse().ok()?;
    let rate: f64 = record.get(2)?.parse().ok()?;
    #[expect(clippy::cast_sign_loss, reason = "neither is below zero")]
    let clicks = (rate * factor * count as f64).round() as u64;
    let page = record.get(4).filter(|page| !page.is_empty());
    Some(Row { time: record.get(0)?.parse().ok()?, query: record.get(3)?, page, count, clicks: clicks.min(count) })
}
