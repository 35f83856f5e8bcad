//! The demonstration: origin and agent in one process and one temporary folder.

use std::path::PathBuf;
use std::time::Duration;

use support::{Daemon, docwharf, folder, http, run, until};

/// A running demo, the folder for temporary files it was given, and what it says.
fn demo(more: &[&str]) -> (tempfile::TempDir, Daemon, PathBuf) {
    let dir = folder();
    let said = dir.path().join("said");
    let temporary = dir.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let mut command = docwharf();
    command.arg("demo").args(more).env("TMPDIR", &temporary).env("DOCWHARF_SYNC__INTERVAL", "1h");
    // The environment is for the real agent: a proxy that is not there would keep the demo from its own origin.
    command.env("http_proxy", "http://127.0.0.1:9").stderr(std::fs::File::create(&said).unwrap());
    let daemon = Daemon::start(&mut command);
    (dir, daemon, temporary)
}

fn made(temporary: &std::path::Path) -> Option<PathBuf> {
    let mut entries = std::fs::read_dir(temporary).unwrap().map(|entry| entry.unwrap().path());
    entries.find(|path| path.join("docwharf.toml").exists())
}

#[test]
fn a_change_of_the_source_is_served_a_moment_later_and_history_tells() {
    let (_dir, mut daemon, temporary) = demo(&[]);
    until("the tour", || http::get(&daemon.address, "/").status == 200);
    assert!(http::get(&daemon.address, "/guides/try-it").text().contains("<h1"));
    let made = made(&temporary).expect("the demo's folder");
    let page = made.join("site/guides/try-it.html");
    let text = std::fs::read_to_string(&page).unwrap();
    std::fs::write(&page, text.replace("<h1", "<h1 id=changed")).unwrap();
    until("the change", || http::get(&daemon.address, "/guides/try-it").text().contains("id=changed"));
    let history = run(["history", "--config", made.join("docwharf.toml").to_str().unwrap()]).expect(0).stdout;
    assert_eq!(history.matches("activated").count(), 2, "{history}");
    // A terminal that is closed ends it, and nothing is left.
    daemon.signal("HUP");
    assert_eq!(daemon.wait(Duration::from_secs(15)), Some(0));
    assert!(std::fs::read_dir(&temporary).unwrap().next().is_none(), "the folder is gone");
}

#[test]
fn keep_leaves_the_folder() {
    let (_dir, mut daemon, temporary) = demo(&["--keep"]);
    until("the tour", || http::get(&daemon.address, "/").status == 200);
    daemon.signal("INT");
    assert_eq!(daemon.wait(Duration::from_secs(15)), Some(0));
    let made = made(&temporary).expect("the demo's folder");
    let status = run(["status", "--json", "--config", made.join("docwharf.toml").to_str().unwrap()]).expect(0);
    assert!(status.json()["active"].is_string());
}
