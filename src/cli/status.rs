//! `docwharf status`, `versions`: show the state of the store, read without a lock.

use std::fmt::Write;
use std::path::Path;

use clap::Args;
use serde_json::json;

use crate::admin::status;
use crate::config::checked::Config;
use docwharf_agent::store::VersionStore;
use docwharf_base::accounts::resolve_uid_name;
use docwharf_base::error_chain::OneLine;
use docwharf_base::model::units::{format_count, format_size};

use super::context::CommandContext;
use super::failure::CommandFailure;
use super::write_command;

#[derive(Debug, Args)]
pub(super) struct StatusCommand {}

#[derive(Debug, Args)]
pub(super) struct VersionsCommand {}

impl StatusCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let path = context.store()?;
        let mut configured = (false, None);
        let status = if let Some(status) = write_command::daemon_status(&path) {
            status
        } else {
            // If it has mistakes, `context.store` has printed them.
            let config = context.config().ok();
            let (sync_settings, inbox) =
                config.as_ref().map(|config| (&config.sync_settings, config.inbox.as_deref())).unzip();
            if let Some(config) = &config {
                configured = (config.sync_settings.has_source(), config.inbox.clone());
            }
            let features = config.as_ref().map(Config::feature_settings);
            let store = VersionStore::at(&path);
            status::StoreStatus::read(&store, sync_settings, features.as_ref(), inbox.flatten(), None)?
        };
        let silent = if status.daemon.is_none() { write_command::explain_silent_daemon(&path) } else { None };
        let is_empty = VersionStore::at(&path).versions().is_ok_and(|versions| versions.is_empty());
        let advise = || start_advice(&context.start_command(), is_empty, configured.0, configured.1.as_deref());
        let start = if silent.is_none() { Some(advise()) } else { None };
        context.print_result(&status, &status_text(&status, silent.as_deref(), start.as_deref()))
    }
}

/// Returns advice for a store without a daemon: the next step to serve it, or to get a first version into it.
fn start_advice(command: &str, is_empty: bool, has_source: bool, inbox: Option<&Path>) -> String {
    match inbox {
        _ if !is_empty => format!("`{command}` serves what the store has"),
        _ if has_source => format!("`{command}` fetches the first version and serves it"),
        Some(inbox) => format!("copy a bundle to {}; `{command}` imports and serves it", inbox.display()),
        None => format!("`docwharf import BUNDLE`, or set a source or an inbox; then `{command}`"),
    }
}

