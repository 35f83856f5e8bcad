//! Download of a bundle from a link: repeats attempts at the same file, with fresh links where the source can give
//! them.

use std::path::PathBuf;

use crate::fetch::{BundleValidator, DownloadResult, ReceivedBundle};
use crate::store::record::{BundleCheck, LabelledVersion};
use docwharf_base::backoff;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::units::show_unix;
use docwharf_base::net::request_error::RequestErrorCause;
use docwharf_base::net::retry::{CallAttempts, CallKind};
use docwharf_base::secret::SafeUrl;

use super::SyncError;
use super::environment::{KnownBundle, SyncEnvironment};
use super::error::{MAX_LINKS, is_dead_link};
use super::plan::{PlanInput, SyncTrigger};
use super::run::{FoundVersion, SyncRun};

impl<W: SyncEnvironment> SyncRun<'_, W> {
    pub(super) fn begin_download(&mut self, source: &str) -> Result<Vec<KnownBundle>, SyncError> {
        let mut known = self.world.known(self.record, source);
        if self.trigger == SyncTrigger::Refresh {
            known.clear();
        }
        if !matches!(self.trigger, SyncTrigger::Start | SyncTrigger::Interval) {
            // The user may have changed the cause of the refusal, such as a limit.
            known.retain(|(_, version)| version.is_some());
        }
        self.world.begin_download(source, known.iter().map(|(known, _)| known.clone()).collect())?;
        Ok(known)
    }

    /// Downloads a bundle and ingests it. `link` gives a link; with an export job it is called again after a dead one.
    pub(super) fn download(
        &mut self,
        wish: &PlanInput<'_>,
        source: &str,
        job: Option<&str>,
        known: &[KnownBundle],
        mut link: impl FnMut(&mut Self) -> Result<SafeUrl, SyncError>,
    ) -> Result<FoundVersion, SyncError> {
        let renewable = job.is_some();
        let mut url = link(self)?;
        let mut attempts = CallAttempts::default();
        let mut links = 1;
        loop {
            self.world.tell(&format!("downloading {url}"));
            let trouble = match self.world.fetch(self.record, &url)? {
                Ok(DownloadResult::Unchanged(same)) => {
                    self.world.tell("the bundle is the one that is known");
                    return self.unchanged(wish, source, known, &same);
                }
                Ok(DownloadResult::Received(arrived)) => {
                    let result = self.arrived(wish, source, job, &arrived);
                    if arrived.resumed && result.as_ref().err().is_some_and(SyncError::is_refusal) {
                        // A power cut may have damaged the part that was downloaded before: it is downloaded again
                        // once, from the start.
                        self.world.discard();
                        continue;
                    }
                    if !matches!(result, Err(SyncError::Interrupted)) {
                        self.world.discard();
                    }
                    return result;
                }
                Err(trouble) => trouble,
            };
            if self.world.has_moved() {
                attempts.reset();
                links = 1;
            }
            let dead = is_dead_link(&trouble);
            if dead && renewable && links < MAX_LINKS {
                self.world.warn(&format!("the link is dead ({trouble}): asking for a fresh one"));
                if links > 1 {
                    // A link that never worked may need a moment.
                    let pause = backoff::pause_after_attempt(links - 1, self.world.random());
                    self.world.wait(pause)?;
                }
                links += 1;
                url = link(self)?;
                continue;
            }
            let Some(pause) = attempts.next_pause(CallKind::Read, &trouble, self.world.random()) else {
                if matches!(trouble.cause, RequestErrorCause::Disk | RequestErrorCause::TooLarge) {
                    self.world.discard();
                }
                return Err(SyncError::Download { link: url.to_string(), signed: url.has_query(), trouble, renewable });
            };
            self.world.warn(&format!("download of {url}: {trouble}; trying again in {:.1} s", pause.as_secs_f64()));
            self.world.wait(pause)?;
        }
    }

    /// Handles a server that still has a known bundle.
    fn unchanged(
        &mut self,
        wish: &PlanInput<'_>,
        source: &str,
        known: &[KnownBundle],
        same: &BundleValidator,
    ) -> Result<FoundVersion, SyncError> {
        let version = known.iter().find(|(known, _)| known == same).and_then(|(_, version)| *version);
        let Some(id) = version else { return Err(self.still_refused()) };
        self.world.find_again(self.record, source, id)?;
        if let Some(pin) = wish.pin
            && self.record.labels.get(pin).is_none_or(|label| label.version != id || label.source != source)
        {
            let sha256 = wish.sha256.map(str::to_owned);
            let labelled =
                LabelledVersion { version: id, source: source.to_owned(), sha256, time: show_unix(self.world.now()) };
            self.record.labels.insert(pin.to_owned(), labelled);
            self.world.save(self.record)?;
        }
        Ok((id, None))
    }

    fn arrived(
        &mut self,
        wish: &PlanInput<'_>,
        source: &str,
        job: Option<&str>,
        arrived: &ReceivedBundle,
    ) -> Result<FoundVersion, SyncError> {
        let inner: Option<PathBuf> = if arrived.encoded { self.world.unwrap(arrived)? } else { None };
        let path = inner.as_deref().unwrap_or(&arrived.path);
        let brought = self.bring(path, source, job, arrived.known.as_ref(), true);
        if brought.as_ref().err().is_none_or(SyncError::is_refusal) {
            self.record.looked = Some(BundleCheck {
                source: source.to_owned(),
                label: wish.pin.map(str::to_owned),
                demanded: wish.sha256.map(str::to_owned),
                size: arrived.known.as_ref().map_or(0, |known| known.size),
                modified: 0,
                validator: arrived.known.as_ref().map(|known| known.validator.clone()),
                sha256: brought.as_ref().ok().and_then(|brought| brought.sha256).map(|digest| digest.hex()),
                version: brought.as_ref().ok().map(|brought| brought.id),
                refusal: brought.as_ref().err().map(|refused| ErrorChain(refused).to_string()),
            });
        }
        brought.map(|brought| (brought.id, Some(brought)))
    }
}
