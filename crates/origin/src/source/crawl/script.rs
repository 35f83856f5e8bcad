//! Finds the files that scripts load themselves: the modules that they import, and the chunks of Next.js.
//!
//! A Next.js server names chunks in pages, in payloads and in other chunks, as `/_next/static/…` or, relative to
//! `/_next/`, as `static/chunks/…`. Where webpack composes the name of a chunk from tables, the tables are read.
//! All names found here are guesses: a missing file is not an error.

use std::collections::HashMap;

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Path below which a Next.js server has the files that browsers load.
const NEXT_PATH: &str = "/_next/";
/// Prefixes of such paths, relative to [`NEXT_PATH`].
const NEXT_FILE_PREFIXES: [&str; 4] = ["static/chunks/", "static/css/", "static/media/", "static/development/"];
/// Maximum length of a file name in bytes.
const MAX_NAME_BYTES: usize = 500;
/// Number of bytes after `static/chunks/` that are searched for webpack's tables.
const TABLE_SEARCH_BYTES: usize = 256 << 10;
/// Maximum number of chunks taken from the tables of one expression.
const MAX_TABLE_CHUNKS: usize = 10_000;
/// Number of times that each byte of a body may be read, on average.
const READS_PER_BYTE: usize = 8;
/// Cost of a name in addition to its bytes, because the name becomes an address.
const NAME_COST_BYTES: usize = 64;
/// Number of bytes after the path of the image optimizer that are searched for its settings.
const IMAGE_SETTINGS_BYTES: usize = 4096;

/// Number of bytes of one body that may still be read. In most bodies each byte is read once or twice. In a hostile
/// body the same bytes are read for each of many names that seem to begin there. The search for names ends when the
/// budget is used up.
pub(super) struct ReadBudget<'a> {
    remaining: usize,
    is_cancelled: &'a dyn Fn() -> bool,
}

impl<'a> ReadBudget<'a> {
    /// Creates the budget of a body of `len` bytes. The search ends when `is_cancelled` returns true.
    pub(super) fn new(len: usize, is_cancelled: &'a dyn Fn() -> bool) -> ReadBudget<'a> {
        ReadBudget {
            remaining: len.saturating_mul(READS_PER_BYTE).saturating_add(TABLE_SEARCH_BYTES * 4),
            is_cancelled,
        }
    }

    /// Subtracts `bytes` and the cost of a name; returns whether the search may continue.
    fn spend(&mut self, bytes: usize) -> bool {
        let remaining = self.remaining.checked_sub(bytes + NAME_COST_BYTES);
        self.remaining = remaining.unwrap_or(0);
        remaining.is_some() && !(self.is_cancelled)()
    }
}

/// Calls `visit` for each Next.js file that a page, script or payload names. `path` is the path of that document.
pub(super) fn visit_chunks(path: &str, text: &str, budget: &mut ReadBudget<'_>, visit: &mut dyn FnMut(&str)) {
    let mut root = path.find(NEXT_PATH).map(|position| path[..position + NEXT_PATH.len()].to_owned());
    for position in memmem::find_iter(text.as_bytes(), "/_next/static/") {
        let start = find_name_start(text, position);
        let name = start.and_then(|start| name_at_start(&text[start..]));
        if !budget.spend(start.map_or(MAX_NAME_BYTES, |start| position - start) + name.map_or(MAX_NAME_BYTES, str::len))
        {
            return;
        }
        let (Some(start), Some(name)) = (start, name) else { continue };
        if has_file_extension(name) {
            root.get_or_insert_with(|| text[start..position + NEXT_PATH.len()].to_owned());
            visit(name);
        }
    }
    let root = root.as_deref().unwrap_or(NEXT_PATH);
    for prefix in NEXT_FILE_PREFIXES {
        for position in memmem::find_iter(text.as_bytes(), prefix) {
            let name = name_at_start(&text[position..]);
            if !budget.spend(name.map_or(MAX_NAME_BYTES, str::len)) {
                return;
            }
            if let Some(name) = name.filter(|name| !text[..position].ends_with('/') && has_file_extension(name)) {
                visit(&format!("{root}{name}"));
            } else if text[position + prefix.len()..].starts_with("\"+") {
                visit_table_chunks(&text[position + prefix.len()..], budget, |name| {
                    visit(&format!("{root}{prefix}{name}"));
                });
            }
        }
    }
}

fn is_name_end(c: char) -> bool {
    c.is_whitespace()
        || c.is_control()
        || matches!(c, '"' | '\'' | '`' | '\\' | '<' | '>' | ',' | ';' | '&' | '{' | '}')
}

/// Returns the start of the name that contains position `position`; `None` if it is more than [`MAX_NAME_BYTES`] bytes
/// before.
fn find_name_start(text: &str, position: usize) -> Option<usize> {
    // The range includes the character before the name, which delimits it.
    let from = text.floor_char_boundary(position.saturating_sub(MAX_NAME_BYTES + 4));
    let before = text[from..position].char_indices().rfind(|(_, c)| is_name_end(*c) || matches!(c, '(' | ')' | '='));
    let start = match before {
        Some((found, c)) => from + found + c.len_utf8(),
        None if from == 0 => 0,
        None => return None,
    };
    (position - start <= MAX_NAME_BYTES).then_some(start)
}

/// Returns the name at the beginning of a text; parentheses in it are balanced. `None` if it is longer than
/// [`MAX_NAME_BYTES`].
fn name_at_start(text: &str) -> Option<&str> {
    let window = &text[..text.floor_char_boundary(MAX_NAME_BYTES + 4)];
    let mut depth = 0u32;
    let end = window.find(|c| {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => return true,
            ')' => depth -= 1,
            _ => {}
        }
        is_name_end(c)
    });
    let end = end.or_else(|| (window.len() == text.len()).then_some(window.len()))?;
    (end <= MAX_NAME_BYTES).then(|| &text[..end])
}

