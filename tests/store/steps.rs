//! What is done to a store, step by step, and what must hold after it was interrupted at any of them. Everything that
//! lasts lies in one folder, `disk`: store, inbox and what is published.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::tracer::{Plan, Ran, Step, Then, trace};
use support::host::{Host, finish, judged, text};
use support::tar::{file, gzip, tar};
use support::upstream::Upstream;
use support::zip::{deflated, stored, zip};
use support::{Daemon, docwharf, end, http, quick_folder, read_tree, until};

/// The files of a site, of which each but one names it: that one is linked when the site is published.
fn site(name: &str) -> [(&'static str, String); 4] {
    [
        ("guide.html", format!("<p>{name}{}</p>", " tide".repeat(300))),
        ("index.html", format!("<title>{name}</title>")),
        ("logo.png", format!("not really a picture of {name}")),
        ("same.css", "p { color: navy }".to_owned()),
    ]
}

/// Such a site as a ZIP that is sealed as it is.
fn adopted(name: &str) -> Vec<u8> {
    let [guide, index, logo, style] = site(name);
    zip(&[
        deflated(index.0, &index.1),
        deflated(guide.0, &guide.1),
        stored(logo.0, &logo.1),
        deflated(style.0, &style.1),
    ])
}

/// The same site as a tar, which is written anew.
fn rewritten(name: &str) -> Vec<u8> {
    gzip(&tar(&site(name).iter().map(|(path, text)| file(path, text)).collect::<Vec<_>>()))
}

/// What an operator cares about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Truth {
    /// The name of the active site.
    pub(crate) active: Option<String>,
    pub(crate) held: bool,
}

/// How it is done.
#[derive(Debug, Clone)]
enum Doing {
    Command(Vec<String>),
    /// By a daemon that finds this file in its inbox.
    Inbox(&'static str),
}

/// Something that is done to a store.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    template: Host,
    _upstream: Option<Upstream>,
    doing: Doing,
    /// What brings the same about afterwards.
    again: Vec<String>,
    /// Ids and the names of their sites.
    ids: BTreeMap<String, &'static str>,
    pub(crate) before: Truth,
    pub(crate) after: Truth,
    between: Option<Truth>,
    /// Versions that there are at most afterwards.
    most: usize,
    publishes: bool,
    /// No version that was there before may go: `keep` keeps those that nothing else does.
    keeps_all: bool,
}

fn owned(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|&argument| argument.to_owned()).collect()
}

/// Names of sites that occur. Those that are published have names of different lengths, so that no page is taken for a
/// link to one of another site that has the same size and date.
const SITES: [&str; 4] = ["eldest", "old", "newer", "other"];

impl Scenario {
    /// `prepare` brings about what is there before.
    fn new(name: &'static str, host: Host, upstream: Option<Upstream>, prepare: &[&[&str]], doing: Doing) -> Scenario {
        // What is read again beside serving would come in between at any moment.
        let host = host.set("store.path", text("disk/store")).set("store.scrub", text("0s"));
        std::fs::create_dir_all(host.path("disk/store")).expect("a folder");
        let mut ids = BTreeMap::new();
        for name in SITES {
            host.put(&format!("{name}.zip"), adopted(name));
            host.put(&format!("{name}.tar.gz"), rewritten(name));
            let proved = end(docwharf().args(["bundle", "verify", "--json"]).arg(host.path(&format!("{name}.zip"))));
            ids.insert(proved.expect(0).json()["version"].as_str().expect("an id").to_owned(), name);
        }
        let again = match &doing {
            Doing::Command(arguments) => arguments.clone(),
            Doing::Inbox(_) => Vec::new(),
        };
        let nothing = Truth { active: None, held: false };
        let (before, after) = (nothing.clone(), nothing);
        let mut scenario = Scenario {
            name,
            template: host,
            _upstream: upstream,
            doing,
            again,
            ids,
            before,
            after,
            between: None,
            most: 2,
            publishes: false,
            keeps_all: false,
        };
        scenario.prepare(prepare);
        if let Doing::Command(arguments) = &scenario.doing {
            scenario.doing = Doing::Command(arguments.iter().map(|argument| scenario.with_ids(argument)).collect());
        }
        scenario.again = scenario.again.iter().map(|argument| scenario.with_ids(argument)).collect();
        scenario
    }

    /// Brings about more of what is there before.
    fn prepare(&mut self, commands: &[&[&str]]) {
        for arguments in commands {
            let arguments: Vec<String> = arguments.iter().map(|argument| self.with_ids(argument)).collect();
            judged(0, finish(&mut command(self.template.dir.path(), &arguments)));
        }
        self.before = self.truth(self.template.dir.path());
    }

