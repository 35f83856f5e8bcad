//! Checks the documents against the code: each test and file that they name exists, each resource of SECURITY.md names
//! a test, and each bound in SECURITY.md is the number in the code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use docwharf::origin::{LimitUnit, OriginLimits, SharedResource};

/// Documents that name tests.
const DOCUMENTS: [&str; 6] =
    ["SECURITY.md", "TESTING.md", "ARCHITECTURE.md", "README.md", "CONTRIBUTING.md", "docs/design/review-findings.md"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Collects the Rust files below a folder, as paths from the root of the repository.
fn collect_rust_files(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect_rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned());
        }
    }
}

/// Finds all tests: the name, and the files that have a test of that name.
fn find_tests() -> BTreeMap<String, BTreeSet<String>> {
    let mut files = Vec::new();
    for folder in ["src", "crates", "tests"] {
        collect_rust_files(&root().join(folder), &mut files);
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

/// Returns the texts between backquotes in a line, each with the text before it.
fn backquoted(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut parts = line.split('`');
    std::iter::from_fn(move || Some((parts.next()?, parts.next()?)))
}

/// Whether this is the name of a test. `…` may stand for its beginning or end.
fn is_test_name(word: &str) -> bool {
    let name_part = word.trim_matches('…');
    name_part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && name_part.matches('_').count() >= 3
        // Names of metrics have underscores, too.
        && !name_part.starts_with("docwharf_")
}

/// Returns the files of the tests with this name. `…` may stand for its beginning or end.
fn files_of<'a>(tests: &'a BTreeMap<String, BTreeSet<String>>, word: &str) -> Vec<&'a str> {
    let name_part = word.trim_matches('…');
    let is_match = |name: &str| match (word.starts_with('…'), word.ends_with('…')) {
        (false, false) => name == name_part,
        (true, false) => name.ends_with(name_part),
        (false, true) => name.starts_with(name_part),
        (true, true) => name.contains(name_part),
    };
    let found = tests.iter().filter(|(name, _)| is_match(name));
    found.flat_map(|(_, files)| files.iter().map(String::as_str)).collect()
}

