//! The world as a sync knows it. Everything that a sync reads, asks, waits for or changes goes through here, so that a
//! simulation can stand in for it.

use std::path::Path;
use std::time::Duration;

use crate::api::wire::{Job, Link};
use docwharf_base::secret::SafeUrl;
use crate::fetch::{Arrived, Fetched, Known};
use docwharf_base::model::digest::Digest;
use docwharf_base::model::version::VersionId;
use docwharf_base::net::trouble::Trouble;
use crate::store::record::{Probe, Record};

use super::SyncError;
use super::bring::{Arrival, Brought};
use super::plan::Seen;
use super::settle::Report;

/// What a call gives: an answer, or trouble that may pass; the outer error ends the sync.
pub type Asked<T> = Result<Result<T, Trouble>, SyncError>;

/// A bundle that need not be downloaded again, and the version it holds; none if it was refused.
pub type KnownBundle = (Known, Option<VersionId>);

/// See the module.
pub trait World {
    /// Seconds since 1970.
    fn now(&mut self) -> i64;
    /// Since some fixed moment; never goes back.
    fn elapsed(&mut self) -> Duration;
    /// From 0 to 1.
    fn random(&mut self) -> f64;
    /// Does nothing for so long.
    fn wait(&mut self, pause: Duration) -> Result<(), SyncError>;
    /// Tells people what is being done.
    fn tell(&mut self, what: &str);
    /// Shows people how far an export job is, in percent.
    fn show_progress(&mut self, percent: Option<f64>);
    /// Tells people what went wrong but does not end the sync.
    fn warn(&mut self, what: &str);

    /// Makes the record durable; what a person has decided meanwhile is taken over into it.
    fn save(&mut self, record: &mut Record) -> Result<(), SyncError>;
    /// Adds a line to history.
    fn note(&mut self, what: &str, version: Option<VersionId>, note: Option<String>);
    /// Whether a version is in the store, and nothing is known against it.
    fn has(&self, id: VersionId) -> bool;
    /// Whether no version is.
    fn is_empty(&self) -> Result<bool, SyncError>;

    /// A bundle file from outside.
    fn see(&mut self, path: &Path) -> Result<Seen, SyncError>;
    /// Its digest.
    fn digest(&mut self, path: &Path) -> Result<Digest, SyncError>;

    /// Reads a probe; `None` if it says what it said before.
    fn probe(&mut self, url: &SafeUrl, before: Option<&Probe>) -> Asked<Option<Probe>>;
    /// Sees to it that the API can be asked: that there is a key.
    fn prepare(&mut self) -> Result<(), SyncError>;
    /// Starts an export job.
    fn start_job(&mut self) -> Asked<String>;
    /// Asks for its state.
    fn poll(&mut self, id: &str) -> Asked<Job>;
    /// Asks for a link to its bundle.
    fn link(&mut self, id: &str) -> Asked<Link>;

    /// Bundles of this source that need not be downloaded again.
    fn known(&self, record: &Record, source: &str) -> Vec<KnownBundle>;
    /// Wants a bundle; what an earlier attempt at the same source has left is continued.
    fn want(&mut self, source: &str, known: Vec<Known>) -> Result<(), SyncError>;
    /// Sees to it that there is room for a bundle of so many bytes.
    fn reserve(&mut self, record: &Record, size: u64) -> Result<(), SyncError>;
    /// One attempt at the bundle that is wanted, if there is room for it.
    fn fetch(&mut self, record: &Record, url: &SafeUrl) -> Asked<Fetched>;
    /// Whether the attempts so far have brought a good piece.
    fn has_moved(&mut self) -> bool;
    /// Forgets what has been received.
    fn discard(&mut self);
    /// Takes off a second layer of gzip, if there is one.
    fn unwrap(&mut self, arrived: &Arrived) -> Result<Option<std::path::PathBuf>, SyncError>;

    /// Proves, seals, commits; `ours` says that the file may be moved.
    fn bring(&mut self, record: &mut Record, arrival: &Arrival<'_>, ours: bool) -> Result<Brought, SyncError>;
    /// Takes note that a look at `source` has found a version that is in the store.
    fn find_again(&mut self, record: &mut Record, source: &str, id: VersionId) -> Result<(), SyncError>;
    /// Activates what is due.
    fn settle(
        &mut self,
        record: &mut Record,
        found: Option<VersionId>,
        brought: Option<Brought>,
    ) -> Result<Report, SyncError>;
}
