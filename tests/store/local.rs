//! Faults of the machine: missing rights, few descriptors, long paths, clock jumps, and other processes that change
//! files. Either the command prints one clear line and ends with exit code 8, or the site is served all the same. Once
//! the fault is removed, the next sync works.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use support::host::{
    Host, bundle, expect_plain_exit, front_page_title, run_concurrently, run_with_timeout, toml_string,
};
use support::upstream::{Upstream, UpstreamCall, error_reply, normal_reply};
use support::{Daemon, SetOnDrop, http, read_tree, until, until_done_in_background};

/// A host whose store has the version `old`, and whose source has the bundle `new`.
fn host() -> Host {
    let host =
        Host::bare().set("staticExport.bundleUrl", toml_string("bundle.zip")).set("sync.interval", toml_string("1h"));
    host.put("bundle.zip", bundle("old"));
    assert_eq!(host.sync(), "activated");
    host.put("bundle.zip", bundle("new"));
    host
}

/// The command wrapped in `outer`, a program that changes the environment, such as `prlimit`.
fn wrap_command(outer: &mut Command, host: &Host, arguments: &[&str]) -> Command {
    let inner = host.command(arguments);
    outer.arg(inner.get_program()).args(inner.get_args()).current_dir(host.dir.path()).env("USER", "tester");
    std::mem::replace(outer, Command::new("true"))
}

fn with_file_limit(max_files: u32, host: &Host, arguments: &[&str]) -> Command {
    wrap_command(Command::new("prlimit").arg(format!("--nofile={max_files}:{max_files}")), host, arguments)
}

/// Checks that the old version is unharmed, and that the next sync activates the new one.
#[track_caller]
fn assert_unharmed(case: &str, host: &Host) {
    assert_eq!(host.status()["activePresent"], true, "{case}");
    host.ok(&["store", "verify"]);
    assert_eq!(host.sync(), "activated", "{case}");
    assert_eq!(front_page_title(&host.run()), "new", "{case}");
    host.assert_tidy();
}

// Regression: every command that uses the network ended in a panic when six open files were allowed.
#[test]
fn sync_reports_too_few_file_descriptors_and_damages_nothing() {
    let limits: Vec<u32> = (4..24).collect();
    let outcomes = std::sync::Mutex::new(Vec::new());
    run_concurrently(&limits, |&max_files| {
        let host = host();
        let ended = run_with_timeout(&mut with_file_limit(max_files, &host, &["sync"]));
        if ended.stderr.contains("shared libraries") {
            return; // the dynamic linker failed
        }
        outcomes.lock().unwrap().push(ended.code);
        if ended.code == Some(0) {
            assert_eq!(front_page_title(&host.run()), "new", "{max_files}");
        } else {
            let ended = expect_plain_exit(8, ended);
            assert!(ended.stderr.contains("Too many open files"), "{max_files}: {}", ended.stderr);
            assert_unharmed(&format!("{max_files} files"), &host);
        }
    });
    let outcomes = outcomes.into_inner().unwrap();
    assert!(outcomes.contains(&Some(0)) && outcomes.contains(&Some(8)), "{outcomes:?}");
}

// Regression: a server with fewer than twenty open files allowed treated its version as damaged, or started and
// answered no request.
#[test]
fn run_and_serve_refuse_to_start_with_a_too_low_file_limit() {
    let host = host();
    let page = host.path("page");
    std::fs::create_dir(&page).unwrap();
    std::fs::write(page.join("index.html"), "<title>page</title>").unwrap();
    for max_files in [4, 8, 12, 16, 20, 40, 63] {
        for arguments in [&["run"][..], &["serve", page.to_str().unwrap(), "--listen", "127.0.0.1:0"]] {
            let mut command = if arguments[0] == "run" {
                with_file_limit(max_files, &host, arguments)
            } else {
                let mut command = Command::new("prlimit");
                command
                    .arg(format!("--nofile={max_files}:{max_files}"))
                    .arg(env!("CARGO_BIN_EXE_docwharf"))
                    .args(arguments);
                command
            };
            let ended = run_with_timeout(&mut command);
            if ended.stderr.contains("shared libraries") {
                continue;
            }
            let ended = expect_plain_exit(8, ended);
            let is_reported =
                ["files here, and", "Too many open files"].iter().any(|message| ended.stderr.contains(message));
            assert!(is_reported && ended.stdout.is_empty(), "{max_files}: {ended:?}");
        }
    }
    // With the minimum that the error names, it starts and answers, even with as many connections as that allows.
    let daemon = Daemon::start(with_file_limit(64, &host, &["run"]).stderr(Stdio::null()));
    let idle: Vec<_> = (0..64).map(|_| std::net::TcpStream::connect(&daemon.address).unwrap()).collect();
    drop(idle);
    until("the new site is served", || front_page_title(&daemon) == "new");
}

