//! Finds the addresses that a script requests, if they are written as string literals where the functions of a browser
//! take an address. Addresses that a script assembles from parts or receives at run time are not found.

use std::ops::Range;

use super::{ContentFact, ResourceKind};

/// The number of bytes before an address that are searched for the call with this argument.
const LOOKBEHIND_BYTES: usize = 48;
/// An upper bound in bytes for a host with its port.
const MAX_HOST_BYTES: usize = 300;

/// The code before a string literal that makes it an address, with the purpose of the address. White space is ignored.
const CALL_PREFIXES: &[(&str, ResourceKind)] = &[
    ("fetch(", ResourceKind::Connect),
    ("Request(", ResourceKind::Connect),
    ("WebSocket(", ResourceKind::Connect),
    ("EventSource(", ResourceKind::Connect),
    ("sendBeacon(", ResourceKind::Connect),
    (".open(\"GET\",", ResourceKind::Connect),
    (".open('GET',", ResourceKind::Connect),
    (".open(\"POST\",", ResourceKind::Connect),
    (".open('POST',", ResourceKind::Connect),
    ("import(", ResourceKind::Script),
    ("import", ResourceKind::Script),
    ("from", ResourceKind::Script),
    ("Worker(", ResourceKind::Worker),
];

/// Reports each address with a host in a script.
pub(super) fn read_script(script: &str, report: &mut dyn FnMut(ContentFact<'_>)) {
    let creates_scripts = ["createElement(\"script\")", "createElement('script')"].iter().any(|s| script.contains(s));
    let mut argument_lists = import_scripts_arguments(script).into_iter().peekable();
    for (slashes, _) in script.match_indices("//") {
        while argument_lists.next_if(|list| list.end <= slashes).is_some() {}
        if let Some((text, quote)) = parse_address(script, slashes) {
            let is_listed = argument_lists.peek().is_some_and(|list| list.contains(&quote));
            match if is_listed {
                Some(ResourceKind::Script)
            } else {
                find_purpose(&script.as_bytes()[..quote], creates_scripts)
            } {
                Some(kind) => report(ContentFact::Address(kind, text)),
                None => report(ContentFact::MentionedAddress(text)),
            }
        }
    }
    if calls_global(script, "eval") || calls_global(script, "Function") {
        report(ContentFact::UsesEval);
    }
    if script.contains("WebAssembly") {
        report(ContentFact::UsesWasm);
    }
    if script.contains("serviceWorker") && script.contains(".register(") {
        report(ContentFact::ServiceWorker);
    }
}

/// Returns the address whose host follows the slashes at `slashes`, cut off after the host, and the offset of its
/// opening quote.
fn parse_address(script: &str, slashes: usize) -> Option<(&str, usize)> {
    let bytes = script.as_bytes();
    let before = &bytes[..slashes];
    let scheme = ["https:", "http:", "wss:", "ws:"].into_iter().find(|s| before.ends_with(s.as_bytes())).unwrap_or("");
    let start = slashes - scheme.len();
    let quote = start.checked_sub(1).filter(|&quote| matches!(bytes[quote], b'"' | b'\'' | b'`'))?;
    let host = &bytes[slashes + 2..];
    let is_host = |b: &u8| b.is_ascii_alphanumeric() || b"-._:@[]".contains(b);
    let len = host.iter().take(MAX_HOST_BYTES).take_while(|b| is_host(b)).count();
    // Without a scheme the slashes may be anything: a comment, a path, a pattern. Then the host must contain a dot.
    let is_host_valid = if scheme.is_empty() { host[..len].contains(&b'.') } else { len > 0 };
    // A host that a template literal completes is not known.
    let is_complete = !host[len..].starts_with(b"$");
    (is_host_valid && is_complete).then(|| (&script[start..slashes + 2 + len], quote))
}

/// Finds the ranges of the string literals that `importScripts` is called with; it takes any number of them.
fn import_scripts_arguments(script: &str) -> Vec<Range<usize>> {
    const CALL: &str = "importScripts";
    let bytes = script.as_bytes();
    let mut argument_lists: Vec<Range<usize>> = Vec::new();
    for (position, _) in script.match_indices(CALL) {
        let is_longer_name = position.checked_sub(1).is_some_and(|before| is_name_byte(bytes[before]));
        // Text inside a list is not another call. Skipping it keeps the scan linear.
        if is_longer_name || argument_lists.last().is_some_and(|list| position < list.end) {
            continue;
        }
        let skip_space =
            |position: usize| position + bytes[position..].iter().take_while(|b| b.is_ascii_whitespace()).count();
        let start = skip_space(position + CALL.len());
        let mut end = start;
        // A list begins with a parenthesis and continues with commas.
        while matches!((bytes.get(end), end == start), (Some(b'('), true) | (Some(b','), false)) {
            let quote = skip_space(end + 1);
            let Some(b'"' | b'\'' | b'`') = bytes.get(quote) else { break };
            let len = bytes[quote + 1..].iter().position(|b| *b == bytes[quote]);
            end = skip_space(len.map_or(bytes.len(), |len| quote + 1 + len + 1));
        }
        argument_lists.push(start..end);
    }
    argument_lists
}

/// Returns the purpose of the string literal that follows `before`; `None` if it is not known.
fn find_purpose(before: &[u8], creates_scripts: bool) -> Option<ResourceKind> {
    let near = &before[before.len().saturating_sub(LOOKBEHIND_BYTES)..];
    if [".src=", "src:"].iter().any(|prefix| strip_code_suffix(near, prefix).is_some()) {
        return Some(if creates_scripts { ResourceKind::Script } else { ResourceKind::Image });
    }
    CALL_PREFIXES.iter().find_map(|(prefix, kind)| {
        let rest = strip_code_suffix(near, prefix)?;
        // `refetch(` is another function; `window.fetch(` is `fetch`.
        let is_word = prefix.starts_with('.') || !rest.last().is_some_and(|b| is_name_byte(*b));
        is_word.then_some(*kind)
    })
}

/// Returns `text` without `suffix`, ignoring white space; `None` if it does not end with `suffix`.
fn strip_code_suffix<'a>(text: &'a [u8], suffix: &str) -> Option<&'a [u8]> {
    let mut rest = text;
    for letter in suffix.bytes().rev() {
        rest = rest.trim_ascii_end();
        rest = rest.strip_suffix(&[letter])?;
    }
    Some(rest)
}

