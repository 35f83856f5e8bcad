//! Import of what another host has recorded.

use super::PROJECT;
use super::store::{AnalyticsStore, StoreError};
use crate::database::DatabaseError;
use crate::delivery::{ExchangeFileError, ExchangeFileReader, ImportReport};

/// The error of an import. The batches before it are imported; importing the file again adds the others.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// This installation has written the file.
    #[error("it was exported from this host, whose store has its content already")]
    OwnFile,
    /// The file was changed or cannot be read.
    #[error(transparent)]
    File(#[from] ExchangeFileError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<DatabaseError> for ImportError {
    fn from(error: DatabaseError) -> ImportError {
        ImportError::Store(StoreError::Database(error))
    }
}

impl AnalyticsStore {
    /// Adds the content of an exchange file of another installation. What was imported before is not counted again.
    /// `now` is the time in milliseconds since 1970.
    pub fn import(&self, file: &mut ExchangeFileReader, now: i64) -> Result<ImportReport, ImportError> {
        if file.header().installation == self.installation()? {
            return Err(ImportError::OwnFile);
        }
        let mut report = ImportReport::default();
        loop {
            let batches = file.next_batches()?;
            if batches.is_empty() {
                return Ok(report);
            }
            report.add(self.write(move |transaction| ImportReport::receive(transaction, PROJECT, &batches, now))?);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tempfile::TempDir;

    use super::*;
    use crate::delivery::{DayCount, ExchangeFileWriter, LaterClick, SearchBatch, SearchEvent, ViewBatch};
    use crate::recording::DeletedRows;
    use docwharf_base::model::reader_activity::ViewCounts;

    /// 2026-11-21T00:00:00Z, in milliseconds since 1970.
    const NOW: i64 = 1_795_219_200_000;
    /// 2026-11-20, in days since 1970.
    const DAY: i64 = 20_777;
    const INSTALLATION: &str = "00112233445566ff";
    const TIME: &str = "2026-11-20T08:00:00Z";

    fn store() -> (TempDir, AnalyticsStore) {
        let folder = tempfile::tempdir().unwrap();
        let store = AnalyticsStore::open(&folder.path().join("analytics.db")).unwrap();
        (folder, store)
    }

    /// An exchange file with a search and its later click, a second search, and the views of two days.
    fn exchange_file(folder: &Path, installation: &str) -> ExchangeFileReader {
        let mut writer = ExchangeFileWriter::new(Vec::new(), installation, TIME).unwrap();
        let event = |query: &str, page: Option<&str>| SearchEvent {
            clicked_page: page.map(str::to_owned),
            ..SearchEvent::new(query, TIME)
        };
        let events = vec![event("moat", None), event("tide", Some("/tide"))];
        writer.write_searches(&SearchBatch { batch_id: "b-1".to_owned(), events, clicks: vec![] }).unwrap();
        let click =
            LaterClick { batch_id: "b-1".to_owned(), number: 0, time: TIME.to_owned(), page: "/moat".to_owned() };
        writer
            .write_searches(&SearchBatch { batch_id: "b-2".to_owned(), events: vec![], clicks: vec![click] })
            .unwrap();
        let views = |day| DayCount::of_views(day, "/moat".to_owned(), ViewCounts { human: 2, ai: 1, bot: 1 });
        let counts = vec![views(DAY - 1), views(DAY)];
        let installation = installation.to_owned();
        writer.write_views(&ViewBatch { batch_id: "b-3".to_owned(), installation, counts }).unwrap();
        ExchangeFileReader::copy(&*writer.finish().unwrap(), folder, NOW).unwrap()
    }

    fn import(store: &AnalyticsStore, folder: &Path) -> ImportReport {
        store.import(&mut exchange_file(folder, INSTALLATION), NOW).unwrap()
    }

    /// Returns the numbers of searches and of views.
    fn totals(store: &AnalyticsStore) -> (u64, u64) {
        (store.searches(None).unwrap().total_searches, store.views(None).unwrap().totals.total)
    }

    fn count(store: &AnalyticsStore, table: &str) -> i64 {
        store.read(|connection| connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)))
    }

    #[test]
    fn a_file_that_is_imported_twice_counts_once() {
        let (folder, store) = store();
        let report = ImportReport { batches: 3, duplicate_batches: 0, searches: 2, clicks: 2, views: 8 };
        assert_eq!(import(&store, folder.path()), report);
        assert_eq!(totals(&store), (2, 6));
        let pages: Vec<_> =
            store.searches(None).unwrap().searches.into_iter().map(|term| term.top_clicked_page).collect();
        assert_eq!(pages, [Some("/moat".to_owned()), Some("/tide".to_owned())]);
        let report = ImportReport { batches: 3, duplicate_batches: 3, ..ImportReport::default() };
        assert_eq!(import(&store, folder.path()), report);
        assert_eq!(totals(&store), (2, 6));
    }

    #[test]
    fn a_file_of_this_installation_is_refused() {
        let (folder, store) = store();
        let own = store.installation().unwrap();
        let result = store.import(&mut exchange_file(folder.path(), &own), NOW);
        assert!(matches!(result, Err(ImportError::OwnFile)), "{result:?}");
        assert_eq!(totals(&store), (0, 0));
    }

    #[test]
    fn imported_searches_and_counts_are_forgotten_like_recorded_ones() {
        let (folder, store) = store();
        import(&store, folder.path());
        assert_eq!(store.forget_query(" MOAT").unwrap(), DeletedRows { searches: 1, ..DeletedRows::default() });
        // The id of the batch is still known, so another import does not bring the search back.
        import(&store, folder.path());
        assert_eq!(totals(&store), (1, 6));
        // The views of a day and what was delivered of it.
        assert_eq!(store.forget_before(DAY).unwrap(), DeletedRows { count_rows: 2, ..DeletedRows::default() });
        assert_eq!(totals(&store), (1, 3));
        assert_eq!(
            store.forget_before(DAY + 1).unwrap(),
            DeletedRows { searches: 1, count_rows: 3, ..DeletedRows::default() }
        );
        let tables = ["searches", "views", "delivered_counts", "view_keys"].map(|table| count(&store, table));
        assert_eq!(tables, [0; 4]);
    }

    #[test]
    fn the_ids_of_imported_batches_are_deleted_once_the_day_of_the_import_is() {
        let (folder, store) = store();
        import(&store, folder.path());
        assert_eq!(count(&store, "batches"), 2);
        store.expire(NOW / 86_400_000).unwrap();
        assert_eq!((count(&store, "batches"), totals(&store)), (2, (0, 0)));
        store.expire(NOW / 86_400_000 + 1).unwrap();
        assert_eq!(count(&store, "batches"), 0);
    }
}