#[test]
fn run_reports_a_read_only_store_and_works_once_the_store_is_writable() {
    let host = host();
    let before = read_tree(&host.path("store"));
    let mut outer = Command::new("unshare");
    outer.args(["--map-root-user", "--mount", "sh", "-c"]);
    outer.arg("mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec \"$@\"").arg(host.path("store"));
    let ended = expect_plain_exit(8, run_with_timeout(&mut wrap_command(&mut outer, &host, &["run"])));
    assert!(ended.stderr.contains("Read-only file system"), "{}", ended.stderr);
    assert_eq!(read_tree(&host.path("store")), before);
    assert_unharmed("read-only", &host);
}

/// A command of a user who may not write to the store. Only root can run it as another user.
#[test]
fn a_store_without_write_permission_is_reported_with_its_path_and_unchanged() {
    let is_root = rustix::process::geteuid().is_root();
    let set_mode = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    for arguments in [&["sync"][..], &["run"], &["hold"], &["gc"], &["import", "bundle.zip"]] {
        let host = host();
        let (store, staging) = (host.path("store"), host.path("store/staging"));
        for (path, bits) in [(host.dir.path(), 0o755), (&host.path("docwharf.toml"), 0o644)] {
            set_mode(path, bits);
        }
        set_mode(&host.path("bundle.zip"), 0o644);
        let mut command = host.command(arguments);
        command.current_dir(host.dir.path());
        if is_root {
            command.uid(4711).gid(4711);
        } else {
            set_mode(&staging, 0o555);
            set_mode(&store.join("lock"), 0o444);
        }
        let before = read_tree(&store);
        let ended = expect_plain_exit(8, run_with_timeout(&mut command));
        let is_reported = ended.stderr.contains("Permission denied") && ended.stderr.contains(store.to_str().unwrap());
        assert!(is_reported, "{arguments:?}: {}", ended.stderr);
        assert_eq!(read_tree(&store), before, "{arguments:?}");
        set_mode(&staging, 0o755);
        set_mode(&store.join("lock"), 0o644);
        assert_unharmed("another owner", &host);
    }
}

/// A folder below `root` whose path has at least `bytes` bytes.
fn deep_path(root: &Path, bytes: usize) -> std::path::PathBuf {
    let mut path = root.to_owned();
    while path.as_os_str().len() < bytes {
        let missing = bytes - path.as_os_str().len();
        path.push("d".repeat(missing.saturating_sub(1).clamp(1, 200)));
    }
    path
}

// Regression: the reason was cut off at the end of an error message with a long path.
#[test]
fn a_store_path_works_up_to_the_path_length_limit_of_the_kernel() {
    run_concurrently(&[80, 108, 250, 1000, 3500], |&bytes| {
        let host = Host::bare();
        let store = deep_path(&host.path("store"), bytes);
        let host = host.set("store.path", toml_string(store.to_str().unwrap()));
        host.put("old.zip", bundle("old"));
        host.put("new.zip", bundle("new"));
        host.ok(&["import", host.path("old.zip").to_str().unwrap()]);
        let daemon = host.run();
        // Through the control socket, whose address has no more than 108 bytes.
        host.ok(&["import", host.path("new.zip").to_str().unwrap()]);
        assert_eq!(front_page_title(&daemon), "new", "{bytes}");
        host.ok(&["rollback"]);
        assert_eq!(front_page_title(&daemon), "old", "{bytes}");
        drop(daemon);
        host.ok(&["store", "verify"]);
        assert_eq!(front_page_title(&host.run()), "old", "{bytes}");
    });
    run_concurrently(&[4000, 4060, 4090, 4200, 9000], |&bytes| {
        let host = Host::bare();
        let store = deep_path(&host.path("store"), bytes);
        let host = host.set("store.path", toml_string(store.to_str().unwrap()));
        host.put("old.zip", bundle("old"));
        for arguments in [&["import", host.path("old.zip").to_str().unwrap()][..], &["run"]] {
            let ended = run_with_timeout(&mut host.command(arguments));
            // `run` has nothing to serve, which is an error of the configuration.
            let code = if arguments[0] == "run" && ended.code == Some(2) { 2 } else { 8 };
            assert_eq!(ended.code, Some(code), "{bytes} {arguments:?}: {ended:?}");
            let line = ended.stderr.lines().rfind(|line| line.starts_with("docwharf: ")).unwrap_or_default();
            assert!(code == 2 || line.ends_with("File name too long (os error 36)"), "{bytes}: {}", ended.stderr);
            assert!(line.chars().count() < 1000, "{bytes}: {}", ended.stderr);
        }
    });
}

