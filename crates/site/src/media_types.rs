//! Media types and cache classes by file name.

use std::borrow::Cow;

use docwharf_base::model::site_path::{components, file_name, is_page, short_extension};

/// Returns the value of `Content-Type` for a file, with its charset.
pub fn content_type(path: &[u8]) -> Cow<'static, str> {
    let Some(media_type) = media_type(path) else {
        return Cow::Borrowed("application/octet-stream");
    };
    let with_charset = match media_type {
        "text/html" => "text/html; charset=utf-8",
        "text/css" => "text/css; charset=utf-8",
        "text/javascript" => "text/javascript; charset=utf-8",
        "text/plain" => "text/plain; charset=utf-8",
        "text/markdown" => "text/markdown; charset=utf-8",
        "text/x-component" => "text/x-component; charset=utf-8",
        "application/xml" => "application/xml; charset=utf-8",
        _ if media_type.starts_with("text/") || media_type == "application/javascript" => {
            return Cow::Owned(format!("{media_type}; charset=utf-8"));
        }
        _ => media_type,
    };
    Cow::Borrowed(with_charset)
}

/// Returns the media type of a name with a known extension, without parameters.
pub fn media_type(path: &[u8]) -> Option<&'static str> {
    let extension = short_extension(path)?;
    // Types that the table of `mime_guess` lacks or has in an older form, and types that are requested most.
    let media_type = match extension.as_str() {
        "html" | "htm" => "text/html",
        "css" => "text/css",
        "js" | "mjs" | "cjs" => "text/javascript",
        "json" | "map" => "application/json",
        "webmanifest" => "application/manifest+json",
        "md" | "markdown" => "text/markdown",
        "txt" => "text/plain",
        // Payloads of React Server Components; the Next.js client accepts them with this type only. In a static
        // export they are named .txt, and the client accepts text/plain for those.
        "rsc" => "text/x-component",
        "xml" => "application/xml",
        "wasm" => "application/wasm",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "avif" => "image/avif",
        "woff" => "font/woff",
        "woff2" => "font/woff2",
        "ttf" => "font/ttf",
        "otf" => "font/otf",
        "ico" => "image/x-icon",
        "gz" | "tgz" => "application/gzip",
        "zst" => "application/zstd",
        "yaml" | "yml" => "application/yaml",
        "inv" => "application/octet-stream",
        extension => return mime_guess::from_ext(extension).first_raw(),
    };
    Some(media_type)
}

/// Whether this `Content-Type` is that of HTML. XHTML is XML, not HTML. Several types in one field count as none,
/// because browsers do not agree on the one to use.
pub fn is_html(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("text/html")
}

/// Whether a browser shows a resource of this media type, without parameters, as an XML document (MIME Sniffing
/// Standard, 4.6; some browsers also know `text/xsl`).
pub fn is_xml(media_type: &str) -> bool {
    media_type.ends_with("+xml") || matches!(media_type, "text/xml" | "application/xml" | "text/xsl")
}

/// Whether a browser runs a resource of this media type, without parameters, as a script.
pub fn is_script(media_type: &str) -> bool {
    let Some(("text" | "application", name)) = media_type.split_once('/') else { return false };
    ["javascript", "ecmascript", "jscript", "livescript"].iter().any(|known| name.contains(known))
}

/// Whether scripts may run in a resource with this `Content-Type`, or in a page that includes it. If the field has
/// several types, each of them counts: browsers do not agree on the one to use.
pub fn runs_scripts(content_type: &str) -> bool {
    content_type.split(',').any(|media_type| {
        let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        // The parts of a multipart/x-mixed-replace body have separate types.
        matches!(essence.as_str(), "text/html" | "multipart/x-mixed-replace") || is_xml(&essence) || is_script(&essence)
    })
}

