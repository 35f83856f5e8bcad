//! What the documents say of tests and of bounds: each test that they name is there, each resource of SECURITY.md has
//! one, and each number there is that of the code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use docwharf::origin::{LimitUnit, OriginLimits, SharedResource};

/// Documents that name tests.
const DOCUMENTS: [&str; 5] = ["SECURITY.md", "TESTING.md", "ARCHITECTURE.md", "README.md", "CONTRIBUTING.md"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Rust files below a folder, by their paths from the root of the repository.
fn rust_files(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned());
        }
    }
}

/// Every test by its name, with the files in which there is one of that name.
fn tests() -> BTreeMap<String, BTreeSet<String>> {
    let mut files = Vec::new();
    for folder in ["src", "crates", "tests"] {
        rust_files(&root().join(folder), &mut files);
    }
    let mut tests: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files {
        let text = read(&file);
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            if let Some(rest) = line.strip_prefix("fn ").or_else(|| line.strip_prefix("async fn ")) {
                let name = rest.split('(').next().unwrap_or_default();
                if std::mem::take(&mut is_test) {
                    tests.entry(name.to_owned()).or_default().insert(file.clone());
                }
            } else if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                is_test = true;
            } else if !line.starts_with("#[") && !line.starts_with("//") {
                is_test = false;
            }
        }
    }
    assert!(tests.len() > 1000, "only {} tests found", tests.len());
    tests
}

/// What stands between backquotes in a line, each with what stands before it.
fn quoted(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut parts = line.split('`');
    std::iter::from_fn(move || Some((parts.next()?, parts.next()?)))
}

/// Whether this is the name of a test, perhaps with its beginning or end left out.
fn is_test_name(word: &str) -> bool {
    let core = word.trim_matches('…');
    core.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && core.matches('_').count() >= 3
        // Metrics.
        && !core.starts_with("docwharf_")
}

/// The files of a test that is named so.
fn files_of<'a>(tests: &'a BTreeMap<String, BTreeSet<String>>, word: &str) -> Vec<&'a str> {
    let core = word.trim_matches('…');
    let is_it = |name: &str| match (word.starts_with('…'), word.ends_with('…')) {
        (false, false) => name == core,
        (true, false) => name.ends_with(core),
        (false, true) => name.starts_with(core),
        (true, true) => name.contains(core),
    };
    let found = tests.iter().filter(|(name, _)| is_it(name));
    found.flat_map(|(_, files)| files.iter().map(String::as_str)).collect()
}