    /// `<old>` is the id of the site `old`.
    fn with_ids(&self, argument: &str) -> String {
        let found = self.ids.iter().find(|(_, name)| argument == format!("<{name}>"));
        found.map_or_else(|| argument.to_owned(), |(id, _)| id.clone())
    }

    fn again(mut self, arguments: &[&str]) -> Scenario {
        self.again = arguments.iter().map(|argument| self.with_ids(argument)).collect();
        self
    }

    /// Between its two steps there may be this as well.
    fn between(mut self, truth: Truth) -> Scenario {
        self.between = Some(truth);
        self
    }

    fn store(&self, dir: &Path) -> PathBuf {
        dir.join("disk/store")
    }

    /// What the record says, which must be readable.
    fn truth(&self, dir: &Path) -> Truth {
        let Ok(bytes) = std::fs::read(self.store(dir).join("state.json")) else {
            return Truth { active: None, held: false };
        };
        let record: Value = serde_json::from_slice(&bytes)
            .unwrap_or_else(|error| panic!("state.json: {error}: {}", String::from_utf8_lossy(&bytes)));
        let active = record["active"].as_str().map(|id| self.ids[id].to_owned());
        Truth { active, held: !record["hold"].is_null() }
    }
}

fn command(dir: &Path, arguments: &[String]) -> Command {
    let mut command = docwharf();
    command.args(arguments).arg("--config").arg(dir.join("docwharf.toml")).env("USER", "tester").current_dir(dir);
    command
}

/// A place in which a scenario is played once.
pub(crate) struct World<'a> {
    scenario: &'a Scenario,
    dir: tempfile::TempDir,
}

