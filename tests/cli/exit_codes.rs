//! Each command × each situation that has a separate exit code in README. The test fails for a command without a row.

use std::path::Path;

use support::host::{Host, bundle, expect_plain_exit, run_concurrently, run_with_timeout, toml_string};
use support::upstream::{Upstream, UpstreamCall, error_reply};
use support::{list_subcommands, write_site};

/// A command with its arguments and its exit codes in these situations: an unknown option; no configuration file; an
/// unknown section in that file; a store that does not exist yet; a file in the place of the store; the API responds
/// with 401; the API responds with 404 for the configured project. [`NEVER_ENDS`] if the command would not end.
pub(super) type Row = (&'static str, &'static str, [i32; 7]);

/// The command serves until it is stopped.
const NEVER_ENDS: i32 = -1;

/// The codes of commands that read analytics. Without `[api]`, they read what this host has recorded: nothing.
const ANALYTICS_CODES: [i32; 7] =
    if cfg!(feature = "analytics") { [2, 2, 2, 1, 8, 3, 2] } else { [2, 2, 2, 2, 2, 3, 2] };
/// The codes of `analytics forget` and `analytics export`, which never call the API.
const FORGET_CODES: [i32; 7] = if cfg!(feature = "analytics") { [2, 2, 2, 1, 8, 1, 1] } else { [2; 7] };

/// The codes of `analytics import` with a file that is no export.
const IMPORT_CODES: [i32; 7] = if cfg!(feature = "analytics") { [2, 2, 2, 5, 5, 5, 5] } else { [2; 7] };

pub(super) const ROWS: &[Row] = &[
    ("run", "", [2, 2, 2, 2, 8, NEVER_ENDS, NEVER_ENDS]),
    ("serve", "site.zip", [2, 2, 2, NEVER_ENDS, NEVER_ENDS, NEVER_ENDS, NEVER_ENDS]),
    ("sync", "", [2, 2, 2, 2, 8, 3, 4]),
    ("import", "site.zip", [2, 2, 2, 0, 8, 0, 0]),
    ("status", "", [2, 2, 2, 0, 8, 0, 0]),
    ("versions", "", [2, 2, 2, 0, 8, 0, 0]),
    ("history", "", [2, 2, 2, 0, 8, 0, 0]),
    ("stage", "", [2, 2, 2, 0, 8, 0, 0]),
    ("diff", "", [2, 2, 2, 2, 8, 2, 2]),
    ("search", "first", [2, 2, 2, 2, 8, 2, 2]),
    ("mcp", "", [2, 2, 2, 2, 8, 2, 2]),
    ("activate", "first", [2, 2, 2, 2, 8, 2, 2]),
    ("rollback", "", [2, 2, 2, 1, 8, 1, 1]),
    ("hold", "", [2, 2, 2, 0, 8, 0, 0]),
    ("release", "", [2, 2, 2, 0, 8, 0, 0]),
    ("gc", "", [2, 2, 2, 0, 8, 0, 0]),
    ("health", "", [2, 2, 2, 1, 1, 1, 1]),
    ("store verify", "", [2, 2, 2, 0, 8, 0, 0]),
    #[cfg(feature = "origin")]
    ("origin key create", "acme laptop", [2; 7]),
    #[cfg(feature = "origin")]
    ("origin key list", "", [2; 7]),
    #[cfg(feature = "origin")]
    ("origin key revoke", "acme laptop", [2; 7]),
    #[cfg(feature = "origin")]
    ("origin check", "", [2; 7]),
    #[cfg(feature = "origin")]
    ("origin import-searches", "project searches.ndjson", [2; 7]),
    #[cfg(feature = "origin")]
    ("origin import-analytics", "project searches.ndjson", [2; 7]),
    #[cfg(feature = "origin")]
    ("demo", "", [2, NEVER_ENDS, NEVER_ENDS, NEVER_ENDS, NEVER_ENDS, NEVER_ENDS, NEVER_ENDS]),
    ("export start", "", [2, 2, 2, 2, 2, 3, 4]),
    ("export status", "job", [2, 2, 2, 2, 2, 3, 4]),
    ("export link", "job", [2, 2, 2, 2, 2, 3, 4]),
    ("export download", "job", [2, 2, 2, 2, 2, 3, 4]),
    ("preview create", "--branch main", [2, 2, 2, 2, 2, 3, 2]),
    ("preview status", "dp_1", [2, 2, 2, 2, 2, 3, 4]),
    ("analytics searches", "", ANALYTICS_CODES),
    ("analytics report", "", ANALYTICS_CODES),
    ("analytics pages", "", ANALYTICS_CODES),
    ("analytics export", "-", FORGET_CODES),
    ("analytics import", "searches.ndjson", IMPORT_CODES),
    ("analytics forget", "--before 2026-01-01", FORGET_CODES),
    ("config check", "", [2, 2, 2, 2, 0, 0, 0]),
    ("config show", "", [2, 2, 2, 0, 0, 0, 0]),
    ("config init", "", [2, 0, 0, 0, 0, 0, 0]),
    ("config schema", "", [2, 0, 0, 0, 0, 0, 0]),
    ("bundle verify", "site.zip", [2, 2, 2, 0, 0, 0, 0]),
    ("bundle inspect", "site.zip", [2, 2, 2, 0, 0, 0, 0]),
    ("bundle unpack", "site.zip unpacked", [2, 2, 2, 0, 0, 0, 0]),
    ("bundle pack", "folder packed.zip", [2, 2, 2, 0, 0, 0, 0]),
    ("bundle audit", "site.zip", [2, 2, 2, 0, 0, 0, 0]),
    ("redirects check", "site.zip", [2, 2, 2, 0, 0, 0, 0]),
    ("doctor", "--offline", [2, 1, 1, 1, 1, 0, 0]),
    ("features", "", [2, 2, 2, 0, 0, 0, 0]),
    ("completions", "bash", [2, 0, 0, 0, 0, 0, 0]),
    ("man", "", [2, 0, 0, 0, 0, 0, 0]),
    ("version", "", [2, 0, 0, 0, 0, 0, 0]),
];

