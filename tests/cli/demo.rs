//! The demonstration: origin and agent in one process and one temporary folder.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use support::{Daemon, docwharf, http, run_docwharf, temporary_folder, until_done_in_background};

/// Starts a demo. Returns the test's folder, the demo, and the folder for its temporary files.
fn start_demo(more: &[&str]) -> (tempfile::TempDir, Daemon, PathBuf) {
    let dir = temporary_folder();
    let log = dir.path().join("log");
    let temporary = dir.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let mut command = docwharf();
    command.arg("demo").args(more).env("TMPDIR", &temporary).env("DOCWHARF_SYNC__INTERVAL", "1h");
    // The environment is for a real agent: with this missing proxy, the demo could not reach its own origin.
    command.env("http_proxy", "http://127.0.0.1:9").stderr(std::fs::File::create(&log).unwrap());
    let daemon = Daemon::start(&mut command);
    (dir, daemon, temporary)
}

/// Finds the folder that a demo has created.
fn demo_folder(temporary: &std::path::Path) -> Option<PathBuf> {
    let mut entries = std::fs::read_dir(temporary).unwrap().map(|entry| entry.unwrap().path());
    entries.find(|path| path.join("docwharf.toml").exists())
}

// Regression: `docwharf demo` continued to run after its terminal was closed.
#[test]
fn demo_serves_a_changed_page_records_history_and_removes_its_folder_on_sighup() {
    let (dir, mut daemon, temporary) = start_demo(&[]);
    until_done_in_background("the site", || http::get(&daemon.address, "/").status == 200);
    assert!(http::get(&daemon.address, "/guides/try-it").text().contains("<h1"));
    // The list for assistants is the one that docwharf makes, so its links lead to the demo.
    until_done_in_background("llms.txt", || http::get(&daemon.address, "/llms.txt").status == 200);
    let list = http::get(&daemon.address, "/llms.txt").text();
    assert!(list.contains("/guides/try-it") && !list.contains("docs.example.com"), "{list}");
    let folder = demo_folder(&temporary).expect("the demo's folder");
    let page = folder.join("site/guides/try-it.html");
    let text = std::fs::read_to_string(&page).unwrap();
    std::fs::write(&page, text.replace("<h1", "<h1 id=changed")).unwrap();
    until_done_in_background("the change", || {
        http::get(&daemon.address, "/guides/try-it").text().contains("id=changed")
    });
    let history =
        run_docwharf(["history", "--config", folder.join("docwharf.toml").to_str().unwrap()]).expect(0).stdout;
    assert_eq!(history.matches("activated").count(), 2, "{history}");
    // Closing the terminal ends the demo, and no file is left.
    daemon.signal("HUP");
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
    assert!(std::fs::read_dir(&temporary).unwrap().next().is_none(), "the folder is removed");
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    assert!(log.ends_with(&format!("docwharf: the demo has ended; {} is removed\n", folder.display())), "{log}");
}

#[test]
fn demo_with_keep_leaves_its_folder() {
    let (dir, mut daemon, temporary) = start_demo(&["--keep"]);
    until_done_in_background("the site", || http::get(&daemon.address, "/").status == 200);
    daemon.signal("INT");
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
    let folder = demo_folder(&temporary).expect("the demo's folder");
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    assert!(log.ends_with(&format!("docwharf: the demo has ended; {} stays\n", folder.display())), "{log}");
    let mode = std::fs::metadata(folder.join("key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the key is for its owner alone");
    let status =
        run_docwharf(["status", "--json", "--config", folder.join("docwharf.toml").to_str().unwrap()]).expect(0);
    assert!(status.json()["active"].is_string());
}
