//! The simulated machine as the world of a sync: calls that fail, answers that are lost, bundles that arrive in pieces.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use docwharf::api::responses::{ExportJob, PresignedLink};
use docwharf::base::secret::SafeUrl;
use docwharf::fetch::{BundleValidator, DownloadResult, ReceivedBundle};
use docwharf::model::digest::Digest;
use docwharf::model::version::{VersionId, VersionLabel};
use docwharf::net::request_error::{RequestError, RequestErrorCause};
use docwharf::seal::SealProgress;
use docwharf::store::operations::StoreOperations;
use docwharf::store::record::{ProbeResult, StoreRecord};
use docwharf::store::space::SpaceRequest;
use docwharf::sync::activation::{SyncReport, activate_and_prune};
use docwharf::sync::activation_decision::ActivationRequest;
use docwharf::sync::environment::{CallResult, KnownBundle, SyncEnvironment};
use docwharf::sync::incoming_bundle::IncomingBundle;
use docwharf::sync::ingest::{IngestedBundle, ingest_bundle, note_offered_again};
use docwharf::sync::known_bundles::known;
use docwharf::sync::plan::BundleFileState;
use docwharf::sync::{SyncError, SyncIntent, disk_space};

use super::disk::{Content, Partial};
use super::rules::Host;
use super::sim::{Sim, archive_of, id_of};
use super::upstream::State;

/// Where a bundle lies while it is downloaded.
const DOWNLOAD: &str = "/store/downloads/x";
const MIB: u64 = 1024 * 1024;

/// One sync on the simulated machine.
pub(crate) struct Act<'a> {
    pub(crate) sim: &'a Sim,
    pub(crate) intent: &'a SyncIntent,
    pub(crate) who: &'a str,
    pub(crate) force: bool,
    pub(crate) source: String,
    pub(crate) known: Vec<BundleValidator>,
    pub(crate) furthest: u64,
    pub(crate) counted: u64,
}

impl Act<'_> {
    fn stopped(&self) -> Result<(), SyncError> {
        if self.sim.stop.load(Ordering::Relaxed) { Err(SyncError::Interrupted) } else { Ok(()) }
    }

    /// A call leaves.
    fn call(&self, host: Host, what: impl FnOnce() -> String) -> Result<Option<RequestError>, SyncError> {
        self.sim.operation(what);
        self.stopped()?;
        self.sim.check_call(host);
        let trouble = self.sim.trouble(host);
        let delay = match &trouble {
            Some(trouble) if trouble.cause == RequestErrorCause::NoResponse => 30_000,
            _ if self.sim.happens(0.02) => 10_000,
            _ => 200,
        };
        self.sim.pass(Duration::from_millis(1 + self.sim.below(delay)));
        Ok(trouble)
    }

    /// Its answer arrives, or trouble does.
    fn arrive<T>(&self, host: Host, answer: Result<T, RequestError>) -> CallResult<T> {
        self.sim.operation(|| match &answer {
            Ok(_) => "    an answer".to_owned(),
            Err(trouble) => format!("    {trouble} ({:?})", trouble.cause),
        });
        self.stopped()?;
        if let Err(trouble) = &answer {
            self.sim.note_trouble(host, trouble);
        }
        Ok(answer)
    }

    fn api(&self) -> String {
        self.intent.api.as_ref().map_or_else(String::new, docwharf::sync::ApiSource::name)
    }

    fn room(&self, record: &StoreRecord, wanted: SpaceRequest) -> Result<(), SyncError> {
        Ok(disk_space::reserve_space(self.sim, record, self.intent, wanted, self.who)?)
    }

    /// What a link leads to now.
    fn behind(&self, url: &SafeUrl) -> Result<Content, RequestError> {
        let dead = || RequestError::new(RequestErrorCause::Status(403), "403");
        let number = url.expose().path_segments().and_then(|mut parts| parts.next_back()?.parse::<usize>().ok());
        self.sim.with(|s| match number {
            Some(number) => {
                let &(job, until) = s.upstream.links.get(number).ok_or_else(dead)?;
                if s.elapsed >= until { Err(dead()) } else { Ok(s.upstream.jobs[job].content) }
            }
            None => s.upstream.link.ok_or_else(|| RequestError::new(RequestErrorCause::Status(404), "404")),
        })
    }

    /// Takes what comes of a bundle.
    fn receive(
        &mut self,
        record: &StoreRecord,
        content: Content,
    ) -> Result<Result<DownloadResult, RequestError>, SyncError> {
        let sim = self.sim;
        let validator = format!("\"{}\"", content.n);
        let bytes = content.bytes;
        let here = sim.with(|s| {
            let partial = s.disk.partial.take();
            let partial = partial.filter(|p| p.source == self.source && p.known.validator == validator);
            let known = BundleValidator { validator: validator.clone(), size: bytes };
            let source = self.source.clone();
            let fresh = Partial { source, known, content, received: 0, resumed: false, damaged: false };
            s.disk.partial.insert(partial.unwrap_or(fresh)).received
        });
        self.room(record, SpaceRequest { whole: bytes, more: bytes - here })?;
        let left = bytes - here;
        let cut = sim.happens(sim.with(|s| s.faults.call * 3.0));
        let comes = if cut { sim.below(left + 1) } else { left };
        let full = sim.with(|s| s.disk.free()) < comes;
        sim.pass(Duration::from_millis(comes / 5000));
        let arrived = sim.with(|s| {
            let partial = s.disk.partial.as_mut()?;
            partial.received += if full { 0 } else { comes };
            (partial.received == bytes).then(|| partial.clone())
        });
        self.furthest = self.furthest.max(here + comes);
        if full {
            return Ok(Err(RequestError::new(RequestErrorCause::Disk, "no space left")));
        }
        let Some(partial) = arrived else { return Ok(Err(RequestError::new(RequestErrorCause::NoResponse, "cut"))) };
        let has_name = content.has_name();
        Ok(Ok(DownloadResult::Received(ReceivedBundle {
            path: PathBuf::from(DOWNLOAD),
            known: has_name.then_some(partial.known),
            resumed: partial.resumed,
            encoded: false,
        })))
    }
}

