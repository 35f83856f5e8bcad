//! Reads the pages of searches, which are spooled so that an interrupted reading can be resumed.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::json;

use docwharf_agent::analytics::period::Period;
use docwharf_agent::api::analytics::{CursorError, SearchPage, SearchPageReader, SearchPageRequest};
use docwharf_agent::api::calls::ApiCall;
use docwharf_agent::store::StoreError;
use docwharf_agent::store::api_state::QuerySpool;
use docwharf_agent::sync::SyncError;
use docwharf_base::error_chain::{ErrorChain, OneLine};
use docwharf_base::model::digest::Digest;
use docwharf_base::model::units::count_noun;
use docwharf_base::net::request_error::RequestErrorCause;

use super::super::api_caller::ApiCaller;
use super::super::failure::CommandFailure;
use super::period_args::PeriodArgs;

/// Reads pages of results until the reading ends. `keep` gets each page before the next one is requested.
pub(super) fn read_pages(
    caller: &ApiCaller<'_>,
    period: &Period,
    mut reading: SearchPageReader,
    mut keep: impl FnMut(&SearchPage),
) -> Result<SearchPage, CommandFailure> {
    let project = caller.project("analytics")?;
    let doing = format!("read what was searched for in project {}", OneLine(project));
    while let Some((limit, cursor)) = reading.next_request() {
        let question = SearchPageRequest { from: period.from.as_deref(), to: period.to.as_deref(), limit, cursor };
        let page = caller.call_with_retries(ApiCall::Searches, &doing, || {
            caller.call_until_deadline(caller.api.search_page(project, &question))
        })?;
        keep(&page);
        if let Err(endless) = reading.add_page(page) {
            let read = count_noun(reading.joined.searches.len() as u64, "term");
            let cursor: String = reading.joined.next_cursor.unwrap_or_default().chars().take(80).collect();
            let why = match endless {
                CursorError::Repeated => format!("the API gives the cursor {cursor:?} again, which would never end"),
                CursorError::TooManyEmptyPages => "the API gives page after page without a term".to_owned(),
                CursorError::TooLong => format!("the API gives a cursor that fits into no address, {cursor:?}…"),
            };
            let what = format!("cannot {doing}: after {read} {why}; ask for a shorter period, or tell the vendor");
            return Err(CommandFailure::EndlessPages(what));
        }
        caller.means.doing.tell(&format!("{} read", count_noun(reading.joined.searches.len() as u64, "term")));
    }
    warn_about_duplicates(&reading.joined);
    Ok(reading.joined)
}

/// All terms of a period, with the spool that keeps them until they have been printed.
pub(super) struct SpooledSearches {
    /// The period as it was computed when the reading began.
    pub(super) period: Period,
    pub(super) page: SearchPage,
    kept: ReadingSpool,
}

impl SpooledSearches {
    /// Removes the spool, once the terms have been printed.
    pub(super) fn remove_spool(self) {
        self.kept.remove();
    }
}

/// The spool of a reading, so that it can be resumed after an interruption. A full disk does not end the reading:
/// nothing more is spooled then, and what was spooled before can still be resumed.
struct ReadingSpool(Option<QuerySpool>);

impl ReadingSpool {
    fn write(&mut self, write: impl FnOnce(&mut QuerySpool) -> Result<(), StoreError>) {
        let Some(spool) = &mut self.0 else { return };
        if let Err(error) = write(spool) {
            self.give_up(&error);
        }
    }

    fn remove(self) {
        if let Some(Err(error)) = self.0.map(QuerySpool::done) {
            tracing::warn!("{}", ErrorChain(&error));
        }
    }

    fn give_up(&mut self, error: &StoreError) {
        tracing::warn!("{}; where this reading is interrupted, it will not go on from here", ErrorChain(error));
        self.0 = None;
    }
}

/// Reads all terms. What an earlier process has read for the same query, and not printed, is not requested again.
pub(super) fn read_all(
    caller: &ApiCaller<'_>,
    asked: &PeriodArgs,
    period: Period,
    limit: u64,
) -> Result<SpooledSearches, CommandFailure> {
    let question = json!({
        "api": caller.source.base.without_secrets(), "project": caller.project("analytics")?, "from": asked.from, "to": asked.to,
        // Relative to now: the notes of the spool keep the period that the first process computed.
        "since": asked.since.map(|since| since.as_secs()), "limit": limit,
    });
    let notes = json!(period);
    let name = format!("searches-{}", &Digest::of(question.to_string().as_bytes()).hex()[..16]);
    let mut kept = ReadingSpool(None);
    match caller.api_state().map(|store| store.reading(&name, &question, &notes)) {
        None => {}
        Some(Ok(Some(spool))) => kept.0 = Some(spool),
        Some(Ok(None)) => {
            let what =
                "cannot read the searches, because another docwharf is reading the same: try again when it is done";
            return Err(CommandFailure::Unavailable(what.to_owned()));
        }
        Some(Err(error)) => kept.give_up(&error),
    }
    let begun = kept.0.as_ref().and_then(|spool| resume_spool(spool, limit));
    let is_resumed = begun.is_some();
    let anew = period.clone();
    let (mut period, reading) = begun.unwrap_or((period, SearchPageReader::all(limit)));
    if is_resumed {
        let terms = count_noun(reading.joined.searches.len() as u64, "term");
        tracing::warn!("resuming a reading that was interrupted after {terms}");
    } else {
        kept.write(|spool| spool.begin(&question, &notes));
    }
    let mut pages = 0;
    let mut page = read_pages(caller, &period, reading, |page| {
        pages += 1;
        kept.write(|spool| spool.push(&json!(page)));
    });
    if let Err(CommandFailure::Sync(SyncError::Upstream { trouble, .. })) = &page
        && is_resumed
        && pages == 0
        && is_about_cursor(trouble.cause)
    {
        tracing::warn!("the API refuses its cursor, so the reading begins anew: {}", OneLine(&trouble.to_string()));
        period = anew;
        kept.write(|spool| spool.begin(&question, &notes));
        page = read_pages(caller, &period, SearchPageReader::all(limit), |page| {
            kept.write(|spool| spool.push(&json!(page)));
        });
    }
    match page {
        Ok(page) => Ok(SpooledSearches { period, page, kept }),
        Err(failure) => {
            if matches!(failure, CommandFailure::EndlessPages(_)) {
                // A resumed reading would not end, either.
                kept.remove();
            }
            Err(failure)
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
    for kept in spool.pages() {
        reading.add_page(SearchPage::deserialize(kept).ok()?).ok()?;
    }
    (reading.pages() > 0).then_some((Period::deserialize(spool.notes()).ok()?, reading))
}

/// Warns of terms that occur more than once: new searches move terms from page to page while they are read.
fn warn_about_duplicates(page: &SearchPage) {
    let mut seen = HashSet::new();
    let doubles = page.searches.iter().filter(|search| !seen.insert(search.search_query.as_str())).count();
    if doubles > 0 {
        let terms = count_noun(doubles as u64, "term");
        tracing::warn!("the API gives {terms} more than once: new searches have moved them while they were read");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_about_the_cursor_unless_it_is_about_the_key_the_budget_or_the_server() {
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
            RequestErrorCause::NoResponse,
            RequestErrorCause::Unreadable,
            RequestErrorCause::RefusedRedirect,
            RequestErrorCause::TooLarge,
        ] {
            assert!(!is_about_cursor(cause), "{cause:?}");
        }
    }
}
