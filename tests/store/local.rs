//! What a machine can lack or do to a store: rights, descriptors, short paths, a steady clock, being alone. Each time one
//! clear line and exit code 8, or the site served all the same; and when it is mended, the next sync works.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use support::host::{Host, at_once, bundle, finish, front, judged, text};
use support::upstream::{Call, Upstream, answer};
use support::{Daemon, http, read_tree, until};

/// A host with a version of the store, and another one to come.
fn host() -> Host {
    let host = Host::bare().set("staticExport.bundleUrl", text("bundle.zip")).set("sync.interval", text("1h"));
    host.put("bundle.zip", bundle("old"));
    assert_eq!(host.sync(), "activated");
    host.put("bundle.zip", bundle("new"));
    host
}

/// The same program in another program's hands, such as one that takes something away from it.
fn through(outer: &mut Command, host: &Host, arguments: &[&str]) -> Command {
    let inner = host.command(arguments);
    outer.arg(inner.get_program()).args(inner.get_args()).current_dir(host.dir.path()).env("USER", "tester");
    std::mem::replace(outer, Command::new("true"))
}

fn with_files(most: u32, host: &Host, arguments: &[&str]) -> Command {
    through(Command::new("prlimit").arg(format!("--nofile={most}:{most}")), host, arguments)
}

/// The old site stays, and with nothing in the way the next sync brings the new one.
#[track_caller]
fn assert_unharmed(what: &str, host: &Host) {
    assert_eq!(host.status()["activePresent"], true, "{what}");
    host.ok(&["store", "verify"]);
    assert_eq!(host.sync(), "activated", "{what}");
    assert_eq!(front(&host.run()), "new", "{what}");
    host.assert_tidy();
}

#[test]
fn too_few_descriptors_are_told_and_harm_nothing() {
    let few: Vec<u32> = (4..24).collect();
    let outcomes = std::sync::Mutex::new(Vec::new());
    at_once(&few, |&most| {
        let host = host();
        let ended = finish(&mut with_files(most, &host, &["sync"]));
        if ended.stderr.contains("shared libraries") {
            return; // it did not get as far as its first line
        }
        outcomes.lock().unwrap().push(ended.code);
        if ended.code == Some(0) {
            assert_eq!(front(&host.run()), "new", "{most}");
        } else {
            let ended = judged(8, ended);
            assert!(ended.stderr.contains("Too many open files"), "{most}: {}", ended.stderr);
            assert_unharmed(&format!("{most} files"), &host);
        }
    });
    let outcomes = outcomes.into_inner().unwrap();
    assert!(outcomes.contains(&Some(0)) && outcomes.contains(&Some(8)), "{outcomes:?}");
}

#[test]
fn a_server_that_could_open_too_few_files_to_answer_does_not_start() {
    let host = host();
    let page = host.path("page");
    std::fs::create_dir(&page).unwrap();
    std::fs::write(page.join("index.html"), "<title>page</title>").unwrap();
    for most in [4, 8, 12, 16, 20, 40, 63] {
        for arguments in [&["run"][..], &["serve", page.to_str().unwrap(), "--listen", "127.0.0.1:0"]] {
            let mut command = if arguments[0] == "run" {
                with_files(most, &host, arguments)
            } else {
                let mut command = Command::new("prlimit");
                command.arg(format!("--nofile={most}:{most}")).arg(env!("CARGO_BIN_EXE_docwharf")).args(arguments);
                command
            };
            let ended = finish(&mut command);
            if ended.stderr.contains("shared libraries") {
                continue;
            }
            let ended = judged(8, ended);
            let told = ["files open here", "Too many open files"].iter().any(|words| ended.stderr.contains(words));
            assert!(told && ended.stdout.is_empty(), "{most}: {ended:?}");
        }
    }
    // As few as it says, and it answers beside as many connections as these allow.
    let daemon = Daemon::start(with_files(64, &host, &["run"]).stderr(Stdio::null()));
    let idle: Vec<_> = (0..64).map(|_| std::net::TcpStream::connect(&daemon.address).unwrap()).collect();
    drop(idle);
    until("the new site is served", || front(&daemon) == "new");
}

