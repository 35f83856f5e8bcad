//! Download of a bundle from a link: repeats attempts to download the same file, with fresh links if the source can
//! create them.

use std::path::PathBuf;

use crate::fetch::{BundleValidator, DownloadResult, ReceivedBundle};
use crate::store::record::{BundleCheck, LabelledVersion};
use docwharf_base::backoff;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::units::format_unix_seconds;
use docwharf_base::net::request_error::RequestErrorCause;
use docwharf_base::net::retry::{CallAttempts, CallKind};
use docwharf_base::secret::SafeUrl;

use super::SyncError;
use super::environment::{KnownBundle, SyncEnvironment};
use super::error::{MAX_LINK_REQUESTS, is_unusable_link};
use super::plan::{PlanInput, SyncTrigger};
use super::run::{FoundVersion, SyncRun};

impl<E: SyncEnvironment> SyncRun<'_, E> {
    /// Begins the download of a bundle, and returns the bundles that need not be downloaded.
    pub(super) fn begin_download(&mut self, source: &str) -> Result<Vec<KnownBundle>, SyncError> {
        let mut known = self.environment.known_bundles(self.record, source);
        if self.trigger == SyncTrigger::Refresh {
            known.clear();
        }
        if !matches!(self.trigger, SyncTrigger::Start | SyncTrigger::RegularCheck) {
            // Refused bundles (those without a version) are tried again: the user may have changed a limit.
            known.retain(|(_, version)| version.is_some());
        }
        self.environment.begin_download(source, known.iter().map(|(known, _)| known.clone()).collect())?;
        Ok(known)
    }

    /// Downloads a bundle and ingests it. `request_link` returns a link; with an export job it is called again when
    /// the link is not valid any more.
    pub(super) fn download(
        &mut self,
        input: &PlanInput<'_>,
        source: &str,
        job: Option<&str>,
        known: &[KnownBundle],
        mut request_link: impl FnMut(&mut Self) -> Result<SafeUrl, SyncError>,
    ) -> Result<FoundVersion, SyncError> {
        let is_renewable = job.is_some();
        let mut url = request_link(self)?;
        let mut attempts = CallAttempts::default();
        let mut links = 1;
        loop {
            self.environment.begin_step(&format!("downloading {url}"));
            let request_error = match self.environment.attempt_download(self.record, &url)? {
                Ok(DownloadResult::Unchanged(validator)) => {
                    self.environment.begin_step("the bundle is known already");
                    return self.use_known(input, source, known, &validator);
                }
                Ok(DownloadResult::Received(received)) => {
                    let result = self.ingest_received(input, source, job, &received);
                    if received.resumed && result.as_ref().err().is_some_and(SyncError::is_refusal) {
                        // A power cut may have damaged the part that was downloaded before: the bundle is downloaded
                        // once more, from the start.
                        self.environment.discard_download();
                        continue;
                    }
                    if !matches!(result, Err(SyncError::Cancelled)) {
                        self.environment.discard_download();
                    }
                    return result;
                }
                Err(request_error) => request_error,
            };
            if self.environment.has_received_another_mebibyte() {
                attempts.reset();
                links = 1;
            }
            let is_unusable = is_unusable_link(&request_error);
            if is_unusable && is_renewable && links < MAX_LINK_REQUESTS {
                self.environment.warn(&format!("the link is not valid any more ({request_error}); requesting another"));
                if links > 1 {
                    // The storage may need a moment until a new link works.
                    let pause = backoff::wait_after_attempt(links - 1, self.environment.random());
                    self.environment.wait(pause)?;
                }
                links += 1;
                url = request_link(self)?;
                continue;
            }
            let Some(pause) = attempts.next_pause(CallKind::Read, &request_error, self.environment.random()) else {
                if matches!(request_error.cause, RequestErrorCause::Disk | RequestErrorCause::TooLarge) {
                    self.environment.discard_download();
                }
                return Err(SyncError::Download {
                    link: url.to_string(),
                    signed: url.has_query(),
                    request_error,
                    key: (!is_renewable).then(|| self.sync_settings.bundle_key()),
                });
            };
            self.environment
                .warn(&format!("download of {url}: {request_error}; trying again in {:.1} s", pause.as_secs_f64()));
            self.environment.wait(pause)?;
        }
    }

    /// Uses a known bundle that the server still has.
    fn use_known(
        &mut self,
        input: &PlanInput<'_>,
        source: &str,
        known: &[KnownBundle],
        validator: &BundleValidator,
    ) -> Result<FoundVersion, SyncError> {
        let version = known.iter().find(|(known, _)| known == validator).and_then(|(_, version)| *version);
        let Some(id) = version else { return Err(self.still_refused_error()) };
        self.environment.note_offered_again(self.record, source, id)?;
        if let Some(pin) = input.pin
            && self.record.labels.get(pin).is_none_or(|label| label.version != id || label.source != source)
        {
            let sha256 = input.sha256.map(str::to_owned);
            let labelled = LabelledVersion {
                version: id,
                source: source.to_owned(),
                sha256,
                time: format_unix_seconds(self.environment.now()),
            };
            self.record.labels.insert(pin.to_owned(), labelled);
            self.environment.save_record(self.record)?;
        }
        Ok((id, None))
    }

    /// Ingests a received bundle, and records the check.
    fn ingest_received(
        &mut self,
        input: &PlanInput<'_>,
        source: &str,
        job: Option<&str>,
        received: &ReceivedBundle,
    ) -> Result<FoundVersion, SyncError> {
        let inner: Option<PathBuf> =
            if received.encoded { self.environment.remove_outer_gzip_layer(received)? } else { None };
        let path = inner.as_deref().unwrap_or(&received.path);
        let ingested = self.ingest(path, source, job, received.validator.as_ref(), true);
        if ingested.as_ref().err().is_none_or(SyncError::is_refusal) {
            self.record.last_checked_bundle = Some(BundleCheck {
                source: source.to_owned(),
                pin: input.pin.map(str::to_owned),
                demanded: input.sha256.map(str::to_owned),
                size: received.validator.as_ref().map_or(0, |sent| sent.size),
                // Only a file has a modification time; see `plan::decide_file`.
                modified: 0,
                validator: received.validator.as_ref().map(|sent| sent.validator.clone()),
                sha256: ingested.as_ref().ok().and_then(|ingested| ingested.sha256).map(|digest| digest.to_hex()),
                version: ingested.as_ref().ok().map(|ingested| ingested.id),
                refusal: ingested.as_ref().err().map(|refusal| ErrorChain(refusal).to_string()),
            });
        }
        ingested.map(|ingested| (ingested.id, Some(ingested)))
    }
}
