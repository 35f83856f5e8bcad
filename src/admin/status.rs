//! `docwharf status` and `/status`: how a store is, and the daemon on it if one runs. The JSON is what people script
//! against: fields may be added, none changes its meaning without another `schemaVersion`.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use docwharf_base::accounts::readable_name;
use docwharf_base::codec::content_coding::ContentCoding;
use docwharf_base::model::units::{show_time, show_unix};
use docwharf_base::model::version::{VersionLabel, VersionId};
use docwharf_agent::publish::published;
use docwharf_site::codings::Yield;
use docwharf_agent::store::record::{Attempt, Hold, Record};
use docwharf_agent::store::{Store, StoreError};
use docwharf_agent::sync::staged::{Waits, staged, way_out};
use docwharf_agent::sync::{ApiSource, Bundle, Intent};

use super::live::{self, Live, Policy};

/// See the module. Times are RFC 3339.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// 1
    pub schema_version: u32,
    /// The store's folder.
    pub store: PathBuf,
    /// The version that should be served.
    pub active: Option<VersionId>,
    /// Since when.
    pub active_since: Option<String>,
    /// Whether it is in the store.
    pub active_present: Option<bool>,
    /// Its labels.
    pub active_labels: Vec<String>,
    /// The one before it.
    pub previous: Option<VersionId>,
    /// The one accepted last.
    pub newest: Option<VersionId>,
    /// A version that was found damaged: the active one, if that is.
    pub damaged: Option<VersionId>,
    /// All of those.
    #[serde(default)]
    pub damaged_versions: Vec<VersionId>,
    /// When every byte of the active version was read last and found good, or when it arrived last.
    #[serde(default)]
    pub active_proved: Option<String>,
    /// Who stopped automatic activation.
    pub hold: Option<Hold>,
    /// The version that waits to become active.
    #[serde(default)]
    pub staged: Option<Staged>,
    /// What the gate said last.
    #[serde(default)]
    pub gate: Option<Gate>,
    /// The label that the configuration pins.
    pub pin: Option<String>,
    /// `staticExport.enabled`; none if the configuration has mistakes.
    pub enabled: Option<bool>,
    /// Where versions come from, without a link's query.
    pub source: Option<String>,
    /// The last look at it: when, what it saw, how it ended.
    pub last_attempt: Option<Attempt>,
    /// When a look last went well.
    pub last_good: Option<String>,
    /// When the next is due; none without a daemon.
    pub next_look: Option<String>,
    /// Why there is nothing new.
    pub why: Option<String>,
    /// What can be done about the last error.
    pub next_step: Option<String>,
    /// The export job of ours that has not yet given a bundle.
    pub job: Option<Job>,
    /// Why a changed configuration is not in force.
    pub config_error: Option<String>,
    /// The daemon; none if there is none.
    pub daemon: Option<Daemon>,
}

/// A version that waits to become active.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Staged {
    /// Which.
    pub version: VersionId,
    /// For what: `manual`, `gate`, `hold` or `look`.
    pub waits: String,
    /// What can be done about it.
    pub next: String,
}

/// What the gate said of a version.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gate {
    /// Of which.
    pub version: VersionId,
    /// Which one was active then.
    pub against: Option<VersionId>,
    /// When.
    pub time: String,
    /// Whether it lets it through.
    pub passed: bool,
    /// Why not.
    pub refused: Option<String>,
}

/// An export job of ours.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// The upstream's word for it.
    pub id: String,
    /// Base URL and domain.
    pub source: String,
    /// When.
    pub started: String,
    /// The label it was started for.
    pub pin: Option<String>,
}

/// A running daemon.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Daemon {
    /// Its process, as it sees itself.
    pub pid: u32,
    /// The program's version.
    pub version: String,
    /// When it started.
    pub started: String,
    /// Where it serves.
    pub addresses: Vec<String>,
    /// Where its admin side answers, besides the control socket.
    #[serde(default)]
    pub admin: Vec<String>,
    /// Where the version that waits to become active is to be seen (`activate.listen`).
    #[serde(default)]
    pub staged: Vec<String>,
    /// The version that it serves; another than `active` only if that one is damaged.
    pub served: Option<VersionId>,
    /// What is under way.
    pub doing: Option<String>,
    /// What has gone wrong with that so far, while it is tried again.
    #[serde(default)]
    pub doing_error: Option<String>,
    /// How far an export job is, in percent.
    pub percent: Option<f64>,
    /// Failures in a row.
    pub failures: u32,
    /// The inbox, if there is one (`sync.inbox`).
    #[serde(default)]
    pub inbox: Option<Inbox>,
    /// What is published as files, if anything is to be.
    #[serde(default)]
    pub publish: Option<Publish>,
    /// The content security policies, if any are sent (`server.csp`).
    #[serde(default)]
    pub csp: Option<Csp>,
    /// The denser codings, if any are made (`server.codings`).
    #[serde(default)]
    pub codings: Option<Codings>,
    /// Under which certificate connections are encrypted, if they are.
    #[serde(default)]
    pub tls: Option<Certificate>,
}

