//! Publishing: the active version as plain files for another server, complete at any moment.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use support::host::Host;
use support::zip::{Member, deflated, stored, zip};
use support::{CommandOutput, KillOnDrop, read_tree, run_to_end, send_signal, until};

/// A configuration with an inbox. `publish` is the content of `[publish]`.
fn config_with_publish(publish: &str) -> String {
    format!("[sync]\ninbox = \"inbox\"\n[publish]\n{publish}")
}

fn published_path(host: &Host, name: &str) -> PathBuf {
    host.path("www").join(name)
}

/// Runs a command in the host's folder. It must end with `code`.
#[track_caller]
fn run_command(host: &Host, code: i32, arguments: &[&str]) -> CommandOutput {
    run_to_end(host.command(arguments).current_dir(host.dir.path())).expect(code)
}

/// Imports a bundle of these members. Returns the version id.
#[track_caller]
fn import_members(host: &Host, members: &[Member]) -> String {
    fs::write(host.path("bundle.zip"), zip(members)).unwrap();
    let report = run_command(host, 0, &["import", "bundle.zip", "--json"]).json();
    report["version"].as_str().unwrap().to_owned()
}

/// The target of the link `current`, or an empty text without the link.
fn current_target(host: &Host) -> String {
    match fs::read_link(published_path(host, "current")) {
        Ok(target) => target.to_str().unwrap().to_owned(),
        Err(_) => String::new(),
    }
}

/// The names in the published folder, without docwharf's record and lock.
fn published_names(host: &Host) -> Vec<String> {
    let entries = fs::read_dir(host.path("www")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name != ".docwharf.json" && name != ".docwharf.lock");
    sorted(names)
}

/// Sorts names, because the position of an id among other names is not fixed.
fn sorted(names: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
    let mut names: Vec<String> = names.into_iter().map(Into::into).collect();
    names.sort();
    names
}

const PUBLISH_TO_WWW: &str = "directory = \"www\"";

/// A site with `text` in a page and a script, and with a picture that does not depend on it.
fn site_members(text: &str) -> Vec<Member> {
    vec![
        deflated("index.html", text),
        deflated("deep/er/asset.js", &text.repeat(9000)),
        stored("logo.png", "not really a picture"),
    ]
}

#[test]
fn the_published_folder_equals_the_output_of_bundle_unpack() {
    let host = Host::configured(&config_with_publish(PUBLISH_TO_WWW));
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
    // A strict umask: docwharf must set modes that allow the other server's user to read.
    fs::write(host.path("bundle.zip"), zip(&members)).unwrap();
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "umask 077; exec \"$@\"",
        "sh",
        env!("CARGO_BIN_EXE_docwharf"),
        "import",
        "bundle.zip",
        "--json",
    ]);
    let command = command.args(["--config", "docwharf.toml"]).current_dir(host.dir.path());
    let id = run_to_end(command).expect(0).json()["version"].as_str().unwrap().to_owned();

    run_command(&host, 0, &["bundle", "unpack", "bundle.zip", "plain"]);
    assert_eq!(read_tree(&published_path(&host, "current")), read_tree(&host.path("plain")));
    assert_eq!(read_tree(&host.path("plain")).len(), 6);
    assert_eq!(current_target(&host), id);
    assert_eq!(published_names(&host), sorted([id.as_str(), "current"]));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let modes = [
        host.path("www"),
        published_path(&host, &id),
        published_path(&host, "current/deep"),
        published_path(&host, "current/index.html"),
    ];
    assert_eq!(modes.map(|path| mode(&path)), [0o755, 0o755, 0o755, 0o644]);
    assert_eq!(mode(&host.path("plain")), 0o755, "unpacked for every reader");
}

#[test]
fn unchanged_published_files_are_hard_linked_and_keep_their_times() {
    let host = Host::configured(&config_with_publish(PUBLISH_TO_WWW));
    let one = import_members(&host, &site_members("one"));
    let mut second = site_members("two");
    second.push(stored("copy.png", "not really a picture"));
    let two = import_members(&host, &second);
    let metadata_of = |id: &str, name: &str| fs::metadata(published_path(&host, id).join(name)).unwrap();
    assert_eq!(metadata_of(&one, "logo.png").ino(), metadata_of(&two, "logo.png").ino());
    assert_ne!(metadata_of(&one, "index.html").ino(), metadata_of(&two, "index.html").ino());
    // Files at different paths are not linked: an entity tag made of time and size could be wrong.
    assert_ne!(metadata_of(&two, "copy.png").ino(), metadata_of(&two, "logo.png").ino());
    assert_eq!(metadata_of(&two, "logo.png").mtime_nsec(), 0);
    // A rollback writes nothing, because the folder still exists.
    let inode = metadata_of(&one, "index.html").ino();
    run_command(&host, 0, &["rollback"]);
    assert_eq!((current_target(&host), metadata_of(&one, "index.html").ino()), (one, inode));
}

