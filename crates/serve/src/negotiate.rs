//! Content negotiation: HTML or Markdown (RFC 9110, 12.5.1), and the content coding (RFC 9110, 12.5.3).

use http::HeaderMap;
use http::header::{ACCEPT, ACCEPT_ENCODING};

use docwharf_base::codec::content_coding::ContentCoding;

/// The form in which a file is sent. A form is a representation (RFC 9110, section 3.2) in one content coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseForm {
    /// The content without a coding.
    Identity,
    /// The sealed DEFLATE bytes as a gzip file.
    Gzip,
    /// The Brotli or Zstandard bytes from the coding file, which is computed after the version was activated.
    Precompressed(ContentCoding),
}

impl ResponseForm {
    /// Returns the value of Content-Encoding; `None` for the content without a coding.
    pub fn token(self) -> Option<&'static str> {
        match self {
            ResponseForm::Identity => None,
            ResponseForm::Gzip => Some("gzip"),
            ResponseForm::Precompressed(coding) => Some(coding.token()),
        }
    }
}

/// The weight that a client assigns to each coding, in thousandths; 0 means not acceptable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedCodings {
    gzip: u16,
    brotli: u16,
    zstd: u16,
    /// The weight of identity if the client names it.
    identity: Option<u16>,
}

impl AcceptedCodings {
    /// Parses `Accept-Encoding` (RFC 9110, 12.5.3) without allocating, because every request for a page calls it.
    pub fn parse(headers: &HeaderMap) -> AcceptedCodings {
        let (mut gzip, mut brotli, mut zstd, mut identity, mut any) = (None, None, None, None, None);
        for field in headers.get_all(ACCEPT_ENCODING) {
            for item in field.as_bytes().split(|&byte| byte == b',') {
                let mut parts = item.split(|&byte| byte == b';');
                let coding = parts.next().unwrap_or_default().trim_ascii();
                let is = |name: &str| coding.eq_ignore_ascii_case(name.as_bytes());
                let slot = match () {
                    () if is("gzip") || is("x-gzip") => &mut gzip,
                    () if is("br") => &mut brotli,
                    () if is("zstd") => &mut zstd,
                    () if is("identity") => &mut identity,
                    () if is("*") => &mut any,
                    () => continue,
                };
                *slot = Some(parse_weight(parts));
            }
        }
        let or_any = |weight: Option<u16>| weight.or(any).unwrap_or(0);
        AcceptedCodings { gzip: or_any(gzip), brotli: or_any(brotli), zstd: or_any(zstd), identity }
    }

    /// Returns whether the client accepts a coding other than gzip and identity.
    pub fn accepts_precompressed(self) -> bool {
        self.brotli > 0 || self.zstd > 0
    }

    /// Chooses the form: gzip, identity or a precompressed one. `gzip_len` is the length of the gzip form in bytes;
    /// `len` returns that of a precompressed form, or `None` if the file has no such form.
    ///
    /// The coding with the highest weight is chosen. Browsers assign equal weights to all codings: then the shortest
    /// form is chosen, because the forms differ in nothing else, and of equally short ones the first of gzip, br, zstd.
    /// Identity is acceptable unless excluded, but it is preferred only if the client names it with a higher weight. It
    /// is also chosen if no acceptable form exists.
    pub fn choose(self, gzip_len: u64, len: impl Fn(ContentCoding) -> Option<u64>) -> ResponseForm {
        let precompressed = |coding: ContentCoding, weight: u16| {
            let len = if weight > 0 { len(coding) } else { None };
            len.map(|len| (weight, len, ResponseForm::Precompressed(coding)))
        };
        let offers = [
            (self.gzip > 0).then_some((self.gzip, gzip_len, ResponseForm::Gzip)),
            precompressed(ContentCoding::Brotli, self.brotli),
            precompressed(ContentCoding::Zstd, self.zstd),
        ];
        let best = offers.into_iter().flatten().reduce(|best, next| {
            let is_better = next.0 > best.0 || (next.0 == best.0 && next.1 < best.1);
            if is_better { next } else { best }
        });
        let best = best.filter(|(weight, ..)| self.identity.is_none_or(|identity| *weight >= identity));
        best.map_or(ResponseForm::Identity, |(.., form)| form)
    }
}