#[test]
fn a_store_on_a_read_only_disk_is_told_by_run_and_served_once_it_can_be_written() {
    let host = host();
    let before = read_tree(&host.path("store"));
    let mut outer = Command::new("unshare");
    outer.args(["--map-root-user", "--mount", "sh", "-c"]);
    outer.arg("mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec \"$@\"").arg(host.path("store"));
    let ended = judged(8, finish(&mut through(&mut outer, &host, &["run"])));
    assert!(ended.stderr.contains("Read-only file system"), "{}", ended.stderr);
    assert_eq!(read_tree(&host.path("store")), before);
    assert_unharmed("read-only", &host);
}

/// Whoever may not write to the store: root stands in for its owner, so only he can try as somebody else.
#[test]
fn a_store_of_another_owner_is_told_with_its_path_and_left_as_it_is() {
    let is_root = rustix::process::geteuid().is_root();
    let mode = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    for arguments in [&["sync"][..], &["run"], &["hold"], &["gc"], &["import", "bundle.zip"]] {
        let host = host();
        let (store, staging) = (host.path("store"), host.path("store/staging"));
        for (path, bits) in [(host.dir.path(), 0o755), (&host.path("docwharf.toml"), 0o644)] {
            mode(path, bits);
        }
        mode(&host.path("bundle.zip"), 0o644);
        let mut command = host.command(arguments);
        command.current_dir(host.dir.path());
        if is_root {
            command.uid(4711).gid(4711);
        } else {
            mode(&staging, 0o555);
            mode(&store.join("lock"), 0o444);
        }
        let before = read_tree(&store);
        let ended = judged(8, finish(&mut command));
        let told = ended.stderr.contains("Permission denied") && ended.stderr.contains(store.to_str().unwrap());
        assert!(told, "{arguments:?}: {}", ended.stderr);
        assert_eq!(read_tree(&store), before, "{arguments:?}");
        mode(&staging, 0o755);
        mode(&store.join("lock"), 0o644);
        assert_unharmed("another owner", &host);
    }
}

/// A folder below `root` whose path has at least so many bytes.
fn deep(root: &Path, bytes: usize) -> std::path::PathBuf {
    let mut path = root.to_owned();
    while path.as_os_str().len() < bytes {
        let left = bytes - path.as_os_str().len();
        path.push("d".repeat(left.saturating_sub(1).clamp(1, 200)));
    }
    path
}

#[test]
fn a_store_deep_below_others_works_as_long_as_the_kernel_takes_its_paths() {
    at_once(&[80, 108, 250, 1000, 3500], |&bytes| {
        let host = Host::bare();
        let store = deep(&host.path("store"), bytes);
        let host = host.set("store.path", text(store.to_str().unwrap()));
        host.put("old.zip", bundle("old"));
        host.put("new.zip", bundle("new"));
        host.ok(&["import", host.path("old.zip").to_str().unwrap()]);
        let daemon = host.run();
        // Through the control socket, whose address has no more than 108 bytes.
        host.ok(&["import", host.path("new.zip").to_str().unwrap()]);
        assert_eq!(front(&daemon), "new", "{bytes}");
        host.ok(&["rollback"]);
        assert_eq!(front(&daemon), "old", "{bytes}");
        drop(daemon);
        host.ok(&["store", "verify"]);
        assert_eq!(front(&host.run()), "old", "{bytes}");
    });
    at_once(&[4000, 4060, 4090, 4200, 9000], |&bytes| {
        let host = Host::bare();
        let store = deep(&host.path("store"), bytes);
        let host = host.set("store.path", text(store.to_str().unwrap()));
        host.put("old.zip", bundle("old"));
        for arguments in [&["import", host.path("old.zip").to_str().unwrap()][..], &["run"]] {
            let ended = finish(&mut host.command(arguments));
            // `run` has nothing to serve, which is a mistake of the configuration.
            let code = if arguments[0] == "run" && ended.code == Some(2) { 2 } else { 8 };
            assert_eq!(ended.code, Some(code), "{bytes} {arguments:?}: {ended:?}");
            let line = ended.stderr.lines().rfind(|line| line.starts_with("docwharf: ")).unwrap_or_default();
            assert!(code == 2 || line.ends_with("File name too long (os error 36)"), "{bytes}: {}", ended.stderr);
            assert!(line.chars().count() < 1000, "{bytes}: {}", ended.stderr);
        }
    });
}