#[test]
fn concurrent_imports_run_one_after_another() {
    let host = Host::bare().set("sync.keep", "9");
    let names = ["one", "two", "three", "four", "five"];
    for name in names {
        host.put(&format!("{name}.zip"), bundle(name));
    }
    run_concurrently(&names, |name| {
        let ended =
            run_with_timeout(&mut host.command(&["import", host.path(&format!("{name}.zip")).to_str().unwrap()]));
        assert_eq!(ended.code, Some(0), "{name}: {ended:?}");
    });
    host.ok(&["store", "verify"]);
    let versions = host.ok(&["versions", "--json"]).json();
    assert_eq!(versions["versions"].as_array().map(Vec::len), Some(names.len()));
    let history = host.ok(&["history"]).stdout;
    assert_eq!(history.matches("imported").count(), names.len(), "{history}");
    assert!(names.contains(&front_page_title(&host.run()).as_str()));
}

/// Replaces the year in each time in `text`.
fn replace_years(text: &str, year: &str) -> String {
    let mut out = text.to_owned();
    let digits = |index: usize, n: usize| text.as_bytes()[index..index + n].iter().all(u8::is_ascii_digit);
    for (index, _) in text.match_indices('T') {
        let is_time = index >= 10
            && index + 9 < text.len()
            && digits(index - 10, 4)
            && digits(index - 2, 2)
            && digits(index + 1, 2);
        if is_time && text.as_bytes()[index - 3] == b'-' && text.as_bytes()[index + 3] == b':' {
            out.replace_range(index - 10..index - 6, year);
        }
    }
    out
}

/// Sets all times in the store, also those of its files, to another year.
fn set_year_of_store(store: &Path, year: &str) {
    let mut changed_files = 0;
    for (name, bytes) in read_tree(store) {
        if !matches!(Path::new(&name).extension().and_then(|extension| extension.to_str()), Some("json" | "jsonl")) {
            continue;
        }
        let text = String::from_utf8(bytes).unwrap();
        let new_text = replace_years(&text, year);
        changed_files += usize::from(new_text != text);
        std::fs::write(store.join(&name), new_text).unwrap();
    }
    for (name, _) in read_tree(store) {
        let status = Command::new("touch").args(["-d", &format!("{year}-03-01")]).arg(store.join(name)).status();
        assert!(status.unwrap().success());
    }
    assert!(changed_files >= 3, "too few files with times were changed");
}

#[test]
fn a_clock_jump_of_years_stops_no_check_or_retry_and_prunes_no_protected_version() {
    run_concurrently(&["1999", "2099"], |&year| {
        let upstream = Upstream::new(bundle("eldest"));
        let host = Host::linked(&upstream.link()).set("sync.keep", "0");
        host.sync();
        upstream.publish(bundle("old"));
        host.sync();
        // A failure sets a time before which no request is sent.
        upstream.on(UpstreamCall::Download).times(1).respond_with(error_reply(403));
        host.expect_exit(4, &["sync"]);
        set_year_of_store(&host.path("store"), year);
        upstream.publish(bundle("new"));
        let mut daemon = host.run();
        let first = http::get(&daemon.address, "/").text();
        assert!(["<title>old</title>", "<title>new</title>"].contains(&first.as_str()), "{year}: {first}");
        until("the new site is served", || front_page_title(&daemon) == "new");
        host.ok(&["rollback"]);
        assert_eq!(front_page_title(&daemon), "old", "{year}: the previous version was pruned");
        host.ok(&["release"]);
        daemon.signal("TERM");
        assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0), "{year}");
        // The clock jumps in the other direction.
        set_year_of_store(&host.path("store"), if year == "1999" { "2099" } else { "1999" });
        upstream.publish(bundle("newest"));
        assert_eq!(host.sync(), "activated", "{year}");
        assert_eq!(front_page_title(&host.run()), "newest", "{year}");
        host.ok(&["store", "verify"]);
        host.assert_tidy();
    });
}

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo runs").success());
}