/// Returns whether the client prefers Markdown to HTML: it assigns Markdown a higher weight or, with the same weight,
/// names it and names it first. Browsers do not name it.
pub fn prefers_markdown(headers: &HeaderMap) -> bool {
    prefers(headers, ["text/markdown", "text/*"], ["text/html", "text/*"])
}

/// Returns whether the client prefers HTML to JSON, by the same rule. Browsers name HTML; scripts that accept
/// everything get JSON.
pub(super) fn prefers_html_to_json(headers: &HeaderMap) -> bool {
    prefers(headers, ["text/html", "text/*"], ["application/json", "application/*"])
}

/// Returns whether the client prefers server-sent events to JSON. A client that accepts everything gets JSON.
pub(super) fn prefers_events_to_json(headers: &HeaderMap) -> bool {
    prefers(headers, ["text/event-stream", "text/*"], ["application/json", "application/*"])
}

/// Returns whether the client accepts JSON. One that says nothing accepts everything.
pub(super) fn accepts_json(headers: &HeaderMap) -> bool {
    let mut weights: [Option<u16>; 3] = [None; 3];
    for (range, parameters) in media_ranges(headers) {
        if let Some(slot) = find_slot(range, ["application/json", "application/*"]) {
            weights[slot].get_or_insert_with(|| parse_weight(parameters));
        }
    }
    let weight = weights.into_iter().flatten().next();
    !headers.contains_key(ACCEPT) || weight.is_some_and(|weight| weight > 0)
}

/// Returns the media ranges of `Accept`, each with its parameters.
fn media_ranges(headers: &HeaderMap) -> impl Iterator<Item = (&str, impl Iterator<Item = &[u8]>)> {
    let fields = headers.get_all(ACCEPT).iter().filter_map(|field| field.to_str().ok());
    fields.flat_map(|field| field.split(',')).map(|item| {
        let mut parts = item.split(';');
        (parts.next().unwrap_or_default().trim(), parts.map(str::as_bytes))
    })
}

/// Returns how specific a range is that matches a type, which is given with the range of all its subtypes: 0 is the
/// type itself, 2 is everything; `None` if it does not match.
fn find_slot(range: &str, type_ranges: [&str; 2]) -> Option<usize> {
    let is = |name: &str| range.eq_ignore_ascii_case(name);
    type_ranges.into_iter().chain(["*/*"]).position(is)
}

/// Returns whether the client prefers a media type to another one, which is sent otherwise. Each type is given with the
/// range of all its subtypes. Of the media ranges that match a type, the most specific one counts.
fn prefers(headers: &HeaderMap, wanted: [&str; 2], otherwise: [&str; 2]) -> bool {
    // Index 0 is the most specific range.
    let mut wanted_weights: [Option<(u16, usize)>; 3] = [None; 3];
    let mut other_weights: [Option<(u16, usize)>; 3] = [None; 3];
    for (position, (range, parameters)) in media_ranges(headers).enumerate() {
        let slots = [find_slot(range, wanted), find_slot(range, otherwise)];
        if slots == [None; 2] {
            continue;
        }
        let weight = parse_weight(parameters);
        for (slot, weights) in slots.into_iter().zip([&mut wanted_weights, &mut other_weights]) {
            if let Some(slot) = slot {
                weights[slot].get_or_insert((weight, position));
            }
        }
    }
    let best = |weights: [Option<(u16, usize)>; 3]| weights.into_iter().flatten().next().unwrap_or((0, usize::MAX));
    let ((weight, position), (other_weight, other_position)) = (best(wanted_weights), best(other_weights));
    let is_named = wanted_weights[0].is_some();
    weight > 0 && (weight > other_weight || (weight == other_weight && is_named && position < other_position))
}

/// Returns the weight in thousandths (RFC 9110, 12.4.2). A weight that does not parse counts as 1.
fn parse_weight<'a>(parameters: impl Iterator<Item = &'a [u8]>) -> u16 {
    for parameter in parameters {
        let Some(equals) = parameter.iter().position(|&byte| byte == b'=') else { continue };
        if parameter[..equals].trim_ascii().eq_ignore_ascii_case(b"q") {
            return parse_thousandths(parameter[equals + 1..].trim_ascii()).unwrap_or(1000);
        }
    }
    1000
}

