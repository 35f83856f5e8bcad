//! The one thread that makes archives, one job after the other.
//!
//! A folder is packed, and the bundle proved. An archive is copied, and the copy proved, so that what is handed out is
//! what was proved whatever becomes of the original. Either way the result loses its name at once: it is gone with the
//! process, however that ends.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::base::chain::Chain;
use crate::bundle::ReadError;
use crate::model::units::{count, show_size, unix_seconds};
use crate::seal::pack::{PackError, Passes, pack_watched};
use crate::seal::{Effort, Meter, Proven, SealError, verify};

use super::Domain;
use super::jobs::{Archive, Jobs, Live};
use super::survey::Survey;

/// How often a site that changes while it is packed is packed before the job fails.
const TRIES: u32 = 3;
/// How long a site is left alone before it is packed again: whoever builds it may be nearly done.
const QUIET: Duration = Duration::from_millis(500);
/// Bytes copied at a time.
const PIECE: usize = 1 << 20;

/// Why a job has no archive.
#[derive(Debug, thiserror::Error)]
enum NotMade {
    #[error(transparent)]
    Look(#[from] ReadError),
    #[error(transparent)]
    Pack(#[from] PackError),
    #[error(transparent)]
    Prove(#[from] SealError),
    #[error("cannot {doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} changes again and again while it is read; start another job when it is quiet", .0.display())]
    Changing(PathBuf),
    #[error("{} is no longer served here", .0)]
    NoSite(Domain),
}

/// What the thread works with.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) jobs: Arc<Jobs>,
    pub(super) sites: Arc<BTreeMap<Domain, PathBuf>>,
    pub(super) effort: Effort,
    /// A folder of our own.
    pub(super) space: PathBuf,
}

impl Worker {
    /// Until the jobs are closed.
    pub(super) fn run(&self) {
        while let Some((id, domain)) = self.jobs.next() {
            tracing::info!("job {id}: packing {domain}");
            let began = Instant::now();
            // A panic would leave this job running and all others waiting for ever. It is logged by its hook; what it
            // may have left half-done lies in the temporary folder only.
            let made = catch_unwind(AssertUnwindSafe(|| self.make(&id, &domain)))
                .unwrap_or_else(|_| Err("packing stopped unexpectedly; the log of the origin says where".to_owned()));
            match &made {
                Ok((archive, pages)) => tracing::info!(
                    "job {id}: completed, {}, {}, {:.1} s",
                    count(*pages, "page"),
                    show_size(archive.len),
                    began.elapsed().as_secs_f64()
                ),
                Err(why) => tracing::error!("job {id}: failed: {why}"),
            }
            self.jobs.finish(&id, made);
        }
    }

    fn make(&self, id: &str, domain: &Domain) -> Result<(Archive, u64), String> {
        let made = match self.sites.get(domain) {
            Some(path) => self.make_from(id, path),
            None => Err(NotMade::NoSite(domain.clone())),
        };
        made.map_err(|error| Chain(&error).to_string())
    }

    /// Tries again when the site has changed meanwhile, whatever the failure looks like: a file that is being replaced
    /// can be missing, short or half an archive.
    fn make_from(&self, id: &str, path: &Path) -> Result<(Archive, u64), NotMade> {
        let look = || Survey::of(path, &self.effort.limits);
        for _ in 0..TRIES {
            let before = look();
            let digest = before.as_ref().ok().map(|survey| survey.digest);
            let error = match before.map_err(NotMade::Look).and_then(|survey| self.try_once(id, path, &survey)) {
                Ok(made) => return Ok(made),
                Err(error) => error,
            };
            let same = look().ok().map(|survey| survey.digest) == digest;
            if same && !matches!(error, NotMade::Pack(PackError::Changed(_))) {
                return Err(error);
            }
            std::thread::sleep(QUIET);
        }
        Err(NotMade::Changing(path.to_owned()))
    }

    fn try_once(&self, id: &str, path: &Path, survey: &Survey) -> Result<(Archive, u64), NotMade> {
        let metadata = std::fs::metadata(path).map_err(io_error("look at", path))?;
        let (file, proven) = if metadata.is_dir() {
            let pages = survey.pages.iter().map(|page| page.position).collect();
            let live = Live::Folder { pages, bytes: survey.bytes, passes: Passes::default() };
            self.pack(id, path, &self.announce(id, live))?
        } else {
            let live = Live::Archive { bytes: metadata.len(), copied: AtomicU64::new(0), proving: Meter::default() };
            self.copy(path, &self.announce(id, live))?
        };
        let (digest, len) = proven.archive.ok_or_else(|| NotMade::Changing(path.to_owned()))?;
        let made = unix_seconds(SystemTime::now());
        Ok((Archive { file: Arc::new(file), kind: proven.kind, digest, len, made }, proven.flavor.pages))
    }

    fn announce(&self, id: &str, live: Live) -> Arc<Live> {
        let live = Arc::new(live);
        self.jobs.running(id, Arc::clone(&live));
        live
    }

    fn pack(&self, id: &str, folder: &Path, live: &Live) -> Result<(File, Proven), NotMade> {
        let to = self.space.join(format!("{id}.tar.gz"));
        let unwatched = Passes::default();
        let passes = if let Live::Folder { passes, .. } = live { passes } else { &unwatched };
        let proven = pack_watched(folder, &to, &self.effort, passes)?;
        let file = File::open(&to).map_err(io_error("open", &to))?;
        std::fs::remove_file(&to).map_err(io_error("take the name of", &to))?;
        Ok((file, proven))
    }

    fn copy(&self, archive: &Path, live: &Live) -> Result<(File, Proven), NotMade> {
        let unwatched = (AtomicU64::new(0), Meter::default());
        let (copied, meter) = if let Live::Archive { copied, proving, .. } = live {
            (copied, proving)
        } else {
            (&unwatched.0, &unwatched.1)
        };
        let mut from = File::open(archive).map_err(io_error("read", archive))?;
        let to = tempfile::NamedTempFile::new_in(&self.space).map_err(io_error("write in", &self.space))?;
        let mut piece = vec![0; PIECE];
        loop {
            let n = from.read(&mut piece).map_err(io_error("read", archive))?;
            if n == 0 {
                break;
            }
            to.as_file().write_all(&piece[..n]).map_err(io_error("write in", &self.space))?;
            if copied.fetch_add(n as u64, Ordering::Relaxed) > self.effort.limits.archive {
                // An archive that grows faster than it is copied; proving says that it is too large.
                break;
            }
        }
        // Whoever reads the message knows the archive, not the copy.
        let proven = verify(to.path(), &self.effort, meter).map_err(|error| match error {
            SealError::Refused { source, .. } => SealError::Refused { path: archive.to_owned(), source },
            other => other,
        })?;
        Ok((to.into_file(), proven))
    }
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> NotMade {
    let path = path.to_owned();
    move |source| NotMade::Io { doing, path, source }
}
