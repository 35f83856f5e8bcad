//! Each command × each situation that has an exit code of its own in README. A command without a row fails.

use std::path::Path;

use support::host::{Host, at_once, bundle, finish, judged, text};
use support::upstream::{Call, Upstream, answer};
use support::{commands_below, write_site};

/// A command with its arguments and its exit codes: an unknown option; no configuration file; an unknown section in it; a store
/// that does not exist yet; a file in the store's place; the API answers 401; the API answers 404 about the project that the
/// configuration names. [`GOES_ON`] where it would not end.
type Row = (&'static str, &'static str, [i32; 7]);

/// The command serves until it is stopped.
const GOES_ON: i32 = -1;

const ROWS: &[Row] = &[
    ("run", "", [2, 2, 2, 2, 8, GOES_ON, GOES_ON]),
    ("serve", "site.zip", [2, 2, 2, GOES_ON, GOES_ON, GOES_ON, GOES_ON]),
    ("sync", "", [2, 2, 2, 2, 8, 3, 4]),
    ("import", "site.zip", [2, 2, 2, 0, 8, 0, 0]),
    ("status", "", [2, 2, 2, 0, 8, 0, 0]),
    ("versions", "", [2, 2, 2, 0, 8, 0, 0]),
    ("history", "", [2, 2, 2, 0, 8, 0, 0]),
    ("stage", "", [2, 2, 2, 0, 8, 0, 0]),
    ("diff", "", [2, 2, 2, 2, 8, 2, 2]),
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
    ("demo", "", [2, GOES_ON, GOES_ON, GOES_ON, GOES_ON, GOES_ON, GOES_ON]),
    ("export start", "", [2, 2, 2, 2, 2, 3, 4]),
    ("export status", "job", [2, 2, 2, 2, 2, 3, 4]),
    ("export link", "job", [2, 2, 2, 2, 2, 3, 4]),
    ("export download", "job", [2, 2, 2, 2, 2, 3, 4]),
    ("preview create", "--branch main", [2, 2, 2, 2, 2, 3, 2]),
    ("preview status", "dp_1", [2, 2, 2, 2, 2, 3, 4]),
    ("analytics searches", "", [2, 2, 2, 2, 2, 3, 2]),
    ("analytics report", "", [2, 2, 2, 2, 2, 3, 2]),
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
    ("completions", "bash", [2, 0, 0, 0, 0, 0, 0]),
    ("man", "", [2, 0, 0, 0, 0, 0, 0]),
    ("version", "", [2, 0, 0, 0, 0, 0, 0]),
];

/// A host with all that the arguments of the rows name, in the situation of this column.
fn host(column: usize, upstream: &Upstream) -> Host {
    let host = if column >= 5 { Host::new(upstream).set("api.projectId", text("project")) } else { Host::bare() };
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

fn ends_as_its_row_says((command, arguments, codes): &Row, column: usize) {
    if codes[column] == GOES_ON {
        return;
    }
    let upstream = Upstream::new(bundle("first"));
    let status = if column == 5 { 401 } else { 404 };
    for call in [Call::Start, Call::Poll, Call::Bundle, Call::Preview, Call::Deployment, Call::Searches, Call::Other] {
        upstream.on(call).gives(answer(status));
    }
    let host = host(column, &upstream);
    let option: &[&str] = if column == 0 { &["--no-such-option"] } else { &[] };
    let words: Vec<&str> =
        command.split(' ').chain(arguments.split_whitespace()).chain(option.iter().copied()).collect();
    let ended = finish(host.command(&words).current_dir(Path::new(host.dir.path())));
    assert_eq!(ended.code, Some(codes[column]), "{command}, column {column}: {ended:?}");
    // These print what they have found. An agent's configuration has several sections that an origin's does not have,
    // each of which is a mistake with a line of its own.
    let has_several_lines =
        ["doctor", "config check"].contains(command) || command.starts_with("origin ") && column >= 5;
    if !has_several_lines {
        judged(codes[column], ended);
    }
}

#[test]
fn every_command_ends_with_the_code_that_readme_gives_for_the_situation() {
    for column in 0..7 {
        at_once(ROWS, |row| ends_as_its_row_says(row, column));
    }
}

#[test]
fn every_command_has_its_row_of_exit_codes() {
    let mut open: Vec<String> = vec![String::new()];
    let mut ends: Vec<String> = Vec::new();
    while let Some(above) = open.pop() {
        let below = commands_below(&above.split_whitespace().collect::<Vec<_>>());
        if below.is_empty() {
            ends.push(above);
        } else {
            open.extend(below.iter().map(|name| format!("{above} {name}").trim().to_owned()));
        }
    }
    // `origin` serves where none of its own commands is named; what it does then is tested with the origin.
    for command in &ends {
        assert!(ROWS.iter().any(|(name, ..)| name == command), "{command} has no row");
    }
    assert_eq!(ends.len(), ROWS.len(), "a row is about no command: {ends:?}");
}