impl<'a> World<'a> {
    /// As the scenario begins.
    pub(crate) fn new(scenario: &'a Scenario) -> World<'a> {
        let world = World::without_disk(scenario);
        world.fill();
        world
    }

    /// Plays the scenario until `step` is reached.
    #[track_caller]
    pub(crate) fn reaching(scenario: &'a Scenario, step: &Step, then: Then<'_>) -> (World<'a>, Ran) {
        for _ in 0..3 {
            let world = World::new(scenario);
            let ran = world.play(Some((step, then)));
            if ran.reached {
                return (world, ran);
            }
        }
        panic!("{}: {step} is never reached", scenario.name);
    }

    /// The same as `new`, where something else is to be put in the disk's place first.
    pub(crate) fn without_disk(scenario: &'a Scenario) -> World<'a> {
        let dir = quick_folder();
        for entry in std::fs::read_dir(scenario.template.dir.path()).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_file() {
                let target = dir.path().join(path.file_name().expect("a name"));
                std::fs::copy(&path, target).expect("files can be copied");
            }
        }
        std::fs::create_dir(dir.path().join("disk")).expect("a folder");
        World { scenario, dir }
    }

    /// Brings onto the disk what lies there at the beginning.
    pub(crate) fn fill(&self) {
        let from = self.scenario.template.path("disk/.");
        let copied = Command::new("cp").arg("-a").arg(from).arg(self.disk()).status().expect("cp runs");
        assert!(copied.success());
    }

    pub(crate) fn disk(&self) -> PathBuf {
        self.dir.path().join("disk")
    }

    /// Does what the scenario is about.
    pub(crate) fn play(&self, at: Option<(&Step, Then<'_>)>) -> Ran {
        let names: Vec<(String, String)> =
            self.scenario.ids.iter().map(|(id, name)| (id.clone(), format!("<{name}>"))).collect();
        let disk = self.disk();
        let plan = Plan { below: &disk, names: &names, at };
        match &self.scenario.doing {
            Doing::Command(arguments) => trace(&mut command(self.dir.path(), arguments), &plan, |_| ()),
            Doing::Inbox(file) => {
                std::fs::create_dir_all(disk.join("inbox")).expect("a folder");
                std::fs::copy(self.dir.path().join(file), disk.join("inbox").join(file)).expect("files can be copied");
                // Whoever put it there has seen to it that it lasts.
                let folder = std::fs::File::open(&disk).expect("the folder is there");
                rustix::fs::syncfs(folder).expect("the file lasts");
                let fails = matches!(at, Some((_, Then::Fail(_))));
                let over = Arc::new(AtomicBool::new(false));
                let ran = trace(&mut command(self.dir.path(), &owned(&["run"])), &plan, |pid| {
                    let (accepted, state, over) = (disk.join("inbox/accepted").join(file), disk.clone(), over.clone());
                    let new = self.scenario.with_ids("<newer>");
                    std::thread::spawn(move || end_when_taken(pid, &accepted, &state, &new, fails, &over));
                });
                over.store(true, Ordering::Relaxed);
                ran
            }
        }
    }

    /// Whether the caller has been told that it is done.
    pub(crate) fn is_acknowledged(&self, ran: &Ran) -> bool {
        match &self.scenario.doing {
            Doing::Command(_) => ran.code == Some(0),
            Doing::Inbox(file) => self.disk().join("inbox/accepted").join(file).exists(),
        }
    }

    /// What there is now; only two things can be.
    #[track_caller]
    pub(crate) fn truth(&self, at: &str) -> Truth {
        let truth = self.scenario.truth(self.dir.path());
        let Scenario { before, after, between, .. } = self.scenario;
        let known = truth == *before || truth == *after || Some(&truth) == between.as_ref();
        assert!(known, "{at}: {truth:?} is neither {before:?} nor {after:?}");
        truth
    }

    /// What is served, published and stored after an interruption, and that going on works. Gives what was served, and
    /// whether it was held.
    #[track_caller]
    pub(crate) fn judge(&self, at: &str, acknowledged: bool) -> String {
        let Scenario { before, after, .. } = self.scenario;
        let truth = self.truth(at);
        assert!(!acknowledged || truth == *after, "{at}: it was said to be done, and there is {truth:?}");
        self.what_was_there_is_there(at);
        self.what_the_record_names_has_a_receipt(at);
        let published = self.published(at);
        assert!(
            !self.scenario.publishes || published == before.active || published == after.active,
            "{at}: published is {published:?}"
        );
        assert!(!acknowledged || !self.scenario.publishes || published == after.active, "{at}: {published:?}");
        let served = self.served(at);
        assert!(served == before.active || served == after.active, "{at}: served is {served:?}");
        assert!(!acknowledged || served == after.active, "{at}: it was said to be done, and served is {served:?}");
        self.ok(at, &owned(&["store", "verify"]));
        self.go_on(at);
        assert_eq!(self.truth(at), *after, "{at}: after the next time");
        if self.scenario.publishes {
            assert_eq!(self.published(at), after.active, "{at}: after the next time");
        }
        self.nothing_is_left_over(at);
        let served = served.unwrap_or_else(|| "nothing".to_owned());
        if truth.held { served + ", held" } else { served }
    }

    /// Of the versions that were there before, those that the record needs are: the active one, the one before it,
    /// those with labels. Where `keep` keeps the others, they are there, too.
    #[track_caller]
    fn what_was_there_is_there(&self, at: &str) {
        let bytes = std::fs::read(self.scenario.store(self.dir.path()).join("state.json")).unwrap_or_default();
        let record: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let labelled = record["labels"].as_object().into_iter().flatten().map(|(_, label)| &label["version"]);
        let needed: Vec<&str> =
            [&record["active"], &record["previous"]].into_iter().chain(labelled).filter_map(Value::as_str).collect();
        let now = names(&self.scenario.store(self.dir.path()).join("versions"));
        // What has come meanwhile may have been withdrawn, though the record that names it is in place.
        for id in names(&self.scenario.store(self.scenario.template.dir.path()).join("versions")) {
            let may_go = !self.scenario.keeps_all && !needed.contains(&id.as_str());
            assert!(may_go || now.contains(&id), "{at}: {} is gone: {record}", self.scenario.ids[&id]);
        }
    }

    /// A receipt is written before the record that rests on it: a record that is lost is made again from receipts.
    #[track_caller]
    fn what_the_record_names_has_a_receipt(&self, at: &str) {
        let store = self.scenario.store(self.dir.path());
        let bytes = std::fs::read(store.join("state.json")).unwrap_or_default();
        let record: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let labelled = record["labels"].as_object().into_iter().flatten().map(|(_, label)| &label["version"]);
        for id in [&record["active"], &record["newest"]].into_iter().chain(labelled).filter_map(Value::as_str) {
            let is_told_of = || names(&store.join("receipts").join(id)).iter().any(|name| !name.starts_with('.'));
            let is_there = store.join("versions").join(id).exists();
            assert!(!is_there || is_told_of(), "{at}: no receipt of {}: {record}", self.scenario.ids[id]);
        }
    }

    #[track_caller]
    fn ok(&self, at: &str, arguments: &[String]) {
        let ended = finish(&mut command(self.dir.path(), arguments));
        assert_eq!(ended.code, Some(0), "{at}: then {arguments:?}: {ended:?}");
    }

    /// Does the same again, without interruption.
    #[track_caller]
    fn go_on(&self, at: &str) {
        let Doing::Inbox(file) = &self.scenario.doing else { return self.ok(at, &self.scenario.again) };
        let (inbox, accepted) = (self.disk().join("inbox").join(file), self.disk().join("inbox/accepted").join(file));
        assert!(inbox.exists() != accepted.exists(), "{at}: the bundle is lost, or there twice");
        let daemon = Daemon::start(command(self.dir.path(), &owned(&["run"])).stderr(Stdio::null()));
        until(&format!("{at}: the bundle is taken"), || accepted.exists());
        until(&format!("{at}: it is served"), || {
            http::get(&daemon.address, "/").text()
                == format!("<title>{}</title>", self.scenario.after.active.as_deref().unwrap_or(""))
        });
        let versions = self.scenario.store(self.dir.path()).join("versions");
        until(&format!("{at}: what is not kept is gone"), || names(&versions).len() <= self.scenario.most);
        daemon.signal("TERM");
        let mut daemon = daemon;
        assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0), "{at}");
    }