fn has_file_extension(name: &str) -> bool {
    name.len() <= MAX_NAME_BYTES && name.rsplit('/').next().is_some_and(|last| last.trim_end_matches('.').contains('.'))
}

/// Reads names that are composed from tables, as in `"static/chunks/"+({1:"a"}[e]||e)+"."+{1:"0f"}[e]+".js"`. The
/// last table has the end of the name for each number. Another table has the part before it; without an entry, that
/// part is the number. `text` begins at the quote that ends `"static/chunks/"`.
fn visit_table_chunks(text: &str, budget: &mut ReadBudget<'_>, mut visit: impl FnMut(&str)) {
    let text = &text[..text.floor_char_boundary(TABLE_SEARCH_BYTES)];
    let found = memmem::find_iter(text.as_bytes(), "s\"").find_map(|position| {
        let ending = [".js", ".css"].into_iter().find(|ending| text[..=position].ends_with(ending))?;
        Some((&text[..position + 1 - ending.len()], ending))
    });
    // One pass to find the end, one over the text before it.
    if !budget.spend(found.map_or(text.len(), |(text, _)| text.len() * 2)) {
        return;
    }
    let Some((text, ending)) = found else { return };
    let mut all: Vec<Vec<(&str, &str)>> = Vec::new();
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once('{') {
        let Some((inner, behind)) = behind.split_once('}') else { break };
        all.push(inner.split(',').filter_map(parse_table_entry).collect());
        rest = behind;
    }
    let Some(last) = all.pop() else { return };
    let mut names: HashMap<&str, &str> = HashMap::new();
    for (number, name) in all.into_iter().flatten() {
        names.entry(number).or_insert(name);
    }
    let between = if text.contains("\"-\"") { "-" } else { "." };
    for (number, hash) in last.into_iter().take(MAX_TABLE_CHUNKS) {
        let name = names.get(number).copied().unwrap_or(number);
        if !budget.spend(NAME_COST_BYTES + name.len() + hash.len() * 2) {
            return;
        }
        visit(&format!("{name}{between}{hash}{ending}"));
        // Some builds use the hash alone as the name.
        visit(&format!("{hash}{ending}"));
    }
}

fn parse_table_entry(text: &str) -> Option<(&str, &str)> {
    let (number, value) = text.split_once(':')?;
    let value = value.trim().trim_matches(['"', '\'']);
    let is_word = |text: &str| {
        let is_short = (1..=MAX_NAME_BYTES).contains(&text.len());
        is_short && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_/.".contains(&b))
    };
    let number = number.trim().trim_matches(['"', '\'']);
    (is_word(number) && is_word(value)).then_some((number, value))
}