#[test]
fn changes_made_to_a_published_folder_do_not_reach_the_next_version() {
    let host = Host::configured(&config_with_publish(PUBLISH_TO_WWW));
    let mut members = site_members("one");
    members.extend(["a.txt", "b.txt", "c.txt", "d.txt"].map(|name| stored(name, "right")));
    let one = import_members(&host, &members);
    let file = |name: &str| published_path(&host, &one).join(name);
    // A longer file, one of equal length and time, one replaced by a link, one removed.
    fs::write(file("a.txt"), "right and wrong").unwrap();
    let before = fs::metadata(file("b.txt")).unwrap();
    fs::write(file("b.txt"), "wrong").unwrap();
    File::options().write(true).open(file("b.txt")).unwrap().set_modified(before.modified().unwrap()).unwrap();
    fs::remove_file(file("c.txt")).unwrap();
    symlink("/etc/passwd", file("c.txt")).unwrap();
    fs::remove_file(file("d.txt")).unwrap();
    members[0] = deflated("index.html", "two");
    let two = import_members(&host, &members);
    for name in ["a.txt", "b.txt", "c.txt", "d.txt"] {
        let path = published_path(&host, "current").join(name);
        assert!(fs::symlink_metadata(&path).unwrap().is_file(), "{name}");
        assert_eq!(fs::read_to_string(path).unwrap(), "right", "{name}");
    }
    // A changed folder is replaced before `current` leads to it again.
    assert_eq!(current_target(&host), two);
    run_command(&host, 0, &["rollback"]);
    assert_eq!(current_target(&host), one);
    for name in ["a.txt", "b.txt", "c.txt", "d.txt"] {
        assert_eq!(fs::read_to_string(published_path(&host, "current").join(name)).unwrap(), "right", "{name}");
    }
}

#[test]
fn published_files_have_the_configured_modes_also_after_a_change() {
    let host = Host::configured(&config_with_publish("directory = \"www\"\nmode = \"0640\""));
    let id = import_members(&host, &site_members("one"));
    let modes = || {
        ["current/deep/er", "current/logo.png"]
            .map(|name| fs::metadata(published_path(&host, name)).unwrap().permissions().mode() & 0o7777)
    };
    assert_eq!(modes(), [0o750, 0o640]);
    host.configure(&config_with_publish("directory = \"www\"\numask = \"0002\""));
    run_command(&host, 0, &["activate", &id]);
    assert_eq!(modes(), [0o775, 0o664]);
    assert_eq!(published_names(&host), sorted([id.as_str(), "current"]));
    host.configure(&config_with_publish("directory = \"www\"\nmode = \"0755\""));
    assert!(run_command(&host, 2, &["config", "check"]).stderr.contains("publish.mode"));
}

// Regression: `sync` published nothing while syncing was disabled, so a server beside it had no files.
#[test]
fn sync_publishes_the_active_version_into_a_new_folder_also_while_syncing_is_disabled() {
    let host = Host::configured(&config_with_publish(PUBLISH_TO_WWW));
    let disabled = format!("[staticExport]\nenabled = false\n{}", config_with_publish(PUBLISH_TO_WWW));
    host.configure(&disabled);
    assert!(run_command(&host, 0, &["sync"]).stdout.starts_with("disabled"));
    assert!(!host.path("www").exists() && !host.path("store").exists());
    let id = import_members(&host, &site_members("one"));
    fs::remove_dir_all(host.path("www")).unwrap();
    assert!(run_command(&host, 0, &["sync"]).stdout.starts_with("disabled"));
    assert_eq!(current_target(&host), id);
}