    /// What a restarted daemon serves before it has asked anybody: one whole site or none.
    #[track_caller]
    fn served(&self, at: &str) -> Option<String> {
        let mut start = command(self.dir.path(), &owned(&["run"]));
        let daemon = Daemon::start(start.env("DOCWHARF_STATIC_EXPORT__ENABLED", "false").stderr(Stdio::null()));
        let first = http::get(&daemon.address, "/");
        if first.status == 503 {
            return None;
        }
        let front = first.text();
        let name = SITES.into_iter().find(|name| front == site(name)[1].1);
        let name = name.unwrap_or_else(|| panic!("{at}: not a page of ours: {front:?}"));
        for (path, text) in site(name) {
            let path = format!("/{}", path.trim_end_matches(".html"));
            assert_eq!(http::get(&daemon.address, &path).text(), text, "{at}: {path} of {name}");
        }
        Some(name.to_owned())
    }

    /// What another server would find: one whole site or none; and nothing half under the name of a whole.
    #[track_caller]
    fn published(&self, at: &str) -> Option<String> {
        let www = self.disk().join("www");
        let whole = |dir: &Path| {
            let files = read_tree(dir);
            let same = |name: &str| {
                files
                    .iter()
                    .map(|(path, bytes)| (path.as_str(), bytes.as_slice()))
                    .eq(site(name).iter().map(|(path, text)| (*path, text.as_bytes())))
            };
            SITES.into_iter().find(|name| same(name)).map(str::to_owned)
        };
        for entry in std::fs::read_dir(&www).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            if self.scenario.ids.contains_key(&*path.file_name().expect("a name").to_string_lossy()) {
                assert!(whole(&path).is_some(), "{at}: {} is not whole: {:?}", path.display(), read_tree(&path));
            }
        }
        let current = www.join("current");
        if std::fs::symlink_metadata(&current).is_err() {
            return None;
        }
        Some(whole(&current).unwrap_or_else(|| panic!("{at}: what is published is not whole")))
    }

    #[track_caller]
    fn nothing_is_left_over(&self, at: &str) {
        let store = self.scenario.store(self.dir.path());
        let known = [
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
        let odd: Vec<String> = names(&store).into_iter().filter(|name| !known.contains(&name.as_str())).collect();
        assert!(odd.is_empty(), "{at}: {odd:?} in the store");
        assert_eq!(names(&store.join("staging")), [""; 0], "{at}");
        assert_eq!(names(&store.join("downloads")), [""; 0], "{at}");
        let versions = names(&store.join("versions"));
        assert!(versions.len() <= self.scenario.most, "{at}: {versions:?}");
        for id in &versions {
            assert_eq!(names(&store.join("versions").join(id)), ["index", "site.zip"], "{at}");
        }
        // Denser codings are made beside serving, where there is the calm for it.
        for id in names(&store.join("derived")) {
            assert!(versions.contains(&id), "{at}: codings of {id}, which is gone");
            let made = names(&store.join("derived").join(&id));
            assert!(made.iter().all(|name| name == "brotli" || name == "zstd"), "{at}: {made:?}");
        }
        for id in names(&store.join("receipts")) {
            assert!(versions.contains(&id), "{at}: a receipt of {id}, which is gone");
            let odd = names(&store.join("receipts").join(&id)).into_iter().find(|name| name.starts_with('.'));
            assert_eq!(odd, None, "{at}");
        }
        let www = names(&self.disk().join("www"));
        let odd = www.iter().find(|name| name.starts_with(".staging") || name.strip_suffix(".new").is_some());
        assert_eq!(odd, None, "{at}");
        for line in std::fs::read_to_string(store.join("history.jsonl")).unwrap_or_default().lines() {
            // A line whose bytes were lost with the power is one of zeros; it is passed by, and the next begins anew.
            let is_whole = serde_json::from_str::<Value>(line).is_ok();
            assert!(is_whole || line.bytes().all(|byte| byte == 0), "{at}: torn history: {line:?}");
        }
    }
}