impl SyncEnvironment for Act<'_> {
    fn now(&mut self) -> i64 {
        self.sim.wall()
    }

    fn elapsed(&mut self) -> Duration {
        self.sim.with(|s| s.elapsed)
    }

    fn random(&mut self) -> f64 {
        self.sim.part()
    }

    fn wait(&mut self, pause: Duration) -> Result<(), SyncError> {
        self.sim.operation(|| format!("wait {:.1} s", pause.as_secs_f64()));
        self.stopped()?;
        self.sim.pass(pause);
        self.stopped()
    }

    fn tell(&mut self, _: &str) {}

    fn show_progress(&mut self, _: Option<f64>) {}

    fn warn(&mut self, what: &str) {
        self.sim.tell(|| format!("    {what}"));
    }

    fn save(&mut self, record: &mut StoreRecord) -> Result<(), SyncError> {
        Ok(self.sim.save(record)?)
    }

    fn note(&mut self, what: &str, version: Option<VersionId>, note: Option<String>) {
        StoreOperations::note(self.sim, self.who, what, version, note);
    }

    fn has(&self, id: VersionId) -> bool {
        self.sim.has_whole(id)
    }

    fn is_empty(&self) -> Result<bool, SyncError> {
        Ok(self.sim.versions()?.is_empty())
    }

    fn bundle_file_state(&mut self, path: &Path) -> Result<BundleFileState, SyncError> {
        self.sim.operation(|| format!("see {}", path.display()));
        let outside = self.sim.with(|s| s.disk.outside.get(path).cloned());
        let missing = || SyncError::Missing { path: path.to_owned(), source: std::io::ErrorKind::NotFound.into() };
        let outside = outside.ok_or_else(missing)?;
        let (source, size) = (path.display().to_string(), outside.content.bytes);
        if !outside.content.hostile {
            self.sim.sees(&source, id_of(outside.content));
        }
        Ok(BundleFileState { source, size, modified: outside.modified })
    }

    fn digest(&mut self, path: &Path) -> Result<Digest, SyncError> {
        self.sim.operation(|| format!("digest {}", path.display()));
        let missing = || SyncError::Missing { path: path.to_owned(), source: std::io::ErrorKind::NotFound.into() };
        let content = self.sim.content_at(path);
        if let Some(content) = content.filter(|content| !content.hostile) {
            self.sim.sees(&path.display().to_string(), id_of(content));
        }
        Ok(archive_of(content.ok_or_else(missing)?))
    }

    fn probe(&mut self, url: &SafeUrl, before: Option<&ProbeResult>) -> CallResult<Option<ProbeResult>> {
        let trouble = self.call(Host::Docs, || format!("GET {url}"))?;
        let (source, pin) = (self.api(), self.intent.pin.as_ref().map(VersionLabel::as_str));
        let answer = if let Some(trouble) = trouble {
            Err(trouble)
        } else {
            let content = self.sim.with(|s| s.upstream.of(&source, pin, &mut s.random));
            let sha256 = Digest::of(&content.n.to_be_bytes()).hex();
            let same = before.is_some_and(|before| before.sha256 == sha256);
            Ok((!same).then_some(ProbeResult { sha256, etag: None, last_modified: None }))
        };
        self.arrive(Host::Docs, answer)
    }

    fn prepare(&mut self) -> Result<(), SyncError> {
        self.sim.operation(|| "read the key".to_owned());
        self.sim.with(|s| s.upstream.asking = (s.elapsed, s.jumped));
        if self.sim.with(|s| s.daemon.has_key) { Ok(()) } else { Err(SyncError::Absent("no API key".to_owned())) }
    }

    fn start_job(&mut self) -> CallResult<String> {
        let trouble = self.call(Host::Api, || "POST jobs".to_owned())?;
        let (source, pin) = (self.api(), self.intent.pin.as_ref().map(VersionLabel::as_str));
        self.sim.check_start(&source);
        let sim = self.sim;
        let start = || {
            sim.with(|s| {
                let (now, calm) = (s.elapsed, s.faults.calm);
                s.upstream.start(&source, pin, now, calm, &mut s.random)
            })
        };
        // An answer that is lost has been given, perhaps; a request may come twice.
        let blind = trouble.as_ref().is_some_and(|trouble| {
            matches!(trouble.cause, RequestErrorCause::NoResponse | RequestErrorCause::Unreadable)
        });
        if (blind && sim.happens(0.5)) || sim.happens(sim.with(|s| s.faults.call * 0.2)) {
            start();
        }
        let job = match trouble {
            Some(trouble) => Err(trouble),
            None => Ok(start()),
        };
        let job = self.arrive(Host::Api, job)?;
        Ok(job.map(|job| {
            sim.with(|s| {
                s.upstream.jobs[job].ours = true;
                s.upstream.jobs[job].id.clone()
            })
        }))
    }

    fn poll(&mut self, id: &str) -> CallResult<ExportJob> {
        let trouble = self.call(Host::Api, || format!("GET {id}"))?;
        let state = self.sim.with(|s| s.upstream.job(id).map(|job| s.upstream.jobs[job].state(s.elapsed)));
        let answer = match (trouble, state) {
            (Some(trouble), _) => Err(trouble),
            (None, None | Some(State::Vanished)) => Err(RequestError::new(RequestErrorCause::Status(404), "404")),
            (None, Some(state)) => {
                let status = match state {
                    State::Completed => "completed",
                    State::Failed => "failed",
                    _ => ["queued", "running", "odd"][self.sim.below(3) as usize],
                };
                let status = status.to_owned();
                Ok(ExportJob { status, progress: None, page_count: None, updated_at: None, error: None })
            }
        };
        self.arrive(Host::Api, answer)
    }

    fn link(&mut self, id: &str) -> CallResult<PresignedLink> {
        let trouble = self.call(Host::Api, || format!("POST {id}/bundle"))?;
        let answer = match trouble {
            Some(trouble) => Err(trouble),
            None => self.sim.with(|s| {
                let job = s.upstream.job(id).filter(|&job| s.upstream.jobs[job].end != State::Vanished);
                let job = job.ok_or_else(|| RequestError::new(RequestErrorCause::Status(404), "404"))?;
                let patience = if s.faults.calm { 3600 } else { s.random.below(200) };
                s.upstream.links.push((job, s.elapsed + Duration::from_secs(patience)));
                let url = format!("https://storage.test/{}?sig=secret", s.upstream.links.len() - 1);
                let url = SafeUrl::parse(&url).unwrap();
                let size = s.random.happens(0.7).then_some(s.upstream.jobs[job].content.bytes);
                Ok(PresignedLink { url, size, expires_at: None })
            }),
        };
        self.arrive(Host::Api, answer)
    }

    fn known(&self, record: &StoreRecord, source: &str) -> Vec<KnownBundle> {
        known(self.sim, record, source, self.intent.sha256)
    }

    fn begin_download(&mut self, source: &str, known: Vec<BundleValidator>) -> Result<(), SyncError> {
        self.sim.operation(|| format!("want the bundle of {source}"));
        let received = self.sim.with(|s| {
            s.disk.partial = s.disk.partial.take().filter(|partial| partial.source == source);
            s.disk.partial.as_ref().map_or(0, |partial| partial.received)
        });
        (self.known, self.furthest, self.counted) = (known, received, received);
        source.clone_into(&mut self.source);
        Ok(())
    }

    fn reserve(&mut self, record: &StoreRecord, size: u64) -> Result<(), SyncError> {
        let here = self.sim.with(|s| s.disk.partial.as_ref().map_or(0, |partial| partial.received));
        self.room(record, SpaceRequest { whole: size, more: size.saturating_sub(here) })
    }

    fn fetch(&mut self, record: &StoreRecord, url: &SafeUrl) -> CallResult<DownloadResult> {
        let host = if url.host() == "storage.test" { Host::Storage } else { Host::Files };
        let trouble = self.call(host, || format!("GET {url}"))?;
        let content = match trouble {
            Some(trouble) => Err(trouble),
            None => self.behind(url),
        };
        let answer = match content {
            Err(trouble) => Err(trouble),
            Ok(content) => {
                let validator = format!("\"{}\"", content.n);
                match self.known.iter().find(|known| known.validator == validator && content.has_name()) {
                    Some(known) => {
                        if !content.hostile {
                            self.sim.sees(&self.source, id_of(content));
                        }
                        Ok(DownloadResult::Unchanged(known.clone()))
                    }
                    None => self.receive(record, content)?,
                }
            }
        };
        self.arrive(host, answer)
    }

    fn has_moved(&mut self) -> bool {
        let moved = self.furthest >= self.counted + MIB;
        if moved {
            self.counted = self.furthest;
        }
        moved
    }

    fn discard(&mut self) {
        self.sim.operation(|| "discard what was received".to_owned());
        self.sim.with(|s| s.disk.partial = None);
    }

    fn unwrap(&mut self, _: &ReceivedBundle) -> Result<Option<PathBuf>, SyncError> {
        Ok(None)
    }

    fn bring(
        &mut self,
        record: &mut StoreRecord,
        arrival: &IncomingBundle<'_>,
        ours: bool,
    ) -> Result<IngestedBundle, SyncError> {
        ingest_bundle(self.sim, record, self.intent, arrival, ours, self.who, &SealProgress::default())
    }

    fn find_again(&mut self, record: &mut StoreRecord, source: &str, id: VersionId) -> Result<(), SyncError> {
        Ok(note_offered_again(self.sim, record, source, id, self.who)?)
    }

    fn settle(
        &mut self,
        record: &mut StoreRecord,
        found: Option<VersionId>,
        brought: Option<IngestedBundle>,
    ) -> Result<SyncReport, SyncError> {
        let flag = std::sync::Arc::clone(&self.sim.stop);
        let stop = move || flag.load(Ordering::Relaxed);
        let in_force = || self.sim.in_force();
        let asker = ActivationRequest { who: self.who, force: self.force, stop: &stop, in_force: &in_force };
        activate_and_prune(self.sim, record, asker, found, brought)
    }
}