#[test]
fn several_imports_at_once_follow_each_other() {
    let host = Host::bare().set("sync.keep", "9");
    let names = ["one", "two", "three", "four", "five"];
    for name in names {
        host.put(&format!("{name}.zip"), bundle(name));
    }
    at_once(&names, |name| {
        let ended = finish(&mut host.command(&["import", host.path(&format!("{name}.zip")).to_str().unwrap()]));
        assert_eq!(ended.code, Some(0), "{name}: {ended:?}");
    });
    host.ok(&["store", "verify"]);
    let versions = host.ok(&["versions", "--json"]).json();
    assert_eq!(versions["versions"].as_array().map(Vec::len), Some(names.len()));
    let history = host.ok(&["history"]).stdout;
    assert_eq!(history.matches("imported").count(), names.len(), "{history}");
    assert!(names.contains(&front(&host.run()).as_str()));
}

/// Gives every time in a text another year.
fn shifted(text: &str, year: &str) -> String {
    let mut out = text.to_owned();
    let digits = |at: usize, n: usize| text.as_bytes()[at..at + n].iter().all(u8::is_ascii_digit);
    for (at, _) in text.match_indices('T') {
        let is_time = at >= 10 && at + 9 < text.len() && digits(at - 10, 4) && digits(at - 2, 2) && digits(at + 1, 2);
        if is_time && text.as_bytes()[at - 3] == b'-' && text.as_bytes()[at + 3] == b':' {
            out.replace_range(at - 10..at - 6, year);
        }
    }
    out
}

/// Everything that the store has written down was written in another year.
fn shift(store: &Path, year: &str) {
    let mut shifts = 0;
    for (name, bytes) in read_tree(store) {
        if !matches!(Path::new(&name).extension().and_then(|ending| ending.to_str()), Some("json" | "jsonl")) {
            continue;
        }
        let text = String::from_utf8(bytes).unwrap();
        let other = shifted(&text, year);
        shifts += usize::from(other != text);
        std::fs::write(store.join(&name), other).unwrap();
    }
    for (name, _) in read_tree(store) {
        let touched = Command::new("touch").args(["-d", &format!("{year}-03-01")]).arg(store.join(name)).status();
        assert!(touched.unwrap().success());
    }
    assert!(shifts >= 3, "record, receipts and history have times");
}

#[test]
fn a_clock_that_jumped_by_years_stops_neither_looks_nor_retries_and_prunes_nothing_that_must_stay() {
    at_once(&["1999", "2099"], |&year| {
        let upstream = Upstream::new(bundle("eldest"));
        let host = Host::linked(&upstream.link()).set("sync.keep", "0");
        host.sync();
        upstream.publish(bundle("old"));
        host.sync();
        // A failure leaves a time before which nothing is asked.
        upstream.on(Call::Download).times(1).gives(answer(403));
        host.ends(4, &["sync"]);
        shift(&host.path("store"), year);
        upstream.publish(bundle("new"));
        let mut daemon = host.run();
        let first = http::get(&daemon.address, "/").text();
        assert!(["<title>old</title>", "<title>new</title>"].contains(&first.as_str()), "{year}: {first}");
        until("the new site is served", || front(&daemon) == "new");
        host.ok(&["rollback"]);
        assert_eq!(front(&daemon), "old", "{year}: the previous version is still there");
        host.ok(&["release"]);
        daemon.signal("TERM");
        assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0), "{year}");
        // And back again.
        shift(&host.path("store"), if year == "1999" { "2099" } else { "1999" });
        upstream.publish(bundle("newest"));
        assert_eq!(host.sync(), "activated", "{year}");
        assert_eq!(front(&host.run()), "newest", "{year}");
        host.ok(&["store", "verify"]);
        host.assert_tidy();
    });
}

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo runs").success());
}