/// How often each outcome occurs in this column, in words.
pub(crate) fn counts<const N: usize>(outcomes: &[[String; N]], column: usize) -> String {
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

/// Ends a daemon once it has taken the bundle. Where a call was made to fail, the file may never be moved away: then once
/// its site is active.
fn end_when_taken(pid: u32, accepted: &Path, disk: &Path, new: &str, fails: bool, over: &AtomicBool) {
    let is_active = || {
        let state = std::fs::read_to_string(disk.join("store/state.json")).unwrap_or_default();
        serde_json::from_str::<Value>(&state).is_ok_and(|state| state["active"] == new)
    };
    let mut since = None;
    while !over.load(Ordering::Relaxed) {
        let waited = fails && is_active() && since.get_or_insert_with(Instant::now).elapsed() > Duration::from_secs(1);
        if accepted.exists() || waited {
            let _ = Command::new("kill").args(["-TERM", &pid.to_string()]).status();
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A host with two versions, of which the elder is pruned by the next import.
fn stocked() -> Host {
    Host::bare().set("sync.keep", "0")
}

const STOCK: [&[&str]; 2] = [&["import", "eldest.zip"], &["import", "old.zip"]];

/// Every scenario by its name.
pub(crate) fn scenario(name: &str) -> Scenario {
    let run = |arguments: &[&str]| Doing::Command(owned(arguments));
    match name {
        "import" => Scenario::new("import", stocked(), None, &STOCK, run(&["import", "newer.zip", "--label", "L"])),
        "import of what a label keeps" => {
            // Neither active nor the one before: nothing but its label keeps it.
            let prepare: [&[&str]; 3] = [&["import", "eldest.zip", "--label", "L"], STOCK[1], &["import", "other.zip"]];
            let doing = run(&["import", "eldest.zip"]);
            let scenario = Scenario::new("import of what a label keeps", stocked(), None, &prepare, doing);
            Scenario { most: 3, ..scenario }
        }
        "import of what is there" => {
            // Nothing names it, and there is room for it.
            let prepare: [&[&str]; 3] = [STOCK[0], STOCK[1], &["import", "other.zip"]];
            let host = Host::bare().set("sync.keep", "1");
            let doing = run(&["import", "eldest.zip"]);
            let scenario = Scenario::new("import of what is there", host, None, &prepare, doing);
            Scenario { most: 3, keeps_all: true, ..scenario }
        }
        "import of what is active" => {
            let doing = run(&["import", "old.zip"]);
            let scenario = Scenario::new("import of what is active", stocked(), None, &STOCK, doing);
            Scenario { keeps_all: true, ..scenario }
        }
        "import of a tar" => {
            Scenario::new("import of a tar", stocked(), None, &STOCK, run(&["import", "newer.tar.gz"]))
        }
        "first sync" => {
            let upstream = Upstream::new(adopted("newer"));
            let scenario = Scenario::new("first sync", Host::linked(&upstream.link()), None, &[], run(&["sync"]));
            Scenario { _upstream: Some(upstream), ..scenario }
        }
        "sync" => {
            let upstream = Upstream::new(adopted("old"));
            let host = Host::linked(&upstream.link()).set("sync.keep", "0");
            let scenario = Scenario::new("sync", host, None, &[&["import", "eldest.zip"], &["sync"]], run(&["sync"]));
            upstream.publish(adopted("newer"));
            Scenario { _upstream: Some(upstream), ..scenario }
        }
        "sync of what is there" => {
            // It came by another way, so that nothing tells that it is there before it has been downloaded and sealed.
            let upstream = Upstream::new(adopted("old"));
            let host = Host::linked(&upstream.link()).set("sync.keep", "0");
            let prepare: [&[&str]; 2] = [&["import", "eldest.zip"], &["sync"]];
            let scenario = Scenario::new("sync of what is there", host, None, &prepare, run(&["sync"]));
            upstream.publish(adopted("eldest"));
            Scenario { _upstream: Some(upstream), keeps_all: true, ..scenario }
        }
        "sync that goes back" => {
            // The source has had it before: it is known by its validator, and found again in the store.
            let upstream = Upstream::new(adopted("eldest"));
            let host = Host::linked(&upstream.link()).set("sync.keep", "0");
            let mut scenario = Scenario::new("sync that goes back", host, None, &[&["sync"]], run(&["sync"]));
            upstream.publish(adopted("old"));
            scenario.prepare(&[&["sync"]]);
            upstream.publish(adopted("eldest"));
            Scenario { _upstream: Some(upstream), keeps_all: true, ..scenario }
        }
        "sync of a job" => {
            let upstream = Upstream::new(adopted("old"));
            let host = Host::new(&upstream).set("sync.keep", "0");
            let scenario =
                Scenario::new("sync of a job", host, None, &[&["import", "eldest.zip"], &["sync"]], run(&["sync"]));
            upstream.publish(adopted("newer"));
            Scenario { _upstream: Some(upstream), ..scenario }
        }
        "activate" => Scenario::new("activate", stocked(), None, &STOCK, run(&["activate", "<eldest>"])),
        "rollback" => {
            Scenario::new("rollback", stocked(), None, &STOCK, run(&["rollback"])).again(&["activate", "<eldest>"])
        }
        "hold" => Scenario::new("hold", stocked(), None, &STOCK, run(&["hold"])),
        "release" => {
            let prepare: [&[&str]; 3] = [STOCK[0], STOCK[1], &["rollback"]];
            let between = Truth { active: Some("eldest".to_owned()), held: false };
            Scenario::new("release", stocked(), None, &prepare, run(&["release"])).between(between)
        }
        "gc" => {
            let prepare: [&[&str]; 4] = [STOCK[0], STOCK[1], &["import", "other.zip"], &["import", "newer.zip"]];
            let mut scenario = Scenario::new("gc", Host::bare().set("sync.keep", "9"), None, &prepare, run(&["gc"]));
            scenario.template.change("sync.keep", "0");
            scenario
        }
        "publish" => {
            let host = stocked().set("publish.directory", text("disk/www"));
            let mut scenario = Scenario::new("publish", host, None, &STOCK, run(&["import", "newer.zip"]));
            scenario.publishes = true;
            scenario
        }
        "publish of what is there" => {
            // Its folder is there as well.
            let host = stocked().set("publish.directory", text("disk/www"));
            let doing = run(&["import", "eldest.zip"]);
            let scenario = Scenario::new("publish of what is there", host, None, &STOCK, doing);
            Scenario { publishes: true, keeps_all: true, ..scenario }
        }
        "inbox" => {
            let host = stocked().set("sync.inbox", text("disk/inbox"));
            Scenario::new("inbox", host, None, &STOCK, Doing::Inbox("newer.zip"))
        }
        _ => panic!("no scenario is called {name:?}"),
    }
    .measured()
}

impl Scenario {
    /// Knows what there is after it.
    fn measured(mut self) -> Scenario {
        let world = World::new(&self);
        let ran = world.play(None);
        assert_eq!(ran.code, Some(0), "{}: {ran:?}", self.name);
        let after = self.truth(world.dir.path());
        drop(world);
        self.after = after;
        self
    }

    /// Its steps that change something, in order. Of the many writes to one file the first, the one in the middle and
    /// the last.
    pub(crate) fn steps(&self) -> Vec<Step> {
        let play = || -> Vec<Step> {
            let world = World::new(self);
            let ran = world.play(None);
            assert_eq!(ran.code, Some(0), "{}: {ran:?}", self.name);
            ran.steps.into_iter().filter(|(_, refused)| !refused).map(|(step, _)| step).collect()
        };
        // A record is written once more if the second of the clock changes in between.
        let (mut steps, others) = (play(), play());
        steps.retain(|step| others.contains(step));
        let writes = |path: &str| steps.iter().filter(|step| step.call == "write" && step.path == path).count();
        let wanted = |step: &&Step| {
            let last = writes(&step.path).saturating_sub(1);
            step.call != "write" || last < 8 || [0, last / 2, last].contains(&step.nth)
        };
        steps.iter().filter(wanted).cloned().collect()
    }
}