/// A host with all files that the rows name, in the situation of this column.
fn host(column: usize, upstream: &Upstream) -> Host {
    let host =
        if column >= 5 { Host::new(upstream).set("api.projectId", toml_string("project")) } else { Host::bare() };
    host.put("site.zip", bundle("first"));
    host.put("searches.ndjson", "");
    write_site(&host.path("folder"), &[("index.html", "<title>first</title>")]);
    match column {
        1 => std::fs::remove_file(host.path("docwharf.toml")).expect("it was written"),
        2 => host.put("docwharf.toml", "[nothing]\n"),
        4 => host.put("store", ""),
        _ => {}
    }
    host
}

fn check_exit_code((command, arguments, codes): &Row, column: usize) {
    if codes[column] == NEVER_ENDS {
        return;
    }
    let upstream = Upstream::new(bundle("first"));
    let status = if column == 5 { 401 } else { 404 };
    for call in [
        UpstreamCall::Start,
        UpstreamCall::Poll,
        UpstreamCall::Link,
        UpstreamCall::Preview,
        UpstreamCall::Deployment,
        UpstreamCall::Searches,
        UpstreamCall::Other,
    ] {
        upstream.on(call).respond_with(error_reply(status));
    }
    let host = host(column, &upstream);
    let option: &[&str] = if column == 0 { &["--no-such-option"] } else { &[] };
    let words: Vec<&str> =
        command.split(' ').chain(arguments.split_whitespace()).chain(option.iter().copied()).collect();
    let output = run_with_timeout(host.command(&words).current_dir(Path::new(host.dir.path())));
    assert_eq!(output.code, Some(codes[column]), "{command}, column {column}: {output:?}");
    // These commands print their findings. The configuration of an agent has several sections that an origin does not
    // know. Each of them is a mistake, with a separate line.
    let has_several_lines =
        ["doctor", "config check"].contains(command) || command.starts_with("origin ") && column >= 3;
    if !has_several_lines {
        expect_plain_exit(codes[column], output);
    }
}

#[test]
fn every_command_exits_with_the_documented_code_in_every_situation() {
    for column in 0..7 {
        run_concurrently(ROWS, |row| check_exit_code(row, column));
    }
}

#[test]
fn every_command_has_a_row_in_the_exit_code_table() {
    let mut remaining: Vec<String> = vec![String::new()];
    let mut commands: Vec<String> = Vec::new();
    while let Some(parent) = remaining.pop() {
        let subcommands = list_subcommands(&parent.split_whitespace().collect::<Vec<_>>());
        if subcommands.is_empty() {
            commands.push(parent);
        } else {
            remaining.extend(subcommands.iter().map(|name| format!("{parent} {name}").trim().to_owned()));
        }
    }
    // Without a subcommand, `origin` serves. The tests of the origin cover that.
    for command in &commands {
        assert!(ROWS.iter().any(|(name, ..)| name == command), "{command} has no row");
    }
    assert_eq!(commands.len(), ROWS.len(), "a row is about no command: {commands:?}");
}
