//! The position of an address relative to the path below which a site is served.

/// The position of a decoded address relative to the base path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BasePathMatch<'a> {
    /// Within the site: the address below the base path, without its leading slash.
    Inside(&'a [u8]),
    /// Above the site: the client is redirected to the base path.
    Above,
    /// The payload of the site's front page: the Next.js client requests `/docs.txt` where `basePath` is `/docs`. The
    /// value is the payload's address below the base path; unlike that of `Inside`, it has its leading slash.
    FrontPagePayload(&'static [u8]),
    /// Outside the site.
    Outside,
}

/// Determines the position of an address, with its leading slash, relative to the site at `base_path`.
pub fn match_base_path<'a>(base_path: &str, address: &'a [u8]) -> BasePathMatch<'a> {
    let base = base_path.as_bytes();
    match address.strip_prefix(base) {
        Some(inside) => BasePathMatch::Inside(inside),
        None if address == b"/" || address == &base[..base.len() - 1] => BasePathMatch::Above,
        None => match address.strip_prefix(&base[..base.len() - 1]) {
            Some(b".txt") => BasePathMatch::FrontPagePayload(b"/index.txt"),
            Some(b".rsc") => BasePathMatch::FrontPagePayload(b"/index.rsc"),
            _ => BasePathMatch::Outside,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_classified_as_inside_above_or_outside_the_base_path() {
        for (base, address, expected) in [
            ("/", "/", BasePathMatch::Inside(b"")),
            ("/", "/a/b", BasePathMatch::Inside(b"a/b")),
            ("/", "a", BasePathMatch::Outside),
            ("/", "", BasePathMatch::Above),
            ("/docs/", "/docs/", BasePathMatch::Inside(b"")),
            ("/docs/", "/docs/a", BasePathMatch::Inside(b"a")),
            ("/docs/", "/docs", BasePathMatch::Above),
            ("/docs/", "/", BasePathMatch::Above),
            ("/docs/", "/docs.txt", BasePathMatch::FrontPagePayload(b"/index.txt")),
            ("/docs/", "/docs.rsc", BasePathMatch::FrontPagePayload(b"/index.rsc")),
            ("/docs/", "/docs.html", BasePathMatch::Outside),
            ("/docs/", "/docsx", BasePathMatch::Outside),
            ("/docs/", "/Docs/", BasePathMatch::Outside),
            ("/docs/", "/doc", BasePathMatch::Outside),
            ("/docs/", "//docs/", BasePathMatch::Outside),
        ] {
            assert_eq!(match_base_path(base, address.as_bytes()), expected, "{base} {address}");
        }
    }
}