/// Opening a named pipe without a writer blocks for ever.
// Regression: the program waited for ever for a named pipe in the place of a bundle, a file of a folder, the record,
// the lock or the configuration.
#[test]
fn a_named_pipe_in_the_place_of_a_bundle_or_the_configuration_is_an_error_at_once() {
    let host = host();
    let fifo = host.path("pipe");
    make_fifo(&fifo);
    let path = fifo.to_str().unwrap();
    for arguments in [&["bundle", "verify", path][..], &["import", path], &["serve", path, "--listen", "127.0.0.1:0"]] {
        let ended = run_with_timeout(&mut host.command(arguments));
        assert!(ended.code.is_some_and(|code| code != 0), "{arguments:?}: {ended:?}");
        assert!(ended.stderr.contains("found a named pipe"), "{arguments:?}: {}", ended.stderr);
    }
    let mut command = support::docwharf();
    let ended = run_with_timeout(command.args(["config", "check", "--config", path]));
    assert!(ended.code == Some(2) && ended.stderr.contains("found a named pipe"), "{ended:?}");
    // In `run` it is a failed check: the site stays, and a bundle that replaces the pipe is imported.
    std::fs::remove_file(host.path("bundle.zip")).unwrap();
    make_fifo(&host.path("bundle.zip"));
    let ended = expect_plain_exit(2, run_with_timeout(&mut host.command(&["sync"])));
    assert!(ended.stderr.contains("found a named pipe"), "{}", ended.stderr);
    let mut daemon = host.run();
    until("run has checked the pipe", || host.last_error().contains("found a named pipe"));
    assert_eq!(front_page_title(&daemon), "old");
    let ended = run_with_timeout(&mut host.command(&["import", path]));
    assert!(ended.stderr.contains("found a named pipe"), "through the daemon: {ended:?}");
    host.put("bundle.zip", bundle("new"));
    until("the bundle is imported", || front_page_title(&daemon) == "new");
    daemon.signal("TERM");
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
}

/// Only `store verify` opens the image of a version that is not active.
#[test]
fn store_verify_reports_a_named_pipe_or_symlink_as_an_image_at_once() {
    let host = host();
    assert_eq!(host.sync(), "activated");
    let versions: Vec<_> = std::fs::read_dir(host.path("store/versions")).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(versions.len(), 2, "{versions:?}");
    for version in &versions {
        let (image, aside) = (version.join("site.zip"), version.join("aside"));
        std::fs::rename(&image, &aside).unwrap();
        make_fifo(&image);
        expect_plain_exit(8, run_with_timeout(&mut host.command(&["store", "verify"])));
        std::fs::remove_file(&image).unwrap();
        std::os::unix::fs::symlink(&aside, &image).unwrap();
        expect_plain_exit(8, run_with_timeout(&mut host.command(&["store", "verify"])));
        std::fs::rename(&aside, &image).unwrap();
    }
    host.ok(&["store", "verify"]);
}

/// A user who may write to the inbox cannot make the agent overwrite other files, or block it.
// Regression: a user who could write to the inbox made the agent overwrite any of its files with the reason for a
// refusal, and made it hang on a named pipe.
#[test]
fn links_and_pipes_in_an_inbox_overwrite_nothing_and_stop_nothing() {
    let host = Host::bare().set("sync.inbox", toml_string("inbox"));
    let first = host.path("first.zip");
    std::fs::write(&first, bundle("first")).unwrap();
    host.ok(&["import", first.to_str().unwrap()]);
    let (inbox, record) = (host.path("inbox"), host.path("store/state.json"));
    std::fs::create_dir_all(inbox.join("rejected")).unwrap();
    std::os::unix::fs::symlink(&record, inbox.join("rejected/over.zip.reason.txt")).unwrap();
    make_fifo(&inbox.join("rejected/wait.zip.reason.txt"));
    make_fifo(&inbox.join("pipe.zip"));
    std::os::unix::fs::symlink(&first, inbox.join("link.zip")).unwrap();
    std::fs::hard_link(&first, inbox.join("hard.zip")).unwrap();
    let mut daemon = host.run();
    for name in ["over.zip", "wait.zip"] {
        std::fs::write(inbox.join(name), "no archive").unwrap();
        until("the file is moved to rejected/", || inbox.join("rejected").join(name).exists());
    }
    assert!(std::fs::read_to_string(&record).unwrap().starts_with('{'), "the record is overwritten");
    host.ok(&["hold"]);
    host.ok(&["release"]);
    std::fs::write(inbox.join("good.zip"), bundle("good")).unwrap();
    until("a regular file is imported", || front_page_title(&daemon) == "good");
    for name in ["pipe.zip", "link.zip", "hard.zip"] {
        assert!(inbox.join(name).symlink_metadata().is_ok(), "{name} stays in the inbox");
    }
    daemon.signal("TERM");
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
}