/// Formats the status as text, the most important lines first. `start` is the advice if no daemon runs.
fn status_text(status: &status::StoreStatus, silent: Option<&str>, start: Option<&str>) -> String {
    let mut lines: Vec<(&str, String)> = vec![("store", status.store.display().to_string())];
    let mut line = |name, text: String| lines.push((name, text));
    line(
        "active",
        match (status.active, status.active_present) {
            (None, _) => "nothing yet".to_owned(),
            (Some(id), Some(false)) => format!("{} is missing from the store", id.short()),
            (Some(id), _) => {
                let labels = if status.active_labels.is_empty() {
                    String::new()
                } else {
                    format!(" ({})", status.active_labels.join(", "))
                };
                let since = status.active_since.as_ref().map_or_else(String::new, |since| format!(" since {since}"));
                format!("{}{labels}{since}", id.short())
            }
        },
    );
    match &status.daemon {
        None => line(
            "daemon",
            match silent {
                Some(why) => format!("one runs, but {why}: the following lines are read from the store"),
                None => "none runs on this store".to_owned(),
            },
        ),
        Some(daemon) => {
            line("daemon", format!("process {} since {}", daemon.pid, daemon.started));
            let is_serving = if daemon.served.is_some() { "serving" } else { "listening" };
            for url in &daemon.urls {
                line(is_serving, url.clone());
            }
            for url in &daemon.admin_urls {
                line("admin", url.clone());
            }
            for url in &daemon.waiting_urls {
                line("staged at", url.clone());
            }
            if let Some(tls) = &daemon.tls {
                let note = tls.error.as_ref().map_or_else(String::new, |error| format!("; {error}"));
                line("tls", format!("certificate until {}{note}", tls.not_after));
            }
            if let Some(publish) = &daemon.publish {
                let what = publish.version.map_or_else(|| "nothing yet".to_owned(), |id| id.short());
                let note = publish.error.as_ref().map_or_else(String::new, |error| format!("; {error}"));
                line("published", format!("{what} in {}{note}", publish.directory.display()));
            }
            if let Some(inbox) = &daemon.inbox {
                line("inbox", inbox.error.clone().unwrap_or_else(|| describe_inbox(inbox)));
            }
            if let Some(csp) = &daemon.csp {
                line("policy", describe_policies(csp));
            }
            if let Some(codings) = &daemon.codings {
                line("codings", describe_codings(codings));
            }
            if let Some(search) = &daemon.search {
                line("search", describe_search(search));
                if let Some(barrier) = &search.box_forbidden {
                    line("search box", format!("browsers refuse its script: {barrier}"));
                }
            }
            if let Some(recording) = &daemon.analytics {
                line("analytics", describe_recording(recording));
            }
            if let Some(delivery) = &daemon.delivery {
                line("delivery", describe_delivery(delivery));
            }
            if daemon.served != status.active {
                let served = daemon.served.map_or_else(|| "nothing".to_owned(), |id| id.short());
                let why = "the active version cannot be served; the log has the reason";
                line("served", format!("{served}, because {why}"));
            }
        }
    }
    if let Some(id) = status.previous {
        line("previous", id.short());
    }
    let waiting = status.waiting.as_ref().filter(|waiting| ["manual", "gate"].contains(&waiting.waits.as_str()));
    if let Some(waiting) = waiting {
        let id = waiting.version;
        let refused = status.gate.as_ref().filter(|gate| gate.version == id).and_then(|gate| gate.refused.as_ref());
        let refused = refused.map_or_else(String::new, |why| format!(", the gate refused it at the last check: {why}"));
        line("staged", format!("{}{refused}; {}", id.short(), waiting.advice));
    }
    let waiting_id = waiting.map(|waiting| waiting.version);
    if let Some(id) = status.newest.filter(|_| status.newest != status.active && status.newest != waiting_id) {
        line("newest", format!("{}, not active", id.short()));
    }
    if let Some(hold) = &status.hold {
        line("held", format!("by {} since {}: {}", resolve_uid_name(&hold.author), hold.when, hold.why));
    }
    if let Some(pin) = &status.pin {
        let note = if status.active_labels.contains(pin) { "" } else { ", which is not the active version" };
        line("pinned to", format!("{pin}{note}"));
    }
    for id in &status.damaged_versions {
        line("damaged", format!("{}: import its bundle again to replace it, and check the disk", id.short()));
    }
    add_source_lines(status, &mut line);
    if let (None, Some(start)) = (&status.daemon, start) {
        line("next step", start.to_owned());
    }
    if let Some(error) = &status.config_error {
        line("config", format!("not taken over: {error}"));
    }
    let restart_keys = status.daemon.as_ref().map_or(&[][..], |daemon| &daemon.restart_keys);
    if !restart_keys.is_empty() {
        let (has, values) = if restart_keys.len() == 1 { ("has", "value") } else { ("have", "values") };
        let keys = restart_keys.join(", ");
        line("restart", format!("{keys} {has} changed: restart docwharf to apply the new {values}"));
    }
    lines.iter().fold(String::new(), |mut all, (name, text)| {
        let _ = writeln!(all, "{name:11}{}", OneLine(text));
        all
    })
}

/// Describes in words an inbox that can be used.
fn describe_inbox(inbox: &status::InboxStatus) -> String {
    let status::InboxStatus { directory, file_error, rejected, last_rejected, waiting, first_waiting, .. } = inbox;
    let mut text = directory.display().to_string();
    if let Some(last) = last_rejected {
        let _ = write!(text, "; {rejected} rejected since the start, the last: {last}");
    }
    if let Some(first) = first_waiting {
        let verb = if *waiting == 1 { "waits" } else { "wait" };
        let _ = write!(text, "; {} {verb}, the first: {first}", format_count(*waiting, "file"));
    }
    // The last file is usually one of those two.
    if let Some(error) =
        file_error.as_ref().filter(|error| ![last_rejected, first_waiting].contains(&&Some((*error).clone())))
    {
        let _ = write!(text, "; {error}");
    }
    text
}