/// Calls `visit` for each module that a script imports, and for each `new URL` in it, relative to the script's own
/// path.
pub(super) fn visit_modules(text: &str, visit: &mut dyn FnMut(&str)) {
    for keyword in ["import", "from", "new URL("] {
        for position in memmem::find_iter(text.as_bytes(), keyword) {
            let rest = text[position + keyword.len()..].trim_start();
            let rest = rest.strip_prefix('(').map_or(rest, str::trim_start);
            let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'' | '`')) else { continue };
            let Some(end) = rest[1..].bytes().take(MAX_NAME_BYTES).position(|b| char::from(b) == quote) else {
                continue;
            };
            let name = &rest[1..=end];
            let is_path = ["./", "../", "/"].iter().any(|begin| name.starts_with(begin));
            if is_path && has_file_extension(name) && !name.contains(|c| is_name_end(c) || c == '$') {
                visit(name);
            }
        }
    }
}

/// Returns a Next.js script that loads original images and not the optimizer's smaller ones, which no server makes any
/// more; `None` if the script has no such setting. The setting is the framework's own (`images.unoptimized`).
pub(super) fn disable_image_optimizer(text: &str) -> Option<String> {
    let (mut out, mut copied_end, mut searched_end) = (String::new(), 0, 0);
    for position in memmem::find_iter(text.as_bytes(), "/_next/image\"") {
        // This part was already searched for the occurrence before.
        if position < searched_end {
            continue;
        }
        let window = &text[..text.floor_char_boundary(position.saturating_add(IMAGE_SETTINGS_BYTES))];
        let end = window[position..].find('}').map_or(window.len(), |end| position + end);
        searched_end = end;
        for (from, to) in [("unoptimized:!1", "unoptimized:!0"), ("\"unoptimized\":false", "\"unoptimized\":true")] {
            if let Some(found) =
                text[position..end].find(from).map(|found| position + found).filter(|found| *found >= copied_end)
            {
                out.push_str(&text[copied_end..found]);
                out.push_str(to);
                copied_end = found + from.len();
            }
        }
    }
    (copied_end > 0).then(|| out + &text[copied_end..])
}

/// The needed members of `__NEXT_DATA__`, as raw JSON. The rest, which may be as large as a body, is not stored.
#[derive(Deserialize)]
struct NextData<'a> {
    #[serde(rename = "buildId", borrow)]
    build_id: Option<&'a RawValue>,
    #[serde(borrow)]
    gsp: Option<&'a RawValue>,
    #[serde(borrow)]
    gssp: Option<&'a RawValue>,
}