#[test]
fn every_test_and_file_that_a_document_names_is_there() {
    let tests = tests();
    let mut wrong = Vec::new();
    for document in DOCUMENTS {
        let text = read(document);
        let mut is_code = false;
        let mut named: Option<(&str, Vec<&str>)> = None;
        for line in text.lines() {
            if line.starts_with("```") {
                is_code = !is_code;
            }
            for (before, word) in quoted(line).filter(|_| !is_code) {
                let is_file = ["tests/", "src/", "crates/"].iter().any(|folder| word.starts_with(folder));
                if is_test_name(word) {
                    let files = files_of(&tests, word);
                    if files.is_empty() {
                        wrong.push(format!("{document}: no test is called {word}"));
                    }
                    named = Some((word, files));
                    continue;
                }
                if is_file && !root().join(word).exists() {
                    wrong.push(format!("{document}: there is no {word}"));
                }
                // Behind a test, in parentheses, stands where it is.
                if let Some((test, files)) = named.take().filter(|_| is_file && before == " (")
                    && !files.contains(&word)
                {
                    wrong.push(format!("{document}: {test} is not in {word} but in {files:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A row of a table.
#[derive(Debug)]
struct Row {
    section: String,
    cells: BTreeMap<String, String>,
    is_first: bool,
}

impl Row {
    /// What stands under this heading.
    fn cell(&self, heading: &str) -> &str {
        self.cells.get(heading).map_or("", String::as_str)
    }

    /// The resource that it is about.
    fn resource(&self) -> &str {
        let resource = self.cell("resource");
        if resource.is_empty() { self.cell("resource, key") } else { resource }
    }

    /// All of it.
    fn text(&self) -> String {
        self.cells.values().map(String::as_str).collect::<Vec<_>>().join(" | ")
    }
}

/// The rows of all tables.
fn rows(text: &str) -> Vec<Row> {
    let (mut rows, mut section, mut heads) = (Vec::new(), String::new(), Vec::new());
    let mut is_first = true;
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix('#') {
            heading.trim_start_matches('#').trim().clone_into(&mut section);
        }
        let Some(line) = line.strip_prefix('|') else {
            heads.clear();
            continue;
        };
        let cells: Vec<String> =
            line.trim().trim_end_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
        if heads.is_empty() {
            heads = cells;
            is_first = true;
        } else if !cells.iter().all(|cell| cell.chars().all(|c| c == '-')) {
            assert_eq!(cells.len(), heads.len(), "{section}: {line}");
            rows.push(Row { section: section.clone(), cells: heads.iter().cloned().zip(cells).collect(), is_first });
            is_first = false;
        }
    }
    rows
}

/// The rows of SECURITY.md that are about a resource.
fn resources() -> Vec<Row> {
    let rows: Vec<Row> = rows(&read("SECURITY.md")).into_iter().filter(|row| !row.resource().is_empty()).collect();
    assert!(rows.len() > 40, "only {} resources found", rows.len());
    rows
}

#[test]
fn every_resource_of_security_names_a_test() {
    for row in resources() {
        let cell = row.cell("test");
        let names = quoted(cell).any(|(_, word)| is_test_name(word) || word.starts_with("tests/"));
        let is_that_above = cell.starts_with("the same") && !row.is_first;
        assert!(names || is_that_above, "{}: {:?} has the test {cell:?}", row.section, row.resource());
    }
}

/// A number of the code.
#[derive(Debug, Clone, Copy)]
enum Amount {
    Number(u64),
    Milliseconds(u64),
}

impl Amount {
    /// How a document may write it.
    fn words(self) -> Vec<String> {
        let whole = |number: u64, unit: u64, name: &str| {
            (number >= unit && number.is_multiple_of(unit)).then(|| format!("{} {name}", thousands(number / unit)))
        };
        let found = match self {
            Amount::Number(number) => {
                let units = [(1 << 10, "KiB"), (1 << 20, "MiB"), (1 << 30, "GiB")];
                let mut words: Vec<String> =
                    units.into_iter().filter_map(|(unit, name)| whole(number, unit, name)).collect();
                words.push(thousands(number));
                words
            }
            Amount::Milliseconds(time) => {
                let units = [(1, "ms"), (1_000, "s"), (60_000, "min"), (3_600_000, "h")];
                let mut words: Vec<String> =
                    units.into_iter().filter_map(|(unit, name)| whole(time, unit, name)).collect();
                words.extend((time == 60_000).then(|| "a minute".to_owned()));
                words.extend((time == 3_600_000).then(|| "an hour".to_owned()));
                words
            }
        };
        assert!(!found.is_empty(), "{self:?} cannot be written");
        found
    }

    fn is_said_in(self, text: &str) -> bool {
        self.words().iter().any(|word| says(text, word))
    }
}

/// A number with its thousands apart.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Whether a text has this number, and not as part of another one or of one with another unit.
fn says(text: &str, word: &str) -> bool {
    let has_unit = word.contains(' ');
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        let continues = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
        let is_part = before.ends_with(|c: char| c.is_ascii_digit() || c == ',' || c == '.')
            || continues(after)
            || after.strip_prefix([',', '.']).is_some_and(continues);
        let other_unit = [" KiB", " MiB", " GiB", " ms", " s", " min"].iter().any(|unit| {
            after.strip_prefix(unit).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphabetic()))
        });
        !is_part && (has_unit || !other_unit)
    })
}

/// A literal, a product or a shifted literal.
fn number(expression: &str) -> u64 {
    if let Some((value, bits)) = expression.split_once("<<") {
        return number(value) << number(bits);
    }
    let literal = |text: &str| {
        let digits = text.trim().replace('_', "");
        digits.parse::<u64>().unwrap_or_else(|_| panic!("{expression:?} is no number"))
    };
    expression.split('*').map(literal).product()
}

/// A number, or a time that is written `Duration::from_…(…)`.
fn amount(expression: &str) -> Amount {
    let Some((unit, value)) = expression.strip_prefix("Duration::from_").and_then(|rest| rest.split_once('(')) else {
        return Amount::Number(number(expression));
    };
    let value = number(value.trim_end_matches(')'));
    Amount::Milliseconds(match unit {
        "millis" => value,
        "secs" => value * 1_000,
        "mins" => value * 60_000,
        "hours" => value * 3_600_000,
        _ => panic!("{expression:?} has a unit that is not known here"),
    })
}

/// What a constant says; of a tuple the first two, which are the bounds (the third is a part that is left to others).
fn constant(file: &str, name: &str) -> Vec<Amount> {
    let text = read(file);
    let (_, rest) = text.split_once(&format!("const {name}: ")).unwrap_or_else(|| panic!("{file} has no {name}"));
    let (_, rest) = rest.split_once(" = ").expect("a value");
    let value = rest.split(';').next().unwrap_or_default().trim();
    match value.strip_prefix('(').and_then(|value| value.strip_suffix(')')) {
        Some(tuple) => tuple.split(", ").take(2).map(amount).collect(),
        None => vec![amount(value)],
    }
}

/// A file and a constant in it.
type Constant = (&'static str, &'static str);

const HEAD: Constant = ("crates/serve/src/connection_deadlines.rs", "HEAD_TIMEOUT");

/// The resources of SECURITY.md by how they begin, with the constants that bound them. Where there is none, the bound
/// is a key of the configuration, or no number.
const BOUNDS: &[(&str, &[Constant])] = &[
    ("connections", &[("crates/serve/src/listener.rs", "RESERVED_DESCRIPTORS")]),
    (
        "time for the first request",
        &[
            ("crates/serve/src/connection_deadlines.rs", "FIRST_REQUEST_TIMEOUT"),
            ("crates/serve/src/listener.rs", "HANDSHAKE_TIMEOUT"),
        ],
    ),
    ("time for a head, or idle", &[HEAD]),
    ("time for the HTTP/2 preface", &[HEAD]),
    ("bytes of a head", &[("crates/serve/src/connection.rs", "MAX_HEAD_BYTES")]),
    (
        "time in which a peer acknowledges no byte",
        &[
            ("crates/serve/src/peer_progress.rs", "STALL_TIMEOUT"),
            ("crates/serve/src/peer_progress.rs", "FIRST_CHECK_DELAY"),
        ],
    ),
    ("bytes that the kernel has", &[("crates/serve/src/listener.rs", "MAX_UNSENT_BYTES")]),
    (
        "time of a connection on its thread",
        &[("crates/serve/src/turn.rs", "MAX_TURN"), ("crates/serve/src/inflating_body.rs", "MAX_PIECE_BYTES")],
    ),
    ("inflated pages in memory", &[]),
    ("large pages made whole", &[("crates/serve/src/page_cache.rs", "MAX_QUEUED_PAGES")]),
    ("memory of answers that readers have not taken", &[("crates/serve/src/inflating_body.rs", "MIN_PIECE_BYTES")]),
    ("decoders of bodies", &[("crates/serve/src/decoder_pool.rs", "MIN_DECODERS")]),
    (
        "memory that was freed",
        &[
            ("crates/serve/src/reclaim.rs", "MIN_ENDED_CONNECTIONS"),
            ("crates/serve/src/reclaim.rs", "MIN_FREED_BYTES"),
            ("crates/serve/src/reclaim.rs", "CHECK_INTERVAL"),
        ],
    ),
    (
        "response heads kept",
        &[
            ("crates/serve/src/response_cache.rs", "MAX_CACHE_BYTES"),
            ("crates/serve/src/response_cache.rs", "FULL_CACHE_ADMISSION_INTERVAL"),
        ],
    ),
    (
        "answers on their way",
        &[("crates/serve/src/http2/mod.rs", "MAX_STREAMS"), ("crates/serve/src/http2/streams.rs", "MAX_INFLATING")],
    ),
    ("time in which no DATA goes", &[("crates/serve/src/http2/deadlines.rs", "DATA_TIMEOUT")]),
    ("time without a request", &[("crates/serve/src/http2/deadlines.rs", "IDLE_TIMEOUT")]),
    ("time for the rest of a frame", &[HEAD]),
    (
        "answers thrown away",
        &[
            ("crates/serve/src/http2/abuse_counters.rs", "RESET_BURST"),
            ("crates/serve/src/http2/abuse_counters.rs", "RESETS_PER_SECOND"),
        ],
    ),
    (
        "frames that ask for nothing",
        &[
            ("crates/serve/src/http2/abuse_counters.rs", "CONTROL_BURST"),
            ("crates/serve/src/http2/abuse_counters.rs", "CONTROL_PER_SECOND"),
            ("crates/serve/src/http2/abuse_counters.rs", "CONTROL_PER_ANSWER"),
            ("crates/serve/src/http2/abuse_counters.rs", "CONTROL_PER_DATA_FRAME"),
        ],
    ),
    (
        "fields of a request",
        &[
            ("crates/serve/src/connection.rs", "MAX_HEADER_LIST_BYTES"),
            ("crates/serve/src/http2/receive.rs", "MAX_BLOCK_BYTES"),
            ("crates/serve/src/http2/receive.rs", "MAX_BLOCK_FRAMES"),
            ("crates/serve/src/http2/hpack/table.rs", "MAX_TABLE_BYTES"),
        ],
    ),
    (
        "bodies of requests",
        &[
            ("crates/serve/src/http2/uploads.rs", "MAX_DISCARDED_BODY_BYTES"),
            ("crates/serve/src/http2/uploads.rs", "MAX_DISCARDED_BYTES"),
            ("crates/serve/src/http2/uploads.rs", "DISCARDED_BYTES_PER_RESPONSE"),
        ],
    ),
    ("what was put out", &[("crates/serve/src/http2/send_buffer.rs", "MAX_QUEUED_BYTES")]),
    ("requests that came in one read", &[]),
    // Tenants of an origin. Those with a key of `[limits]` are held against its defaults besides.
    ("request bodies", &[("crates/origin/src/requests.rs", "BODY_TIMEOUT")]),
    ("searches taken in", &[]),
    ("rows of searches", &[]),
    ("bytes of the database", &[]),
    ("export jobs that wait", &[]),
    ("bytes of bundles", &[]),
    ("links given out", &[]),
    ("free space of the disk", &[("crates/origin/src/free_space.rs", "MAX_DEFAULT_RESERVED_BYTES")]),
    (
        "questions about searches",
        &[
            ("crates/origin/src/server.rs", "RUNNING_QUERY_LIMITS"),
            ("crates/origin/src/server.rs", "WAITING_QUERY_LIMITS"),
            ("crates/origin/src/management.rs", "QUERY_WAIT_TIMEOUT"),
        ],
    ),
    ("memory of a question", &[("crates/origin/src/analytics/query.rs", "QUERY_MEMORY_BYTES")]),
    ("batches of searches", &[("crates/origin/src/server.rs", "WAITING_BATCH_LIMITS")]),
    (
        "requests in a window",
        &[
            ("crates/origin/src/server.rs", "PREVIEW_RATE_LIMIT"),
            ("crates/origin/src/server.rs", "QUERY_RATE_LIMIT"),
            ("crates/origin/src/server.rs", "BATCH_RATE_LIMIT"),
        ],
    ),
    (
        "looks at a folder",
        &[
            ("crates/origin/src/server.rs", "MAX_CONCURRENT_SITEMAPS"),
            ("crates/origin/src/sitemap_cache.rs", "WAIT_TIMEOUT"),
        ],
    ),
    ("`workers`", &[]),
    ("`crawlTime`", &[("crates/origin/src/source/crawl/fetch.rs", "MIN_BYTES_PER_SECOND")]),
    (
        "`crawlAddresses`",
        &[
            ("crates/origin/src/source/crawl/crawler.rs", "ADDRESS_BYTES"),
            ("crates/origin/src/source/crawl/results.rs", "KEPT"),
        ],
    ),
    ("(steps of a crawl)", &[("crates/origin/src/source/crawl/script.rs", "LOOKS")]),
    ("`previewBuilds`", &[]),
    ("`buildMemory`", &[]),
    ("`buildDisk`", &[]),
    ("`buildProcesses`", &[("crates/origin/src/source/git/sandbox.rs", "ALL_PROCESSES")]),
];

#[test]
fn every_bound_of_security_is_that_of_the_code() {
    let rows = resources();
    for row in &rows {
        let known = BOUNDS.iter().filter(|(begins, _)| row.resource().starts_with(begins)).count();
        assert_eq!(known, 1, "{}: {:?} has {known} cases here", row.section, row.resource());
    }
    for (begins, constants) in BOUNDS {
        let found: Vec<&Row> = rows.iter().filter(|row| row.resource().starts_with(begins)).collect();
        assert_eq!(found.len(), 1, "{begins}: {found:?}");
        let text = found[0].text();
        for (file, name) in *constants {
            for amount in constant(file, name) {
                let words = amount.words().join(" or ");
                assert!(amount.is_said_in(&text), "{begins}: {name} of {file} is {words}, and SECURITY.md says {text}");
            }
        }
    }
}

#[test]
fn what_organizations_share_is_in_security_with_its_defaults() {
    let (rows, limits) = (resources(), OriginLimits::default());
    for resource in SharedResource::ALL {
        let quoted = format!("`{}`", resource.key());
        let is_it = |row: &&Row| row.cell("key") == quoted || row.cell("resource, key") == quoted;
        let found: Vec<&Row> = rows.iter().filter(is_it).collect();
        assert_eq!(found.len(), 1, "{quoted}: {found:?}");
        for (heading, bound) in [("each", limits.organization[resource]), ("all", limits.total[resource])] {
            let amount =
                if resource.unit() == LimitUnit::Time { Amount::Milliseconds(bound) } else { Amount::Number(bound) };
            let cell = found[0].cell(heading);
            let is_told = found[0].cells.contains_key(heading);
            assert!(!is_told || amount.is_said_in(cell), "{quoted}: {heading} is {amount:?}, and not {cell:?}");
        }
    }
}