/// Whether a sealed image compresses a file: text becomes smaller; images, web fonts, archives and media do not.
pub fn is_compressible(path: &[u8]) -> bool {
    if is_archive(path) {
        return false;
    }
    match media_type(path) {
        None => true,
        Some(media_type) => {
            media_type.starts_with("text/")
                || media_type.ends_with("+xml")
                || media_type.ends_with("+json")
                || matches!(
                    media_type,
                    "application/json"
                        | "application/xml"
                        | "application/wasm"
                        | "application/yaml"
                        | "application/javascript"
                        | "application/octet-stream"
                        | "font/ttf"
                        | "font/otf"
                        | "image/x-icon"
                        | "image/bmp"
                )
        }
    }
}

/// Whether a file is an archive or compressed data.
pub fn is_archive(path: &[u8]) -> bool {
    const ARCHIVE_EXTENSIONS: [&str; 10] = ["gz", "tgz", "zip", "zst", "xz", "bz2", "7z", "br", "tar", "jar"];
    short_extension(path).is_some_and(|extension| ARCHIVE_EXTENSIONS.contains(&extension.as_str()))
}

/// Whether a file is text that a received ZIP should have compressed to be adopted as an image.
pub fn is_text(path: &[u8]) -> bool {
    media_type(path).is_some_and(|media_type| {
        media_type.starts_with("text/")
            || media_type == "application/json"
            || media_type == "application/xml"
            || media_type == "image/svg+xml"
    })
}

/// The time for which caches may store a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheClass {
    /// The name changes with the content: cached for a year.
    Immutable,
    /// Revalidated for each use, mostly answered with 304.
    Revalidate,
}

/// Returns the cache class of a file, by whether its name is derived from its content (docs/design/http.md, "Addresses,
/// entity tags and caching").
pub fn cache_class(path: &[u8]) -> CacheClass {
    const HASHED_EXTENSIONS: [&str; 18] = [
        "css", "js", "mjs", "map", "wasm", "woff", "woff2", "ttf", "otf", "eot", "png", "jpg", "jpeg", "gif", "svg",
        "webp", "avif", "ico",
    ];
    if is_page(path) {
        return CacheClass::Revalidate;
    }
    let mut parts = components(path);
    if parts.next() == Some(b"_next") && parts.next() == Some(b"static") && parts.next().is_some() {
        return CacheClass::Immutable;
    }
    let may_be_hashed = short_extension(path).is_some_and(|e| HASHED_EXTENSIONS.contains(&e.as_str()));
    let name_parts = file_name(path).split(|b| matches!(b, b'.' | b'-' | b'_'));
    if may_be_hashed && name_parts.into_iter().any(is_hash) { CacheClass::Immutable } else { CacheClass::Revalidate }
}