/// Returns the address of the data that the older router of Next.js requests when a reader navigates to this page;
/// `None` if the page has none.
pub(super) fn next_data_address(path: &str, html: &str) -> Option<String> {
    let (_, rest) = html.split_once("id=\"__NEXT_DATA__\"")?;
    let (_, rest) = rest.split_once('>')?;
    let data: NextData<'_> = serde_json::from_str(rest.split_once("</script>")?.0).ok()?;
    let build: String = serde_json::from_str(data.build_id?.get()).ok()?;
    if ![data.gsp, data.gssp].into_iter().flatten().any(|value| value.get() == "true") {
        return None;
    }
    let base =
        html.split_once("/_next/static/").map(|(before, _)| before.rsplit(['"', '\'']).next().unwrap_or_default())?;
    let page = path.strip_prefix(base).unwrap_or(path).trim_end_matches('/');
    Some(format!("{base}/_next/data/{build}{}.json", if page.is_empty() { "/index" } else { page }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(path: &str, text: &str) -> Vec<String> {
        let mut all = Vec::new();
        let is_cancelled = || false;
        visit_chunks(path, text, &mut ReadBudget::new(text.len(), &is_cancelled), &mut |name| {
            all.push(name.to_owned());
        });
        all
    }

    // Regression: one crawled page of 2 MiB stopped the exports of all organizations for minutes, because the time of
    // the script scanners was quadratic.
    #[test]
    fn script_scanners_take_linear_time_for_adversarial_input() {
        const MIB: usize = 1 << 20;
        for piece in [
            "/_next/static/",
            "(/_next/static/",
            "static/chunks/a",
            "static/chunks/\"+",
            "static/chunks/\"+{1:\"a\"}",
            "/_next/static/é(",
            "/_next/image\"",
            "import\"./",
        ] {
            let spent = |len: usize| {
                let text = piece.repeat(len / piece.len());
                let is_cancelled = || false;
                let mut budget = ReadBudget::new(text.len(), &is_cancelled);
                let initial_budget = budget.remaining;
                let mut name_bytes = 0;
                visit_chunks("/x.js", &text, &mut budget, &mut |name| name_bytes += NAME_COST_BYTES + name.len());
                visit_modules(&text, &mut |name| assert!(name.len() <= MAX_NAME_BYTES));
                assert!(disable_image_optimizer(&text).is_none());
                assert!(name_bytes <= initial_budget, "{piece}: {name_bytes} of {initial_budget}");
                initial_budget - budget.remaining
            };
            // Twice the length may cost at most about twice as many reads. An earlier version took minutes for 2 MiB.
            let (single, double) = (spent(MIB), spent(2 * MIB));
            assert!(
                double <= single * 2 + MAX_NAME_BYTES * 4 + TABLE_SEARCH_BYTES * 8,
                "{piece}: {single} and {double}"
            );
        }
    }

    #[test]
    fn a_cancelled_script_scan_reports_no_further_names() {
        let text = "\"/_next/static/a.js\"".repeat(1000);
        let remaining = std::cell::Cell::new(10);
        let is_cancelled = || remaining.replace(remaining.get() - 1) <= 1;
        let mut name_count = 0;
        visit_chunks("/x", &text, &mut ReadBudget::new(text.len(), &is_cancelled), &mut |_| name_count += 1);
        assert_eq!(name_count, 9);
    }

    #[test]
    fn next_js_chunks_are_found_in_pages_payloads_and_other_chunks() {
        let page = r#"<link href="/docs/_next/static/css/a.css"><script>push([1,"2:\"/docs/_next/static/chunks/b.js\"\n"])</script>
            <i style="x:url(/docs/_next/static/media/c.png)">{"otherChunks":["static/chunks/d.js?v=1","static/chunks/"]}"#;
        let expected =
            ["css/a.css", "chunks/b.js", "media/c.png", "chunks/d.js?v=1"].map(|n| format!("/docs/_next/static/{n}"));
        assert_eq!(named("/docs/x", page), expected);
        assert_eq!(
            named("/_next/static/chunks/x.js", r#"p("static/chunks/app/(g)/[slug]/page-1.js","static/chunks/x")"#),
            ["/_next/static/chunks/app/(g)/[slug]/page-1.js"]
        );
        assert_eq!(named("/x.js", "static/chunks/é.js"), ["/_next/static/chunks/é.js"]);
    }

    #[test]
    fn chunk_names_are_read_from_webpack_tables() {
        let text = r#"a.u=e=>7===e?"static/chunks/7-ab.js":"static/chunks/"+({1:"one"}[e]||e)+"."+({1:"0f",22:"1e"})[e]+".js""#;
        let all = named("/_next/static/chunks/webpack-1.js", text);
        for name in ["7-ab.js", "one.0f.js", "22.1e.js"] {
            assert!(all.contains(&format!("/_next/static/chunks/{name}")), "{name} in {all:?}");
        }
    }

    #[test]
    fn imported_modules_and_import_meta_urls_are_found_in_scripts() {
        let text = r#"import"./a.js";import{b}from'../b.mjs';const c=()=>import("/c.js");new URL("./d.png",import.meta.url);
            import "react";x("./no.js");import(`./${e}.js`);export * from "./f""#;
        let mut all = Vec::new();
        visit_modules(text, &mut |name| all.push(name.to_owned()));
        all.sort();
        assert_eq!(all, ["../b.mjs", "./a.js", "./d.png", "/c.js"]);
    }

    #[test]
    fn the_next_js_image_optimizer_is_disabled_in_scripts() {
        let text = r#"a={path:"/_next/image",loader:"x",unoptimized:!1};b={unoptimized:!1};c={"path":"/d/_next/image","unoptimized":false}"#;
        let new = text.replacen("!1", "!0", 1).replace("false", "true");
        assert_eq!(disable_image_optimizer(text), Some(new));
        assert_eq!(disable_image_optimizer("b={unoptimized:!1}"), None);
    }

    #[test]
    fn a_next_js_pages_router_page_has_a_data_file_if_it_uses_static_props() {
        let html = r#"<script src="/_next/static/a.js"></script><script id="__NEXT_DATA__" type="application/json">{"buildId":"B","gsp":true}</script>"#;
        assert_eq!(next_data_address("/", html).as_deref(), Some("/_next/data/B/index.json"));
        assert_eq!(next_data_address("/a/b", html).as_deref(), Some("/_next/data/B/a/b.json"));
        assert_eq!(next_data_address("/a", &html.replace("gsp", "x")), None);
    }
}