/// Opening one that nobody writes to would wait for ever.
#[test]
fn a_named_pipe_in_the_place_of_a_bundle_or_the_configuration_is_an_error_at_once() {
    let host = host();
    let fifo = host.path("pipe");
    pipe(&fifo);
    let path = fifo.to_str().unwrap();
    for arguments in [&["bundle", "verify", path][..], &["import", path], &["serve", path, "--listen", "127.0.0.1:0"]] {
        let ended = finish(&mut host.command(arguments));
        assert!(ended.code.is_some_and(|code| code != 0), "{arguments:?}: {ended:?}");
        assert!(ended.stderr.contains("it is a named pipe"), "{arguments:?}: {}", ended.stderr);
    }
    let mut command = support::docwharf();
    let ended = finish(command.args(["config", "check", "--config", path]));
    assert!(ended.code == Some(2) && ended.stderr.contains("it is a named pipe"), "{ended:?}");
    // In `run` it is the source that has gone: the site stays, and what is put in its place is taken.
    std::fs::remove_file(host.path("bundle.zip")).unwrap();
    pipe(&host.path("bundle.zip"));
    let ended = judged(2, finish(&mut host.command(&["sync"])));
    assert!(ended.stderr.contains("it is a named pipe"), "{}", ended.stderr);
    let mut daemon = host.run();
    until("run has looked at it", || host.last_error().contains("it is a named pipe"));
    assert_eq!(front(&daemon), "old");
    let ended = finish(&mut host.command(&["import", path]));
    assert!(ended.stderr.contains("it is a named pipe"), "through the daemon: {ended:?}");
    host.put("bundle.zip", bundle("new"));
    until("the bundle is taken", || front(&daemon) == "new");
    daemon.signal("TERM");
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
}

/// An image that is not active is opened by `store verify` alone.
#[test]
fn a_named_pipe_or_a_link_in_the_place_of_an_image_is_told_by_store_verify_at_once() {
    let host = host();
    assert_eq!(host.sync(), "activated");
    let versions: Vec<_> = std::fs::read_dir(host.path("store/versions")).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(versions.len(), 2, "{versions:?}");
    for version in &versions {
        let (image, aside) = (version.join("site.zip"), version.join("aside"));
        std::fs::rename(&image, &aside).unwrap();
        pipe(&image);
        judged(8, finish(&mut host.command(&["store", "verify"])));
        std::fs::remove_file(&image).unwrap();
        std::os::unix::fs::symlink(&aside, &image).unwrap();
        judged(8, finish(&mut host.command(&["store", "verify"])));
        std::fs::rename(&aside, &image).unwrap();
    }
    host.ok(&["store", "verify"]);
}

/// Who may write to the inbox of another user gets nothing of that user's overwritten, and stops nothing.
#[test]
fn links_and_pipes_in_an_inbox_overwrite_nothing_and_stop_nothing() {
    let host = Host::bare().set("sync.inbox", text("inbox"));
    let first = host.path("first.zip");
    std::fs::write(&first, bundle("first")).unwrap();
    host.ok(&["import", first.to_str().unwrap()]);
    let (inbox, record) = (host.path("inbox"), host.path("store/state.json"));
    std::fs::create_dir_all(inbox.join("rejected")).unwrap();
    std::os::unix::fs::symlink(&record, inbox.join("rejected/over.zip.reason.txt")).unwrap();
    pipe(&inbox.join("rejected/wait.zip.reason.txt"));
    pipe(&inbox.join("pipe.zip"));
    std::os::unix::fs::symlink(&first, inbox.join("link.zip")).unwrap();
    std::fs::hard_link(&first, inbox.join("hard.zip")).unwrap();
    let mut daemon = host.run();
    for name in ["over.zip", "wait.zip"] {
        std::fs::write(inbox.join(name), "no archive").unwrap();
        until("it is put away", || inbox.join("rejected").join(name).exists());
    }
    assert!(std::fs::read_to_string(&record).unwrap().starts_with('{'), "the record is a record");
    host.ok(&["hold"]);
    host.ok(&["release"]);
    std::fs::write(inbox.join("good.zip"), bundle("good")).unwrap();
    until("an honest file is taken", || front(&daemon) == "good");
    for name in ["pipe.zip", "link.zip", "hard.zip"] {
        assert!(inbox.join(name).symlink_metadata().is_ok(), "{name} is left alone");
    }
    daemon.signal("TERM");
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
}

