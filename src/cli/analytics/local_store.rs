//! The database in which `docwharf run` records what readers of this host do. `SQLite` lets this process use the file
//! while the daemon writes to it.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use jiff::civil::Date;
use serde_json::Number;

use docwharf_agent::api::analytics::{SearchPage, SearchPageRequest, SearchTerm};
use docwharf_agent::api::query_string;
use docwharf_agent::api::views::{CountKey, CountList, KeyCount, PageViews, RowsRequest, ViewList, ViewTotals};
use docwharf_agent::store::ANALYTICS_DATABASE;
use docwharf_analytics::delivery::{ExchangeFileReader, ImportReport};
use docwharf_analytics::query_error::QueryError;
use docwharf_analytics::recording::{
    AnalyticsExportError, AnalyticsStore, DeletedRows, ExportReport, ExportedPart, ImportError, StoreError,
};
use docwharf_analytics::{searches, views};
use docwharf_base::clock::now_unix_millis;
use docwharf_base::durable::FileLock;

use super::super::api_caller::ApiCaller;
use super::super::exchange_file::ExchangeFileArg;
use super::super::failure::CommandFailure;
use super::export::ExportNumbers;
use super::forget::ForgottenPart;
use super::source::AnalyticsSource;

const DAY_SECONDS: i64 = 24 * 60 * 60;
const CANNOT_READ: &str = "cannot read what readers of this host did";
const CANNOT_NOTE_EXPORT: &str = "the file is complete, but this cannot be noted in the database (the next \
                                  --since-last exports the same again, which counts once)";
const CANNOT_DELETE: &str = "cannot delete what readers of this host did";
const CANNOT_IMPORT: &str = "cannot import into the store of this host";

/// The database of this host, for reading.
#[derive(Debug)]
pub(super) struct LocalStore {
    store: AnalyticsStore,
    project: String,
}

impl LocalStore {
    /// Opens the database in the folder of the store, for reading. `project` is its name in reports. `advice` ends the
    /// message of the failure if nothing was recorded; it begins with "; ", or is empty.
    pub(super) fn open(folder: &Path, project: &str, advice: &str) -> Result<LocalStore, CommandFailure> {
        let store = open_existing(folder, CANNOT_READ, advice)?;
        Ok(LocalStore { store, project: project.to_owned() })
    }
}

/// Deletes a part of what was recorded, from the database in the folder of the store.
pub(super) fn forget(folder: &Path, part: &ForgottenPart) -> Result<DeletedRows, CommandFailure> {
    let store = open_existing(folder, CANNOT_DELETE, "")?;
    let deleted = match part {
        ForgottenPart::Before(day) => store.forget_before(days_since_1970(*day)),
        ForgottenPart::Query(text) => store.forget_query(text),
    };
    deleted.map_err(|error| match error {
        // The rows are deleted, so the message does not begin with "cannot delete".
        StoreError::LogInUse { .. } => CommandFailure::BytesRemain(error.to_string()),
        error => store_failure(CANNOT_DELETE, error),
    })
}

/// A written export that the database does not know yet.
#[derive(Debug)]
pub(super) struct UnconfirmedExport {
    store: AnalyticsStore,
    report: ExportReport,
    /// Held until the database knows the export: another one would not have the counts of this one.
    _lock: FileLock,
}

impl UnconfirmedExport {
    /// Notes that the file is complete, so that the next export since the last one leaves its content out.
    pub(super) fn finish(self) -> Result<ExportNumbers, CommandFailure> {
        let noted = self.store.finish_export(&self.report);
        noted.map_err(|error| store_failure(CANNOT_NOTE_EXPORT, error.into()))?;
        let ExportReport { searches, later_clicks, counts, .. } = self.report;
        Ok(ExportNumbers { searches, later_clicks, counts })
    }
}