/// Whether `part` is 8 or more hex digits with at least one letter and one digit.
fn is_hash(part: &[u8]) -> bool {
    part.len() >= 8
        && part.iter().all(u8::is_ascii_hexdigit)
        && part.iter().any(u8::is_ascii_digit)
        && part.iter().any(u8::is_ascii_alphabetic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_type_is_the_one_that_browsers_need_for_the_file_extension() {
        for (name, expected) in [
            ("a.html", "text/html; charset=utf-8"),
            ("a.css", "text/css; charset=utf-8"),
            ("a.js", "text/javascript; charset=utf-8"),
            ("a.mjs", "text/javascript; charset=utf-8"),
            ("a.json", "application/json"),
            ("a.wasm", "application/wasm"),
            ("a.svg", "image/svg+xml"),
            ("a.avif", "image/avif"),
            ("a.woff2", "font/woff2"),
            ("a.webmanifest", "application/manifest+json"),
            ("a.xml", "application/xml; charset=utf-8"),
            ("a.txt", "text/plain; charset=utf-8"),
            ("a.rsc", "text/x-component; charset=utf-8"),
            ("a.md", "text/markdown; charset=utf-8"),
            ("a.pdf", "application/pdf"),
            ("a.tar.gz", "application/gzip"),
            ("a.PNG", "image/png"),
            ("release-1.0", "application/octet-stream"),
            ("LICENSE", "application/octet-stream"),
        ] {
            assert_eq!(content_type(name.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn only_text_html_alone_is_html() {
        for name in ["a.html", "a.htm", "a.HTML", "404.html", "a.b.html"] {
            assert!(is_html(&content_type(name.as_bytes())), "{name}");
        }
        for name in ["a.xhtml", "a.svg", "a.xml", "a.txt", "a.md", "LICENSE", "html", "a.html.gz"] {
            assert!(!is_html(&content_type(name.as_bytes())), "{name}");
        }
        for (text, expected) in [
            ("text/html", true),
            (" Text/HTML ;charset=x", true),
            ("application/xhtml+xml", false),
            ("text/html, text/plain", false),
            ("text/plain, text/html", false),
            ("text/html5", false),
            ("", false),
        ] {
            assert_eq!(is_html(text), expected, "{text}");
        }
    }

    #[test]
    fn media_types_that_can_run_scripts_are_recognized_in_any_spelling() {
        for name in ["a.html", "a.shtml", "a.hxt", "a.xhtml", "a.svg", "a.xsl", "a.rdf", "a.mathml", "a.rss", "a.jsx"] {
            assert!(runs_scripts(&content_type(name.as_bytes())), "{name}");
        }
        for name in ["a.css", "a.png", "a.json", "a.txt", "a.md", "a.woff2", "a.pdf", "a.docx", "LICENSE"] {
            assert!(!runs_scripts(&content_type(name.as_bytes())), "{name}");
        }
        for text in
            [" Text/HTML ;charset=x", "text/plain, text/html", "image/x+xml", "application/x-javascript", "text/xsl"]
        {
            assert!(runs_scripts(text), "{text}");
        }
        for text in ["", "text/plain; x=text/html", "font/javascript", "application/xml-dtd"] {
            assert!(!runs_scripts(text), "{text}");
        }
    }

    #[test]
    fn only_hashed_names_are_immutable() {
        for name in [
            "_next/static/x/page.js",
            "_next/static/a.html.js",
            "a/main.0ab12cd3.css",
            "f-1234567a.woff2",
            "x_deadbee1.map",
        ] {
            assert_eq!(cache_class(name.as_bytes()), CacheClass::Immutable, "{name}");
        }
        for name in [
            "_next/static/x.html",
            "main.css",
            "main.deadbeef.css",
            "main.12345678.css",
            "a.0ab12cd3.html",
            "a.0ab12cd3.txt",
            "a.0ab12c.css",
            "x/_next/static/a.txt",
            "0ab12cd3/a.css",
        ] {
            assert_eq!(cache_class(name.as_bytes()), CacheClass::Revalidate, "{name}");
        }
    }

    #[test]
    fn asset_name_with_eight_hex_digits_including_a_letter_is_immutable() {
        let is_immutable = |name: &str| cache_class(name.as_bytes()) == CacheClass::Immutable;
        for extension in ["css", "js", "mjs", "map", "wasm", "woff", "woff2", "ttf", "otf", "eot"] {
            assert!(is_immutable(&format!("x.0ab12cd3.{extension}")), "{extension}");
        }
        for extension in ["png", "jpg", "jpeg", "gif", "svg", "webp", "avif", "ico", "PNG"] {
            assert!(is_immutable(&format!("x.0ab12cd3.{extension}")), "{extension}");
        }
        for extension in ["htm", "html", "json", "txt", "pdf", "zip", "md", "xml"] {
            assert!(!is_immutable(&format!("x.0ab12cd3.{extension}")), "{extension}");
        }
        for (name, expected) in [
            ("0ab12cd3.css", true),
            ("x-0AB12CD3-y.css", true),
            ("x_0ab12cd34567890.css", true),
            ("x.0ab12cd.css", false),
            ("x.0ab12cdg.css", false),
            ("x.aaaaaaaa.css", false),
            ("report-20240101.png", false),
            ("x~0ab12cd3.css", false),
            ("0ab12cd3", false),
            ("_next/static/a", true),
            ("_next/static/a/b.txt", true),
            ("_next/static", false),
            ("_next/image/a.js", false),
            ("_next/static/a.htm", false),
            ("static/_next/a.js", false),
        ] {
            assert_eq!(is_immutable(name), expected, "{name}");
        }
    }

    #[test]
    fn compressible_types_are_compressed_and_archives_are_not() {
        for name in [
            "a.html",
            "a.css",
            "a.js",
            "a.json",
            "a.map",
            "a.xml",
            "a.svg",
            "a.wasm",
            "a.txt",
            "a.md",
            "a.rsc",
            "a.csv",
            "a.yaml",
            "a.yml",
            "a.ttf",
            "a.otf",
            "a.ico",
            "a.bmp",
            "a.webmanifest",
            "a.inv",
            "LICENSE",
            "release-1.0",
        ] {
            assert!(is_compressible(name.as_bytes()) && !is_archive(name.as_bytes()), "{name}");
        }
        for name in ["a.png", "a.jpg", "a.gif", "a.webp", "a.avif", "a.woff", "a.woff2", "a.mp4", "a.mp3", "a.pdf"] {
            assert!(!is_compressible(name.as_bytes()) && !is_archive(name.as_bytes()), "{name}");
        }
        for kind in ["gz", "tgz", "zip", "zst", "xz", "bz2", "7z", "br", "tar", "jar", "ZIP", "tar.gz"] {
            let name = format!("a.{kind}");
            assert!(!is_compressible(name.as_bytes()) && is_archive(name.as_bytes()), "{name}");
        }
        for name in ["zip", ".zip", "a.zip.html", "a.zipx", "zip/a"] {
            assert!(!is_archive(name.as_bytes()), "{name}");
        }
        for (name, expected) in [
            ("a.html", true),
            ("a.css", true),
            ("a.js", true),
            ("a.txt", true),
            ("a.json", true),
            ("a.map", true),
            ("a.xml", true),
            ("a.svg", true),
            ("a.wasm", false),
            ("a.png", false),
            ("a.ico", false),
            ("a.webmanifest", false),
            ("a.gz", false),
            ("LICENSE", false),
        ] {
            assert_eq!(is_text(name.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn xml_and_script_media_types_are_recognized() {
        for (kind, xml, script) in [
            ("image/svg+xml", true, false),
            ("application/xhtml+xml", true, false),
            ("text/xml", true, false),
            ("application/xml", true, false),
            ("text/xsl", true, false),
            ("application/xml-dtd", false, false),
            ("text/html", false, false),
            ("text/javascript", false, true),
            ("application/x-javascript", false, true),
            ("application/ecmascript", false, true),
            ("text/jscript", false, true),
            ("text/livescript", false, true),
            ("text/plain", false, false),
            ("image/javascript", false, false),
            ("javascript", false, false),
            ("", false, false),
        ] {
            assert_eq!((is_xml(kind), is_script(kind)), (xml, script), "{kind}");
        }
        for (name, expected) in [
            ("a.htm", "text/html; charset=utf-8"),
            ("a.cjs", "text/javascript; charset=utf-8"),
            ("a.csv", "text/csv; charset=utf-8"),
            ("a.map", "application/json"),
            ("a.markdown", "text/markdown; charset=utf-8"),
            ("a.png", "image/png"),
            ("a.woff", "font/woff"),
            ("a.ttf", "font/ttf"),
            ("a.otf", "font/otf"),
            ("a.ico", "image/x-icon"),
            ("a.tgz", "application/gzip"),
            ("a.zst", "application/zstd"),
            ("a.yaml", "application/yaml"),
            ("a.yml", "application/yaml"),
            ("a.inv", "application/octet-stream"),
            (".html", "application/octet-stream"),
        ] {
            assert_eq!(content_type(name.as_bytes()), expected, "{name}");
        }
    }
}
