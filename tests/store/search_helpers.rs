//! Helpers of the tests of search indexes: sites, queries, the state of an index, and the process that builds it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::host::Host;
use support::http::{self, Response};
use support::zip::{deflated, zip};
use support::{Daemon, until_done_in_background, until_within};

/// A host with the search and without Markdown, Brotli and Zstandard forms. They would take time and space, and the
/// Markdown is made by the same process as the index.
pub(super) fn searchable_host() -> Host {
    let host = Host::bare().set("search.enabled", "true").set("server.codings", "[]");
    host.set("assistant.markdown", "false").set("assistant.llms", "false").set("assistant.mcp", "false")
}

/// A bundle whose three pages contain `word`.
pub(super) fn bundle(word: &str) -> Vec<u8> {
    let page = |title: &str| format!("<title>{title}</title><h1 id=top>{title}</h1><p>{title} has a {word}.");
    zip(&[
        deflated("index.html", &page("Start")),
        deflated("guide/ropes.html", &page("Ropes")),
        deflated("guide/knots.html", &page("Knots")),
    ])
}

/// A bundle with about `mib` MiB of HTML, whose index takes a moment. All pages contain `word`.
pub(super) fn large_site(word: &str, mib: usize) -> Vec<u8> {
    let text = support::sample_text(20_000);
    let page = |n: usize| format!("<title>Page {n}</title><h1>Page {n} of {word}</h1><p>{n} {text}");
    let pages: Vec<_> = (0..mib * 50).map(|n| deflated(&format!("{n}.html"), &page(n))).collect();
    zip(&[&[deflated("index.html", &format!("<title>Start</title><p>{word}"))], &pages[..]].concat())
}

pub(super) fn import(host: &Host, bytes: impl AsRef<[u8]>) {
    host.put("bundle.zip", bytes);
    host.ok(&["import", host.path("bundle.zip").to_str().unwrap()]);
}

pub(super) fn search_status(host: &Host) -> Value {
    host.status()["daemon"]["search"].clone()
}

/// Waits until queries are answered from the index of the active version.
#[track_caller]
pub(super) fn wait_for_index(host: &Host) {
    until_done_in_background("the index of the active version answers", || {
        let status = host.status();
        let search = &status["daemon"]["search"];
        search["ready"] == true && search["version"] == status["active"]
    });
}

/// Waits until a build has failed, and returns the reason in the status.
#[track_caller]
pub(super) fn wait_for_error(host: &Host) -> String {
    let mut error = None;
    until_done_in_background("the reason is in the status", || {
        error = search_status(host)["error"].as_str().map(str::to_owned);
        error.is_some()
    });
    error.unwrap()
}

pub(super) fn index_path(host: &Host, id: &str) -> PathBuf {
    host.path("store").join("derived").join(id).join("search")
}

pub(super) fn active_index(host: &Host) -> PathBuf {
    index_path(host, &host.active().expect("an active version"))
}

/// The folder of an index that is being built.
pub(super) fn partial_index(host: &Host) -> PathBuf {
    active_index(host).with_file_name(".search.new")
}

/// What tells an index from another one in its place. An inode number alone may be given again.
pub(super) fn identity(path: &Path) -> (u64, i64, i64) {
    let metadata = fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    (metadata.ino(), metadata.mtime(), metadata.mtime_nsec())
}

pub(super) fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).ino()
}

pub(super) fn search(daemon: &Daemon, word: &str) -> Response {
    http::request(&daemon.address, "GET", &format!("/_docwharf/search?q={word}"), &["Accept: application/json"])
}

#[track_caller]
pub(super) fn answer(daemon: &Daemon, word: &str) -> Value {
    let response = search(daemon, word);
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()
}

/// The number of pages that contain a word.
#[track_caller]
pub(super) fn count_pages(daemon: &Daemon, word: &str) -> u64 {
    answer(daemon, word)["total"].as_u64().expect("a number")
}

/// Finds the index process that a process has started.
pub(super) fn index_process(parent: u32) -> Option<u32> {
    child_process(parent, "make-search-index")
}

/// Finds the process of an internal command that a process has started.
pub(super) fn child_process(parent: u32, command: &str) -> Option<u32> {
    let tasks = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children = lists.collect::<Vec<_>>().join(" ");
    let mut children = children.split_whitespace().filter_map(|pid| pid.parse().ok());
    children.find(|pid| process_file(*pid, "cmdline").contains(command))
}

pub(super) fn process_file(pid: u32, name: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default()
}

/// Waits until an index process works on the active version.
#[track_caller]
pub(super) fn wait_for_index_process(host: &Host, daemon: &Daemon) -> u32 {
    let partial = partial_index(host);
    let mut process = None;
    until_done_in_background("the index process works", || {
        process = index_process(daemon.pid()).filter(|_| partial.exists());
        process.is_some()
    });
    process.unwrap()
}

#[track_caller]
pub(super) fn wait_for_end_of(process: u32) {
    until_within(Duration::from_mins(1), "the index process has ended", || {
        !Path::new(&format!("/proc/{process}")).exists()
    });
}

pub(super) fn signal_process(process: u32, signal: Signal) {
    let pid = Pid::from_raw(process.try_into().unwrap()).unwrap();
    kill_process(pid, signal).expect("the process runs");
}
