//! Publishing: the active version as plain files for another server, whole at any instant.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use support::host::Host;
use support::zip::{Member, deflated, stored, zip};
use support::{Ended, end, read_tree, until};

/// A configuration with an inbox; `publish` stands below `[publish]`.
fn publishing(publish: &str) -> String {
    format!("[sync]\ninbox = \"inbox\"\n[publish]\n{publish}")
}

fn www(host: &Host, name: &str) -> PathBuf {
    host.path("www").join(name)
}

/// Runs a command in the host's folder, which must end with this code.
#[track_caller]
fn ends(host: &Host, code: i32, arguments: &[&str]) -> Ended {
    end(host.command(arguments).current_dir(host.dir.path())).expect(code)
}

/// Imports a bundle of these members and gives its version's id.
#[track_caller]
fn import(host: &Host, members: &[Member]) -> String {
    fs::write(host.path("bundle.zip"), zip(members)).unwrap();
    let report = ends(host, 0, &["import", "bundle.zip", "--json"]).json();
    report["version"].as_str().unwrap().to_owned()
}

/// Where `current` leads.
fn current(host: &Host) -> String {
    match fs::read_link(www(host, "current")) {
        Ok(target) => target.to_str().unwrap().to_owned(),
        Err(_) => String::new(),
    }
}

/// What lies in the published folder, but for our own record and lock.
fn names(host: &Host) -> Vec<String> {
    let entries = fs::read_dir(host.path("www")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name != ".docwharf.json" && name != ".docwharf.lock");
    sorted(names)
}

/// Ids may begin like any word.
fn sorted(names: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
    let mut names: Vec<String> = names.into_iter().map(Into::into).collect();
    names.sort();
    names
}

const WWW: &str = "directory = \"www\"";

/// A site of which `text` fills two pages, beside a picture that is always the same.
fn site(text: &str) -> Vec<Member> {
    vec![
        deflated("index.html", text),
        deflated("deep/er/asset.js", &text.repeat(9000)),
        stored("logo.png", "not really a picture"),
    ]
}

#[test]
fn the_published_folder_is_what_unpack_writes_under_a_relative_link() {
    let host = Host::configured(&publishing(WWW));
    let members = [
        deflated("docs/index.html", "<p>home"),
        deflated("docs/guides/[[...slug]]/a b%20c.html", "odd"),
        deflated("docs/empty.txt", ""),
        stored("docs/.well-known/security.txt", "Contact: x"),
        stored("docs/.env", "hidden"),
        stored("docs/serve.js", "launcher"),
        stored("docs/deep/serve.js", "content"),
        deflated(&format!("docs/{}end.css", "long/".repeat(200)), "p{}"),
    ];
    // A process that keeps everything to itself: another server has another user.
    fs::write(host.path("bundle.zip"), zip(&members)).unwrap();
    let mut strict = Command::new("sh");
    strict.args([
        "-c",
        "umask 077; exec \"$@\"",
        "sh",
        env!("CARGO_BIN_EXE_docwharf"),
        "import",
        "bundle.zip",
        "--json",
    ]);
    let strict = strict.args(["--config", "docwharf.toml"]).current_dir(host.dir.path());
    let id = end(strict).expect(0).json()["version"].as_str().unwrap().to_owned();

    ends(&host, 0, &["bundle", "unpack", "bundle.zip", "plain"]);
    assert_eq!(read_tree(&www(&host, "current")), read_tree(&host.path("plain")));
    assert_eq!(read_tree(&host.path("plain")).len(), 6);
    assert_eq!(current(&host), id);
    assert_eq!(names(&host), sorted([id.as_str(), "current"]));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let modes = [host.path("www"), www(&host, &id), www(&host, "current/deep"), www(&host, "current/index.html")];
    assert_eq!(modes.map(|path| mode(&path)), [0o755, 0o755, 0o755, 0o644]);
    assert_eq!(mode(&host.path("plain")), 0o755, "unpacked for every reader");
}

#[test]
fn unchanged_files_are_linked_and_keep_their_times() {
    let host = Host::configured(&publishing(WWW));
    let one = import(&host, &site("one"));
    let mut second = site("two");
    second.push(stored("copy.png", "not really a picture"));
    let two = import(&host, &second);
    let of = |id: &str, name: &str| fs::metadata(www(&host, id).join(name)).unwrap();
    assert_eq!(of(&one, "logo.png").ino(), of(&two, "logo.png").ino());
    assert_ne!(of(&one, "index.html").ino(), of(&two, "index.html").ino());
    // Another path has another history: with the time of this one, an entity tag made of time and size could lie.
    assert_ne!(of(&two, "copy.png").ino(), of(&two, "logo.png").ino());
    assert_eq!(of(&two, "logo.png").mtime_nsec(), 0);
    // Going back costs nothing: the folder is still there.
    let inode = of(&one, "index.html").ino();
    ends(&host, 0, &["rollback"]);
    assert_eq!((current(&host), of(&one, "index.html").ino()), (one, inode));
}

