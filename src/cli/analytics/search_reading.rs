//! Reads the pages of searches, which are spooled so that an interrupted reading can be resumed.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::json;

use docwharf_agent::analytics::period::Period;
use docwharf_agent::api::analytics::{CursorError, SearchPage, SearchPageReader, SearchPageRequest};
use docwharf_agent::store::StoreError;
use docwharf_agent::store::api_state::QuerySpool;
use docwharf_agent::sync::SyncError;
use docwharf_agent::sync::system::TaskContext;
use docwharf_base::error_chain::{ErrorChain, OneLine};
use docwharf_base::model::digest::Digest;
use docwharf_base::model::units::format_count;
use docwharf_base::net::request_error::RequestErrorCause;

use super::super::failure::CommandFailure;
use super::period_args::PeriodArgs;
use super::source::AnalyticsSource;

/// Reads the searches of one source.
pub(super) struct SearchesReader<'a> {
    pub(super) source: &'a dyn AnalyticsSource,
    pub(super) task_context: &'a TaskContext,
    /// Whether only terms whose searches found nothing are read.
    pub(super) no_results: bool,
}

impl SearchesReader<'_> {
    /// Reads pages of results until the reading ends. `store_page` is called with each page before the next request.
    pub(super) fn read_pages(
        &self,
        period: &Period,
        mut reading: SearchPageReader,
        mut store_page: impl FnMut(&SearchPage),
    ) -> Result<SearchPage, CommandFailure> {
        while let Some((limit, cursor)) = reading.next_request() {
            let (from, to, no_results) = (period.from.as_deref(), period.to.as_deref(), self.no_results);
            let page = self.source.search_page(&SearchPageRequest { from, to, limit, cursor, no_results })?;
            store_page(&page);
            reading.add_page(page).map_err(|error| self.endless_pages(error, &reading.joined))?;
            let terms = format_count(reading.joined.searches.len() as u64, "term");
            self.task_context.progress.set_step(&format!("{terms} read"));
        }
        warn_about_duplicates(&reading.joined);
        Ok(reading.joined)
    }

    /// Returns the failure of a reading whose last cursor cannot be used.
    fn endless_pages(&self, error: CursorError, joined: &SearchPage) -> CommandFailure {
        let project = match self.source.project_id() {
            Ok(project) => OneLine(project).to_string(),
            Err(failure) => return failure,
        };
        let read = format_count(joined.searches.len() as u64, "term");
        let cursor: String = joined.next_cursor.as_deref().unwrap_or_default().chars().take(80).collect();
        let why = match error {
            CursorError::Repeated => {
                format!("the API returns the cursor {cursor:?} again, so the reading would never end")
            }
            CursorError::TooManyEmptyPages => "the API returns page after page without a term".to_owned(),
            CursorError::TooLong => format!("the API returns a cursor that is too long for a URL, {cursor:?}…"),
        };
        let doing = format!("cannot read what was searched for in project {project}");
        let advice = "choose a shorter period, or report this to the operator of the API";
        CommandFailure::EndlessPages(format!("{doing}: after {read} {why}; {advice}"))
    }
}

/// All terms of a period, with the spool that stores them until they have been printed.
pub(super) struct SpooledSearches {
    /// The period as it was computed when the reading began.
    pub(super) period: Period,
    pub(super) page: SearchPage,
    spool: ReadingSpool,
}

impl SpooledSearches {
    /// Removes the spool, once the terms have been printed.
    pub(super) fn remove_spool(self) {
        self.spool.remove();
    }
}

/// The spool of a reading, from which an interrupted reading is resumed. A full disk does not end the reading: nothing
/// more is spooled then, and a later command can still resume from the pages before.
struct ReadingSpool(Option<QuerySpool>);

impl ReadingSpool {
    fn write(&mut self, write: impl FnOnce(&mut QuerySpool) -> Result<(), StoreError>) {
        let Some(spool) = &mut self.0 else { return };
        if let Err(error) = write(spool) {
            self.disable(&error);
        }
    }

    fn remove(self) {
        if let Some(Err(error)) = self.0.map(QuerySpool::remove) {
            tracing::warn!("{}", ErrorChain(&error));
        }
    }

    fn disable(&mut self, error: &StoreError) {
        tracing::warn!("{}; if this reading is interrupted, it cannot be resumed from here", ErrorChain(error));
        self.0 = None;
    }
}