/// Says stop however the test ends.
struct Stop<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Exchanges a file for a link to the secret and back, as fast as it can, while `work` is done some times.
fn while_exchanged(file: &Path, link: &Path, times: usize, mut work: impl FnMut(usize)) {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                renameat_with(CWD, file, CWD, link, RenameFlags::EXCHANGE).unwrap();
                std::thread::sleep(Duration::from_micros(50));
            }
        });
        (0..times).for_each(&mut work);
    });
}

const SECRET: &str = "the secret of another user";

/// Who may write to a folder gets nothing packed that lies outside of it, whenever it exchanges names.
#[test]
fn a_file_that_becomes_a_link_while_its_folder_is_packed_is_never_read_through_it() {
    let dir = support::folder();
    let site = support::write_site(&dir.path().join("site"), &[("index.html", "<p>page</p>"), ("a/page.html", SECRET)]);
    // As long as the secret, so that no length tells them apart.
    std::fs::write(site.join("a/page.html"), "x".repeat(SECRET.len())).unwrap();
    std::fs::write(dir.path().join("page.html"), SECRET).unwrap();
    std::os::unix::fs::symlink(dir.path().join("page.html"), site.join("a/.link")).unwrap();
    let mut packed = 0;
    while_exchanged(&site.join("a/page.html"), &site.join("a/.link"), 60, |n| {
        let to = dir.path().join(format!("{n}.tar"));
        let mut command = support::docwharf();
        let ended = finish(command.args(["bundle", "pack"]).arg(&site).arg(&to));
        if ended.code == Some(0) {
            packed += 1;
            let bytes = std::fs::read(&to).unwrap();
            let found = bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes());
            assert!(!found, "the secret was packed");
        }
    });
    // It may have been unlucky each time; without anybody exchanging it works.
    let to = dir.path().join("quiet.tar");
    let ended = finish(support::docwharf().args(["bundle", "pack"]).arg(&site).arg(&to));
    assert_eq!(ended.code, Some(0), "{packed} before: {ended:?}");
}

/// The file that is judged is not the one that lies there afterwards: nothing was said about that one.
#[test]
fn a_file_of_the_inbox_that_changes_while_it_is_judged_is_not_put_down_as_refused() {
    let host = Host::bare().set("sync.inbox", text("inbox"));
    std::fs::create_dir(host.path("inbox")).unwrap();
    let daemon = host.run();
    // Long enough to be met while it is read. Its checksum is wrong, which is known at its end only.
    let good = support::host::large_bundle("new", 64 << 20);
    let mut bad = good.clone();
    let name = b"noise.png";
    let places: Vec<usize> = (0..bad.len() - name.len()).filter(|&at| bad[at..].starts_with(name)).collect();
    let [local, central] = places[..] else { panic!("the name is at {places:?}") };
    for checksum in [local - 16, central - 30] {
        bad[checksum] ^= 1;
    }
    let path = host.path("inbox/b.zip");
    std::fs::write(&path, &bad).unwrap();
    let is_open = || {
        let files = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap();
        files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok()).any(|file| file == path)
    };
    until("it is read", || {
        if is_open() {
            daemon.signal("STOP");
        }
        is_open()
    });
    std::fs::write(&path, &good).unwrap();
    daemon.signal("CONT");
    until("what lies there now", || front(&daemon) == "new");
    let refused = std::fs::read_dir(host.path("inbox/rejected")).map_or(0, Iterator::count);
    assert_eq!(refused, 0);
}