#[test]
fn what_was_done_to_one_folder_does_not_reach_the_next() {
    let host = Host::configured(&publishing(WWW));
    let mut members = site("one");
    members.extend(["a.txt", "b.txt", "c.txt", "d.txt"].map(|name| stored(name, "right")));
    let one = import(&host, &members);
    let file = |name: &str| www(&host, &one).join(name);
    // Longer; of the same length, as if nothing had happened; replaced by a link; gone.
    fs::write(file("a.txt"), "right and wrong").unwrap();
    let before = fs::metadata(file("b.txt")).unwrap();
    fs::write(file("b.txt"), "wrong").unwrap();
    File::options().write(true).open(file("b.txt")).unwrap().set_modified(before.modified().unwrap()).unwrap();
    fs::remove_file(file("c.txt")).unwrap();
    symlink("/etc/passwd", file("c.txt")).unwrap();
    fs::remove_file(file("d.txt")).unwrap();
    members[0] = deflated("index.html", "two");
    let two = import(&host, &members);
    for name in ["a.txt", "b.txt", "c.txt", "d.txt"] {
        let path = www(&host, "current").join(name);
        assert!(fs::symlink_metadata(&path).unwrap().is_file(), "{name}");
        assert_eq!(fs::read_to_string(path).unwrap(), "right", "{name}");
    }
    // And a folder that something was done to is made anew before the link leads to it again.
    assert_eq!(current(&host), two);
    ends(&host, 0, &["rollback"]);
    assert_eq!(current(&host), one);
    for name in ["a.txt", "b.txt", "c.txt", "d.txt"] {
        assert_eq!(fs::read_to_string(www(&host, "current").join(name)).unwrap(), "right", "{name}");
    }
}

#[test]
fn modes_are_those_of_the_configuration_and_a_change_of_them_arrives() {
    let host = Host::configured(&publishing("directory = \"www\"\nmode = \"0640\""));
    let id = import(&host, &site("one"));
    let modes = || {
        ["current/deep/er", "current/logo.png"]
            .map(|name| fs::metadata(www(&host, name)).unwrap().permissions().mode() & 0o7777)
    };
    assert_eq!(modes(), [0o750, 0o640]);
    host.configure(&publishing("directory = \"www\"\numask = \"0002\""));
    ends(&host, 0, &["activate", &id]);
    assert_eq!(modes(), [0o775, 0o664]);
    assert_eq!(names(&host), sorted([id.as_str(), "current"]));
    host.configure(&publishing("directory = \"www\"\nmode = \"0755\""));
    assert!(ends(&host, 2, &["config", "check"]).stderr.contains("publish.mode"));
}

#[test]
fn a_reader_never_misses_a_file_and_never_reads_half_of_one_or_a_mixture() {
    const SWAPS: usize = 150;
    let host = Host::configured(&publishing(WWW));
    let ids = [import(&host, &site("one ")), import(&host, &site("two "))];
    let stop = AtomicBool::new(false);
    let whole = ["one ", "two "].map(|text| text.repeat(9000));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut reads, mut seen) = (0u32, [0u32; 2]);
            while !stop.load(Ordering::Relaxed) {
                let first = fs::read_to_string(www(&host, "current/index.html")).expect("a page");
                assert!(first == "one " || first == "two ", "{first:?}");
                let mut text = String::new();
                File::open(www(&host, "current/deep/er/asset.js"))
                    .expect("an asset")
                    .read_to_string(&mut text)
                    .unwrap();
                let which = whole.iter().position(|whole| *whole == text).expect("whole and unmixed");
                seen[which] += 1;
                fs::metadata(www(&host, "current/logo.png")).expect("a picture that is in both");
                reads += 1;
            }
            (reads, seen)
        });
        for n in 0..SWAPS {
            let id = &ids[n % 2];
            ends(&host, 0, &["activate", id]);
            assert_eq!(current(&host), *id);
        }
        stop.store(true, Ordering::Relaxed);
        let (reads, seen) = reader.join().unwrap();
        assert!(reads > 100 && seen[0] > 10 && seen[1] > 10, "{reads} reads, {seen:?}");
    });
}

