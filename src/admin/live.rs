//! What is known of a running daemon beyond its store: told by the agent, read by the admin routes.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use http::Request;

use docwharf_base::codec::content_coding::ContentCoding;
use docwharf_base::model::version::VersionId;
use docwharf_agent::publish::Settings;
use docwharf_serve::tls::ServerTls;
use docwharf_site::codings::Yield;
use docwharf_site::outside::csp::PolicyStatistics;
use docwharf_agent::sync::Intent;
use docwharf_agent::sync::act::Doing;

use super::hosts::AllowedHosts;

/// What changes while it runs.
#[derive(Debug, Clone, Default)]
pub struct Now {
    /// What it has to do, as it is configured now.
    pub intent: Option<Intent>,
    /// The version being served.
    pub served: Option<VersionId>,
    /// When it looks next.
    pub next_look: Option<SystemTime>,
    /// What is under way.
    pub doing: Option<Arc<Doing>>,
    /// Failures in a row.
    pub failures: u32,
    /// Where what is served is published as files.
    pub publish: Option<Settings>,
    /// Why that has failed last, if it has.
    pub publish_error: Option<String>,
    /// The content security policies, if any are sent.
    pub policy: Option<Policy>,
    /// The denser codings, if any are made.
    pub codings: Option<Codings>,
    /// The inbox, if there is to be one.
    pub inbox: Option<InboxState>,
    /// Why the TLS files as they are now are not in force, if they are not.
    pub tls_error: Option<String>,
}

/// The inbox of a running daemon.
#[derive(Debug, Clone)]
pub struct InboxState {
    /// `sync.inbox`
    pub directory: PathBuf,
    /// Why it cannot be used; none if it can.
    pub error: Option<String>,
}

/// Where the content security policies stand.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// `server.csp`
    pub preset: &'static str,
    /// Of which version.
    pub version: VersionId,
    /// What they are like; none until they are known.
    pub survey: Option<PolicyStatistics>,
}

/// Where the denser codings stand (`server.codings`).
#[derive(Debug, Clone)]
pub struct Codings {
    /// Of which version.
    pub version: VersionId,
    /// Whether all that are wanted are there.
    pub ready: bool,
    /// What `br` has come to, once it is there.
    pub brotli: Option<Yield>,
    /// The same of `zstd`.
    pub zstd: Option<Yield>,
    /// Why there are none, if something is in their way.
    pub why_not: Option<String>,
}

impl Codings {
    /// None of this version so far.
    pub fn none(version: VersionId) -> Codings {
        Codings { version, ready: false, brotli: None, zstd: None, why_not: None }
    }

    /// None of this version, for this reason.
    pub fn hindered(version: VersionId, why: String) -> Codings {
        Codings { why_not: Some(why), ..Codings::none(version) }
    }

    /// Those that are there.
    pub fn made(&self) -> impl Iterator<Item = (ContentCoding, Yield)> {
        [(ContentCoding::Brotli, self.brotli), (ContentCoding::Zstd, self.zstd)]
            .into_iter()
            .filter_map(|(coding, yields)| Some((coding, yields?)))
    }
}

/// A running daemon.
#[derive(Debug)]
pub struct Live {
    /// When it started.
    pub started: SystemTime,
    /// Where it serves.
    pub addresses: Vec<String>,
    /// Where it tells how it is, besides the control socket.
    pub admin: Vec<String>,
    /// Where it shows the version that waits to become active.
    pub staged: Vec<String>,
    /// Under which certificate, if connections are encrypted.
    pub tls: Option<Arc<ServerTls>>,
    now: Mutex<Now>,
    hosts: ArcSwap<AllowedHosts>,
}

impl Live {
    /// A daemon that has just started, with the addresses of its listeners: for readers, for its admin side, for the
    /// version that waits to become active.
    pub fn new(addresses: Vec<String>, admin: Vec<String>, staged: Vec<String>, tls: Option<Arc<ServerTls>>) -> Live {
        let (now, hosts) = (Mutex::default(), ArcSwap::from_pointee(AllowedHosts::new(&[])));
        Live { started: SystemTime::now(), addresses, admin, staged, tls, now, hosts }
    }

    /// Answers on the admin listener under these names from the next request on.
    pub fn allow_hosts(&self, hosts: AllowedHosts) {
        self.hosts.store(Arc::new(hosts));
    }

    /// Whether a request on the admin listener is addressed to us.
    pub fn permits<B>(&self, request: &Request<B>) -> bool {
        self.hosts.load().permits(request.uri(), request.headers())
    }

    /// What is so now.
    pub fn now(&self) -> Now {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says what is so from now on.
    pub fn tell(&self, change: impl FnOnce(&mut Now)) {
        change(&mut self.now.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
