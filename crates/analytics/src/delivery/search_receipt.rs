//! Receives batches of searches.

use rusqlite::{Connection, params};
use serde::Serialize;

use super::search_batch::{CheckedClick, CheckedSearch, CheckedSearchBatch};
use crate::searches::rows::{BatchSize, BatchWriter, SearchRow, bytes_of_batch, bytes_of_row, find_batch};

/// The acknowledgement of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Accepted"))]
#[serde(rename_all = "camelCase")]
pub struct SearchReceipt {
    /// The id of the batch.
    pub batch_id: String,
    /// The number of events that are counted under this id.
    pub accepted: u64,
    /// The number of clicks of this request that were added to searches of earlier batches; absent if there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clicks: Option<u64>,
    /// Whether an earlier request has sent this id. Then nothing of this request was counted.
    pub duplicate: bool,
}

impl CheckedSearchBatch {
    /// Returns the number of rows that the batch adds to the database.
    pub fn rows(&self) -> u64 {
        self.searches.len() as u64 + 1
    }

    /// Returns the largest number of bytes that the batch adds to the database of an origin, with the formula of the
    /// triggers of its table `usage`.
    pub fn bytes(&self, project: &str) -> u64 {
        let bytes_of_search = |search: &CheckedSearch| bytes_of_row(project, &search.query, search.page.as_deref());
        let searches: u64 = self.searches.iter().map(bytes_of_search).sum();
        let clicks: u64 = self.clicks.iter().map(|click| click.page.len() as u64).sum();
        bytes_of_batch(project, &self.id) + searches + clicks
    }
}

/// Stores a batch of `project` that was received at `now` (milliseconds since 1970), in a transaction of the caller. A
/// duplicate batch, one whose id was received before, changes nothing.
pub fn receive_search_batch(
    connection: &Connection,
    project: &str,
    batch: &CheckedSearchBatch,
    now: i64,
) -> rusqlite::Result<SearchReceipt> {
    let CheckedSearchBatch { id, searches, clicks } = batch;
    if let Some(receipt) = find_receipt(connection, project, id)? {
        return Ok(receipt);
    }
    let rows = searches.len() as u64;
    let mut writer = BatchWriter::begin(connection, project, id, now, BatchSize { rows, searches: rows })?;
    for CheckedSearch { number, time, query, page, results, source } in searches {
        let (page, source) = (page.as_deref(), source.map(super::EventSource::name));
        let row = SearchRow {
            time: *time,
            query,
            page,
            count: 1,
            clicks: u64::from(page.is_some()),
            results: *results,
            source,
        };
        match number {
            Some(number) => writer.push_at(number.cast_signed(), row)?,
            None => writer.push(row)?,
        }
    }
    let added = add_clicks(connection, project, clicks)?;
    let clicks = (added > 0).then_some(added);
    Ok(SearchReceipt { batch_id: id.clone(), accepted: rows, clicks, duplicate: false })
}

/// Returns the acknowledgement of a batch that was received before; `None` if it is no duplicate.
pub fn find_receipt(connection: &Connection, project: &str, id: &str) -> rusqlite::Result<Option<SearchReceipt>> {
    let size = find_batch(connection, project, id)?;
    Ok(size.map(|size| SearchReceipt { batch_id: id.to_owned(), accepted: size.rows, clicks: None, duplicate: true }))
}

/// Adds clicks to the rows of searches of earlier batches, and returns the number of those that had none. A search may
/// have been deleted meanwhile.
fn add_clicks(connection: &Connection, project: &str, clicks: &[CheckedClick]) -> rusqlite::Result<u64> {
    let mut update = connection.prepare_cached(
        "UPDATE searches SET page = ?1, clicks = 1
         WHERE project = ?2 AND time = ?3 AND place = ?5 AND page IS NULL
         AND batch = (SELECT number FROM batches WHERE project = ?2 AND id = ?4)",
    )?;
    let mut added = 0;
    for CheckedClick { batch_id, number, time, page } in clicks {
        added += update.execute(params![page, project, time, batch_id, number.cast_signed()])? as u64;
    }
    Ok(added)
}