#[test]
fn what_is_not_ours_is_left_alone_and_old_folders_of_ours_go() {
    let host = Host::configured(&publishing(WWW));
    let foreign = "ab".repeat(32);
    fs::create_dir_all(www(&host, &foreign)).unwrap();
    fs::write(www(&host, &foreign).join("x"), "not ours").unwrap();
    fs::create_dir(www(&host, ".staging")).unwrap();
    fs::write(www(&host, "notes.txt"), "not ours either").unwrap();
    symlink("notes.txt", www(&host, "current")).unwrap();
    let ids: Vec<String> = (0..4).map(|n| import(&host, &site(&format!("{n}")))).collect();
    assert_eq!(names(&host).len(), 4 + 4, "all are there for a while: {:?}", names(&host));
    // As if an hour had passed.
    let record = www(&host, ".docwharf.json");
    let text = fs::read_to_string(&record).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    for made in json["trees"].as_object_mut().unwrap().values_mut().filter(|made| made["replaced"].is_string()) {
        made["replaced"] = "2020-01-01T00:00:00Z".into();
    }
    fs::write(&record, json.to_string()).unwrap();
    ends(&host, 0, &["release"]);
    let expected = sorted([".staging", "current", "notes.txt", &foreign, &ids[2], &ids[3]]);
    assert_eq!(names(&host), expected);
    assert_eq!(fs::read_to_string(www(&host, &foreign).join("x")).unwrap(), "not ours");
    // Nothing goes when publishing ends.
    host.configure(&publishing(""));
    import(&host, &site("unseen"));
    assert_eq!(names(&host), expected);
    assert_eq!(current(&host), ids[3]);
}

#[test]
fn a_dangerous_place_is_refused_and_nothing_in_it_is_touched() {
    let host = Host::configured(&publishing("directory = \"store/www\""));
    let problem = ends(&host, 2, &["import", "x.zip"]).stderr;
    assert!(problem.contains("publish.directory") && problem.contains("store"), "{problem}");

    host.configure(&publishing(""));
    let id = import(&host, &site("one"));
    let refused = |what: &str| {
        let ended = ends(&host, 8, &["release"]);
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        assert!(ended.stderr.contains(what), "{}", ended.stderr);
    };
    // Into the store by a detour, down to where versions are folders with 64 digits.
    symlink("store", host.path("detour")).unwrap();
    host.configure(&publishing("directory = \"detour/versions\""));
    refused("it is the store or lies in it");
    assert!(host.path("store/versions").join(&id).join("site.zip").is_file());

    host.configure(&publishing(WWW));
    fs::create_dir_all(www(&host, "current")).unwrap();
    refused("no symbolic link");
    fs::remove_dir(www(&host, "current")).unwrap();
    fs::create_dir(www(&host, &id)).unwrap();
    refused("not known as made by docwharf");
    assert_eq!(names(&host), [id.as_str()]);
    fs::remove_dir(www(&host, &id)).unwrap();
    ends(&host, 0, &["release"]);
    assert_eq!(current(&host), id);
}

#[test]
fn root_publishes_nothing_into_the_folder_of_another_user() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return; // nobody else could do harm
    }
    let host = Host::configured(&publishing(WWW));
    fs::create_dir(host.path("www")).unwrap();
    chown(host.path("www"), Some(4711), Some(4711)).unwrap();
    for publish in [WWW, "directory = \"www/not/yet/there\""] {
        host.configure(&publishing(publish));
        fs::write(host.path("bundle.zip"), zip(&site("one"))).unwrap();
        let ended = ends(&host, 0, &["import", "bundle.zip"]);
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        assert!(
            ended.stderr.contains("not published: ") && ended.stderr.contains("another user's"),
            "{}",
            ended.stderr
        );
        assert_eq!(fs::read_dir(host.path("www")).unwrap().count(), 0);
    }
    host.configure(&publishing(WWW));
    chown(host.path("www"), Some(0), Some(0)).unwrap();
    assert_eq!(ends(&host, 0, &["release"]).stderr, "");
    assert_eq!(names(&host).len(), 2);
}

#[test]
fn what_fails_in_the_middle_leaves_the_old_one_and_nothing_else() {
    let host = Host::configured(&publishing(WWW));
    let one = import(&host, &site("one"));
    host.configure(&publishing(""));
    let two = import(&host, &site("two"));
    host.configure(&publishing(WWW));
    // A file cannot become as large as the second page is: the closest to a full disk that needs no root.
    let mut limited = Command::new("bash");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$@\"", "bash", env!("CARGO_BIN_EXE_docwharf")]);
    let limited = limited.args(["activate", &two, "--config", "docwharf.toml"]).current_dir(host.dir.path());
    let ended = end(limited).expect(8);
    assert!(ended.stderr.starts_with("docwharf: cannot publish: cannot write "), "{}", ended.stderr);
    assert!(ended.stderr.contains("asset.js"), "{}", ended.stderr);
    assert_eq!(current(&host), one);
    assert_eq!(names(&host), sorted([one.as_str(), "current"]));
    ends(&host, 0, &["activate", &two]);
    assert_eq!(current(&host), two);
}

