//! Reads views of pages and counts by a key in parts.

use std::collections::HashSet;

use docwharf_agent::api::views::{MAX_OFFSET, RowList, RowReader, RowReadingError};
use docwharf_agent::sync::system::TaskContext;
use docwharf_base::model::units::format_count;

use super::super::failure::CommandFailure;

/// Reads parts of a list until the reading ends, and joins them. `read_part` reads the rows of a limit and an offset.
pub(super) fn read_rows<L: RowList>(
    task_context: &TaskContext,
    mut reader: RowReader,
    mut read_part: impl FnMut(u64, u64) -> Result<L, CommandFailure>,
) -> Result<L, CommandFailure> {
    let mut list = read_part(reader.limit(), reader.offset())?;
    let mut added = list.row_count();
    while reader.advance(added, list.has_more()).map_err(|error| reading_failure(error, list.row_count()))? {
        task_context.progress.set_step(&format!("{} read", format_count(list.row_count(), "row")));
        let part = read_part(reader.limit(), reader.offset())?;
        added = part.row_count();
        list.append(part);
    }
    warn_about_duplicates(&list);
    Ok(list)
}

/// Warns of rows that were read more than once: new views move rows from one part to the next while they are read.
fn warn_about_duplicates(list: &impl RowList) {
    let mut seen = HashSet::new();
    let duplicates = list.keys().into_iter().filter(|key| !seen.insert(*key)).count();
    if duplicates > 0 {
        let rows = format_count(duplicates as u64, "row");
        tracing::warn!("read {rows} more than once: new views have moved them while they were read");
    }
}

fn reading_failure(error: RowReadingError, rows: u64) -> CommandFailure {
    let read = format_count(rows, "row");
    CommandFailure::EndlessPages(match error {
        RowReadingError::NoRows => format!(
            "cannot read all rows: after {read} the API returns no row and reports that there are more; choose a \
             shorter period, or report this to the operator of the API"
        ),
        RowReadingError::TooManyRows => format!(
            "cannot read all rows: there are more after {read}, and an offset is at most {MAX_OFFSET}; choose a \
             shorter period"
        ),
    })
}