/// Content security policies.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Csp {
    /// `server.csp`
    pub preset: String,
    /// The version that they are of.
    pub version: VersionId,
    /// Whether they are known; if not, its pages are being read.
    pub ready: bool,
    /// Pages that have one.
    pub pages: u64,
    /// Those whose inline scripts are allowed as they come, because a policy that names them would be longer than
    /// `server.cspSize`.
    pub too_long: u64,
    /// The same, because they cannot be named for certain.
    pub unsure: u64,
    /// Bytes of the longest policy that is sent.
    pub longest: u64,
    /// The same for all pages together.
    pub total: u64,
}

impl From<Policy> for Csp {
    fn from(policy: Policy) -> Csp {
        let survey = policy.survey.unwrap_or_default();
        Csp {
            preset: policy.preset.to_owned(),
            version: policy.version,
            ready: policy.survey.is_some(),
            pages: survey.pages,
            too_long: survey.long,
            unsure: survey.unsure,
            longest: survey.longest as u64,
            total: survey.total,
        }
    }
}

/// Denser codings of what is served.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Codings {
    /// The version that they are of.
    pub version: VersionId,
    /// Whether all are there; if not, they are being made, unless something is in their way.
    pub ready: bool,
    /// Those that are there.
    pub made: Vec<Made>,
    /// What is in their way.
    pub error: Option<String>,
}

/// One coding.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Made {
    /// `br` or `zstd`
    pub coding: String,
    /// Files that have it; the others got no smaller.
    pub files: u64,
    /// What their bodies take.
    pub bytes: u64,
    /// Seconds of processor time that it took.
    pub seconds: f64,
}

impl From<live::Codings> for Codings {
    fn from(now: live::Codings) -> Codings {
        let made = |(coding, yields): (ContentCoding, Yield)| Made {
            coding: coding.token().to_owned(),
            files: yields.files,
            bytes: yields.bytes,
            seconds: yields.seconds(),
        };
        Codings { version: now.version, ready: now.ready, made: now.made().map(made).collect(), error: now.why_not }
    }
}

/// The TLS certificate in force.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Certificate {
    /// Until when it counts.
    pub not_after: String,
    /// What is wrong: with the files as they are now, which are not in force then, or with its dates.
    pub error: Option<String>,
}

/// The inbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inbox {
    /// `sync.inbox`
    pub directory: PathBuf,
    /// Why it cannot be used; none if it can.
    pub error: Option<String>,
}

/// What is published as files.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Publish {
    /// Where.
    pub directory: PathBuf,
    /// The version that `current` leads to.
    pub version: Option<VersionId>,
    /// Why the one that is served is not published, if that has failed.
    pub error: Option<String>,
}