impl SearchesReader<'_> {
    /// Reads all terms. Pages that an earlier process has read from the API for this query, but not printed, are not
    /// requested again.
    pub(super) fn read_all(
        &self,
        arguments: &PeriodArgs,
        period: Period,
        limit: u64,
    ) -> Result<SpooledSearches, CommandFailure> {
        let Some(caller) = self.source.api_caller() else {
            let page = self.read_pages(&period, SearchPageReader::all(limit), |_| ())?;
            return Ok(SpooledSearches { period, page, spool: ReadingSpool(None) });
        };
        let query = json!({
            "api": caller.source.base.without_secrets(), "project": self.source.project_id()?, "from": arguments.from,
            "to": arguments.to,
            // Relative to now: the notes of the spool contain the period that the first process computed.
            "since": arguments.since.map(|since| since.as_secs()), "limit": limit, "noResults": self.no_results,
        });
        let notes = json!(period);
        let name = format!("searches-{}", &Digest::compute(query.to_string().as_bytes()).to_hex()[..16]);
        let mut spool_file = ReadingSpool(None);
        match caller.api_state().map(|store| store.open_spool(&name, &query, &notes)) {
            None => {}
            Some(Ok(Some(spool))) => spool_file.0 = Some(spool),
            Some(Ok(None)) => {
                let message = "cannot read the searches, because another docwharf process is reading them: try again when it has ended";
                return Err(CommandFailure::Unavailable(message.to_owned()));
            }
            Some(Err(error)) => spool_file.disable(&error),
        }
        let resumed = spool_file.0.as_ref().and_then(|spool| resume_spool(spool, limit));
        let is_resumed = resumed.is_some();
        let initial_period = period.clone();
        let (mut period, reading) = resumed.unwrap_or((period, SearchPageReader::all(limit)));
        if is_resumed {
            let terms = format_count(reading.joined.searches.len() as u64, "term");
            tracing::warn!("resuming a reading that was interrupted after {terms}");
        } else {
            spool_file.write(|spool| spool.restart(&query, &notes));
        }
        let mut pages = 0;
        let mut page = self.read_pages(&period, reading, |page| {
            pages += 1;
            spool_file.write(|spool| spool.push_page(&json!(page)));
        });
        if let Err(CommandFailure::Sync(SyncError::Upstream { request_error, .. })) = &page
            && is_resumed
            && pages == 0
            && is_about_cursor(request_error.cause)
        {
            tracing::warn!(
                "the API refuses its own cursor, so the reading starts again from the beginning: {}",
                OneLine(&request_error.to_string())
            );
            period = initial_period;
            spool_file.write(|spool| spool.restart(&query, &notes));
            page = self.read_pages(&period, SearchPageReader::all(limit), |page| {
                spool_file.write(|spool| spool.push_page(&json!(page)));
            });
        }
        match page {
            Ok(page) => Ok(SpooledSearches { period, page, spool: spool_file }),
            Err(failure) => {
                if matches!(failure, CommandFailure::EndlessPages(_)) {
                    // A resumed reading would not end, either.
                    spool_file.remove();
                }
                Err(failure)
            }
        }
    }
}

/// Returns whether a failure may be caused by the cursor: a 4xx status that is not about the key (401 to 403), a
/// timeout (408) or too many requests (429).
fn is_about_cursor(cause: RequestErrorCause) -> bool {
    matches!(cause, RequestErrorCause::Status(status) if (400..500).contains(&status) && !matches!(status, 401..=403 | 408 | 429))
}

/// Returns the period and the pages that an earlier process has spooled; `None` if nothing can be resumed.
fn resume_spool(spool: &QuerySpool, limit: u64) -> Option<(Period, SearchPageReader)> {
    let mut reading = SearchPageReader::all(limit);
    for page in spool.pages() {
        reading.add_page(SearchPage::deserialize(page).ok()?).ok()?;
    }
    (reading.pages() > 0).then_some((Period::deserialize(spool.notes()).ok()?, reading))
}

/// Warns of terms that occur more than once: new searches move terms from page to page while they are read.
fn warn_about_duplicates(page: &SearchPage) {
    let mut seen = HashSet::new();
    let duplicates = page.searches.iter().filter(|search| !seen.insert(search.search_query.as_str())).count();
    if duplicates > 0 {
        let terms = format_count(duplicates as u64, "term");
        tracing::warn!("the API returned {terms} more than once: new searches have moved them while they were read");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_4xx_is_attributed_to_the_cursor_except_401_402_403_408_and_429() {
        let statuses = [
            (399, false),
            (400, true),
            (401, false),
            (402, false),
            (403, false),
            (404, true),
            (407, true),
            (408, false),
            (409, true),
            (410, true),
            (422, true),
            (428, true),
            (429, false),
            (430, true),
            (499, true),
            (500, false),
            (503, false),
        ];
        for (status, expected) in statuses {
            assert_eq!(is_about_cursor(RequestErrorCause::Status(status)), expected, "{status}");
        }
        for cause in [
            RequestErrorCause::NotConnected,
            RequestErrorCause::Tls,
            RequestErrorCause::NoUsableResponse,
            RequestErrorCause::Unreadable,
            RequestErrorCause::RefusedRedirect,
            RequestErrorCause::TooLarge,
        ] {
            assert!(!is_about_cursor(cause), "{cause:?}");
        }
    }
}