/// A command that may read the inbox but not write to it, like that of a memory stick.
fn with_read_only_inbox(host: &Host) -> Command {
    let mut outer = Command::new("unshare");
    outer.args(["--map-root-user", "--mount", "sh", "-c"]);
    outer.arg("mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec \"$@\"").arg(host.path("inbox"));
    wrap_command(&mut outer, host, &["run"])
}

// Regression: after a restart, a bundle on a read-only medium was imported again and replaced a newer version.
#[test]
fn a_bundle_that_cannot_be_moved_out_of_the_inbox_is_imported_once_also_over_restarts() {
    let host = Host::bare().set("sync.inbox", toml_string("inbox"));
    let (inbox, import) = (host.path("inbox"), host.path("import.zip"));
    std::fs::create_dir_all(&inbox).unwrap();
    std::fs::write(inbox.join("stick.zip"), bundle("old")).unwrap();
    let daemon = Daemon::start(&mut with_read_only_inbox(&host));
    until("the bundle is imported", || front_page_title(&daemon) == "old");
    let listed = || std::fs::read_to_string(host.path("store/inbox-unmoved")).unwrap_or_default().lines().count();
    until("the file is listed", || listed() == 1);
    std::fs::write(inbox.join("bad.zip"), "no archive").unwrap();
    let file_error = || host.status()["daemon"]["inbox"]["fileError"].as_str().unwrap_or_default().to_owned();
    until("the bad file is refused", || file_error().contains("bad.zip"));
    assert!(file_error().ends_with("; it stays in the inbox"), "{}", file_error());
    std::fs::write(&import, bundle("new")).unwrap();
    host.ok(&["import", import.to_str().unwrap()]);
    drop(daemon);
    let daemon = Daemon::start(&mut with_read_only_inbox(&host));
    assert_eq!(front_page_title(&daemon), "new");
    // The oldest file is imported first, so this one shows that the other two were passed over.
    std::fs::write(inbox.join("third.zip"), bundle("third")).unwrap();
    until("another bundle is imported", || front_page_title(&daemon) == "third");
    let history = std::fs::read_to_string(host.path("store/history.jsonl")).unwrap();
    assert_eq!(history.matches("\"imported\"").count(), 3, "{history}");
    // A file that changes is a new one.
    std::fs::write(inbox.join("stick.zip"), bundle("changed")).unwrap();
    until("the changed bundle is imported", || front_page_title(&daemon) == "changed");
    // The listing follows the activation: a kill in between has the same bundle imported once more.
    until("it is listed", || listed() == 3);
    drop(daemon);
    // Once the inbox can be written to, the files are moved, and none of them is imported again.
    let daemon = host.run();
    until("the files are moved", || {
        ["stick.zip", "third.zip"].iter().all(|name| inbox.join("accepted").join(name).exists())
    });
    until("the bad file is moved", || inbox.join("rejected/bad.zip").exists());
    assert_eq!(front_page_title(&daemon), "changed");
    let history = std::fs::read_to_string(host.path("store/history.jsonl")).unwrap();
    assert_eq!(history.matches("\"imported\"").count(), 4, "{history}");
}

// Regression: under the units' umask, the users of the inbox could not read why their bundle was refused.
#[test]
fn users_of_the_inbox_can_read_why_a_file_was_refused_whatever_the_umask() {
    let host = Host::bare().set("sync.inbox", toml_string("inbox"));
    let inbox = host.path("inbox");
    std::fs::create_dir_all(&inbox).unwrap();
    std::fs::set_permissions(&inbox, PermissionsExt::from_mode(0o770)).unwrap();
    let mut outer = Command::new("sh");
    outer.args(["-c", "umask 077; exec \"$0\" \"$@\""]);
    let _daemon = Daemon::start(&mut wrap_command(&mut outer, &host, &["run"]));
    std::fs::write(inbox.join("bad.zip"), "no archive").unwrap();
    let reason = inbox.join("rejected/bad.zip.reason.txt");
    until("the file is refused", || inbox.join("rejected/bad.zip").exists());
    let mode_of = |path: &Path| path.metadata().unwrap().mode() & 0o777;
    assert_eq!([mode_of(&inbox.join("accepted")), mode_of(&inbox.join("rejected"))], [0o770; 2]);
    assert_eq!(mode_of(&reason), 0o644);
}

