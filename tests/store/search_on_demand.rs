//! The search index of `serve PATH`: it is built at the first search, in a temporary folder that is always removed.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use support::host::Host;
use support::http;
use support::{Daemon, docwharf, until, until_done_in_background, write_site};

use super::search_helpers::{bundle, count_pages, index_process, large_site, search, wait_for_end_of};

#[test]
fn serve_path_builds_at_the_first_search_in_a_folder_that_is_removed() {
    let host = Host::bare();
    let site = write_site(
        &host.path("site"),
        &[("index.html", "<title>Start</title><p>bowline"), ("a.html", "<title>A</title><p>bowline and sheepshank")],
    );
    fs::create_dir(host.path("tmp")).unwrap();
    let files = || fs::read_dir(host.path("tmp")).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let mut command = docwharf();
    command.arg("serve").arg(&site).args(["--listen", "127.0.0.1:0", "--watch", "--search-box", "always"]);
    let mut daemon = Daemon::start(command.env("TMPDIR", host.path("tmp")));
    assert!(http::get(&daemon.address, "/").text().ends_with("<script src=\"/_docwharf/search.js\" defer></script>"));
    assert_eq!(http::get(&daemon.address, "/_docwharf/search.js").status, 200);
    assert_eq!(http::get(&daemon.address, "/_docwharf/search?q=").status, 200);
    // Without a search, there is neither a process nor a folder.
    assert!(index_process(daemon.pid()).is_none() && files().is_empty(), "{:?}", files());
    assert_eq!(search(&daemon, "bowline").status, 503);
    until_done_in_background("the index is open", || search(&daemon, "bowline").status == 200);
    assert_eq!((count_pages(&daemon, "bowline"), count_pages(&daemon, "sheepshank")), (2, 1));
    until("the folder is removed", || files().is_empty());
    // A site that is searched gets the index of its next version at once.
    fs::write(site.join("b.html"), "<title>B</title><p>sheepshank").unwrap();
    until_done_in_background("the change is found", || count_pages(&daemon, "sheepshank") == 2);
    until("the folder is removed", || files().is_empty());
    daemon.signal("TERM");
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
    assert!(files().is_empty(), "{:?}", files());
}

#[test]
fn a_stop_of_serve_in_a_build_removes_its_folder() {
    let host = Host::bare();
    host.put("bundle.zip", large_site("bowline", 6));
    fs::create_dir(host.path("tmp")).unwrap();
    let is_empty = || fs::read_dir(host.path("tmp")).unwrap().next().is_none();
    let mut command = docwharf();
    command.arg("serve").arg(host.path("bundle.zip")).args(["--listen", "127.0.0.1:0"]);
    command.stderr(File::create(host.path("messages")).unwrap());
    let mut daemon = Daemon::start(command.env("TMPDIR", host.path("tmp")));
    let content = host.ok(&["bundle", "verify", host.path("bundle.zip").to_str().unwrap()]).stdout;
    let (_, content) = content.split_once('(').unwrap();
    let content = content.trim_end().trim_end_matches(')');
    assert_eq!(search(&daemon, "bowline").status, 503);
    until_done_in_background("the build has begun", || index_process(daemon.pid()).is_some() && !is_empty());
    let process = index_process(daemon.pid());
    daemon.signal("TERM");
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
    process.into_iter().for_each(wait_for_end_of);
    assert!(is_empty());
    // A wrong archive is noticed by its size, and the end of the server is said.
    let messages = fs::read_to_string(host.path("messages")).unwrap();
    let (first, last) = (messages.lines().next().unwrap(), messages.lines().last().unwrap());
    assert!(first.contains("bundle.zip: version ") && first.ends_with(content), "{messages}");
    assert_eq!(last, "docwharf: serving has ended");
}

#[test]
fn a_folder_that_a_kill_of_serve_leaves_is_removed_by_the_next_build() {
    let host = Host::bare();
    host.put("bundle.zip", large_site("bowline", 6));
    host.put("small.zip", bundle("bowline"));
    fs::create_dir(host.path("tmp")).unwrap();
    let folders = || fs::read_dir(host.path("tmp")).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let serve = |bundle: &str| {
        let mut command = docwharf();
        command.arg("serve").arg(host.path(bundle)).args(["--listen", "127.0.0.1:0"]);
        Daemon::start(command.env("TMPDIR", host.path("tmp")))
    };
    let mut daemon = serve("bundle.zip");
    assert_eq!(search(&daemon, "bowline").status, 503);
    until_done_in_background("the build has begun", || index_process(daemon.pid()).is_some() && !folders().is_empty());
    let process = index_process(daemon.pid());
    daemon.signal("KILL");
    daemon.wait(Duration::from_secs(20));
    process.into_iter().for_each(wait_for_end_of);
    let left = folders();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(fs::metadata(&left[0]).unwrap().mode() & 0o777, 0o700, "the index has the text of the pages");
    // One that was changed a moment ago may be of a process that has not locked it yet.
    let times = FileTimes::new().set_modified(SystemTime::now() - Duration::from_mins(2));
    File::open(&left[0]).unwrap().set_times(times).unwrap();
    let daemon = serve("small.zip");
    until_done_in_background("the index is open", || search(&daemon, "bowline").status == 200);
    until("no folder is left", || folders().is_empty());
}