#[test]
fn every_test_and_file_named_in_a_document_exists() {
    let tests = find_tests();
    let mut problems = Vec::new();
    for document in DOCUMENTS {
        let text = read(document);
        let mut is_code = false;
        let mut named: Option<(&str, Vec<&str>)> = None;
        for line in text.lines() {
            if line.starts_with("```") {
                is_code = !is_code;
            }
            for (before, word) in backquoted(line).filter(|_| !is_code) {
                let is_file = ["tests/", "src/", "crates/"].iter().any(|folder| word.starts_with(folder));
                if is_test_name(word) {
                    let files = files_of(&tests, word);
                    if files.is_empty() {
                        problems.push(format!("{document}: there is no test {word}"));
                    }
                    named = Some((word, files));
                    continue;
                }
                if is_file && !root().join(word).exists() {
                    problems.push(format!("{document}: there is no {word}"));
                }
                // A file in parentheses after a test is the file of the test.
                if let Some((test, files)) = named.take().filter(|_| is_file && before == " (")
                    && !files.contains(&word)
                {
                    problems.push(format!("{document}: {test} is not in {word} but in {files:?}"));
                }
            }
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

/// A row of a Markdown table.
#[derive(Debug)]
struct Row {
    section: String,
    cells: BTreeMap<String, String>,
    is_first: bool,
}

impl Row {
    /// Returns the cell under this heading.
    fn cell(&self, heading: &str) -> &str {
        self.cells.get(heading).map_or("", String::as_str)
    }

    /// Returns the resource that the row describes; empty for other rows.
    fn resource(&self) -> &str {
        let resource = self.cell("resource");
        if resource.is_empty() { self.cell("resource, key") } else { resource }
    }

    /// Returns all cells.
    fn text(&self) -> String {
        self.cells.values().map(String::as_str).collect::<Vec<_>>().join(" | ")
    }
}

/// Parses the rows of all tables.
fn parse_rows(text: &str) -> Vec<Row> {
    let (mut rows, mut section, mut headings) = (Vec::new(), String::new(), Vec::new());
    let mut is_first = true;
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix('#') {
            heading.trim_start_matches('#').trim().clone_into(&mut section);
        }
        let Some(line) = line.strip_prefix('|') else {
            headings.clear();
            continue;
        };
        let cells: Vec<String> =
            line.trim().trim_end_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
        if headings.is_empty() {
            headings = cells;
            is_first = true;
        } else if !cells.iter().all(|cell| cell.chars().all(|c| c == '-')) {
            assert_eq!(cells.len(), headings.len(), "{section}: {line}");
            rows.push(Row { section: section.clone(), cells: headings.iter().cloned().zip(cells).collect(), is_first });
            is_first = false;
        }
    }
    rows
}

/// Returns the rows of SECURITY.md that describe a resource.
fn resource_rows() -> Vec<Row> {
    let rows: Vec<Row> =
        parse_rows(&read("SECURITY.md")).into_iter().filter(|row| !row.resource().is_empty()).collect();
    assert!(rows.len() > 40, "only {} resources found", rows.len());
    rows
}

#[test]
fn every_resource_in_security_md_names_a_test() {
    for row in resource_rows() {
        let cell = row.cell("test");
        let names_a_test = backquoted(cell).any(|(_, word)| is_test_name(word) || word.starts_with("tests/"));
        let refers_to_row_above = cell.starts_with("the same") && !row.is_first;
        assert!(names_a_test || refers_to_row_above, "{}: {:?} has the test {cell:?}", row.section, row.resource());
    }
}

/// A number or a time in the code.
#[derive(Debug, Clone, Copy)]
enum Amount {
    Number(u64),
    Milliseconds(u64),
}

impl Amount {
    /// Returns all forms in which a document may write it.
    fn spellings(self) -> Vec<String> {
        let in_unit = |number: u64, unit: u64, name: &str| {
            (number >= unit && number.is_multiple_of(unit))
                .then(|| format!("{} {name}", with_thousands_separators(number / unit)))
        };
        let spellings = match self {
            Amount::Number(number) => {
                let units = [(1 << 10, "KiB"), (1 << 20, "MiB"), (1 << 30, "GiB")];
                let mut spellings: Vec<String> =
                    units.into_iter().filter_map(|(unit, name)| in_unit(number, unit, name)).collect();
                spellings.push(with_thousands_separators(number));
                spellings
            }
            Amount::Milliseconds(time) => {
                let units = [(1, "ms"), (1_000, "s"), (60_000, "min"), (3_600_000, "h")];
                let mut spellings: Vec<String> =
                    units.into_iter().filter_map(|(unit, name)| in_unit(time, unit, name)).collect();
                spellings.extend((time == 60_000).then(|| "a minute".to_owned()));
                spellings.extend((time == 3_600_000).then(|| "an hour".to_owned()));
                spellings
            }
        };
        assert!(!spellings.is_empty(), "{self:?} has no spelling");
        spellings
    }

    fn appears_in(self, text: &str) -> bool {
        self.spellings().iter().any(|number| has_number(text, number))
    }
}

/// Formats a number with commas between groups of three digits.
fn with_thousands_separators(number: u64) -> String {
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

/// Whether a text has this number, and not as a part of another number or with another unit.
fn has_number(text: &str, number: &str) -> bool {
    let has_unit = number.contains(' ');
    text.match_indices(number).any(|(start, _)| {
        let (before, after) = (&text[..start], &text[start + number.len()..]);
        let starts_with_digit = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
        let is_part = before.ends_with(|c: char| c.is_ascii_digit() || c == ',' || c == '.')
            || starts_with_digit(after)
            || after.strip_prefix([',', '.']).is_some_and(starts_with_digit);
        let has_other_unit = [" KiB", " MiB", " GiB", " ms", " s", " min"].iter().any(|unit| {
            after.strip_prefix(unit).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphabetic()))
        });
        !is_part && (has_unit || !has_other_unit)
    })
}

/// Parses a literal, a product of literals or a shifted literal.
fn parse_number(expression: &str) -> u64 {
    if let Some((value, bits)) = expression.split_once("<<") {
        return parse_number(value) << parse_number(bits);
    }
    let literal = |text: &str| {
        let digits = text.trim().replace('_', "");
        digits.parse::<u64>().unwrap_or_else(|_| panic!("{expression:?} is not a number"))
    };
    expression.split('*').map(literal).product()
}

/// Parses a number, or a time that is written `Duration::from_…(…)`.
fn parse_amount(expression: &str) -> Amount {
    let Some((unit, value)) = expression.strip_prefix("Duration::from_").and_then(|rest| rest.split_once('(')) else {
        return Amount::Number(parse_number(expression));
    };
    let value = parse_number(value.trim_end_matches(')'));
    Amount::Milliseconds(match unit {
        "millis" => value,
        "secs" => value * 1_000,
        "mins" => value * 60_000,
        "hours" => value * 3_600_000,
        _ => panic!("{expression:?} has a unit that this test does not know"),
    })
}

/// Reads the value of a constant. Of a tuple it reads the first two numbers, which are the bounds; the third is a part
/// that is reserved for other organizations.
fn read_constant(file: &str, name: &str) -> Vec<Amount> {
    let text = read(file);
    let (_, rest) = text.split_once(&format!("const {name}: ")).unwrap_or_else(|| panic!("{file} has no {name}"));
    let (_, rest) = rest.split_once(" = ").expect("a value");
    let value = rest.split(';').next().unwrap_or_default().trim();
    match value.strip_prefix('(').and_then(|value| value.strip_suffix(')')) {
        Some(tuple) => tuple.split(", ").take(2).map(parse_amount).collect(),
        None => vec![parse_amount(value)],
    }
}

/// A file and the name of a constant in it.
type Constant = (&'static str, &'static str);

const HEAD_TIMEOUT: Constant = ("crates/serve/src/connection_deadlines.rs", "HEAD_TIMEOUT");
const REQUEST_BODY_TIMEOUT: Constant = ("crates/serve/src/request_body.rs", "BODY_TIMEOUT");

/// The beginning of each resource of SECURITY.md, with the constants that bound it. Without a constant, the bound is a
/// key of the configuration, or it is not a number.
const BOUNDS: &[(&str, &[Constant])] = &[
    ("connections", &[("crates/serve/src/listener.rs", "RESERVED_DESCRIPTORS")]),
    (
        "time for the first request",
        &[
            ("crates/serve/src/connection_deadlines.rs", "FIRST_REQUEST_TIMEOUT"),
            ("crates/serve/src/listener.rs", "HANDSHAKE_TIMEOUT"),
        ],
    ),
    ("time for a head, or idle", &[HEAD_TIMEOUT]),
    ("time for the HTTP/2 preface", &[HEAD_TIMEOUT]),
    ("bytes of a head", &[("crates/serve/src/connection.rs", "MAX_HEAD_BYTES")]),
    (
        "time in which a peer acknowledges no byte",
        &[
            ("crates/serve/src/peer_progress.rs", "STALL_TIMEOUT"),
            ("crates/serve/src/peer_progress.rs", "FIRST_CHECK_DELAY"),
        ],
    ),
    ("unsent bytes in the kernel's send buffer", &[("crates/serve/src/listener.rs", "MAX_UNSENT_BYTES")]),
    (
        "time of a connection on its thread",
        &[("crates/serve/src/turn.rs", "MAX_TURN"), ("crates/serve/src/inflating_body.rs", "MAX_PIECE_BYTES")],
    ),
    ("inflated files in memory", &[]),
    ("large files inflated as a whole", &[("crates/serve/src/inflated_file_cache.rs", "MAX_QUEUED_FILES")]),
    ("memory of responses that clients have not read", &[("crates/serve/src/inflating_body.rs", "MIN_PIECE_BYTES")]),
    ("decoders of bodies", &[("crates/serve/src/decoder_pool.rs", "MIN_DECODERS")]),
    (
        "freed memory",
        &[
            ("crates/serve/src/reclaim.rs", "MIN_ENDED_CONNECTIONS"),
            ("crates/serve/src/reclaim.rs", "MIN_FREED_BYTES"),
            ("crates/serve/src/reclaim.rs", "CHECK_INTERVAL"),
        ],
    ),
    (
        "cached response heads",
        &[
            ("crates/serve/src/response_cache.rs", "MAX_CACHE_BYTES"),
            ("crates/serve/src/response_cache.rs", "FULL_CACHE_ADMISSION_INTERVAL"),
        ],
    ),
    (
        "responses in progress",
        &[("crates/serve/src/http2/mod.rs", "MAX_STREAMS"), ("crates/serve/src/http2/streams.rs", "MAX_INFLATING")],
    ),
    ("time in which no DATA is sent", &[("crates/serve/src/http2/deadlines.rs", "DATA_TIMEOUT")]),
    ("time without a request", &[("crates/serve/src/http2/deadlines.rs", "IDLE_TIMEOUT")]),
    ("time for the rest of a frame", &[HEAD_TIMEOUT]),
    (
        "cancelled responses",
        &[
            ("crates/serve/src/http2/abuse_limits.rs", "RESET_BURST"),
            ("crates/serve/src/http2/abuse_limits.rs", "RESETS_PER_SECOND"),
        ],
    ),
    (
        "control frames",
        &[
            ("crates/serve/src/http2/abuse_limits.rs", "CONTROL_FRAME_BURST"),
            ("crates/serve/src/http2/abuse_limits.rs", "CONTROL_FRAMES_PER_SECOND"),
            ("crates/serve/src/http2/abuse_limits.rs", "CONTROL_FRAMES_PER_RESPONSE"),
            ("crates/serve/src/http2/abuse_limits.rs", "CONTROL_FRAMES_PER_DATA_FRAME"),
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
            ("crates/serve/src/http2/receive_window.rs", "MAX_BODY_DISCARD_BYTES"),
            ("crates/serve/src/http2/receive_window.rs", "MAX_CONNECTION_DISCARD_BYTES"),
            ("crates/serve/src/http2/receive_window.rs", "DISCARDED_BYTES_PER_RESPONSE"),
        ],
    ),
    ("queued output", &[("crates/serve/src/http2/send_buffer.rs", "FULL_QUEUE_BYTES")]),
    ("requests in one read", &[]),
    // The inbox.
    ("accepted files that cannot be moved", &[("crates/agent/src/store/unmoved_files.rs", "MAX_UNMOVED_FILES")]),
    ("time for a truncated file to grow", &[("crates/agent/src/sync/inbox.rs", "TRUNCATED_GRACE")]),
    // The search.
    ("queries that run", &[]),
    (
        "queries that wait",
        &[
            ("crates/serve/src/search/query_threads.rs", "MAX_WAITING_QUERIES"),
            ("crates/serve/src/search/query_threads.rs", "MAX_QUERY_WAIT"),
        ],
    ),
    (
        "time of a search",
        &[
            ("crates/serve/src/search/state.rs", "MAX_QUERY_TIME"),
            ("crates/serve/src/search/answer.rs", "MAX_LOOKUP_TIME"),
        ],
    ),
    // Markdown.
    (
        "Markdown of a page",
        &[
            ("crates/search/src/markdown/mod.rs", "MAX_MARKDOWN_BYTES"),
            ("crates/search/src/index/build.rs", "MAX_PAGE_BYTES"),
            ("crates/search/src/markdown/block_writer.rs", "MAX_CONTAINERS"),
            ("crates/search/src/markdown/table.rs", "MAX_COLUMNS"),
            ("crates/search/src/markdown/link_address.rs", "MAX_ADDRESS_BYTES"),
        ],
    ),
    ("time to convert a page", &[("crates/search/src/extract/mod.rs", "MAX_EXTRACT_TIME")]),
    (
        "pages that are converted on request",
        &[
            ("crates/serve/src/converted_pages/mod.rs", "MAX_CONVERSIONS"),
            ("crates/serve/src/search/query_threads.rs", "MAX_WAITING_QUERIES"),
            ("crates/serve/src/search/query_threads.rs", "MAX_QUERY_WAIT"),
        ],
    ),
    (
        "Markdown that a serving thread compresses",
        &[("crates/serve/src/converted_pages/page_cache.rs", "MAX_INLINE_GZIP_BYTES")],
    ),
    ("converted pages in memory", &[("crates/serve/src/converted_pages/page_cache.rs", "MAX_CACHE_BYTES")]),
    (
        "`llms.txt` and `llms-full.txt`",
        &[
            ("crates/search/src/site_markdown/llms.rs", "MAX_LLMS_PAGES"),
            ("crates/search/src/site_markdown/llms.rs", "MAX_LLMS_BYTES"),
        ],
    ),
    (
        "builds of the Markdown of all pages in a temporary folder",
        &[("crates/serve/src/converted_pages/file_queue.rs", "MAX_WAITING_SITES")],
    ),
    (
        "time and disk space of such a build",
        &[
            ("crates/serve/src/converted_pages/temporary_file.rs", "MAX_FILE_TIME"),
            ("crates/serve/src/converted_pages/temporary_file.rs", "MIN_FILE_BYTES"),
            ("crates/serve/src/converted_pages/temporary_file.rs", "MAX_FILE_BYTES"),
            ("crates/serve/src/converted_pages/file_queue.rs", "RETRY_DELAY"),
        ],
    ),
    (
        "open files of such builds",
        &[
            ("crates/serve/src/converted_pages/file_queue.rs", "MAX_OPEN_FILES"),
            ("crates/serve/src/converted_pages/file_queue.rs", "MAX_OPEN_BYTES"),
        ],
    ),
    ("characters of a question", &[("crates/search/src/page/response.rs", "MAX_QUERY_CHARS")]),
    (
        "results of a question",
        &[
            ("crates/search/src/page/response.rs", "MAX_LIMIT"),
            ("crates/search/src/page/response.rs", "MAX_OFFSET"),
            ("crates/serve/src/search/parameters.rs", "MAX_SECTION_BYTES"),
        ],
    ),
    (
        "selectors and excluded addresses",
        &[
            ("src/config/search.rs", "MAX_SELECTORS"),
            ("src/config/search.rs", "MAX_SELECTOR_CHARS"),
            ("src/config/search.rs", "MAX_EXCLUDED_PATTERNS"),
        ],
    ),
    (
        "sets of synonyms",
        &[
            ("crates/search/src/analyze/synonym_file.rs", "MAX_SYNONYM_FILE_BYTES"),
            ("crates/search/src/analyze/synonym_file.rs", "MAX_SYNONYM_SETS"),
            ("crates/search/src/analyze/synonym_file.rs", "MAX_SYNONYM_WORDS"),
        ],
    ),
    (
        "text of a page",
        &[
            ("crates/search/src/extract/mod.rs", "MAX_TEXT_BYTES"),
            ("crates/search/src/extract/mod.rs", "MAX_SECTIONS"),
            ("crates/search/src/extract/mod.rs", "MAX_HEADING_CHARS"),
            ("crates/search/src/index/build.rs", "MAX_PAGE_BYTES"),
        ],
    ),
    ("time to read a page", &[("crates/search/src/extract/mod.rs", "MAX_EXTRACT_TIME")]),
    ("memory of the process that builds", &[("src/daemon/index_limits.rs", "MAX_PROCESS_BYTES")]),
    ("duration of a build", &[("src/daemon/index_limits.rs", "MAX_BUILD_TIME")]),
    (
        "disk space of a build",
        &[("src/daemon/index_limits.rs", "MAX_BYTES_PER_HTML_BYTE"), ("src/daemon/index_limits.rs", "MIN_DISK_BYTES")],
    ),
    ("attempts to build an index", &[("src/daemon/build_failures.rs", "MAX_FAILURES")]),
    ("output of the process that builds", &[("src/daemon/index_process.rs", "MAX_LINE_BYTES")]),
    (
        "open indexes",
        &[("src/daemon/search_on_demand.rs", "MAX_POOL_INDEXES"), ("src/daemon/search_on_demand.rs", "MAX_POOL_BYTES")],
    ),
    // Questions to a model.
    ("body of a question", &[("crates/serve/src/ask/question.rs", "MAX_BODY_BYTES"), REQUEST_BODY_TIMEOUT]),
    (
        "passages that a model gets",
        &[
            ("crates/serve/src/ask/passages.rs", "MAX_PASSAGES"),
            ("crates/serve/src/ask_handler/retrieval.rs", "MAX_PAGES"),
            ("crates/serve/src/ask_handler/retrieval.rs", "MAX_CONVERSION_TIME"),
        ],
    ),
    (
        "response of a model",
        &[
            ("crates/serve/src/ask/chat_response.rs", "MAX_RESPONSE_BYTES"),
            ("crates/serve/src/ask/chat_client.rs", "END_TIMEOUT"),
            ("crates/serve/src/ask_handler/mod.rs", "END_GRACE"),
        ],
    ),
    ("questions", &[]),
    (
        "chunks of a streamed response that wait for the client",
        &[("crates/serve/src/streamed_body.rs", "MAX_WAITING_CHUNKS")],
    ),
    (
        "bytes that are read ahead to notice the end of a client",
        &[("crates/serve/src/replay_stream.rs", "MAX_READ_AHEAD_BYTES")],
    ),
    // Reader analytics.
    (
        "request to the playground",
        &[
            ("crates/serve/src/playground/request.rs", "ENVELOPE_BYTES"),
            ("crates/serve/src/playground/mod.rs", "BODY_TIMEOUT"),
        ],
    ),
    ("requests to the playground from one address", &[]),
    ("requests of the playground to APIs", &[("crates/serve/src/playground/mod.rs", "MAX_PARALLEL_REQUESTS")]),
    (
        "response of an API",
        &[
            ("crates/serve/src/playground/target_client.rs", "MAX_HEAD_BYTES"),
            ("crates/serve/src/playground/target_client.rs", "MAX_HEAD_FIELDS"),
            ("crates/serve/src/playground/target_client.rs", "ADDRESS_TIMEOUT"),
        ],
    ),
    (
        "events in one request",
        &[
            ("crates/serve/src/recording/event_batch.rs", "MAX_EVENTS"),
            ("crates/serve/src/events_handler.rs", "MAX_BODY_BYTES"),
            ("crates/serve/src/recording/event_batch.rs", "MAX_QUERY_CHARS"),
            ("crates/serve/src/recording/event_batch.rs", "MAX_PAGE_CHARS"),
        ],
    ),
    ("time for the body of a request with events", &[REQUEST_BODY_TIMEOUT]),
    ("bodies that one connection of HTTP/2", &[("crates/serve/src/http2/request_bodies.rs", "MAX_COLLECTED_BODIES")]),
    ("body of an MCP request", &[("crates/serve/src/mcp_handler.rs", "MAX_BODY_BYTES"), REQUEST_BODY_TIMEOUT]),
    ("MCP requests that are answered", &[("crates/serve/src/mcp_state.rs", "MAX_CALLS")]),
    ("MCP requests of a network address", &[]),
    (
        "characters of a page in an MCP answer",
        &[
            ("crates/serve/src/mcp/page_part.rs", "MAX_PART_CHARS"),
            ("crates/serve/src/mcp/site_reader.rs", "MAX_RESOURCE_CHARS"),
        ],
    ),
    ("time to list pages", &[("crates/serve/src/mcp/site_reader.rs", "MAX_LIST_TIME")]),
    ("texts in arguments of an MCP tool", &[("crates/serve/src/mcp/arguments.rs", "MAX_TEXT_BYTES")]),
    ("line on the standard input", &[("crates/serve/src/mcp/line_transport.rs", "MAX_LINE_BYTES")]),
    ("answers of `docwharf mcp`", &[("crates/serve/src/mcp/line_transport.rs", "MAX_WAITING_LINES")]),
    ("memory of the bodies of MCP requests", &[("crates/serve/src/mcp_handler.rs", "MAX_BODY_MEMORY_BYTES")]),
    ("memory of the bodies of questions", &[("crates/serve/src/ask_handler/mod.rs", "MAX_BODY_MEMORY_BYTES")]),
    (
        "memory of the bodies of requests to the playground",
        &[("crates/serve/src/playground/mod.rs", "MIN_BODY_MEMORY_BYTES")],
    ),
    (
        "memory of the bodies of requests with events",
        &[
            ("crates/serve/src/events_handler.rs", "MAX_BODY_MEMORY_BYTES"),
            ("crates/serve/src/request_body.rs", "MAX_DISCARDED_BYTES"),
        ],
    ),
    (
        "requests with events, and searches that are recorded, from one address",
        &[
            ("crates/serve/src/recording/recorder.rs", "MAX_EVENT_REQUESTS"),
            ("crates/serve/src/request_rate.rs", "MAX_CLIENTS"),
        ],
    ),
    (
        "searches and clicks that wait to be written",
        &[
            ("crates/serve/src/recording/recorder.rs", "MAX_WAITING_SEARCHES"),
            ("crates/serve/src/recording/recorder.rs", "MAX_WAITING_BYTES"),
        ],
    ),
    (
        "searches to which clicks may refer",
        &[("crates/analytics/src/recording/recent_searches.rs", "MAX_RECENT_SEARCHES")],
    ),
    (
        "referrers, paths that do not exist and names of programs of a day",
        &[
            ("crates/analytics/src/views/rows.rs", "MAX_DAY_KEYS"),
            ("crates/serve/src/recording/view_counts.rs", "MAX_PART_TEXTS"),
            ("crates/serve/src/recording/view_counts.rs", "PARTS"),
        ],
    ),
    ("pages of a day", &[("crates/analytics/src/views/rows.rs", "MAX_DAY_PAGES")]),
    (
        "an exchange file that is imported",
        &[
            ("crates/analytics/src/delivery/exchange_file.rs", "MAX_FILE_BYTES"),
            ("crates/analytics/src/delivery/mod.rs", "MAX_BATCH_BYTES"),
            ("crates/analytics/src/delivery/mod.rs", "MAX_BATCH_ENTRIES"),
            ("crates/analytics/src/delivery/mod.rs", "MAX_COUNT"),
        ],
    ),
    ("size and age of `analytics.db`", &[]),
    (
        "patterns in `analytics.bots`",
        &[
            ("crates/serve/src/recording/agents/operator_patterns.rs", "MAX_FILE_BYTES"),
            ("crates/serve/src/recording/agents/operator_patterns.rs", "MAX_LINES"),
            ("crates/serve/src/recording/agents/operator_patterns.rs", "MAX_PATTERN_BYTES"),
        ],
    ),
    ("size of the file of `staticExport.bundleUrlFile`", &[("src/config/link_file.rs", "MAX_LINK_FILE_BYTES")]),
    (
        "keys in `analytics.keyFile`",
        &[
            ("crates/agent/src/analytics/key_file.rs", "MAX_KEYS"),
            ("crates/agent/src/analytics/key_file.rs", "MIN_KEY_CHARS"),
            ("crates/agent/src/analytics/key_file.rs", "MAX_KEY_CHARS"),
            ("crates/agent/src/analytics/key_file.rs", "MAX_FILE_BYTES"),
        ],
    ),
    (
        "analytics queries on `admin.listen`",
        &[("src/admin/analytics_api.rs", "BUDGET_REQUESTS"), ("src/admin/analytics_api.rs", "BUDGET_PERIOD")],
    ),
    ("searches that wait for an origin", &[("src/config/analytics_delivery.rs", "DEFAULT_QUEUE_BYTES")]),
    (
        "a batch that is delivered or exported",
        &[
            ("crates/analytics/src/delivery/mod.rs", "MAX_BATCH_ENTRIES"),
            ("crates/analytics/src/recording/planned_write.rs", "MAX_BATCH_SEARCHES"),
            ("crates/analytics/src/recording/changed_counts.rs", "MAX_COUNTS_BYTES"),
            ("crates/analytics/src/recording/search_batches.rs", "MAX_SEARCHES_BYTES"),
        ],
    ),
    ("pause between two attempts to deliver", &[("src/daemon/analytics_delivery.rs", "MAX_PAUSE")]),
    // Organizations of an origin. Another test compares those with a key of `[limits]` with the defaults.
    ("request bodies", &[("crates/origin/src/requests.rs", "BODY_TIMEOUT")]),
    ("searches accepted", &[]),
    ("rows of searches", &[]),
    ("bytes of the database", &[]),
    ("waiting export jobs", &[]),
    ("bytes of bundles", &[]),
    ("links issued", &[]),
    ("free space of the disk", &[("crates/origin/src/free_space.rs", "MAX_DEFAULT_RESERVED_BYTES")]),
    (
        "running queries of searches",
        &[
            ("crates/origin/src/server.rs", "RUNNING_QUERY_LIMITS"),
            ("crates/origin/src/management.rs", "QUERY_WAIT_TIMEOUT"),
        ],
    ),
    ("running and waiting queries of searches", &[("crates/origin/src/server.rs", "WAITING_QUERY_LIMITS")]),
    ("memory of a query", &[("crates/analytics/src/searches/query.rs", "QUERY_MEMORY_BYTES")]),
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
        "surveys of a folder",
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
            ("crates/origin/src/source/crawl/crawler.rs", "MAX_ADDRESS_BYTES"),
            ("crates/origin/src/source/crawl/results.rs", "MAX_LISTED_ADDRESSES"),
        ],
    ),
    ("(steps of a crawl)", &[("crates/origin/src/source/crawl/script.rs", "READS_PER_BYTE")]),
    ("`previewBuilds`", &[]),
    ("`buildMemory`", &[]),
    ("`buildDisk`", &[]),
    ("`buildProcesses`", &[("crates/origin/src/source/git/sandbox.rs", "MAX_PROCESSES_OF_ALL_BUILDS")]),
];