/// Runs `action` `times` times, while another thread exchanges a file with a link to the secret again and again.
fn while_exchanging(file: &Path, link: &Path, times: usize, mut action: impl FnMut(usize)) {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = SetOnDrop(&stop);
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                renameat_with(CWD, file, CWD, link, RenameFlags::EXCHANGE).unwrap();
                std::thread::sleep(Duration::from_micros(50));
            }
        });
        (0..times).for_each(&mut action);
    });
}

const SECRET: &str = "the secret of another user";

/// Makes a user without an account the owner of a store.
#[track_caller]
fn give_to_another_user(store: &Path) {
    assert!(Command::new("chown").args(["-R", "-h", "4711:4711"]).arg(store).status().unwrap().success());
}

/// Writes the secret into a file that only root can read.
fn write_root_secret(file: &Path) {
    std::fs::write(file, SECRET).unwrap();
    std::fs::set_permissions(file, PermissionsExt::from_mode(0o600)).unwrap();
}

/// Asserts that the file of [`write_root_secret`] has the same content, owner and mode.
#[track_caller]
fn assert_secret_untouched(file: &Path, case: &str) {
    let metadata = file.metadata().unwrap();
    assert_eq!((metadata.mode() & 0o777, metadata.uid()), (0o600, 0), "{case}");
    assert_eq!(std::fs::read_to_string(file).unwrap(), SECRET, "{case}");
}

/// A user who may write to a folder cannot have a file outside of it packed, whenever it exchanges names.
// Regression: a user who could write to a folder had any file that the reader may read packed, by replacing a file with
// a link after the folder was listed.
#[test]
fn bundle_pack_does_not_follow_a_file_replaced_by_a_symlink() {
    let dir = support::temporary_folder();
    let site = support::write_site(&dir.path().join("site"), &[("index.html", "<p>page</p>"), ("a/page.html", SECRET)]);
    // The file has the length of the secret, so that the length does not show the exchange.
    std::fs::write(site.join("a/page.html"), "x".repeat(SECRET.len())).unwrap();
    std::fs::write(dir.path().join("page.html"), SECRET).unwrap();
    std::os::unix::fs::symlink(dir.path().join("page.html"), site.join("a/.link")).unwrap();
    let mut packed = 0;
    while_exchanging(&site.join("a/page.html"), &site.join("a/.link"), 60, |n| {
        let archive = dir.path().join(format!("{n}.tar"));
        let mut command = support::docwharf();
        let ended = run_with_timeout(command.args(["bundle", "pack"]).arg(&site).arg(&archive));
        if ended.code == Some(0) {
            packed += 1;
            let bytes = std::fs::read(&archive).unwrap();
            let has_secret = bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes());
            assert!(!has_secret, "the secret was packed");
        }
    });
    // Each attempt may have met an exchange. Without exchanges, packing works.
    let archive = dir.path().join("quiet.tar");
    let ended = run_with_timeout(support::docwharf().args(["bundle", "pack"]).arg(&site).arg(&archive));
    assert_eq!(ended.code, Some(0), "{packed} before: {ended:?}");
}

/// The refused content is not the content that the file has afterwards, so the file must not be refused.
#[test]
fn an_inbox_file_that_changes_during_verification_is_not_rejected() {
    let host = Host::bare().set("sync.inbox", toml_string("inbox"));
    std::fs::create_dir(host.path("inbox")).unwrap();
    let daemon = host.run();
    // Large enough to be stopped while it is read. Its checksum is wrong, which is known only at its end.
    let valid = support::host::large_bundle("new", 64 << 20);
    let mut damaged = valid.clone();
    let name = b"noise.png";
    let offsets: Vec<usize> =
        (0..damaged.len() - name.len()).filter(|&offset| damaged[offset..].starts_with(name)).collect();
    let [local, central] = offsets[..] else { panic!("the name is at {offsets:?}") };
    for checksum in [local - 16, central - 30] {
        damaged[checksum] ^= 1;
    }
    let path = host.path("inbox/b.zip");
    std::fs::write(&path, &damaged).unwrap();
    let is_open = || {
        let files = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap();
        files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok()).any(|file| file == path)
    };
    until_done_in_background("the file is read", || {
        if is_open() {
            daemon.signal("STOP");
        }
        is_open()
    });
    std::fs::write(&path, &valid).unwrap();
    daemon.signal("CONT");
    until_done_in_background("the new content is served", || front_page_title(&daemon) == "new");
    let refused = std::fs::read_dir(host.path("inbox/rejected")).map_or(0, Iterator::count);
    assert_eq!(refused, 0);
}