#[test]
fn publishing_never_exposes_missing_partial_or_mixed_files() {
    const SWAPS: usize = 150;
    let host = Host::configured(&config_with_publish(PUBLISH_TO_WWW));
    let ids = [import_members(&host, &site_members("one ")), import_members(&host, &site_members("two "))];
    let stop = AtomicBool::new(false);
    let expected_assets = ["one ", "two "].map(|text| text.repeat(9000));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut reads, mut counts) = (0u32, [0u32; 2]);
            while !stop.load(Ordering::Relaxed) {
                let first = fs::read_to_string(published_path(&host, "current/index.html")).expect("a page");
                assert!(first == "one " || first == "two ", "{first:?}");
                let mut text = String::new();
                File::open(published_path(&host, "current/deep/er/asset.js"))
                    .expect("an asset")
                    .read_to_string(&mut text)
                    .unwrap();
                let index = expected_assets
                    .iter()
                    .position(|expected_assets| *expected_assets == text)
                    .expect("the complete asset of one version");
                counts[index] += 1;
                fs::metadata(published_path(&host, "current/logo.png")).expect("the picture");
                reads += 1;
            }
            (reads, counts)
        });
        for n in 0..SWAPS {
            let id = &ids[n % 2];
            run_command(&host, 0, &["activate", id]);
            assert_eq!(current_target(&host), *id);
        }
        stop.store(true, Ordering::Relaxed);
        let (reads, counts) = reader.join().unwrap();
        assert!(reads > 100 && counts[0] > 10 && counts[1] > 10, "{reads} reads, {counts:?}");
    });
}

#[test]
fn publishing_removes_its_old_folders_and_no_files_of_others() {
    let host = Host::configured(&config_with_publish(PUBLISH_TO_WWW));
    let foreign = "ab".repeat(32);
    fs::create_dir_all(published_path(&host, &foreign)).unwrap();
    fs::write(published_path(&host, &foreign).join("x"), "not ours").unwrap();
    fs::create_dir(published_path(&host, ".staging")).unwrap();
    fs::write(published_path(&host, ".staging-0"), "a file, not ours").unwrap();
    fs::write(published_path(&host, "notes.txt"), "not ours either").unwrap();
    symlink("notes.txt", published_path(&host, "current")).unwrap();
    let ids: Vec<String> = (0..4).map(|n| import_members(&host, &site_members(&format!("{n}")))).collect();
    assert_eq!(published_names(&host).len(), 4 + 5, "replaced folders stay for a while: {:?}", published_names(&host));
    // As if the folders had been replaced long ago.
    let record = published_path(&host, ".docwharf.json");
    let text = fs::read_to_string(&record).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    for tree in json["trees"].as_object_mut().unwrap().values_mut().filter(|tree| tree["replaced"].is_string()) {
        tree["replaced"] = "2020-01-01T00:00:00Z".into();
    }
    fs::write(&record, json.to_string()).unwrap();
    run_command(&host, 0, &["release"]);
    let expected = sorted([".staging", ".staging-0", "current", "notes.txt", &foreign, &ids[2], &ids[3]]);
    assert_eq!(published_names(&host), expected);
    assert_eq!(fs::read_to_string(published_path(&host, &foreign).join("x")).unwrap(), "not ours");
    // Nothing is removed when publishing is turned off.
    host.configure(&config_with_publish(""));
    import_members(&host, &site_members("unseen"));
    assert_eq!(published_names(&host), expected);
    assert_eq!(current_target(&host), ids[3]);
}

#[test]
fn publishing_refuses_an_unsafe_directory_and_changes_nothing_in_it() {
    let host = Host::configured(&config_with_publish("directory = \"store/www\""));
    let problem = run_command(&host, 2, &["import", "x.zip"]).stderr;
    assert!(problem.contains("publish.directory") && problem.contains("store"), "{problem}");

    host.configure(&config_with_publish(""));
    let id = import_members(&host, &site_members("one"));
    let assert_refused = |message: &str| {
        let ended = run_command(&host, 8, &["release"]);
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        assert!(ended.stderr.contains(message), "{}", ended.stderr);
    };
    // A link to the store, whose versions are folders with ids, too.
    symlink("store", host.path("detour")).unwrap();
    host.configure(&config_with_publish("directory = \"detour/versions\""));
    assert_refused("it is the store or inside it");
    assert!(host.path("store/versions").join(&id).join("site.zip").is_file());

    host.configure(&config_with_publish(PUBLISH_TO_WWW));
    fs::create_dir_all(published_path(&host, "current")).unwrap();
    assert_refused("no symbolic link");
    fs::remove_dir(published_path(&host, "current")).unwrap();
    fs::create_dir(published_path(&host, &id)).unwrap();
    assert_refused("has no record of creating it");
    assert_eq!(published_names(&host), [id.as_str()]);
    fs::remove_dir(published_path(&host, &id)).unwrap();
    run_command(&host, 0, &["release"]);
    assert_eq!(current_target(&host), id);
}