/// Writes what was recorded to `out`.
/// `name` is that of the output, for messages.
pub(super) fn export(
    folder: &Path,
    (out, name): (impl Write, &str),
    since_last: bool,
) -> Result<UnconfirmedExport, CommandFailure> {
    const CANNOT_EXPORT: &str = "cannot export what readers of this host did";
    let cannot_write = || CommandFailure::local(format!("{CANNOT_EXPORT}: cannot write {name}"));
    let store = open_existing(folder, CANNOT_EXPORT, "")?;
    let lock_path = folder.join(format!("{ANALYTICS_DATABASE}.export-lock"));
    let cannot_lock = CommandFailure::local(format!("{CANNOT_EXPORT}: cannot lock {}", lock_path.display()));
    let lock = create_for_owner(folder, &lock_path).and_then(|()| FileLock::acquire(&lock_path, Duration::ZERO));
    let Some(lock) = lock.map_err(cannot_lock)? else {
        let why = io::Error::new(io::ErrorKind::ResourceBusy, "another export is running; try again when it has ended");
        return Err(CommandFailure::local(CANNOT_EXPORT)(why));
    };
    let part = if since_last { ExportedPart::SinceLast } else { ExportedPart::Everything };
    let (mut out, report) =
        store.export(BufWriter::new(out), part, now_unix_millis()).map_err(|error| match error {
            AnalyticsExportError::Database(error) => store_failure(CANNOT_EXPORT, error.into()),
            AnalyticsExportError::Write(error) => cannot_write()(error),
        })?;
    out.flush().map_err(cannot_write())?;
    drop(out);
    Ok(UnconfirmedExport { store, report, _lock: lock })
}

/// Adds the content of an exchange file to the database in the folder of the store, and creates both if necessary.
/// `argument` names the file.
pub(super) fn import(
    folder: &Path,
    file: &mut ExchangeFileReader,
    argument: &ExchangeFileArg,
) -> Result<ImportReport, CommandFailure> {
    let store = open_or_create(folder)?;
    store.import(file, now_unix_millis()).map_err(|error| match error {
        ImportError::OwnFile => CommandFailure::Usage(argument.message(&error.to_string())),
        ImportError::File(error) => argument.failure(error),
        ImportError::Store(error) => store_failure(CANNOT_IMPORT, error),
    })
}

/// Creates the folder of the store if it is missing.
pub(super) fn create_folder(folder: &Path) -> Result<(), CommandFailure> {
    let created = DirBuilder::new().recursive(true).mode(0o750).create(folder);
    created.map_err(CommandFailure::local(format!("cannot create the store {}", folder.display())))
}

/// Creates an empty file if it is missing. If root creates it, it gets the owner of the folder, who runs the daemon.
/// That user may replace the file at any time, so its owner is changed by its descriptor.
fn create_for_owner(folder: &Path, path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(file) if rustix::process::geteuid().is_root() => {
            let owner = std::fs::metadata(folder)?;
            std::os::unix::fs::fchown(&file, Some(owner.uid()), Some(owner.gid()))
        }
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Opens the database in the folder of the store, and creates both if necessary. If root creates the database, it gets
/// the owner of the folder, who runs the daemon.
fn open_or_create(folder: &Path) -> Result<AnalyticsStore, CommandFailure> {
    create_folder(folder)?;
    let path = folder.join(ANALYTICS_DATABASE);
    create_for_owner(folder, &path)
        .map_err(CommandFailure::local(format!("{CANNOT_IMPORT}: cannot create {}", path.display())))?;
    AnalyticsStore::open(&path).map_err(|error| store_failure(CANNOT_IMPORT, error))
}

/// Returns the number of days from 1970-01-01 to a day; it is negative for an earlier day.
fn days_since_1970(day: Date) -> i64 {
    day.duration_since(Date::constant(1970, 1, 1)).as_secs().div_euclid(DAY_SECONDS)
}

fn open_existing(folder: &Path, doing: &str, advice: &str) -> Result<AnalyticsStore, CommandFailure> {
    let path = folder.join(ANALYTICS_DATABASE);
    let absent = || {
        let why = "does not exist, because nothing was recorded here yet";
        let next = "docwharf run records while analytics.enabled is true";
        CommandFailure::NothingRecorded(format!("{doing}: {} {why}; {next}{advice}", path.display()))
    };
    match std::fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(absent()),
        Err(error) => return Err(CommandFailure::local(format!("{doing}: cannot open {}", path.display()))(error)),
        Ok(_) => {}
    }
    AnalyticsStore::open_existing(&path).map_err(|error| store_failure(doing, error))?.ok_or_else(absent)
}