#[test]
fn a_folder_that_changes_while_it_is_packed_is_refused_and_leaves_no_archive() {
    let dir = support::temporary_folder();
    let site = support::write_site(&dir.path().join("site"), &[("index.html", "<p>page"), ("count.txt", "00000000")]);
    // Reading this file takes longer than a change of the counter.
    std::fs::write(site.join("large.txt"), support::sample_text(8 << 20)).unwrap();
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
        let results = ["a.tar.gz", "a.tar", "a.zip"].map(|name| {
            let archive = dir.path().join(name);
            let ended = run_with_timeout(support::docwharf().args(["bundle", "pack"]).arg(&site).arg(&archive));
            (name, ended, archive.exists())
        });
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        for (name, ended, exists) in results {
            assert_eq!((ended.code, exists), (Some(1), false), "{name}: {ended:?}");
            assert!(ended.stderr.contains("changed while it was packed"), "{name}: {}", ended.stderr);
        }
    });
}

/// Root runs a command on the store of another user, who changes the store at the same time.
// Regression: root, working in another user's store, gave any file mode 0444, truncated or continued it, and gave a
// damaged record that was a link to another owner.
#[test]
fn root_follows_no_symlinks_to_its_files_in_another_users_store() {
    if !rustix::process::geteuid().is_root() {
        return; // only root works in other users' stores
    }
    let host = host();
    let chown = |path: &Path| std::os::unix::fs::lchown(path, Some(4711), Some(4711)).unwrap();
    let store = host.path("store");
    let give_store_away = || give_to_another_user(&store);
    give_store_away();
    let root_file = host.path("shadow");
    write_root_secret(&root_file);
    let assert_untouched = |case: &str| assert_secret_untouched(&root_file, case);
    // The image that is being sealed is exchanged with a link again and again.
    let link = store.join("link");
    std::os::unix::fs::symlink(&root_file, &link).unwrap();
    chown(&link);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = SetOnDrop(&stop);
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
            let _ = run_with_timeout(&mut host.command(&["import", path.to_str().unwrap()]));
            assert_untouched("an image");
        }
    });
    // A damaged record that is a link must not be moved aside for the owner of the store.
    let _ = std::fs::remove_file(store.join("state.json"));
    std::os::unix::fs::symlink(&root_file, store.join("state.json")).unwrap();
    let _ = run_with_timeout(&mut host.command(&["sync"]));
    assert_untouched("a record");
    for (name, content) in read_tree(&store) {
        let is_link = store.join(&name).symlink_metadata().unwrap().is_symlink();
        assert!(is_link || content != SECRET.as_bytes(), "{name} contains the secret");
    }
    // A lock or a record that is a named pipe is an error at once.
    std::fs::remove_file(store.join("state.json")).unwrap();
    for name in ["state.json", "lock"] {
        let _ = std::fs::remove_file(store.join(name));
        make_fifo(&store.join(name));
        let ended = run_with_timeout(&mut host.command(&["sync"]));
        assert!(ended.code != Some(0) && ended.stderr.contains("named pipe"), "{name}: {ended:?}");
        std::fs::remove_file(store.join(name)).unwrap();
    }
}

