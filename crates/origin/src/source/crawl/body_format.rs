//! Formats of bodies and purposes of addresses, and the addresses in style sheets and web application manifests.

use std::fmt::Write as _;
use std::ops::Range;

use serde_json::Value;

use docwharf_site::external::css;
use docwharf_site::media_types::{is_script, is_xml};

/// Purpose of an address. If one address has two purposes, the later variant counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AddressPurpose {
    /// The base of relative addresses; it is not fetched.
    Base,
    /// The target of a form. It is not requested, because submitting a form may change data on the server.
    Form,
    /// It may exist; its absence is not an error.
    Guess,
    /// The document that names it is incomplete without it.
    Asset,
    /// A link that readers may follow.
    Link,
}

/// Callback for each address, in unescaped form. It may return a replacement.
pub(super) type AddressVisitor<'m> = dyn FnMut(AddressPurpose, &str) -> Option<String> + 'm;

/// Format that a body is read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyFormat {
    /// HTML.
    Page,
    /// CSS.
    Style,
    /// JavaScript.
    Script,
    /// The manifest of a web application.
    Manifest,
    /// A payload of React server components.
    Payload,
    /// XML, which may be a sitemap.
    Xml,
    /// Any other format; it is not searched for addresses.
    Other,
}

impl BodyFormat {
    /// Determines the format from the media type (in lower case, without parameters), the requested path, and the body
    /// if there is no media type.
    pub(super) fn detect(media_type: &str, path: &str, body: &[u8]) -> BodyFormat {
        let name = path.rsplit('/').next().unwrap_or_default();
        match media_type {
            "text/html" | "application/xhtml+xml" => BodyFormat::Page,
            "text/css" => BodyFormat::Style,
            "text/x-component" => BodyFormat::Payload,
            "application/manifest+json" => BodyFormat::Manifest,
            "application/json" if name.contains("manifest") => BodyFormat::Manifest,
            "" if is_html(body) => BodyFormat::Page,
            _ if is_script(media_type) => BodyFormat::Script,
            _ if is_xml(media_type) => BodyFormat::Xml,
            _ => BodyFormat::Other,
        }
    }
}

/// Whether a body without a media type begins like an HTML page (WHATWG MIME Sniffing, 7.1, its two plain cases).
fn is_html(body: &[u8]) -> bool {
    let text = body.trim_ascii_start();
    ["<!doctype html", "<html"]
        .iter()
        .any(|word| text.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word.as_bytes())))
}

/// Returns the style sheet with the replacements that `visit` returned; `None` if it returned none.
pub(super) fn rewrite_style(text: &str, visit: &mut AddressVisitor<'_>) -> Option<String> {
    let (mut out, mut end) = (String::new(), 0);
    css::find_addresses(text, &mut |range, address| {
        if let Some(new) = visit(AddressPurpose::Asset, address) {
            let _ = write!(out, "{}{new}", &text[end..range.start]);
            end = range.end;
        }
    });
    (end > 0).then(|| out + &text[end..])
}

/// Returns the manifest (W3C Web Application Manifest) with the replacements that `visit` returned; `None` if it
/// returned none or `text` is not a JSON object.
pub(super) fn rewrite_manifest(text: &str, visit: &mut AddressVisitor<'_>) -> Option<String> {
    let mut manifest: Value = serde_json::from_str(text).ok()?;
    let mut is_changed = false;
    let mut rewrite = |value: Option<&mut Value>, purpose: AddressPurpose| {
        if let Some(Value::String(text)) = value
            && let Some(new) = visit(purpose, text)
        {
            *text = new;
            is_changed = true;
        }
    };
    let members = manifest.as_object_mut()?;
    rewrite(members.get_mut("start_url"), AddressPurpose::Link);
    for name in ["icons", "screenshots"] {
        rewrite_images(members.get_mut(name), &mut rewrite);
    }
    for shortcut in members.get_mut("shortcuts").and_then(Value::as_array_mut).into_iter().flatten() {
        rewrite(shortcut.get_mut("url"), AddressPurpose::Link);
        rewrite_images(shortcut.get_mut("icons"), &mut rewrite);
    }
    is_changed.then(|| manifest.to_string())
}

fn rewrite_images(list: Option<&mut Value>, rewrite: &mut impl FnMut(Option<&mut Value>, AddressPurpose)) {
    for image in list.and_then(Value::as_array_mut).into_iter().flatten() {
        rewrite(image.get_mut("src"), AddressPurpose::Asset);
    }
}

/// Returns the byte range of `part` within `whole`; `part` must be a slice of `whole`.
pub(super) fn byte_range_of(whole: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - whole.as_ptr() as usize;
    start..start + part.len()
}

/// Returns `new` unless it equals `old`.
pub(super) fn unless_equal(new: String, old: &str) -> Option<String> {
    (new != old).then_some(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_in_style_sheets_and_web_manifests_are_rewritten() {
        let mut visited = Vec::new();
        let mut visit = |purpose: AddressPurpose, text: &str| {
            visited.push(format!("{purpose:?} {text}"));
            text.starts_with('x').then(|| "/new".to_owned())
        };
        let css = "@import 'x.css'; a { b: url(y) url( \"x y\" ) } /* url(x) */ c { d: url(\\78) }";
        let new = rewrite_style(css, &mut visit).unwrap();
        assert_eq!(new, "@import '/new'; a { b: url(y) url( \"/new\" ) } /* url(x) */ c { d: url(/new) }");
        let json = r#"{"icons":[{"src":"x.png"},{"src":"y.png"}],"start_url":"/","shortcuts":[{"url":"/s","icons":[{"src":"x"}]}]}"#;
        let new = rewrite_manifest(json, &mut visit).unwrap();
        assert!(new.contains(r#"[{"src":"/new"},{"src":"y.png"}]"#), "{new}");
        assert_eq!(
            visited.join("|"),
            "Asset x.css|Asset y|Asset x y|Asset x|Link /|Asset x.png|Asset y.png|Link /s|Asset x"
        );
        assert_eq!(rewrite_manifest("[1]", &mut |_, _| None), None);
    }

    #[test]
    fn body_format_follows_the_media_type_and_is_sniffed_only_without_one() {
        for (media_type, path, body, expected) in [
            ("text/html", "/a.png", "x", BodyFormat::Page),
            ("", "/a", "\n<!DOCTYPE HTML>", BodyFormat::Page),
            ("", "/a", "x", BodyFormat::Other),
            ("text/plain", "/a", "<html>", BodyFormat::Other),
            ("text/javascript", "/a", "", BodyFormat::Script),
            ("application/json", "/site.manifest.json", "", BodyFormat::Manifest),
            ("application/json", "/a.json", "", BodyFormat::Other),
            ("application/xml", "/a", "", BodyFormat::Xml),
        ] {
            assert_eq!(BodyFormat::detect(media_type, path, body.as_bytes()), expected, "{media_type} {path}");
        }
    }
}