fn store_failure(doing: &str, error: StoreError) -> CommandFailure {
    CommandFailure::RecordedAnalytics { doing: doing.to_owned(), source: Box::new(error) }
}

fn query_failure(error: QueryError) -> CommandFailure {
    match error {
        QueryError::Invalid(invalid) => {
            let why = invalid.details.join("; ");
            CommandFailure::Usage(format!("{CANNOT_READ}: {why}; check the dates, --limit, --cursor and --offset"))
        }
        QueryError::Database(error) => store_failure(CANNOT_READ, error.into()),
    }
}

impl AnalyticsSource for LocalStore {
    fn project_id(&self) -> Result<&str, CommandFailure> {
        Ok(&self.project)
    }

    fn search_page(&self, request: &SearchPageRequest<'_>) -> Result<SearchPage, CommandFailure> {
        let query = query_string(&request.parameters());
        self.store.searches(Some(&query)).map(convert_searches).map_err(query_failure)
    }

    fn views(&self, request: &RowsRequest<'_>) -> Result<ViewList, CommandFailure> {
        let query = query_string(&request.parameters());
        self.store.views(Some(&query)).map(convert_views).map_err(query_failure)
    }

    fn page_counts(&self, by: CountKey, request: &RowsRequest<'_>) -> Result<CountList, CommandFailure> {
        let query = query_string(&request.parameters_by(by));
        self.store.pages(Some(&query)).map(|pages| convert_counts(by, pages)).map_err(query_failure)
    }

    fn api_caller(&self) -> Option<&ApiCaller<'_>> {
        None
    }
}

fn convert_searches(page: searches::Searches) -> SearchPage {
    let convert_term = |term: searches::Aggregate| SearchTerm {
        search_query: term.search_query,
        hits: Some(term.hits.into()),
        ctr: Number::from_f64(term.ctr),
        top_clicked_page: term.top_clicked_page,
        last_searched_at: Some(term.last_searched_at),
    };
    SearchPage {
        searches: page.searches.into_iter().map(convert_term).collect(),
        total_searches: Some(page.total_searches),
        next_cursor: page.next_cursor,
    }
}

fn convert_views(list: views::Views) -> ViewList {
    let convert_page = |page: views::PageViews| PageViews {
        path: page.path,
        human: Some(page.human.into()),
        ai: Some(page.ai.into()),
        total: Some(page.total.into()),
        bot: Some(page.bot.into()),
    };
    let views::ViewTotals { human, ai, total, bot } = list.totals;
    ViewList {
        totals: ViewTotals {
            human: Some(human.into()),
            ai: Some(ai.into()),
            total: Some(total.into()),
            bot: Some(bot.into()),
        },
        views: list.views.into_iter().map(convert_page).collect(),
        has_more: list.has_more,
    }
}

fn convert_counts(by: CountKey, pages: views::Pages) -> CountList {
    let convert_row = |row: views::KeyCount| KeyCount { key: row.key, count: Some(row.count.into()) };
    CountList { by, rows: pages.rows.into_iter().map(convert_row).collect(), has_more: pages.has_more }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_from_1970_also_those_before_and_the_last_one() {
        for (day, number) in [
            ("1970-01-01", 0),
            ("1970-01-02", 1),
            ("1969-12-31", -1),
            ("2026-01-01", 20_454),
            ("9999-12-31", 2_932_896),
        ] {
            assert_eq!(days_since_1970(day.parse().unwrap()), number, "{day}");
        }
    }
}
