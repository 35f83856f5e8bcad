//! What scripts load by themselves, as far as it stands in them: modules they import, and the chunks of Next.js.
//!
//! A server of Next.js names chunks in pages, in payloads and in other chunks, as `/_next/static/…` or, relative to
//! `/_next/`, as `static/chunks/…`. Where webpack puts the name of a chunk together from tables, the tables are read.
//! Everything here is a guess: what is not there is not missed.

use memchr::memmem;

/// Where a server of Next.js has what browsers load.
const NEXT: &str = "/_next/";
/// What such paths begin with behind that.
const KINDS: [&str; 4] = ["static/chunks/", "static/css/", "static/media/", "static/development/"];
/// A longer name of a file, in bytes, is none.
const LONGEST: usize = 500;
/// Bytes behind `static/chunks/` in which webpack's tables end.
const TABLES: usize = 256 << 10;
/// The most chunks that tables are believed to name.
const MOST: usize = 10_000;

/// Tells of each file of Next.js that a page, script or payload names. `path` is where that lies.
pub(super) fn chunks(path: &str, text: &str, tell: &mut dyn FnMut(&str)) {
    let mut root = path.find(NEXT).map(|at| path[..at + NEXT.len()].to_owned());
    for at in memmem::find_iter(text.as_bytes(), "/_next/static/") {
        let start = text[..at]
            .rfind(|c| ends_name(c) || matches!(c, '(' | ')' | '='))
            .map_or(0, |before| before + text[before..].chars().next().map_or(1, char::len_utf8));
        if at - start > LONGEST {
            continue;
        }
        let name = name(&text[start..]);
        if is_file(name) {
            root.get_or_insert_with(|| text[start..at + NEXT.len()].to_owned());
            tell(name);
        }
    }
    let root = root.as_deref().unwrap_or(NEXT);
    for kind in KINDS {
        for at in memmem::find_iter(text.as_bytes(), kind) {
            let name = name(&text[at..]);
            if !text[..at].ends_with('/') && is_file(name) {
                tell(&format!("{root}{name}"));
            } else if text[at + kind.len()..].starts_with("\"+") {
                tables(&text[at + kind.len()..], |name| tell(&format!("{root}{kind}{name}")));
            }
        }
    }
}

fn ends_name(c: char) -> bool {
    c.is_whitespace()
        || c.is_control()
        || matches!(c, '"' | '\'' | '`' | '\\' | '<' | '>' | ',' | ';' | '&' | '{' | '}')
}

/// The name that a text begins with; parentheses in it are closed.
fn name(text: &str) -> &str {
    let mut depth = 0u32;
    let end = text.find(|c| {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => return true,
            ')' => depth -= 1,
            _ => {}
        }
        ends_name(c)
    });
    &text[..end.unwrap_or(text.len())]
}

fn is_file(name: &str) -> bool {
    name.len() <= LONGEST && name.rsplit('/').next().is_some_and(|last| last.trim_end_matches('.').contains('.'))
}

/// Names made of tables, as in `"static/chunks/"+({1:"a"}[e]||e)+"."+{1:"0f"}[e]+".js"`: what the last table has for a
/// number stands at the end, what another has (or the number) before it. `text` begins at the first `"`.
fn tables(text: &str, mut tell: impl FnMut(&str)) {
    let mut end = text.len().min(TABLES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = &text[..end];
    let Some((ending, end)) = [".js\"", ".css\""].iter().filter_map(|e| Some((*e, text.find(e)?))).min_by_key(|e| e.1)
    else {
        return;
    };
    let (text, ending) = (&text[..end], ending.trim_end_matches('"'));
    let mut all: Vec<Vec<(&str, &str)>> = Vec::new();
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once('{') {
        let Some((inner, behind)) = behind.split_once('}') else { break };
        all.push(inner.split(',').filter_map(entry).collect());
        rest = behind;
    }
    let Some(last) = all.pop() else { return };
    let between = if text.contains("\"-\"") { "-" } else { "." };
    for (number, hash) in last.into_iter().take(MOST) {
        let known = all.iter().flatten().find(|(of, _)| *of == number).map_or(number, |(_, name)| name);
        tell(&format!("{known}{between}{hash}{ending}"));
        // Some builds name by the hash alone.
        tell(&format!("{hash}{ending}"));
    }
}

fn entry(text: &str) -> Option<(&str, &str)> {
    let (number, value) = text.split_once(':')?;
    let value = value.trim().trim_matches(['"', '\'']);
    let is_word =
        |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_/.".contains(&b));
    let number = number.trim().trim_matches(['"', '\'']);
    (is_word(number) && is_word(value)).then_some((number, value))
}

/// Tells of each module that a script imports, and of each `new URL` in it, relative to where the script lies.
pub(super) fn modules(text: &str, tell: &mut dyn FnMut(&str)) {
    for word in ["import", "from", "new URL("] {
        for at in memmem::find_iter(text.as_bytes(), word) {
            let rest = text[at + word.len()..].trim_start();
            let rest = rest.strip_prefix('(').map_or(rest, str::trim_start);
            let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'' | '`')) else { continue };
            let Some(end) = rest[1..].bytes().take(LONGEST).position(|b| char::from(b) == quote) else { continue };
            let name = &rest[1..=end];
            let is_path = ["./", "../", "/"].iter().any(|begin| name.starts_with(begin));
            if is_path && is_file(name) && !name.contains(|c| ends_name(c) || c == '$') {
                tell(name);
            }
        }
    }
}