#[test]
fn a_folder_that_changes_while_it_is_packed_is_refused_and_leaves_no_archive() {
    let dir = support::folder();
    let site = support::write_site(&dir.path().join("site"), &[("index.html", "<p>page"), ("count.txt", "00000000")]);
    // It takes longer to read than to count.
    std::fs::write(site.join("large.txt"), support::text(8 << 20)).unwrap();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = std::fs::File::options().write(true).open(site.join("count.txt")).unwrap();
            let mut count = 0;
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                count += 1;
                std::os::unix::fs::FileExt::write_all_at(&file, format!("{count:08}").as_bytes(), 0).unwrap();
            }
        });
        let ends = ["a.tar.gz", "a.tar", "a.zip"].map(|name| {
            let to = dir.path().join(name);
            let ended = finish(support::docwharf().args(["bundle", "pack"]).arg(&site).arg(&to));
            (name, ended, to.exists())
        });
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        for (name, ended, is_there) in ends {
            assert_eq!((ended.code, is_there), (Some(1), false), "{name}: {ended:?}");
            assert!(ended.stderr.contains("changed while it was packed"), "{name}: {}", ended.stderr);
        }
    });
}

/// Root types a command in the store of another user, who may do anything to it meanwhile.
#[test]
fn root_changes_no_file_of_its_own_through_the_links_of_another_users_store() {
    if !rustix::process::geteuid().is_root() {
        return; // only root works in other users' stores
    }
    let host = host();
    let chown = |path: &Path| std::os::unix::fs::lchown(path, Some(4711), Some(4711)).unwrap();
    let store = host.path("store");
    let own = || {
        assert!(Command::new("chown").args(["-R", "-h", "4711:4711"]).arg(&store).status().unwrap().success());
    };
    own();
    let shadow = host.path("shadow");
    std::fs::write(&shadow, SECRET).unwrap();
    std::fs::set_permissions(&shadow, PermissionsExt::from_mode(0o600)).unwrap();
    let assert_untouched = |what: &str| {
        use std::os::unix::fs::MetadataExt;
        let metadata = shadow.metadata().unwrap();
        assert_eq!((metadata.mode() & 0o777, metadata.uid()), (0o600, 0), "{what}");
        assert_eq!(std::fs::read_to_string(&shadow).unwrap(), SECRET, "{what}");
    };
    // The image that is being sealed becomes a link, again and again.
    let link = store.join("link");
    std::os::unix::fs::symlink(&shadow, &link).unwrap();
    chown(&link);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let image = store.join("staging/0/site.zip");
                let _ = renameat_with(CWD, &link, CWD, &image, RenameFlags::EXCHANGE);
            }
        });
        for n in 0..20 {
            let path = host.path(&format!("{n}.zip"));
            std::fs::write(&path, bundle(&format!("version {n}"))).unwrap();
            let _ = finish(&mut host.command(&["import", path.to_str().unwrap()]));
            assert_untouched("an image");
        }
    });
    // A record that is a link is not kept aside for the owner of the store.
    let _ = std::fs::remove_file(store.join("state.json"));
    std::os::unix::fs::symlink(&shadow, store.join("state.json")).unwrap();
    let _ = finish(&mut host.command(&["sync"]));
    assert_untouched("a record");
    for (name, content) in read_tree(&store) {
        let is_link = store.join(&name).symlink_metadata().unwrap().is_symlink();
        assert!(is_link || content != SECRET.as_bytes(), "{name} holds the secret");
    }
    // A lock or a record that is a pipe is an error, and not waited for.
    std::fs::remove_file(store.join("state.json")).unwrap();
    for name in ["state.json", "lock"] {
        let _ = std::fs::remove_file(store.join(name));
        pipe(&store.join(name));
        let ended = finish(&mut host.command(&["sync"]));
        assert!(ended.code != Some(0) && ended.stderr.contains("named pipe"), "{name}: {ended:?}");
        std::fs::remove_file(store.join(name)).unwrap();
    }
}

