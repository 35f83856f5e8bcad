//! Scenarios: commands that change a store, and the checks after an interruption at any step. All persistent files are
//! in one folder, `disk`: the store, the inbox and the published folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::tracer::{Interruption, Step, TracePlan, TraceResult, trace};
use support::host::{Host, expect_plain_exit, run_with_timeout, toml_string};
use support::tar::{file, gzip, tar};
use support::upstream::Upstream;
use support::zip::{deflated, stored, zip};
use support::{Daemon, docwharf, http, memory_folder, read_tree, run_to_end, until};

/// The files of the site `name`. All but `same.css` contain the name; `same.css` becomes a hard link when it is
/// published.
fn site_files(name: &str) -> [(&'static str, String); 4] {
    [
        ("guide.html", format!("<p>{name}{}</p>", " tide".repeat(300))),
        ("index.html", format!("<title>{name}</title>")),
        ("logo.png", format!("not really a picture of {name}")),
        ("same.css", "p { color: navy }".to_owned()),
    ]
}

/// The site as a ZIP whose bytes are adopted by the seal.
fn zip_bundle(name: &str) -> Vec<u8> {
    let [guide, index, logo, style] = site_files(name);
    zip(&[
        deflated(index.0, &index.1),
        deflated(guide.0, &guide.1),
        stored(logo.0, &logo.1),
        deflated(style.0, &style.1),
    ])
}

/// The site as a tar.gz, from which the seal writes a new image.
fn tar_bundle(name: &str) -> Vec<u8> {
    gzip(&tar(&site_files(name).iter().map(|(path, text)| file(path, text)).collect::<Vec<_>>()))
}

/// The state of a store that an operator relies on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SiteState {
    /// The name of the active site.
    pub(crate) active: Option<String>,
    pub(crate) held: bool,
}

/// The action of a scenario.
#[derive(Debug, Clone)]
enum Action {
    Command(Vec<String>),
    /// A daemon imports this file from its inbox.
    Inbox(&'static str),
}

/// A store, and an action on it.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    template: Host,
    _upstream: Option<Upstream>,
    action: Action,
    /// The command that completes the action after an interruption.
    repeat_arguments: Vec<String>,
    /// The name of the site of each version id.
    ids: BTreeMap<String, &'static str>,
    pub(crate) before: SiteState,
    pub(crate) after: SiteState,
    intermediate: Option<SiteState>,
    /// The maximum number of versions after the action.
    max_versions: usize,
    publishes: bool,
    /// No earlier version may be removed: `sync.keep` retains all.
    keeps_all_versions: bool,
}

fn to_owned_strings(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|&argument| argument.to_owned()).collect()
}

/// The names of all sites. Published sites have names of different lengths, so that their pages differ in size, and no
/// page of another site with an equal size and date can be mistaken for it.
const SITES: [&str; 4] = ["eldest", "old", "newer", "other"];

impl Scenario {
    /// The commands in `prepare` make the state before the action.
    fn new(
        name: &'static str,
        host: Host,
        upstream: Option<Upstream>,
        prepare: &[&[&str]],
        action: Action,
    ) -> Scenario {
        // The scrub and the build of the Markdown would add steps at any moment.
        let host = host.set("store.path", toml_string("disk/store")).set("store.scrub", toml_string("0s"));
        let host = host.without_assistants();
        std::fs::create_dir_all(host.path("disk/store")).expect("a folder");
        let mut ids = BTreeMap::new();
        for name in SITES {
            host.put(&format!("{name}.zip"), zip_bundle(name));
            host.put(&format!("{name}.tar.gz"), tar_bundle(name));
            let verified =
                run_to_end(docwharf().args(["bundle", "verify", "--json"]).arg(host.path(&format!("{name}.zip"))));
            ids.insert(verified.expect(0).json()["version"].as_str().expect("an id").to_owned(), name);
        }
        let repeat_arguments = match &action {
            Action::Command(arguments) => arguments.clone(),
            Action::Inbox(_) => Vec::new(),
        };
        let empty = SiteState { active: None, held: false };
        let (before, after) = (empty.clone(), empty);
        let mut scenario = Scenario {
            name,
            template: host,
            _upstream: upstream,
            action,
            repeat_arguments,
            ids,
            before,
            after,
            intermediate: None,
            max_versions: 2,
            publishes: false,
            keeps_all_versions: false,
        };
        scenario.prepare(prepare);
        if let Action::Command(arguments) = &scenario.action {
            scenario.action =
                Action::Command(arguments.iter().map(|argument| scenario.replace_ids(argument)).collect());
        }
        scenario.repeat_arguments =
            scenario.repeat_arguments.iter().map(|argument| scenario.replace_ids(argument)).collect();
        scenario
    }