// Regression: a command that root ran created published folders that the daemon could not replace.
#[test]
fn root_publishes_nothing_into_the_folder_of_another_user() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return; // only root could make such folders
    }
    let host = Host::configured(&config_with_publish(PUBLISH_TO_WWW));
    fs::create_dir(host.path("www")).unwrap();
    chown(host.path("www"), Some(4711), Some(4711)).unwrap();
    for publish in [PUBLISH_TO_WWW, "directory = \"www/not/yet/there\""] {
        host.configure(&config_with_publish(publish));
        fs::write(host.path("bundle.zip"), zip(&site_members("one"))).unwrap();
        let ended = run_command(&host, 0, &["import", "bundle.zip"]);
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        assert!(
            ended.stderr.contains("not published: ") && ended.stderr.contains("belongs to another user"),
            "{}",
            ended.stderr
        );
        assert_eq!(fs::read_dir(host.path("www")).unwrap().count(), 0);
    }
    host.configure(&config_with_publish(PUBLISH_TO_WWW));
    chown(host.path("www"), Some(0), Some(0)).unwrap();
    assert_eq!(run_command(&host, 0, &["release"]).stderr, "");
    assert_eq!(published_names(&host).len(), 2);
}

#[test]
fn a_failed_publication_leaves_the_old_version_and_no_partial_folder() {
    let host = Host::configured(&config_with_publish(PUBLISH_TO_WWW));
    let one = import_members(&host, &site_members("one"));
    host.configure(&config_with_publish(""));
    let two = import_members(&host, &site_members("two"));
    host.configure(&config_with_publish(PUBLISH_TO_WWW));
    // A limit on the file size, smaller than the asset, replaces a full disk: it needs no root.
    let mut limited = Command::new("bash");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$@\"", "bash", env!("CARGO_BIN_EXE_docwharf")]);
    let limited = limited.args(["activate", &two, "--config", "docwharf.toml"]).current_dir(host.dir.path());
    let ended = run_to_end(limited).expect(8);
    assert!(ended.stderr.starts_with("docwharf: cannot publish: cannot write "), "{}", ended.stderr);
    assert!(ended.stderr.contains("asset.js"), "{}", ended.stderr);
    assert_eq!(current_target(&host), one);
    assert_eq!(published_names(&host), sorted([one.as_str(), "current"]));
    run_command(&host, 0, &["activate", &two]);
    assert_eq!(current_target(&host), two);
}

#[test]
fn publishing_killed_at_a_random_moment_leaves_a_complete_version() {
    let host = Host::configured(&config_with_publish(PUBLISH_TO_WWW));
    let pages = |n: usize| -> Vec<Member> {
        let page = |i| deflated(&format!("part/{i}.html"), &format!("{n} {i} ").repeat(500));
        (0..300).map(page).chain([deflated("index.html", &n.to_string())]).collect()
    };
    host.configure(&config_with_publish(""));
    let ids: Vec<String> = (0..4).map(|n| import_members(&host, &pages(n))).collect();
    host.configure(&config_with_publish(PUBLISH_TO_WWW));
    run_command(&host, 0, &["activate", &ids[0]]);
    let (mut killed, mut window, mut random) = (0, Duration::from_millis(100), 0x5eed_u64);
    for round in 0.. {
        assert!(round < 2000, "only {killed} were killed before their end");
        if killed == 40 {
            break;
        }
        // Removes all other folders, so that each round writes a complete one.
        for name in published_names(&host).iter().filter(|name| name.len() == 64 && **name != current_target(&host)) {
            fs::remove_dir_all(published_path(&host, name)).unwrap();
        }
        let before = current_target(&host);
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
        let current = current_target(&host);
        assert!(current == before || current == *next, "round {round}");
        let n = ids.iter().position(|id| *id == current).unwrap();
        let mut expected: Vec<(String, Vec<u8>)> =
            pages(n).into_iter().map(|member| (String::from_utf8(member.name).unwrap(), member.content)).collect();
        expected.sort();
        assert!(read_tree(&published_path(&host, "current")) == expected, "round {round}: {n} is incomplete");
    }
    run_command(&host, 0, &["activate", &ids[0]]);
    run_command(&host, 0, &["activate", &ids[1]]);
    let mut expected = [ids[0].as_str(), ids[1].as_str(), "current"].map(str::to_owned).to_vec();
    expected.extend(published_names(&host).into_iter().filter(|name| ids[2..].contains(name)));
    assert_eq!(published_names(&host), sorted(expected), "leftovers are removed");
}