#[test]
fn killed_at_any_moment_the_link_leads_to_a_whole_version() {
    let host = Host::configured(&publishing(WWW));
    let pages = |n: usize| -> Vec<Member> {
        let page = |i| deflated(&format!("part/{i}.html"), &format!("{n} {i} ").repeat(500));
        (0..300).map(page).chain([deflated("index.html", &n.to_string())]).collect()
    };
    host.configure(&publishing(""));
    let ids: Vec<String> = (0..4).map(|n| import(&host, &pages(n))).collect();
    host.configure(&publishing(WWW));
    ends(&host, 0, &["activate", &ids[0]]);
    let (mut killed, mut window, mut random) = (0, Duration::from_millis(100), 0x5eed_u64);
    for round in 0.. {
        assert!(round < 2000, "only {killed} were killed before their end");
        if killed == 40 {
            break;
        }
        // Made from nothing each time: no folder but the current one.
        for name in names(&host).iter().filter(|name| name.len() == 64 && **name != current(&host)) {
            fs::remove_dir_all(www(&host, name)).unwrap();
        }
        let before = current(&host);
        let next = &ids[(ids.iter().position(|id| *id == before).unwrap() + 1) % ids.len()];
        let mut child = host.command(&["activate", next]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        std::thread::sleep(window.mul_f64((random % 1000) as f64 / 1000.0));
        let _ = child.kill();
        if child.wait().unwrap().success() {
            window = window.mul_f64(0.95).max(Duration::from_millis(5));
        } else {
            killed += 1;
            window = window.mul_f64(1.02);
        }
        let current = current(&host);
        assert!(current == before || current == *next, "round {round}");
        let n = ids.iter().position(|id| *id == current).unwrap();
        let mut expected: Vec<(String, Vec<u8>)> =
            pages(n).into_iter().map(|member| (String::from_utf8(member.name).unwrap(), member.content)).collect();
        expected.sort();
        assert!(read_tree(&www(&host, "current")) == expected, "round {round}: {n} is not whole");
    }
    ends(&host, 0, &["activate", &ids[0]]);
    ends(&host, 0, &["activate", &ids[1]]);
    let mut expected = [ids[0].as_str(), ids[1].as_str(), "current"].map(str::to_owned).to_vec();
    expected.extend(names(&host).into_iter().filter(|name| ids[2..].contains(name)));
    assert_eq!(names(&host), sorted(expected), "what was unfinished is swept");
}

/// A running `run --no-serve`; killed when dropped.
struct Quiet {
    child: Child,
    host_log: PathBuf,
}

impl Quiet {
    fn start(host: &Host) -> Quiet {
        let host_log = host.path("log");
        let mut command = host.command(&["run", "--no-serve"]);
        command.stdout(File::create(host.path("out")).unwrap()).stderr(File::create(&host_log).unwrap());
        Quiet { child: command.spawn().unwrap(), host_log }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.host_log).unwrap()
    }

    /// Ends it by SIGTERM; gives the exit code.
    fn stop(&mut self) -> Option<i32> {
        assert!(Command::new("kill").arg(self.child.id().to_string()).status().unwrap().success());
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "still running");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn published(host: &Host) -> String {
    fs::read_to_string(www(host, "current/index.html")).unwrap_or_default()
}

fn drop_into_inbox(host: &Host, name: &str, members: &[Member]) {
    fs::write(host.path("inbox").join(format!("{name}.part")), zip(members)).unwrap();
    fs::rename(host.path("inbox").join(format!("{name}.part")), host.path("inbox").join(name)).unwrap();
}

#[test]
fn run_without_a_listener_publishes_what_arrives_and_says_nothing_on_stdout() {
    let host = Host::configured(&publishing(""));
    fs::create_dir(host.path("inbox")).unwrap();
    import(&host, &site("from before"));
    host.configure(&publishing(WWW));
    let mut daemon = Quiet::start(&host);
    until("what the store has", || published(&host) == "from before");
    drop_into_inbox(&host, "b.zip", &site("from the inbox"));
    until("what was dropped", || published(&host) == "from the inbox");
    let sockets = fs::read_dir(format!("/proc/{}/fd", daemon.child.id())).unwrap();
    let inodes: Vec<String> = sockets
        .filter_map(|fd| fs::read_link(fd.unwrap().path()).ok()?.to_str()?.strip_prefix("socket:").map(str::to_owned))
        .collect();
    let tcp = ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("/proc/{}/net/{table}", daemon.child.id())));
    for line in tcp.iter().flatten().flat_map(|table| table.lines()) {
        let inode = line.split_whitespace().nth(9).unwrap_or_default();
        assert!(!inodes.contains(&format!("[{inode}]")), "it listens: {line}");
    }
    assert_eq!(daemon.stop(), Some(0));
    assert_eq!(fs::read_to_string(host.path("out")).unwrap(), "");
}