/// Whether the global function `name` is called with an argument, also as `(0,eval)(x)`, which evaluates in the global
/// scope. `Function("return this")`, with which libraries find the global object, is not counted: they try it last and
/// work without it.
fn calls_global(script: &str, name: &str) -> bool {
    const CALL_SYNTAX: [&str; 3] = ["(", ")(", "?.("];
    const HARMLESS_ARGUMENTS: [&str; 4] = [")", "\"return this\"", "'return this'", "`return this`"];
    script.match_indices(name).any(|(position, _)| {
        let rest = &script[position + name.len()..];
        let arguments = CALL_SYNTAX.iter().find_map(|call| rest.strip_prefix(call));
        arguments.is_some_and(|arguments| !HARMLESS_ARGUMENTS.iter().any(|harmless| arguments.starts_with(harmless)))
            && is_global(&script.as_bytes()[..position])
    })
}

/// Whether the name that follows `before` is global: neither the end of a longer name, nor a member of another object
/// than the global one.
fn is_global(mut before: &[u8]) -> bool {
    const GLOBALS: [&[u8]; 6] = [b"window", b"self", b"globalThis", b"top", b"parent", b"frames"];
    // The global object may be reached by a chain, such as `window.top`.
    while let Some(object) = before.strip_suffix(b".") {
        let object = object.strip_suffix(b"?").unwrap_or(object);
        let Some(rest) = GLOBALS.iter().find_map(|global| object.strip_suffix(*global)) else { return false };
        before = rest;
    }
    !before.last().is_some_and(|b| is_name_byte(*b))
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_facts(script: &str) -> Vec<String> {
        let mut facts = Vec::new();
        read_script(script, &mut |fact| {
            facts.push(match fact {
                ContentFact::Address(kind, text) => format!("{} {text}", kind.name()),
                ContentFact::MentionedAddress(text) => format!("? {text}"),
                other => format!("{other:?}"),
            });
        });
        facts
    }

    #[test]
    fn script_addresses_are_classified_by_the_function_that_takes_them() {
        let script = r#"// see "https://comment.example/x"
            fetch("https://a.example/v1"); await fetch ( `https://b.example/${x}` ); refetch('https://c.example');
            new WebSocket('wss://d.example:8443/live'); x.open("GET", "https://e.example/"); fetch(`https://${host}/x`);
            import y from "https://f.example/y.js"; import("https://g.example/z.js"); var s = "//h.example/x", t = "//x";
            navigator.sendBeacon('https://i.example/b'); new Worker("https://j.example/w.js"); i.src = 'https://k.example/p.gif'"#;
        assert_eq!(
            read_facts(script),
            [
                "? https://comment.example",
                "connect https://a.example",
                "connect https://b.example",
                "? https://c.example",
                "connect wss://d.example:8443",
                "connect https://e.example",
                "script https://f.example",
                "script https://g.example",
                "? //h.example",
                "connect https://i.example",
                "worker https://j.example",
                "image https://k.example",
            ]
        );
        let tag = r#"var g=document.createElement("script");g.async=1;g.src="https://t.example/t.js""#;
        assert_eq!(read_facts(tag), ["script https://t.example"]);
    }

    #[test]
    fn import_scripts_takes_any_number_of_addresses() {
        let script = r#"importScripts("https://a.example/a.js" , '/own.js',`//b.example/b.js`, x, "https://no.example/");
            reimportScripts("https://no.example/"); self.importScripts('//c.example/' + x); importScripts('//d.example/"#;
        assert_eq!(
            read_facts(script),
            [
                "script https://a.example",
                "script //b.example",
                "? https://no.example",
                "? https://no.example",
                "script //c.example",
                "script //d.example",
            ]
        );
        for script in ["importScripts", "importScripts(", "importScripts('", "importScripts('a',", "importScripts('a' "]
        {
            assert_eq!(read_facts(script), Vec::<String>::new());
        }
        read_facts(&"importScripts('a','importScripts(".repeat(1 << 18));
    }

    #[test]
    fn eval_and_the_function_constructor_are_detected_but_methods_of_that_name_are_not() {
        assert_eq!(read_facts("eval('1')"), ["UsesEval"]);
        assert_eq!(read_facts("var f=new Function('a','return a')"), ["UsesEval"]);
        assert_eq!(read_facts("g = self || Function('return this')(); \"eval()\""), Vec::<String>::new());
        assert_eq!(read_facts("model.eval(1); isFunction(x); medieval(2)"), Vec::<String>::new());
        for script in [
            "(0,eval)(x)",
            "(0, eval)('1')",
            "window.eval(x)",
            "new globalThis.Function('a', b)",
            "a=self.eval(x)",
            "window.top?.eval(x)",
            "parent.frames.eval(x)",
            "eval?.(x)",
            "(1,window.Function)(x)",
        ] {
            assert_eq!(read_facts(script), ["UsesEval"], "{script}");
        }
        for script in [
            "(0,a.eval)(x)",
            "myself.eval(x)",
            "a.self.eval(x)",
            "(0,Function)('return this')",
            "window.Function(\"return this\")()",
            "mywindow.top.eval(x)",
            "evaluate(x), (a, medieval)(x)",
        ] {
            assert_eq!(read_facts(script), Vec::<String>::new(), "{script}");
        }
        read_facts(&"window.".repeat(1 << 18));
        assert_eq!(read_facts("WebAssembly.instantiate(x)"), ["UsesWasm"]);
        assert_eq!(read_facts("navigator.serviceWorker.register('/sw.js')"), ["ServiceWorker"]);
    }

    #[test]
    fn javascript_apis_that_take_an_address_are_recognized_and_similar_names_are_not() {
        for (before, kind) in [
            ("fetch(", "connect"),
            ("window.fetch (\n", "connect"),
            ("new Request(", "connect"),
            ("new WebSocket(", "connect"),
            ("new EventSource(", "connect"),
            ("navigator.sendBeacon(", "connect"),
            ("x.open(\"GET\",", "connect"),
            ("x.open('GET', ", "connect"),
            ("x.open(\"POST\",", "connect"),
            ("x.open('POST' ,", "connect"),
            ("import(", "script"),
            ("import ", "script"),
            ("export * from ", "script"),
            ("new Worker(", "worker"),
            ("new SharedWorker(", "?"),
            ("i.src=", "image"),
            ("{src: ", "image"),
            ("prefetch(", "?"),
            ("$fetch(", "?"),
            ("éfetch(", "?"),
            ("x.open('PUT',", "?"),
            ("importer(", "?"),
            ("a = ", "?"),
        ] {
            for quote in ['"', '\'', '`'] {
                let script = format!("{before}{quote}https://x.example/a{quote}");
                assert_eq!(read_facts(&script), [format!("{kind} https://x.example")], "{script}");
            }
        }
        // Code further back is not searched.
        let spaced = |len: usize| format!("fetch({}\"//x.example\"", " ".repeat(len));
        assert_eq!(read_facts(&spaced(LOOKBEHIND_BYTES - 6)), ["connect //x.example"]);
        assert_eq!(read_facts(&spaced(LOOKBEHIND_BYTES - 5)), ["? //x.example"]);
    }

    #[test]
    fn script_address_is_a_string_literal_with_a_complete_host() {
        for (script, expected) in [
            ("'http://x.example'", "? http://x.example"),
            ("'ws://x.example:1'", "? ws://x.example:1"),
            ("'wss://x.example/'", "? wss://x.example"),
            ("'//x.example'", "? //x.example"),
            ("'https://localhost/'", "? https://localhost"),
            ("'https://[::1]:80/'", "? https://[::1]:80"),
            ("'//localhost'", ""),
            ("'ftp://x.example'", ""),
            ("'see https://x.example'", ""),
            ("https://x.example", ""),
            ("`https://x.${y}`", ""),
            ("`https://x.example/${y}`", "? https://x.example"),
            ("'https://'", ""),
            ("//x.example", ""),
        ] {
            assert_eq!(read_facts(script).concat(), expected, "{script}");
        }
        for script in ["a['createElement']('script').src = '//x.example'", "createElement('style').src = '//x.example'"]
        {
            assert_eq!(read_facts(script), ["image //x.example"], "{script}");
        }
        assert_eq!(read_facts("createElement('script');x={src:'//x.example'}"), ["script //x.example"]);
    }

    #[test]
    fn eval_needs_an_argument_and_a_service_worker_a_register_call_to_be_detected() {
        for (script, expected) in [
            ("window?.eval(x)", "UsesEval"),
            ("self?.top.eval(x)", "UsesEval"),
            ("window?.Function?.('a', x)", "UsesEval"),
            ("eval()", ""),
            ("eval ", ""),
            ("$eval(x)", ""),
            ("éval(x)", ""),
            ("x?.eval(y)", ""),
            ("Function(`return this`)", ""),
            ("Function('return that')", "UsesEval"),
            ("navigator.serviceWorker.ready", ""),
            ("registry.register(x)", ""),
            ("WebAssembly", "UsesWasm"),
        ] {
            assert_eq!(read_facts(script).concat(), expected, "{script}");
        }
    }
}