/// A process of `run --no-serve`, which only publishes. It is killed when this is dropped.
struct PublishingDaemon {
    child: KillOnDrop,
    log_path: PathBuf,
}

impl PublishingDaemon {
    fn start(host: &Host) -> PublishingDaemon {
        let log_path = host.path("log");
        let mut command = host.command(&["run", "--no-serve"]);
        command.stdout(File::create(host.path("out")).unwrap()).stderr(File::create(&log_path).unwrap());
        PublishingDaemon { child: KillOnDrop(command.spawn().unwrap()), log_path }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log_path).unwrap()
    }

    /// Stops it with SIGTERM. Returns the exit code.
    #[track_caller]
    fn stop(&mut self) -> Option<i32> {
        send_signal(&self.child.0, "TERM");
        self.child.wait(Duration::from_secs(20))
    }
}

fn published_front_page(host: &Host) -> String {
    fs::read_to_string(published_path(host, "current/index.html")).unwrap_or_default()
}

fn drop_into_inbox(host: &Host, name: &str, members: &[Member]) {
    fs::write(host.path("inbox").join(format!("{name}.part")), zip(members)).unwrap();
    fs::rename(host.path("inbox").join(format!("{name}.part")), host.path("inbox").join(name)).unwrap();
}

#[test]
fn run_no_serve_publishes_new_versions_and_opens_no_listener() {
    let host = Host::configured(&config_with_publish(""));
    fs::create_dir(host.path("inbox")).unwrap();
    import_members(&host, &site_members("from before"));
    host.configure(&config_with_publish(PUBLISH_TO_WWW));
    let mut daemon = PublishingDaemon::start(&host);
    until("the version in the store", || published_front_page(&host) == "from before");
    drop_into_inbox(&host, "b.zip", &site_members("from the inbox"));
    until("the version from the inbox", || published_front_page(&host) == "from the inbox");
    until("it is logged", || daemon.log().contains(" is published (2 files written, 1 linked)"));
    // Only the link is replaced.
    run_command(&host, 0, &["rollback"]);
    until("the version from before", || published_front_page(&host) == "from before");
    until("it is logged, too", || daemon.log().contains(" is published (0 files written, 0 linked)"));
    let sockets = fs::read_dir(format!("/proc/{}/fd", daemon.child.pid())).unwrap();
    let inodes: Vec<String> = sockets
        .filter_map(|fd| fs::read_link(fd.unwrap().path()).ok()?.to_str()?.strip_prefix("socket:").map(str::to_owned))
        .collect();
    let tcp = ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("/proc/{}/net/{table}", daemon.child.pid())));
    for line in tcp.iter().flatten().flat_map(|table| table.lines()) {
        let inode = line.split_whitespace().nth(9).unwrap_or_default();
        assert!(!inodes.contains(&format!("[{inode}]")), "it listens: {line}");
    }
    assert_eq!(daemon.stop(), Some(0));
    assert_eq!(fs::read_to_string(host.path("out")).unwrap(), "");
}