#[test]
fn every_limit_in_security_md_equals_its_constant_in_the_code() {
    let rows = resource_rows();
    for row in &rows {
        let cases = BOUNDS.iter().filter(|(beginning, _)| row.resource().starts_with(beginning)).count();
        assert_eq!(cases, 1, "{}: {:?} has {cases} rows in BOUNDS", row.section, row.resource());
    }
    for (beginning, constants) in BOUNDS {
        let found: Vec<&Row> = rows.iter().filter(|row| row.resource().starts_with(beginning)).collect();
        assert_eq!(found.len(), 1, "{beginning}: {found:?}");
        let text = found[0].text();
        for (file, name) in *constants {
            for amount in read_constant(file, name) {
                let spellings = amount.spellings().join(" or ");
                assert!(
                    amount.appears_in(&text),
                    "{beginning}: {name} of {file} is {spellings}, but SECURITY.md has {text}"
                );
            }
        }
    }
}

#[test]
fn security_md_lists_every_shared_resource_with_its_default_limits() {
    let (rows, limits) = (resource_rows(), OriginLimits::default());
    for resource in SharedResource::ALL {
        let quoted = format!("`{}`", resource.key());
        let is_match = |row: &&Row| row.cell("key") == quoted || row.cell("resource, key") == quoted;
        let found: Vec<&Row> = rows.iter().filter(is_match).collect();
        assert_eq!(found.len(), 1, "{quoted}: {found:?}");
        for (heading, bound) in [("each", limits.organization[resource]), ("all", limits.total[resource])] {
            let amount =
                if resource.unit() == LimitUnit::Time { Amount::Milliseconds(bound) } else { Amount::Number(bound) };
            let cell = found[0].cell(heading);
            let has_cell = found[0].cells.contains_key(heading);
            assert!(
                !has_cell || amount.appears_in(cell),
                "{quoted}: {heading} is {amount:?}, but SECURITY.md has {cell:?}"
            );
        }
    }
}
