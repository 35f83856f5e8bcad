//! Which form of a page the client accepts: HTML or Markdown (RFC 9110, 12.5.1), and in which coding (12.5.3).

use http::HeaderMap;
use http::header::{ACCEPT, ACCEPT_ENCODING};

/// A coding that can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The content as it is.
    Identity,
    /// The sealed DEFLATE bytes in a gzip frame.
    Gzip,
}

/// Chooses between the two. Without the field, or if nothing on offer is acceptable, the content goes out as it is.
pub fn choose(headers: &HeaderMap) -> Form {
    let (mut gzip, mut identity, mut any) = (None, None, None);
    for field in headers.get_all(ACCEPT_ENCODING) {
        let Ok(field) = field.to_str() else { continue };
        for item in field.split(',') {
            let mut parts = item.split(';');
            let coding = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
            let quality = quality(parts);
            match coding.as_str() {
                "gzip" | "x-gzip" => gzip = Some(quality),
                "identity" => identity = Some(quality),
                "*" => any = Some(quality),
                _ => {}
            }
        }
    }
    let gzip = gzip.or(any).unwrap_or(0);
    // Identity is acceptable unless excluded; named with a higher weight than gzip, it is preferred.
    if gzip > 0 && identity.is_none_or(|identity| gzip >= identity) { Form::Gzip } else { Form::Identity }
}

/// Whether Markdown is wanted rather than HTML: it has the higher weight or, with the same one, is named and comes first.
/// Browsers do not name it. Of the ranges that cover a type the most specific counts.
pub fn prefers_markdown(headers: &HeaderMap) -> bool {
    let mut markdown: [Option<(u16, usize)>; 3] = [None; 3];
    let mut html: [Option<(u16, usize)>; 3] = [None; 3];
    let mut order = 0;
    for field in headers.get_all(ACCEPT) {
        let Ok(field) = field.to_str() else { continue };
        for item in field.split(',') {
            order += 1;
            let mut parts = item.split(';');
            let range = parts.next().unwrap_or_default().trim();
            let is = |name: &str| range.eq_ignore_ascii_case(name);
            // 0 is the most specific.
            let (for_markdown, for_html) = match () {
                () if is("text/markdown") => (Some(0), None),
                () if is("text/html") => (None, Some(0)),
                () if is("text/*") => (Some(1), Some(1)),
                () if is("*/*") => (Some(2), Some(2)),
                () => continue,
            };
            let weight = quality(parts);
            for (slot, known) in [(for_markdown, &mut markdown), (for_html, &mut html)] {
                if let Some(slot) = slot {
                    known[slot].get_or_insert((weight, order));
                }
            }
        }
    }
    let best = |known: [Option<(u16, usize)>; 3]| known.into_iter().flatten().next().unwrap_or((0, usize::MAX));
    let ((weight, at), (html_weight, html_at)) = (best(markdown), best(html));
    let is_named = markdown[0].is_some();
    weight > 0 && (weight > html_weight || (weight == html_weight && is_named && at < html_at))
}

/// The weight in thousandths (RFC 9110, 12.4.2); one that does not parse counts as 1.
fn quality<'a>(parameters: impl Iterator<Item = &'a str>) -> u16 {
    for parameter in parameters {
        let Some((name, value)) = parameter.split_once('=') else {
            continue;
        };
        if name.trim().eq_ignore_ascii_case("q") {
            return thousandths(value.trim()).unwrap_or(1000);
        }
    }
    1000
}

/// `0`, `0.5`, `1.000`: a digit and up to three decimals; more are cut off.
fn thousandths(value: &str) -> Option<u16> {
    let (whole, decimals) = value.split_once('.').unwrap_or((value, ""));
    let whole: u16 = whole.parse().ok()?;
    if !decimals.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let decimals: u16 = format!("{decimals:0<3}")[..3].parse().ok()?;
    Some((whole.min(1) * 1000 + decimals).min(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_goes_to_those_who_would_rather_have_it() {
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

    fn form(fields: &[&str]) -> Form {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(ACCEPT_ENCODING, field.parse().unwrap());
        }
        choose(&headers)
    }

    #[test]
    fn gzip_goes_to_those_who_want_it() {
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
            assert_eq!(form(fields), Form::Gzip, "{fields:?}");
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
            assert_eq!(form(fields), Form::Identity, "{fields:?}");
        }
    }
}