#[test]
fn a_damaged_published_folder_is_repaired_at_the_next_start() {
    let host = Host::configured(&config_with_publish(PUBLISH_TO_WWW));
    import_members(&host, &[deflated("index.html", "first page"), deflated("deep/er/page.html", "another")]);
    let page = published_path(&host, "current/deep/er/page.html");
    assert_eq!(fs::read_to_string(&page).unwrap(), "another");
    let written = fs::metadata(&page).unwrap().modified().unwrap();
    let damages: [&dyn Fn(); 4] = [
        &|| fs::remove_file(&page).unwrap(),
        &|| fs::remove_dir_all(published_path(&host, "current/deep")).unwrap(),
        &|| {
            fs::remove_file(&page).unwrap();
            fs::write(&page, "ANOTHER").unwrap();
        },
        // Within the second of the file's time.
        &|| {
            fs::write(&page, "ANOTHER").unwrap();
            let file = File::options().write(true).open(&page).unwrap();
            file.set_modified(written + Duration::from_millis(1)).unwrap();
        },
    ];
    for damage in damages {
        damage();
        let mut daemon = PublishingDaemon::start(&host);
        until("the page is repaired", || fs::read_to_string(&page).is_ok_and(|text| text == "another"));
        assert_eq!(daemon.stop(), Some(0));
    }
    // The other server could not enter the folder any more.
    let folder = fs::canonicalize(published_path(&host, "current")).unwrap();
    fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
    let mut daemon = PublishingDaemon::start(&host);
    until("the folder is replaced", || fs::metadata(&folder).is_ok_and(|folder| folder.mode() & 0o777 == 0o755));
    assert_eq!(daemon.stop(), Some(0));
    // A file that another user owns may be changed by that user.
    if rustix::process::geteuid().is_root() {
        chown(&page, Some(12_345), None).unwrap();
        let _daemon = PublishingDaemon::start(&host);
        until("the file is replaced", || fs::metadata(&page).is_ok_and(|metadata| metadata.uid() == 0));
    }
}

#[test]
fn run_applies_changed_publish_settings_and_retries_failed_publications() {
    let host = Host::configured(&config_with_publish(PUBLISH_TO_WWW));
    fs::create_dir(host.path("inbox")).unwrap();
    import_members(&host, &site_members("one"));
    fs::remove_file(published_path(&host, "current")).unwrap();
    fs::create_dir(published_path(&host, "current")).unwrap();
    let daemon = PublishingDaemon::start(&host);
    until("the failure is logged", || daemon.log().contains("no symbolic link; move it away"));
    fs::remove_dir(published_path(&host, "current")).unwrap();
    until("the version is published", || published_front_page(&host) == "one");
    // Publishing is turned off. The published version stays.
    host.configure(&config_with_publish(""));
    until("the change is noticed", || daemon.log().contains("reading the configuration and its files again"));
    drop_into_inbox(&host, "b.zip", &site_members("two"));
    until("the second is active", || daemon.log().matches("is active").count() == 1);
    assert_eq!(published_front_page(&host), "one");
    host.configure(&config_with_publish("directory = \"elsewhere/www\""));
    let second_folder = || fs::read_to_string(host.path("elsewhere/www/current/index.html")).unwrap_or_default();
    until("the version is in the other folder", || second_folder() == "two");
    assert_eq!(published_front_page(&host), "one");
}

// Regression: a `run` that only publishes reported that it was ready before it had published.
#[test]
fn run_no_serve_is_ready_only_after_it_has_published() {
    let host = Host::configured(&config_with_publish(PUBLISH_TO_WWW));
    fs::create_dir(host.path("inbox")).unwrap();
    import_members(&host, &site_members("one"));
    fs::remove_file(published_path(&host, "current")).unwrap();
    fs::create_dir(published_path(&host, "current")).unwrap();
    let _daemon = PublishingDaemon::start(&host);
    let health = || run_to_end(&mut host.command(&["health"]));
    until("publishing fails", || health().stderr.contains("nothing is published yet"));
    fs::remove_dir(published_path(&host, "current")).unwrap();
    until("the daemon is ready", || health().code == Some(0));
    assert_eq!(published_front_page(&host), "one");
}

#[test]
fn run_no_serve_without_a_publish_directory_logs_a_warning() {
    let host = Host::configured(&config_with_publish(""));
    fs::create_dir(host.path("inbox")).unwrap();
    let mut daemon = PublishingDaemon::start(&host);
    until("the warning", || daemon.log().contains("--no-serve without publish.directory"));
    until("the daemon runs", || host.path("store/lock").exists());
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn published_files_have_the_time_of_their_last_content_change() {
    let host = Host::configured(&config_with_publish(PUBLISH_TO_WWW));
    let started = SystemTime::now() - Duration::from_secs(2);
    import_members(&host, &site_members("one"));
    let modified = fs::metadata(published_path(&host, "current/index.html")).unwrap().modified().unwrap();
    assert!(modified >= started && modified <= SystemTime::now(), "{modified:?}");
}