    /// Runs further commands that make the state before the action.
    fn prepare(&mut self, commands: &[&[&str]]) {
        for arguments in commands {
            let arguments: Vec<String> = arguments.iter().map(|argument| self.replace_ids(argument)).collect();
            expect_plain_exit(0, run_with_timeout(&mut command(self.template.dir.path(), &arguments)));
        }
        self.before = self.site_state(self.template.dir.path());
    }

    /// Replaces `<old>` by the version id of the site `old`.
    fn replace_ids(&self, argument: &str) -> String {
        let found = self.ids.iter().find(|(_, name)| argument == format!("<{name}>"));
        found.map_or_else(|| argument.to_owned(), |(id, _)| id.clone())
    }

    fn with_repeat_arguments(mut self, arguments: &[&str]) -> Scenario {
        self.repeat_arguments = arguments.iter().map(|argument| self.replace_ids(argument)).collect();
        self
    }

    /// Allows `site_state` as a third state, between the two steps of the action.
    fn with_intermediate(mut self, site_state: SiteState) -> Scenario {
        self.intermediate = Some(site_state);
        self
    }

    fn store(&self, dir: &Path) -> PathBuf {
        dir.join("disk/store")
    }

    /// The state in the record. Panics if the record cannot be read.
    fn site_state(&self, dir: &Path) -> SiteState {
        let Ok(bytes) = std::fs::read(self.store(dir).join("state.json")) else {
            return SiteState { active: None, held: false };
        };
        let record: Value = serde_json::from_slice(&bytes)
            .unwrap_or_else(|error| panic!("state.json: {error}: {}", String::from_utf8_lossy(&bytes)));
        let active = record["active"].as_str().map(|id| self.ids[id].to_owned());
        SiteState { active, held: !record["hold"].is_null() }
    }
}

fn command(dir: &Path, arguments: &[String]) -> Command {
    let mut command = docwharf();
    command.args(arguments).arg("--config").arg(dir.join("docwharf.toml")).env("USER", "tester").current_dir(dir);
    command
}

/// A folder in which a scenario runs once.
pub(crate) struct ScenarioRun<'a> {
    scenario: &'a Scenario,
    dir: tempfile::TempDir,
}