/// A script of Next.js that asks for pictures themselves and not for the server's smaller ones, which nobody makes when
/// it is gone; `None` if it is no such script. The switch is the framework's own (`images.unoptimized`).
pub(super) fn without_optimizer(text: &str) -> Option<String> {
    let (mut out, mut done) = (String::new(), 0);
    for at in memmem::find_iter(text.as_bytes(), "/_next/image\"") {
        let end = text[at..].find('}').map_or(text.len(), |end| at + end);
        for (from, to) in [("unoptimized:!1", "unoptimized:!0"), ("\"unoptimized\":false", "\"unoptimized\":true")] {
            if let Some(found) = text[at..end].find(from).map(|found| at + found).filter(|found| *found >= done) {
                out.push_str(&text[done..found]);
                out.push_str(to);
                done = found + from.len();
            }
        }
    }
    (done > 0).then(|| out + &text[done..])
}

/// What a page made by the older router of Next.js asks for when a reader goes on to it.
pub(super) fn data_of(path: &str, html: &str) -> Option<String> {
    let (_, rest) = html.split_once("id=\"__NEXT_DATA__\"")?;
    let (_, rest) = rest.split_once('>')?;
    let data: serde_json::Value = serde_json::from_str(rest.split_once("</script>")?.0).ok()?;
    let has = |name: &str| data.get(name).is_some_and(|value| value == true);
    let build = data.get("buildId")?.as_str()?;
    if !has("gsp") && !has("gssp") {
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
        chunks(path, text, &mut |name| all.push(name.to_owned()));
        all
    }

    #[test]
    fn chunks_are_found_in_pages_payloads_and_other_chunks() {
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
    fn tables_of_webpack_are_read() {
        let text = r#"a.u=e=>7===e?"static/chunks/7-ab.js":"static/chunks/"+({1:"one"}[e]||e)+"."+({1:"0f",22:"1e"})[e]+".js""#;
        let all = named("/_next/static/chunks/webpack-1.js", text);
        for name in ["7-ab.js", "one.0f.js", "22.1e.js"] {
            assert!(all.contains(&format!("/_next/static/chunks/{name}")), "{name} in {all:?}");
        }
    }

    #[test]
    fn modules_are_found_where_they_are_imported() {
        let text = r#"import"./a.js";import{b}from'../b.mjs';const c=()=>import("/c.js");new URL("./d.png",import.meta.url);
            import "react";x("./no.js");import(`./${e}.js`);export * from "./f""#;
        let mut all = Vec::new();
        modules(text, &mut |name| all.push(name.to_owned()));
        all.sort();
        assert_eq!(all, ["../b.mjs", "./a.js", "./d.png", "/c.js"]);
    }

    #[test]
    fn pictures_are_asked_for_themselves() {
        let text = r#"a={path:"/_next/image",loader:"x",unoptimized:!1};b={unoptimized:!1};c={"path":"/d/_next/image","unoptimized":false}"#;
        let new = text.replacen("!1", "!0", 1).replace("false", "true");
        assert_eq!(without_optimizer(text), Some(new));
        assert_eq!(without_optimizer("b={unoptimized:!1}"), None);
    }

    #[test]
    fn the_older_router_has_data_beside_pages() {
        let html = r#"<script src="/_next/static/a.js"></script><script id="__NEXT_DATA__" type="application/json">{"buildId":"B","gsp":true}</script>"#;
        assert_eq!(data_of("/", html).as_deref(), Some("/_next/data/B/index.json"));
        assert_eq!(data_of("/a/b", html).as_deref(), Some("/_next/data/B/a/b.json"));
        assert_eq!(data_of("/a", &html.replace("gsp", "x")), None);
    }
}