/// What an earlier download has left may be a link or a second name of any file: it is neither cut nor continued.
#[test]
fn a_download_is_continued_in_no_file_that_somebody_else_has_put_there() {
    let upstream = Upstream::new(bundle("new"));
    let link = upstream.link();
    for hard in [false, true] {
        let host = Host::linked(&link);
        let (victim, downloads) = (host.path("victim"), host.path("store/downloads"));
        std::fs::create_dir_all(&downloads).unwrap();
        std::fs::write(&victim, SECRET).unwrap();
        let part = downloads.join("bundle.part");
        if hard {
            std::fs::hard_link(&victim, &part).unwrap();
        } else {
            std::os::unix::fs::symlink(&victim, &part).unwrap();
        }
        let validator = upstream.plan().validator();
        let note = serde_json::json!({"source": link, "validator": validator, "total": null, "encoded": false});
        std::fs::write(downloads.join("bundle.json"), note.to_string()).unwrap();
        assert_eq!(host.sync(), "activated");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), SECRET, "hard: {hard}");
        host.assert_tidy();
    }
}

#[test]
fn a_site_is_served_and_synced_with_each_number_size_and_duration_at_a_bound() {
    const LONGEST: &str = "\"4294967295d\"";
    const LARGEST: &str = "\"18446744073709551615\"";
    let durations = ["sync.maxAge", "sync.jobTimeout", "network.connectTimeout", "network.callTimeout"];
    let more = ["network.idleTimeout", "network.pollFirst", "network.pollMost", "store.scrub", "server.assetGrace"];
    let greatest = durations.iter().chain(&more).map(|&key| (key, LONGEST)).chain([
        ("sync.interval", LONGEST),
        ("tls.hsts", LONGEST),
        ("sync.keep", "10000"),
        ("sync.threads", "256"),
        ("network.redirects", "100"),
        ("store.maxBytes", LARGEST),
        ("server.identityCache", LARGEST),
        ("server.heldBytes", LARGEST),
        ("server.csp", "\"connected\""),
        ("server.cspSize", "\"64KiB\""),
        ("limits.entries", "10000000"),
        ("limits.unpacked", LARGEST),
        ("limits.archive", LARGEST),
        ("limits.entry", LARGEST),
    ]);
    let least = [
        ("sync.interval", "\"100ms\""),
        ("sync.maxAge", "\"1s\""),
        ("sync.jobTimeout", "\"1s\""),
        ("sync.keep", "0"),
        ("sync.threads", "1"),
        ("network.pollFirst", "\"10ms\""),
        ("network.pollMost", "\"10ms\""),
        ("network.redirects", "0"),
        ("store.minFree", "0"),
        ("store.scrub", "\"0s\""),
        ("server.identityCache", "0"),
        ("server.heldBytes", "0"),
        ("server.csp", "\"connected\""),
        ("server.cspSize", "1024"),
        ("server.assetGrace", "\"0s\""),
        ("tls.hsts", "\"0s\""),
    ];
    for (name, settings) in [("greatest", greatest.collect::<Vec<_>>()), ("least", least.to_vec())] {
        let mut host = host();
        for (key, value) in settings {
            host.change(key, value);
        }
        let mut daemon = host.run();
        until("the new version", || front(&daemon) == "new");
        host.put("bundle.zip", bundle("newer"));
        host.ok(&["sync"]);
        until("the newer version", || front(&daemon) == "newer");
        for arguments in [&["status"][..], &["versions"], &["history"], &["store", "verify"], &["gc"]] {
            host.ok(arguments);
        }
        daemon.signal("TERM");
        assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0), "{name}");
    }
}