/// Describes the content security policies in words.
fn describe_policies(csp: &status::CspStatus) -> String {
    if !csp.ready {
        return format!("{}: the pages of {} are being read", csp.preset, csp.version.short());
    }
    let exceptions = csp.too_long + csp.unsure;
    let exceptions = if exceptions == 0 {
        String::new()
    } else {
        let (long, unsure) = (csp.too_long, csp.unsure);
        format!("; {exceptions} allow all inline scripts ({long} would be too long, {unsure} are not certain)")
    };
    format!("{}: {}, at most {} bytes{exceptions}", csp.preset, format_count(csp.pages, "page"), csp.longest)
}

/// Describes the precompressed codings in words.
fn describe_codings(codings: &status::PrecompressedStatus) -> String {
    let describe = |made: &status::PrecompressedCodingStatus| {
        format!("{} for {} ({})", made.coding, format_count(made.files, "file"), format_size(made.bytes))
    };
    let mut all: Vec<String> = codings.made.iter().map(describe).collect();
    match &codings.error {
        Some(error) => all.push(format!("not made: {error}")),
        None if !codings.ready => all.push(format!("compressed copies of {} are being made", codings.version.short())),
        None => {}
    }
    all.join("; ")
}

/// Describes the search of the site in words.
fn describe_search(search: &status::SearchStatus) -> String {
    let index = match (&search.error, search.pages, search.sections, search.bytes) {
        (Some(error), ..) => format!("the index is not built: {error}"),
        (None, Some(pages), Some(sections), Some(bytes)) => {
            let [pages, sections] = [(pages, "page"), (sections, "section")].map(|(n, noun)| format_count(n, noun));
            format!("{pages}, {sections} ({})", format_size(bytes))
        }
        _ => format!("the index of {} is being built", search.version.short()),
    };
    match (search.has_box, &search.box_why) {
        (Some(true), Some(why)) => format!("{index}; pages get the search box: {why}"),
        (Some(false), Some(why)) => format!("{index}; pages get no search box: {why}"),
        _ => index,
    }
}

/// Describes the recording of what readers do in words.
fn describe_recording(recording: &status::RecordingStatus) -> String {
    let status::RecordingStatus { bytes, searches, clicks, views, dropped, error, damaged_file } = recording;
    let searches = if *searches == 1 { "1 search".to_owned() } else { format!("{searches} searches") };
    let [clicks, views] = [(*clicks, "click"), (*views, "view")].map(|(n, noun)| format_count(n, noun));
    let note = error.as_ref().map_or_else(String::new, |error| format!("; not recorded at the moment: {error}"));
    let moved = damaged_file.as_ref().map_or_else(String::new, |file| format!("; damaged, now {}", file.display()));
    format!("{searches}, {clicks}, {views}; {dropped} lost; {}{moved}{note}", format_size(*bytes))
}

/// Describes the delivery of what is recorded in words.
fn describe_delivery(delivery: &status::DeliveryStatus) -> String {
    let searches = |n: u64| if n == 1 { "1 search".to_owned() } else { format!("{n} searches") };
    let counts = |n: u64| format_count(n, "count");
    let mut text = format!("{} and {} to {}", searches(delivery.searches), counts(delivery.counts), delivery.to);
    let _ = write!(text, "; {} and {} wait", searches(delivery.waiting_searches), counts(delivery.waiting_counts));
    if delivery.refused_batches + delivery.refused_counts > 0 {
        let batches = if delivery.refused_batches == 1 { "batch" } else { "batches" };
        let (refused, counts) = (delivery.refused_batches, counts(delivery.refused_counts));
        let _ = write!(text, "; {refused} {batches} of searches and {counts} refused");
    }
    if delivery.undelivered_searches > 0 {
        let _ = write!(text, "; {} not delivered, because too many waited", searches(delivery.undelivered_searches));
    }
    if let Some(error) = &delivery.error {
        let _ = write!(text, "; {error}");
    }
    text
}

