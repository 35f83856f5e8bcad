//! What a machine can lack or do to a store: rights, descriptors, short paths, a steady clock, being alone. Each time one
//! clear line and exit code 8, or the site served all the same; and when it is mended, the next sync works.

#![allow(missing_docs)]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use support::client::{Host, at_once, bundle, finish, front, judged, text};
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