/// Parses `0`, `0.5` or `1.000`: a number with up to three decimals, of which more are ignored. Values above 1 count as
/// 1.
fn parse_thousandths(value: &[u8]) -> Option<u16> {
    let point = value.iter().position(|&byte| byte == b'.').unwrap_or(value.len());
    let (whole, decimals) = (&value[..point], value.get(point + 1..).unwrap_or_default());
    if whole.is_empty() || !whole.iter().chain(decimals).all(u8::is_ascii_digit) {
        return None;
    }
    if whole.iter().any(|&digit| digit != b'0') {
        return Some(1000);
    }
    let digit = |index: usize| decimals.get(index).map_or(0, |digit| u16::from(digit - b'0'));
    Some(digit(0) * 100 + digit(1) * 10 + digit(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_is_sent_to_clients_that_prefer_it_over_html() {
        for (accept, expected) in [
            (&["text/markdown"][..], true),
            (&["Text/Markdown;q=0.001"], true),
            (&["text/markdown, text/html, */*"], true),
            (&["text/html, text/markdown, */*"], false),
            (&["text/markdown;q=1.0, text/x-markdown;q=0.9, text/plain;q=0.8, text/html;q=0.7, */*;q=0.1"], true),
            (&["text/html;q=0.9, text/markdown"], true),
            (&["text/html", "text/markdown;q=0.9"], false),
            (&["text/markdown;q=0.9", "text/html"], false),
            (&["text/markdown;q=0"], false),
            (&["text/markdown;q=0, */*"], false),
            (&["text/html;q=0, */*"], true),
            (&["text/html;q=0.5, text/*"], true),
            (&["*/*"], false),
            (&["text/*"], false),
            (&["text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"], false),
            (&["text/markdown; charset=utf-8; q=0.5, text/html; q=0.4"], true),
            (&["text/markdown;q=2, text/html"], true),
            (&["text/markdownx, text/html"], false),
            (&[""], false),
            (&[], false),
        ] {
            let mut headers = HeaderMap::new();
            for field in accept {
                headers.append(ACCEPT, field.parse().unwrap());
            }
            assert_eq!(prefers_markdown(&headers), expected, "{accept:?}");
        }
    }

    #[test]
    fn html_is_sent_instead_of_json_to_clients_that_prefer_it() {
        for (accept, expected) in [
            (&["text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"][..], true),
            (&["text/html, text/*;q=0.5, image/*, application/*"], true),
            (&["text/html, */*"], true),
            (&["text/html"], true),
            (&["TEXT/HTML;q=0.001"], true),
            (&["text/*"], true),
            (&["text/html, application/json"], true),
            (&["text/html", "application/json;q=0.9"], true),
            (&["application/json;q=0, text/html;q=0.1"], true),
            (&["application/json, text/html"], false),
            (&["application/json"], false),
            (&["application/json, text/html;q=0.9, */*"], false),
            (&["text/html;q=0.5, */*"], false),
            (&["text/html;q=0.5, application/*"], false),
            (&["text/html;q=0"], false),
            (&["text/plain"], false),
            (&["application/xhtml+xml"], false),
            (&["image/png"], false),
            (&["*/*"], false),
            (&["text/html\u{e9}"], false),
            (&[""], false),
            (&[], false),
        ] {
            let mut headers = HeaderMap::new();
            for field in accept {
                headers.append(ACCEPT, http::HeaderValue::from_bytes(field.as_bytes()).unwrap());
            }
            assert_eq!(prefers_html_to_json(&headers), expected, "{accept:?}");
        }
    }

    #[test]
    fn the_most_specific_range_of_accept_decides_whether_json_is_accepted() {
        for (values, expected) in [
            (&[][..], true),
            (&["application/json, text/event-stream"], true),
            (&["text/event-stream", "application/json"], true),
            (&["Application/JSON;q=0.1"], true),
            (&["application/*"], true),
            (&["*/*"], true),
            (&[""], false),
            (&["text/event-stream"], false),
            (&["text/html, application/xml"], false),
            (&["application/json;q=0"], false),
            (&["application/json; q=0.00, */*"], false),
            (&["*/*;q=0, application/json"], true),
            (&["application/jsonp"], false),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(ACCEPT, value.parse().unwrap());
            }
            assert_eq!(accepts_json(&headers), expected, "{values:?}");
        }
    }

    fn accepted(fields: &[&str]) -> AcceptedCodings {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(ACCEPT_ENCODING, field.parse().unwrap());
        }
        AcceptedCodings::parse(&headers)
    }

    fn form(fields: &[&str]) -> ResponseForm {
        accepted(fields).choose(10, |_| None)
    }

    #[test]
    fn the_smallest_coding_of_the_highest_quality_value_is_chosen() {
        const BR: ResponseForm = ResponseForm::Precompressed(ContentCoding::Brotli);
        const ZSTD: ResponseForm = ResponseForm::Precompressed(ContentCoding::Zstd);
        for (fields, brotli, zstd, expected) in [
            (&["gzip, deflate, br, zstd"][..], Some(7), Some(8), BR),
            (&["gzip, deflate, br, zstd"], Some(8), Some(7), ZSTD),
            (&["gzip, deflate, br, zstd"], Some(7), Some(7), BR),
            (&["gzip, deflate, br, zstd"], None, Some(8), ZSTD),
            (&["gzip, deflate, br, zstd"], None, None, ResponseForm::Gzip),
            (&["zstd, br, gzip"], Some(10), Some(10), ResponseForm::Gzip),
            (&["gzip, br;q=0.9"], Some(7), None, ResponseForm::Gzip),
            (&["gzip;q=0.8, BR;Q=0.9"], Some(11), None, BR),
            (&["br;q=0, *"], Some(7), Some(8), ZSTD),
            (&["*;q=0.5, gzip;q=0.1"], Some(9), Some(8), ZSTD),
            (&["*"], Some(7), Some(8), BR),
            (&["br"], Some(7), Some(1), BR),
            (&["br"], None, Some(1), ResponseForm::Identity),
            (&["br;q=0.5, identity"], Some(7), Some(1), ResponseForm::Identity),
            (&["br;q=0.5, identity;q=0.5"], Some(7), Some(1), BR),
            (&["gzip;q=0, br;q=0, zstd;q=0.001"], Some(7), Some(11), ZSTD),
            (&["gzip", "br"], Some(7), Some(8), BR),
            (&["gzip"], Some(7), Some(8), ResponseForm::Gzip),
            (&["brotli, zstandard, x-br"], Some(7), Some(8), ResponseForm::Identity),
            (&["identity;q=0, br"], Some(7), None, BR),
            (&["*;q=0"], Some(7), Some(8), ResponseForm::Identity),
            (&[], Some(7), Some(8), ResponseForm::Identity),
        ] {
            let len = |coding: ContentCoding| match coding {
                ContentCoding::Brotli => brotli,
                ContentCoding::Zstd => zstd,
            };
            assert_eq!(accepted(fields).choose(10, len), expected, "{fields:?}");
        }
        assert!(accepted(&["zstd;q=0.1"]).accepts_precompressed());
        assert!(!accepted(&["gzip, br;q=0"]).accepts_precompressed());
    }

    #[test]
    fn quality_values_are_parsed_as_thousandths_and_invalid_ones_are_none() {
        for (value, expected) in [
            ("0", Some(0)),
            ("0.", Some(0)),
            ("0.000", Some(0)),
            ("0.5", Some(500)),
            ("0.25", Some(250)),
            ("0.1239", Some(123)),
            ("1", Some(1000)),
            ("1.000", Some(1000)),
            ("1.5", Some(1000)),
            ("7", Some(1000)),
            ("99999999999", Some(1000)),
            ("00.7", Some(700)),
            ("", None),
            (".5", None),
            ("-1", None),
            ("+1", None),
            ("0.x", None),
            ("0.5.5", None),
        ] {
            assert_eq!(parse_thousandths(value.as_bytes()), expected, "{value:?}");
        }
    }

    #[test]
    fn gzip_is_chosen_only_if_the_client_accepts_it() {
        for fields in [
            &["gzip"][..],
            &["br, GZIP;q=0.5"],
            &["*"],
            &["identity;q=0.5, gzip"],
            &["deflate", "gzip;q=0.001"],
            &["x-gzip"],
            &["identity;q=0, gzip;q=0.1"],
            &["gzip, identity"],
        ] {
            assert_eq!(form(fields), ResponseForm::Gzip, "{fields:?}");
        }
        for fields in [
            &[][..],
            &["br"],
            &["gzip;q=0"],
            &["gzip;q=0.0, *"],
            &["*;q=0"],
            &["gzip;q=0.5, identity;q=0.8"],
            &[""],
            &["identity"],
        ] {
            assert_eq!(form(fields), ResponseForm::Identity, "{fields:?}");
        }
    }
}
