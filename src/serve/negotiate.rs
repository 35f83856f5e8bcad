//! Which coding of a page the client accepts (RFC 9110, 12.5.3).

use http::HeaderMap;
use http::header::ACCEPT_ENCODING;

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