impl<'a> ScenarioRun<'a> {
    /// Makes a folder with the state before the action.
    pub(crate) fn new(scenario: &'a Scenario) -> ScenarioRun<'a> {
        let run = ScenarioRun::without_disk(scenario);
        run.copy_disk();
        run
    }

    /// Runs the scenario until `step` is reached, at most three times.
    #[track_caller]
    pub(crate) fn run_to_step(
        scenario: &'a Scenario,
        step: &Step,
        interruption: Interruption<'_>,
    ) -> (ScenarioRun<'a>, TraceResult) {
        for _ in 0..3 {
            let run = ScenarioRun::new(scenario);
            let result = run.run_scenario(Some((step, interruption)));
            if result.was_reached {
                return (run, result);
            }
        }
        panic!("{}: {step} is never reached", scenario.name);
    }

    /// Makes the folder with an empty `disk`, on which the caller mounts a file system.
    pub(crate) fn without_disk(scenario: &'a Scenario) -> ScenarioRun<'a> {
        let dir = memory_folder();
        for entry in std::fs::read_dir(scenario.template.dir.path()).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_file() {
                let target = dir.path().join(path.file_name().expect("a name"));
                std::fs::copy(&path, target).expect("files can be copied");
            }
        }
        std::fs::create_dir(dir.path().join("disk")).expect("a folder");
        ScenarioRun { scenario, dir }
    }

    /// Copies the state before the action to `disk`.
    pub(crate) fn copy_disk(&self) {
        let from = self.scenario.template.path("disk/.");
        let copied = Command::new("cp").arg("-a").arg(from).arg(self.disk()).status().expect("cp runs");
        assert!(copied.success());
    }

    pub(crate) fn disk(&self) -> PathBuf {
        self.dir.path().join("disk")
    }

    /// Runs the action under the tracer.
    pub(crate) fn run_scenario(&self, interruption: Option<(&Step, Interruption<'_>)>) -> TraceResult {
        let names: Vec<(String, String)> =
            self.scenario.ids.iter().map(|(id, name)| (id.clone(), format!("<{name}>"))).collect();
        let disk = self.disk();
        let plan = TracePlan { folder: &disk, replacements: &names, interruption };
        match &self.scenario.action {
            Action::Command(arguments) => trace(&mut command(self.dir.path(), arguments), &plan, |_| ()),
            Action::Inbox(file) => {
                std::fs::create_dir_all(disk.join("inbox")).expect("a folder");
                std::fs::copy(self.dir.path().join(file), disk.join("inbox").join(file)).expect("files can be copied");
                // The file in the inbox is on disk before the daemon starts.
                let folder = std::fs::File::open(&disk).expect("the folder is there");
                rustix::fs::syncfs(folder).expect("the file system is synced");
                let call_fails = matches!(interruption, Some((_, Interruption::Fail(_))));
                let is_over = Arc::new(AtomicBool::new(false));
                let result = trace(&mut command(self.dir.path(), &to_owned_strings(&["run"])), &plan, |pid| {
                    let (accepted, state, is_over) =
                        (disk.join("inbox/accepted").join(file), disk.clone(), is_over.clone());
                    let new = self.scenario.replace_ids("<newer>");
                    std::thread::spawn(move || stop_after_import(pid, &accepted, &state, &new, call_fails, &is_over));
                });
                is_over.store(true, Ordering::Relaxed);
                result
            }
        }
    }

    /// Whether success was reported to the caller.
    pub(crate) fn is_acknowledged(&self, result: &TraceResult) -> bool {
        match &self.scenario.action {
            Action::Command(_) => result.code == Some(0),
            Action::Inbox(file) => self.disk().join("inbox/accepted").join(file).exists(),
        }
    }

    /// The current state. Panics unless it is the state before or after the action, or an allowed one between.
    #[track_caller]
    pub(crate) fn site_state(&self, case: &str) -> SiteState {
        let site_state = self.scenario.site_state(self.dir.path());
        let Scenario { before, after, intermediate, .. } = self.scenario;
        let is_expected = site_state == *before || site_state == *after || Some(&site_state) == intermediate.as_ref();
        assert!(is_expected, "{case}: {site_state:?} is neither {before:?} nor {after:?}");
        site_state
    }

    /// Checks what is served, published and stored after an interruption, and that the action can be completed. Returns
    /// the name of the served site, with ", held" if it is held.
    #[track_caller]
    pub(crate) fn assert_consistent(&self, case: &str, acknowledged: bool) -> String {
        let Scenario { before, after, .. } = self.scenario;
        let site_state = self.site_state(case);
        assert!(!acknowledged || site_state == *after, "{case}: success was reported, but the state is {site_state:?}");
        self.assert_needed_versions_exist(case);
        self.assert_receipts_exist(case);
        let published_site = self.published_site(case);
        assert!(
            !self.scenario.publishes || published_site == before.active || published_site == after.active,
            "{case}: published is {published_site:?}"
        );
        assert!(
            !acknowledged || !self.scenario.publishes || published_site == after.active,
            "{case}: {published_site:?}"
        );
        let served_site = self.served_site(case);
        assert!(served_site == before.active || served_site == after.active, "{case}: served is {served_site:?}");
        assert!(
            !acknowledged || served_site == after.active,
            "{case}: success was reported, but the served site is {served_site:?}"
        );
        self.assert_succeeds(case, &to_owned_strings(&["store", "verify"]));
        self.repeat(case);
        assert_eq!(self.site_state(case), *after, "{case}: after the repetition");
        if self.scenario.publishes {
            assert_eq!(self.published_site(case), after.active, "{case}: after the repetition");
        }
        self.assert_no_leftovers(case);
        let served_site = served_site.unwrap_or_else(|| "nothing".to_owned());
        if site_state.held { served_site + ", held" } else { served_site }
    }

    /// Checks that the versions that the record needs still exist: active, previous and labelled ones. If `sync.keep`
    /// retains all versions, all must exist.
    #[track_caller]
    fn assert_needed_versions_exist(&self, case: &str) {
        let bytes = std::fs::read(self.scenario.store(self.dir.path()).join("state.json")).unwrap_or_default();
        let record: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let labelled = record["labels"].as_object().into_iter().flatten().map(|(_, label)| &label["version"]);
        let needed: Vec<&str> =
            [&record["active"], &record["previous"]].into_iter().chain(labelled).filter_map(Value::as_str).collect();
        let stored = names(&self.scenario.store(self.dir.path()).join("versions"));
        // A version that arrived in this run may have been removed again, though the record still names it.
        for id in names(&self.scenario.store(self.scenario.template.dir.path()).join("versions")) {
            let may_go = !self.scenario.keeps_all_versions && !needed.contains(&id.as_str());
            assert!(may_go || stored.contains(&id), "{case}: {} is gone: {record}", self.scenario.ids[&id]);
        }
    }

    /// Checks that each version in the record has a receipt. It is written first, because a lost record is made from
    /// receipts.
    #[track_caller]
    fn assert_receipts_exist(&self, case: &str) {
        let store = self.scenario.store(self.dir.path());
        let bytes = std::fs::read(store.join("state.json")).unwrap_or_default();
        let record: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let labelled = record["labels"].as_object().into_iter().flatten().map(|(_, label)| &label["version"]);
        for id in [&record["active"], &record["newest"]].into_iter().chain(labelled).filter_map(Value::as_str) {
            let has_receipt = || names(&store.join("receipts").join(id)).iter().any(|name| !name.starts_with('.'));
            let is_stored = store.join("versions").join(id).exists();
            assert!(!is_stored || has_receipt(), "{case}: no receipt of {}: {record}", self.scenario.ids[id]);
        }
    }

    #[track_caller]
    fn assert_succeeds(&self, case: &str, arguments: &[String]) {
        let ended = run_with_timeout(&mut command(self.dir.path(), arguments));
        assert_eq!(ended.code, Some(0), "{case}: then {arguments:?}: {ended:?}");
    }

    /// Completes the action without interruption.
    #[track_caller]
    fn repeat(&self, case: &str) {
        let Action::Inbox(file) = &self.scenario.action else {
            return self.assert_succeeds(case, &self.scenario.repeat_arguments);
        };
        let (inbox, accepted) = (self.disk().join("inbox").join(file), self.disk().join("inbox/accepted").join(file));
        assert!(inbox.exists() != accepted.exists(), "{case}: the bundle is lost, or there twice");
        let daemon = Daemon::start(command(self.dir.path(), &to_owned_strings(&["run"])).stderr(Stdio::null()));
        until(&format!("{case}: the bundle is imported"), || accepted.exists());
        until(&format!("{case}: the new site is served"), || {
            http::get(&daemon.address, "/").text()
                == format!("<title>{}</title>", self.scenario.after.active.as_deref().unwrap_or(""))
        });
        let versions = self.scenario.store(self.dir.path()).join("versions");
        until(&format!("{case}: surplus versions are pruned"), || names(&versions).len() <= self.scenario.max_versions);
        daemon.signal("TERM");
        let mut daemon = daemon;
        assert_eq!(daemon.wait(Duration::from_mins(1)), Some(0), "{case}");
    }

    /// The site that a restarted daemon serves, with all its pages. Syncs are off, so it comes from the store.
    #[track_caller]
    fn served_site(&self, case: &str) -> Option<String> {
        let mut start = command(self.dir.path(), &to_owned_strings(&["run"]));
        let daemon = Daemon::start(start.env("DOCWHARF_STATIC_EXPORT__ENABLED", "false").stderr(Stdio::null()));
        let first = http::get(&daemon.address, "/");
        if first.status == 503 {
            return None;
        }
        let front = first.text();
        let name = SITES.into_iter().find(|name| front == site_files(name)[1].1);
        let name = name.unwrap_or_else(|| panic!("{case}: unexpected front page: {front:?}"));
        for (path, text) in site_files(name) {
            let path = format!("/{}", path.trim_end_matches(".html"));
            assert_eq!(http::get(&daemon.address, &path).text(), text, "{case}: {path} of {name}");
        }
        Some(name.to_owned())
    }

    /// The complete site in the published folder. Panics if a folder with a version id is incomplete.
    #[track_caller]
    fn published_site(&self, case: &str) -> Option<String> {
        let www = self.disk().join("www");
        let complete_site = |dir: &Path| {
            let files = read_tree(dir);
            let matches = |name: &str| {
                files
                    .iter()
                    .map(|(path, bytes)| (path.as_str(), bytes.as_slice()))
                    .eq(site_files(name).iter().map(|(path, text)| (*path, text.as_bytes())))
            };
            SITES.into_iter().find(|name| matches(name)).map(str::to_owned)
        };
        for entry in std::fs::read_dir(&www).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            if self.scenario.ids.contains_key(&*path.file_name().expect("a name").to_string_lossy()) {
                assert!(
                    complete_site(&path).is_some(),
                    "{case}: {} is incomplete: {:?}",
                    path.display(),
                    read_tree(&path)
                );
            }
        }
        let current = www.join("current");
        if std::fs::symlink_metadata(&current).is_err() {
            return None;
        }
        Some(complete_site(&current).unwrap_or_else(|| panic!("{case}: the published site is incomplete")))
    }

    #[track_caller]
    fn assert_no_leftovers(&self, case: &str) {
        let store = self.scenario.store(self.dir.path());
        let expected = [
            "derived",
            "downloads",
            "history.jsonl",
            "lock",
            "receipts",
            "staging",
            "state.json",
            "suspect",
            "versions",
        ];
        // SQLite has files beside `analytics.db` until that is closed, and removes them when it is opened again.
        let is_expected = |name: &str| expected.contains(&name) || name.starts_with("analytics.db");
        let unexpected: Vec<String> = names(&store).into_iter().filter(|name| !is_expected(name)).collect();
        assert!(unexpected.is_empty(), "{case}: {unexpected:?} in the store");
        assert_eq!(names(&store.join("staging")), [""; 0], "{case}");
        assert_eq!(names(&store.join("downloads")), [""; 0], "{case}");
        let versions = names(&store.join("versions"));
        assert!(versions.len() <= self.scenario.max_versions, "{case}: {versions:?}");
        for id in &versions {
            assert_eq!(names(&store.join("versions").join(id)), ["index", "site.zip"], "{case}");
        }
        // The daemon may have made Brotli and Zstandard forms. A half-made one stays if its thread got no processor
        // within a second after SIGTERM; the next start removes it.
        for id in names(&store.join("derived")) {
            assert!(versions.contains(&id), "{case}: codings of {id}, which is gone");
            let codings = names(&store.join("derived").join(&id));
            assert!(
                codings.iter().all(|name| ["brotli", "zstd", ".brotli.new", ".zstd.new"].contains(&name.as_str())),
                "{case}: {codings:?}"
            );
        }
        for id in names(&store.join("receipts")) {
            assert!(versions.contains(&id), "{case}: a receipt of {id}, which is gone");
            let unexpected = names(&store.join("receipts").join(&id)).into_iter().find(|name| name.starts_with('.'));
            assert_eq!(unexpected, None, "{case}");
        }
        let www = names(&self.disk().join("www"));
        let unexpected = www.iter().find(|name| name.starts_with(".staging") || name.strip_suffix(".new").is_some());
        assert_eq!(unexpected, None, "{case}");
        for line in std::fs::read_to_string(store.join("history.jsonl")).unwrap_or_default().lines() {
            // A line whose bytes a power cut lost is all zeros. Readers skip it.
            let is_whole = serde_json::from_str::<Value>(line).is_ok();
            assert!(is_whole || line.bytes().all(|byte| byte == 0), "{case}: torn history: {line:?}");
        }
    }
}

/// The number of each outcome in this column, as a text.
pub(crate) fn count_outcomes<const N: usize>(outcomes: &[[String; N]], column: usize) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for row in outcomes {
        match counts.iter_mut().find(|(outcome, _)| *outcome == row[column]) {
            Some((_, n)) => *n += 1,
            None => counts.push((&row[column], 1)),
        }
    }
    counts.iter().map(|(outcome, n)| format!("{n} × {outcome}")).collect::<Vec<_>>().join(", ")
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Stops the daemon once it has imported the bundle. If a call was made to fail, the file may stay in the inbox: then
/// the daemon is stopped one second after its site has become active.
fn stop_after_import(pid: u32, accepted: &Path, disk: &Path, new: &str, call_fails: bool, is_over: &AtomicBool) {
    let is_active = || {
        let state = std::fs::read_to_string(disk.join("store/state.json")).unwrap_or_default();
        serde_json::from_str::<Value>(&state).is_ok_and(|state| state["active"] == new)
    };
    let mut active_since = None;
    while !is_over.load(Ordering::Relaxed) {
        let has_waited = call_fails
            && is_active()
            && active_since.get_or_insert_with(Instant::now).elapsed() > Duration::from_secs(1);
        if accepted.exists() || has_waited {
            let _ = Command::new("kill").args(["-TERM", &pid.to_string()]).status();
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A host that keeps only the active and the previous version.
fn host_keeping_none() -> Host {
    Host::bare().set("sync.keep", "0")
}

const IMPORT_TWO: [&[&str]; 2] = [&["import", "eldest.zip"], &["import", "old.zip"]];

/// Makes the scenario with this name.
pub(crate) fn scenario(name: &str) -> Scenario {
    let action_of = |arguments: &[&str]| Action::Command(to_owned_strings(arguments));
    match name {
        "import" => Scenario::new(
            "import",
            host_keeping_none(),
            None,
            &IMPORT_TWO,
            action_of(&["import", "newer.zip", "--label", "L"]),
        ),
        "import of a labelled version" => {
            // Neither active nor previous: only its label retains it.
            let prepare: [&[&str]; 3] =
                [&["import", "eldest.zip", "--label", "L"], IMPORT_TWO[1], &["import", "other.zip"]];
            let action = action_of(&["import", "eldest.zip"]);
            let scenario = Scenario::new("import of a labelled version", host_keeping_none(), None, &prepare, action);
            Scenario { max_versions: 3, ..scenario }
        }
        "import of stored content" => {
            // The record does not name it, and `sync.keep` retains it.
            let prepare: [&[&str]; 3] = [IMPORT_TWO[0], IMPORT_TWO[1], &["import", "other.zip"]];
            let host = Host::bare().set("sync.keep", "1");
            let action = action_of(&["import", "eldest.zip"]);
            let scenario = Scenario::new("import of stored content", host, None, &prepare, action);
            Scenario { max_versions: 3, keeps_all_versions: true, ..scenario }
        }
        "import of the active content" => {
            let action = action_of(&["import", "old.zip"]);
            let scenario =
                Scenario::new("import of the active content", host_keeping_none(), None, &IMPORT_TWO, action);
            Scenario { keeps_all_versions: true, ..scenario }
        }
        "import of a tar" => Scenario::new(
            "import of a tar",
            host_keeping_none(),
            None,
            &IMPORT_TWO,
            action_of(&["import", "newer.tar.gz"]),
        ),
        "first sync" => {
            let upstream = Upstream::new(zip_bundle("newer"));
            let scenario = Scenario::new("first sync", Host::linked(&upstream.link()), None, &[], action_of(&["sync"]));
            Scenario { _upstream: Some(upstream), ..scenario }
        }
        "sync" => {
            let upstream = Upstream::new(zip_bundle("old"));
            let host = Host::linked(&upstream.link()).set("sync.keep", "0");
            let scenario =
                Scenario::new("sync", host, None, &[&["import", "eldest.zip"], &["sync"]], action_of(&["sync"]));
            upstream.publish(zip_bundle("newer"));
            Scenario { _upstream: Some(upstream), ..scenario }
        }
        "sync of stored content" => {
            // It was imported, so the sync finds out that the store has it only after the seal.
            let upstream = Upstream::new(zip_bundle("old"));
            let host = Host::linked(&upstream.link()).set("sync.keep", "0");
            let prepare: [&[&str]; 2] = [&["import", "eldest.zip"], &["sync"]];
            let scenario = Scenario::new("sync of stored content", host, None, &prepare, action_of(&["sync"]));
            upstream.publish(zip_bundle("eldest"));
            Scenario { _upstream: Some(upstream), keeps_all_versions: true, ..scenario }
        }
        "sync to an earlier bundle" => {
            // The source had it before: its validator is known, and the store has the version.
            let upstream = Upstream::new(zip_bundle("eldest"));
            let host = Host::linked(&upstream.link()).set("sync.keep", "0");
            let mut scenario =
                Scenario::new("sync to an earlier bundle", host, None, &[&["sync"]], action_of(&["sync"]));
            upstream.publish(zip_bundle("old"));
            scenario.prepare(&[&["sync"]]);
            upstream.publish(zip_bundle("eldest"));
            Scenario { _upstream: Some(upstream), keeps_all_versions: true, ..scenario }
        }
        "sync of a job" => {
            let upstream = Upstream::new(zip_bundle("old"));
            let host = Host::new(&upstream).set("sync.keep", "0");
            let scenario = Scenario::new(
                "sync of a job",
                host,
                None,
                &[&["import", "eldest.zip"], &["sync"]],
                action_of(&["sync"]),
            );
            upstream.publish(zip_bundle("newer"));
            Scenario { _upstream: Some(upstream), ..scenario }
        }
        "activate" => {
            Scenario::new("activate", host_keeping_none(), None, &IMPORT_TWO, action_of(&["activate", "<eldest>"]))
        }
        "rollback" => Scenario::new("rollback", host_keeping_none(), None, &IMPORT_TWO, action_of(&["rollback"]))
            .with_repeat_arguments(&["activate", "<eldest>"]),
        "hold" => Scenario::new("hold", host_keeping_none(), None, &IMPORT_TWO, action_of(&["hold"])),
        "release" => {
            let prepare: [&[&str]; 3] = [IMPORT_TWO[0], IMPORT_TWO[1], &["rollback"]];
            let intermediate = SiteState { active: Some("eldest".to_owned()), held: false };
            Scenario::new("release", host_keeping_none(), None, &prepare, action_of(&["release"]))
                .with_intermediate(intermediate)
        }
        "gc" => {
            let prepare: [&[&str]; 4] =
                [IMPORT_TWO[0], IMPORT_TWO[1], &["import", "other.zip"], &["import", "newer.zip"]];
            let mut scenario =
                Scenario::new("gc", Host::bare().set("sync.keep", "9"), None, &prepare, action_of(&["gc"]));
            scenario.template.change("sync.keep", "0");
            scenario
        }
        "publish" => {
            let host = host_keeping_none().set("publish.directory", toml_string("disk/www"));
            let mut scenario = Scenario::new("publish", host, None, &IMPORT_TWO, action_of(&["import", "newer.zip"]));
            scenario.publishes = true;
            scenario
        }
        "publish of published content" => {
            // Its published folder exists as well.
            let host = host_keeping_none().set("publish.directory", toml_string("disk/www"));
            let action = action_of(&["import", "eldest.zip"]);
            let scenario = Scenario::new("publish of published content", host, None, &IMPORT_TWO, action);
            Scenario { publishes: true, keeps_all_versions: true, ..scenario }
        }
        "inbox" => {
            let host = host_keeping_none().set("sync.inbox", toml_string("disk/inbox"));
            Scenario::new("inbox", host, None, &IMPORT_TWO, Action::Inbox("newer.zip"))
        }
        _ => panic!("unknown scenario {name:?}"),
    }
    .with_state_after()
}

impl Scenario {
    /// Runs the scenario once and stores the state after it.
    fn with_state_after(mut self) -> Scenario {
        let run = ScenarioRun::new(&self);
        let result = run.run_scenario(None);
        assert_eq!(result.code, Some(0), "{}: {result:?}", self.name);
        let after = self.site_state(run.dir.path());
        drop(run);
        self.after = after;
        self
    }

    /// The steps of the scenario in order. Of more than eight writes to one file, only the first, the middle and the
    /// last.
    pub(crate) fn steps(&self) -> Vec<Step> {
        let record_steps = || -> Vec<Step> {
            let run = ScenarioRun::new(self);
            let result = run.run_scenario(None);
            assert_eq!(result.code, Some(0), "{}: {result:?}", self.name);
            result.steps.into_iter().filter(|(_, refused)| !refused).map(|(step, _)| step).collect()
        };
        // The number of writes of the record depends on the clock, so only steps of both runs count.
        let (mut steps, repeated) = (record_steps(), record_steps());
        steps.retain(|step| repeated.contains(step));
        let writes = |path: &str| steps.iter().filter(|step| step.call == "write" && step.path == path).count();
        let is_selected = |step: &&Step| {
            let last = writes(&step.path).saturating_sub(1);
            step.call != "write" || last < 8 || [0, last / 2, last].contains(&step.nth)
        };
        steps.iter().filter(is_selected).cloned().collect()
    }
}