impl Status {
    /// How `store` is, as far as it is known what is wanted of it. `inbox` is used where there is no daemon (`live`).
    pub fn of(
        store: &Store,
        intent: Option<&Intent>,
        inbox: Option<&Path>,
        live: Option<&Live>,
    ) -> Result<Status, StoreError> {
        let record = store.record()?;
        let labels = record.labels.iter().filter(|(_, labelled)| Some(labelled.version) == record.active);
        let now = live.map(Live::now);
        let said = || inbox.map(|directory| live::InboxState { directory: directory.to_owned(), error: None });
        let inbox = now.as_ref().map_or_else(said, |now| now.inbox.clone());
        let daemon = live.zip(now.as_ref()).map(|(live, now)| Daemon {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: show_time(live.started),
            addresses: live.addresses.clone(),
            admin: live.admin.clone(),
            staged: live.staged.clone(),
            served: now.served,
            doing: now.doing.as_ref().map(|doing| doing.what()).filter(|what| !what.is_empty()),
            doing_error: now.doing.as_ref().and_then(|doing| doing.error()),
            percent: now.doing.as_ref().and_then(|doing| doing.percent()),
            failures: now.failures,
            publish: now.publish.as_ref().map(|settings| Publish {
                directory: settings.directory.clone(),
                version: published(settings),
                error: now.publish_error.clone(),
            }),
            inbox: now.inbox.clone().map(|inbox| Inbox { directory: inbox.directory, error: inbox.error }),
            csp: now.policy.map(Csp::from),
            codings: now.codings.clone().map(Codings::from),
            tls: live.tls.as_ref().map(|tls| {
                let pair = tls.pair();
                let error = now.tls_error.clone().or_else(|| pair.date_problem(SystemTime::now()));
                Certificate { not_after: show_time(pair.not_after), error }
            }),
        });
        let damaged = store.suspects();
        let failed = record.last_attempt.as_ref().is_some_and(|attempt| attempt.failures > 0);
        let again = if daemon.is_some() { "it is tried again by itself; " } else { "" };
        Ok(Status {
            schema_version: 1,
            store: store.root().to_owned(),
            active_present: record.active.map(|id| store.has(id)),
            active_labels: labels.map(|(label, _)| label.clone()).collect(),
            damaged: record.active.filter(|id| damaged.contains(id)).or(damaged.first().copied()),
            active_proved: record.active.and_then(|id| store.proved_at(id)).map(show_unix),
            damaged_versions: damaged,
            pin: intent.and_then(|intent| intent.pin.as_ref()).map(ToString::to_string),
            enabled: intent.map(|intent| intent.enabled),
            source: intent.and_then(source),
            next_look: now.as_ref().and_then(|now| now.next_look).map(show_time),
            why: why(&record, intent, inbox.as_ref()),
            staged: staged(&record, intent).map(|staged| Staged {
                version: staged.version,
                waits: staged.waits.name().to_owned(),
                next: way_out(&staged),
            }),
            gate: record.gate.map(|verdict| Gate {
                version: verdict.version,
                against: verdict.against,
                time: verdict.time,
                passed: verdict.refused.is_none(),
                refused: verdict.refused,
            }),
            next_step: failed
                .then(|| format!("{again}`docwharf doctor` checks what it needs, `docwharf sync` tries at once")),
            job: record.job.as_ref().map(|job| Job {
                id: job.id.clone(),
                source: job.source.clone(),
                started: job.started.clone(),
                pin: job.pin.clone(),
            }),
            daemon,
            active: record.active,
            active_since: record.active_since,
            previous: record.previous,
            newest: record.newest,
            hold: record.hold,
            last_attempt: record.last_attempt,
            last_good: record.last_good,
            config_error: record.config_error,
        })
    }
}

fn source(intent: &Intent) -> Option<String> {
    intent.api.as_ref().map(ApiSource::name).or_else(|| intent.bundle.as_ref().map(Bundle::name))
}

/// The strongest reason comes first, as it does for what is active.
fn why(record: &Record, intent: Option<&Intent>, inbox: Option<&live::InboxState>) -> Option<String> {
    if let Some(hold) = &record.hold {
        let who = readable_name(&hold.who);
        return Some(format!("{who} has stopped activation ({}): `docwharf release` ends that", hold.why));
    }
    let intent = intent?;
    if let Some(waiting) = staged(record, Some(intent)).filter(|waiting| waiting.waits != Waits::Look) {
        let id = waiting.version.short();
        return Some(match &waiting.waits {
            Waits::Gate(why) => format!("the gate keeps {id} back: {why}"),
            _ => format!("{id} waits for a person (activate.mode)"),
        });
    }
    if !intent.enabled {
        return Some("staticExport.enabled is false: the source is not looked at".to_owned());
    }
    if !intent.has_source() {
        let through = match inbox {
            None => " only".to_owned(),
            Some(inbox) => {
                let directory = inbox.directory.display();
                match inbox.error {
                    None => format!(" and the inbox {directory}"),
                    Some(_) => format!(" only, because the inbox {directory} cannot be used"),
                }
            }
        };
        return Some(format!("no source is configured: versions arrive through `docwharf import`{through}"));
    }
    let attempt = record.last_attempt.as_ref()?;
    if attempt.failures > 0 {
        return Some("the last look failed".to_owned());
    }
    let pin = intent.pin.as_ref().map(VersionLabel::as_str);
    let newer = record.newest.filter(|_| record.newest != record.active);
    match (pin, newer, &attempt.saw) {
        (Some(pin), Some(newer), _) => {
            Some(format!("{pin:?} is pinned (staticExport.version); {} is newer", newer.short()))
        }
        (.., Some(saw)) => Some(saw.clone()),
        _ => None,
    }
}