#[test]
fn what_was_lost_of_the_published_folder_is_made_good_at_the_next_start() {
    let host = Host::configured(&publishing(WWW));
    import(&host, &[deflated("index.html", "first page"), deflated("deep/er/page.html", "another")]);
    let page = www(&host, "current/deep/er/page.html");
    assert_eq!(fs::read_to_string(&page).unwrap(), "another");
    let harms: [&dyn Fn(); 3] =
        [&|| fs::remove_file(&page).unwrap(), &|| fs::remove_dir_all(www(&host, "current/deep")).unwrap(), &|| {
            fs::remove_file(&page).unwrap();
            fs::write(&page, "ANOTHER").unwrap();
        }];
    for harm in harms {
        harm();
        let mut daemon = Quiet::start(&host);
        until("it is whole again", || fs::read_to_string(&page).is_ok_and(|text| text == "another"));
        assert_eq!(daemon.stop(), Some(0));
    }
    // A file that another user owns may be changed by that user.
    if rustix::process::geteuid().is_root() {
        chown(&page, Some(12_345), None).unwrap();
        let _daemon = Quiet::start(&host);
        until("it is ours again", || fs::metadata(&page).is_ok_and(|metadata| metadata.uid() == 0));
    }
}

#[test]
fn run_follows_the_configuration_and_makes_good_what_failed() {
    let host = Host::configured(&publishing(WWW));
    fs::create_dir(host.path("inbox")).unwrap();
    import(&host, &site("one"));
    fs::remove_file(www(&host, "current")).unwrap();
    fs::create_dir(www(&host, "current")).unwrap();
    let daemon = Quiet::start(&host);
    until("the failure is told", || daemon.log().contains("no symbolic link; move it away"));
    fs::remove_dir(www(&host, "current")).unwrap();
    until("it is made good", || published(&host) == "one");
    // Nothing is published any more, and what is there stays.
    host.configure(&publishing(""));
    until("the change was seen", || daemon.log().contains("the configuration, the key or a certificate has changed"));
    drop_into_inbox(&host, "b.zip", &site("two"));
    until("the second is active", || daemon.log().matches("is active").count() == 1);
    assert_eq!(published(&host), "one");
    host.configure(&publishing("directory = \"elsewhere/www\""));
    let elsewhere = || fs::read_to_string(host.path("elsewhere/www/current/index.html")).unwrap_or_default();
    until("it is published elsewhere", || elsewhere() == "two");
    assert_eq!(published(&host), "one");
}

#[test]
fn who_only_publishes_is_ready_when_it_has() {
    let host = Host::configured(&publishing(WWW));
    fs::create_dir(host.path("inbox")).unwrap();
    import(&host, &site("one"));
    fs::remove_file(www(&host, "current")).unwrap();
    fs::create_dir(www(&host, "current")).unwrap();
    let _daemon = Quiet::start(&host);
    let health = || end(&mut host.command(&["health"]));
    until("it cannot publish", || health().stderr.contains("nothing is published yet"));
    fs::remove_dir(www(&host, "current")).unwrap();
    until("it is ready", || health().code == Some(0));
    assert_eq!(published(&host), "one");
}

#[test]
fn no_listener_and_nowhere_to_publish_is_told() {
    let host = Host::configured(&publishing(""));
    fs::create_dir(host.path("inbox")).unwrap();
    let mut daemon = Quiet::start(&host);
    until("the warning", || daemon.log().contains("--no-serve without publish.directory"));
    until("it lives", || host.path("store/lock").exists());
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn times_are_those_since_when_a_path_has_its_content() {
    let host = Host::configured(&publishing(WWW));
    let begun = SystemTime::now() - Duration::from_secs(2);
    import(&host, &site("one"));
    let modified = fs::metadata(www(&host, "current/index.html")).unwrap().modified().unwrap();
    assert!(modified >= begun && modified <= SystemTime::now(), "{modified:?}");
}