/// Describes a source. That of an API, `BASE-URL#DOMAIN` ([`ApiSource::name`]), names the domain first. The URL of a
/// link has no fragment here.
///
/// [`ApiSource::name`]: docwharf_agent::sync::ApiSource::name
fn describe_source(source: &str) -> String {
    match source.rsplit_once('#').filter(|_| source.starts_with("http")) {
        Some((base, domain)) => format!("{domain} through {base}"),
        None => source.to_owned(),
    }
}

/// Adds the lines about the source: the last attempt to sync, advice if it failed, and the job in progress.
fn add_source_lines(status: &status::StoreStatus, line: &mut impl FnMut(&'static str, String)) {
    if let Some(source) = &status.source {
        line("source", describe_source(source));
    } else if let Some(ways) = status.ways_without_source() {
        line("source", format!("none: {ways}"));
    }
    let is_checking = status.daemon.as_ref().is_some_and(|now| now.doing.is_some() && now.doing_error.is_none());
    if let Some(attempt) = &status.last_attempt {
        let saw = attempt.saw.as_ref().map_or_else(String::new, |saw| format!("; found: {saw}"));
        line("last check", format!("{} {}{saw}", attempt.time, attempt.result));
        // A check in progress may have got past the error of the last one.
        if let Some(error) = attempt.error.as_ref().filter(|_| !is_checking) {
            let times =
                if attempt.failures > 1 { format!(" ({} times in a row)", attempt.failures) } else { String::new() };
            line("error", format!("{error}{times}"));
        }
    }
    if let Some(advice) = status.advice.as_ref().filter(|_| !is_checking) {
        line("next step", advice.clone());
    }
    let is_said = |why: &String| {
        status.ways_without_source().is_some()
            || status.last_attempt.as_ref().is_some_and(|attempt| attempt.saw.as_ref() == Some(why))
    };
    if let Some(why) = status.why.as_ref().filter(|why| !is_said(why)) {
        line("why", why.clone());
    }
    if let Some(job) = &status.job {
        line("export", format!("{} since {}", job.id, job.started));
    }
    if let Some(daemon) = &status.daemon
        && let Some(doing) = &daemon.doing
    {
        let error = daemon.doing_error.as_ref().map_or_else(String::new, |error| format!("; {error}"));
        line("doing", format!("{doing}{error}"));
    }
    if let Some(next) = &status.next_check {
        line("next check", next.clone());
    }
}

impl VersionsCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let store = VersionStore::at(&context.store()?);
        let record = store.record()?;
        let versions = store.versions()?;
        let mut list = Vec::new();
        let mut text = if versions.is_empty() {
            "no versions\n".to_owned()
        } else {
            version_line(["version", "role", "arrived", "size", "labels and source"])
        };
        for version in versions {
            let labels: Vec<&String> =
                record.labels.iter().filter(|(_, l)| l.version == version.id).map(|(label, _)| label).collect();
            let role = if record.active == Some(version.id) {
                "active"
            } else if record.previous == Some(version.id) {
                "previous"
            } else {
                ""
            };
            let receipt = version.receipts.last();
            let time = receipt.map_or("-", |receipt| receipt.time.as_str());
            let source = receipt.map_or("-", |receipt| receipt.source.as_str());
            let names = labels.iter().map(|label| label.as_str()).collect::<Vec<_>>().join(",");
            let names = if names.is_empty() { source.to_owned() } else { format!("{names}  {source}") };
            text += &version_line([&version.id.short(), role, time, &format_size(version.bytes), &names]);
            list.push(json!({
                "id": version.id,
                "role": if role.is_empty() { None } else { Some(role) },
                "bytes": version.bytes,
                "labels": labels,
                "receipts": version.receipts,
            }));
        }
        context.print_result(&json!({ "schemaVersion": 1, "versions": list }), &text)
    }
}

/// Formats a line of the list of versions: id, role, time of arrival, size, labels and source.
fn version_line([id, role, time, size, names]: [&str; 5]) -> String {
    format!("{id:12}  {role:8}  {time:20}  {size:>8}  {}\n", OneLine(names))
}

#[cfg(test)]
mod tests;