// Regression: root, working in another user's store, wrote the inner archive of a download, receipts and replaced
// indexes through links of that user.
#[test]
fn root_writes_no_archive_receipt_or_index_through_another_users_symlinks() {
    if !rustix::process::geteuid().is_root() {
        return; // only root works in other users' stores
    }
    let upstream = Upstream::new(bundle("old"));
    let host = Host::linked(&upstream.link());
    assert_eq!(host.sync(), "activated");
    let (store, id) = (host.path("store"), host.active().unwrap());
    let give_store_away = || give_to_another_user(&store);
    let (root_folder, root_file) = (host.path("root"), host.path("root/shadow"));
    std::fs::create_dir(&root_folder).unwrap();
    write_root_secret(&root_file);
    let assert_untouched = |case: &str| {
        assert_secret_untouched(&root_file, case);
        assert_eq!(std::fs::read_dir(&root_folder).unwrap().count(), 1, "{case}");
    };
    // The index is a link, and so is the temporary file of a new one.
    let version = store.join("versions").join(&id);
    std::fs::remove_file(version.join("index")).unwrap();
    for name in ["index", ".index.new"] {
        std::os::unix::fs::symlink(&root_file, version.join(name)).unwrap();
    }
    give_store_away();
    assert_eq!(front_page_title(&host.run()), "old");
    assert!(version.join("index").symlink_metadata().unwrap().is_file(), "the index was made again");
    assert_untouched("an index");
    // The receipts of a version are in another folder.
    let receipts = store.join("receipts").join(&id);
    std::fs::rename(&receipts, host.path("moved")).unwrap();
    std::os::unix::fs::symlink(&root_folder, &receipts).unwrap();
    give_store_away();
    host.put("old.zip", bundle("old"));
    host.expect_exit(8, &["import", host.path("old.zip").to_str().unwrap()]);
    assert_untouched("a receipt");
    // The link in the place of the inner archive is created again whenever it is removed.
    std::fs::remove_file(&receipts).unwrap();
    std::fs::rename(host.path("moved"), &receipts).unwrap();
    give_store_away();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = SetOnDrop(&stop);
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = std::os::unix::fs::symlink(&root_file, store.join("downloads/bundle.inner"));
                std::thread::sleep(Duration::from_micros(50));
            }
        });
        for n in 0..6 {
            let mut layer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            std::io::Write::write_all(&mut layer, &bundle(&format!("version {n}"))).unwrap();
            upstream.publish(layer.finish().unwrap());
            upstream
                .on(UpstreamCall::Download)
                .times(1)
                .respond_with(normal_reply().header("Content-Encoding", "gzip"));
            let _ = run_with_timeout(&mut host.command(&["sync"]));
            assert_untouched("an inner archive");
        }
    });
    // Without the link, the inner archive is imported.
    let _ = std::fs::remove_file(store.join("downloads/bundle.inner"));
    upstream.on(UpstreamCall::Download).respond_with(normal_reply().header("Content-Encoding", "gzip"));
    host.ok(&["sync"]);
    assert_eq!(front_page_title(&host.run()), "version 5");
    assert_untouched("the last inner archive");
}

/// A partial download may be a link or a hard link to any file. It is neither truncated nor continued.
// Regression: root, working in another user's store, truncated or continued any file that a link in the place of a
// download led to.
#[test]
fn a_partial_download_that_is_a_link_is_not_resumed_or_truncated() {
    let upstream = Upstream::new(bundle("new"));
    let link = upstream.link();
    for is_hard_link in [false, true] {
        let host = Host::linked(&link);
        let (victim, downloads) = (host.path("victim"), host.path("store/downloads"));
        std::fs::create_dir_all(&downloads).unwrap();
        std::fs::write(&victim, SECRET).unwrap();
        let part = downloads.join("bundle.part");
        if is_hard_link {
            std::fs::hard_link(&victim, &part).unwrap();
        } else {
            std::os::unix::fs::symlink(&victim, &part).unwrap();
        }
        let validator = upstream.state().validator();
        let state = serde_json::json!({"source": link, "validator": validator, "total": null, "encoded": false});
        std::fs::write(downloads.join("bundle.json"), state.to_string()).unwrap();
        assert_eq!(host.sync(), "activated");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), SECRET, "hard: {is_hard_link}");
        host.assert_tidy();
    }
}

#[test]
fn a_site_is_served_and_synced_with_every_setting_at_its_minimum_or_maximum() {
    const MAX_DURATION: &str = "\"4294967295d\"";
    const MAX_SIZE: &str = "\"18446744073709551615\"";
    let durations = ["sync.maxAge", "sync.jobTimeout", "network.connectTimeout", "network.callTimeout"];
    let more_durations =
        ["network.idleTimeout", "network.pollFirst", "network.pollMost", "store.scrub", "server.assetGrace"];
    let greatest = durations.iter().chain(&more_durations).map(|&key| (key, MAX_DURATION)).chain([
        ("sync.interval", MAX_DURATION),
        ("tls.hsts", MAX_DURATION),
        ("sync.keep", "10000"),
        ("sync.threads", "256"),
        ("network.redirects", "100"),
        ("store.maxBytes", MAX_SIZE),
        ("server.identityCache", MAX_SIZE),
        ("server.heldBytes", MAX_SIZE),
        ("server.csp", "\"connected\""),
        ("server.cspSize", "\"64KiB\""),
        ("limits.entries", "10000000"),
        ("limits.unpacked", MAX_SIZE),
        ("limits.archive", MAX_SIZE),
        ("limits.entry", MAX_SIZE),
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
        until("the new version", || front_page_title(&daemon) == "new");
        host.put("bundle.zip", bundle("newer"));
        host.ok(&["sync"]);
        until("the newer version", || front_page_title(&daemon) == "newer");
        for arguments in [&["status"][..], &["versions"], &["history"], &["store", "verify"], &["gc"]] {
            host.ok(arguments);
        }
        daemon.signal("TERM");
        assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0), "{name}");
    }
}
