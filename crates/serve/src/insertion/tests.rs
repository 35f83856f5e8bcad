//! Every form of a page with a tag: its bytes, lengths, ranges, entity tags and conditions.

use std::io::Read;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HOST, IF_MATCH,
    IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, RANGE,
};
use http::{HeaderName, Method, Request, Response, StatusCode};
use http_body::Body as _;

use docwharf_base::codec::content_coding::{ContentCoding, ContentEncoder, StreamEnd, choose_encoder_level};
use docwharf_base::codec::deflate::Deflater;
use docwharf_base::model::digest::{Digest, encode_hex};
use docwharf_site::coding_file::{CodingRecord, CodingStatistics, compute_head_len, encode_head};
use docwharf_site::sealed_version::SealedVersion;

use super::*;
use crate::body::ResponseBody;
use crate::handler::handle;
use crate::precompressed::{PrecompressedCodings, PrecompressedFiles};
use crate::test_versions::{FileWithStream, version_with_files, version_with_streams};
use crate::{Site, SiteSettings};

pub(super) const ACCEPTED: [&str; 4] = ["identity", "gzip", "br", "zstd"];

/// A page: the path of its file without `.html`, the content, and the DEFLATE stream in the image, if it has one.
pub(super) struct Page {
    pub(super) name: &'static str,
    pub(super) content: Vec<u8>,
    stream: Option<Vec<u8>>,
}

/// Returns text without repetitions, which DEFLATE makes shorter all the same.
fn text(len: usize) -> Vec<u8> {
    let mut state = 7u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        b"<p>abcdefg h"[(state >> 24) as usize % 12]
    };
    (0..len).map(|_| next()).collect()
}

/// Compresses as the tools do whose archives are adopted: without an empty block at the end.
fn deflate(content: &[u8], level: u32) -> Vec<u8> {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::new(level));
    std::io::Write::write_all(&mut encoder, content).expect("memory");
    encoder.finish().expect("memory")
}

fn seal(content: &[u8]) -> Vec<u8> {
    let mut coded = Vec::new();
    Deflater::new(6).encode_all(content, &mut coded);
    coded
}

pub(super) fn pages() -> Vec<Page> {
    let page = |name, content: Vec<u8>, stream: fn(&[u8]) -> Option<Vec<u8>>| {
        let stream = stream(&content);
        Page { name, content, stream }
    };
    let mut pages = vec![
        page("sealed", text(5000), |content| Some(seal(content))),
        page("sealed-large", text(200_000), |content| Some(seal(content))),
        page("sealed-empty", Vec::new(), |content| Some(seal(content))),
        page("adopted", text(5000), |content| Some(deflate(content, 6))),
        // It has several DEFLATE blocks, and a last one that is too long to be copied.
        page("adopted-large", text(600_000), |content| Some(deflate(content, 6))),
        page("adopted-uncompressed", text(70_000), |content| Some(deflate(content, 0))),
        page("adopted-empty", Vec::new(), |content| Some(deflate(content, 6))),
        page("stored", text(500), |_| None),
        page("stored-empty", Vec::new(), |_| None),
    ];
    // Streams that end at different bits of their last byte.
    for (name, len) in [("tiny-1", 1), ("tiny-2", 2), ("tiny-3", 3), ("tiny-4", 4), ("tiny-5", 5), ("tiny-6", 6)] {
        pages.push(page(name, text(len), |content| Some(deflate(content, 9))));
    }
    pages
}

pub(super) fn tag() -> Arc<InsertedTag> {
    Arc::new(InsertedTag::new("/").expect("a short base path"))
}

/// Encodes a page so that a tag can be added to it.
pub(super) fn encode(coding: ContentCoding, content: &[u8]) -> Vec<u8> {
    let level = choose_encoder_level(coding, 1 << 30);
    let len = content.len() as u64;
    let mut encoder = ContentEncoder::new(coding, level, len, StreamEnd::Continuable).expect("memory");
    encoder.write(content).expect("memory");
    encoder.finish().expect("memory")
}

/// Creates the forms in one coding of all pages that have a DEFLATE stream. Other files have none.
fn precompress(
    version: &SealedVersion,
    pages: &[Page],
    coding: ContentCoding,
    encode: fn(ContentCoding, &[u8]) -> Vec<u8>,
) -> PrecompressedFiles {
    let files = version.index().len();
    let mut offset = compute_head_len(files);
    let (mut records, mut bodies) = (Vec::new(), Vec::new());
    for file in 0..files {
        let path = version.index().path(file);
        let page = pages.iter().find(|page| path == format!("{}.html", page.name).as_bytes());
        let Some(page) = page.filter(|page| page.stream.is_some()) else {
            records.push(CodingRecord::default());
            continue;
        };
        let body = encode(coding, &page.content);
        records.push(CodingRecord { offset, len: body.len() as u64, crc: crc32fast::hash(&body) });
        offset += body.len() as u64;
        bodies.extend_from_slice(&body);
    }
    let head = encode_head(coding, version.id, &records, 0);
    PrecompressedFiles::new([head, bodies].concat().into(), CodingStatistics::default())
}

/// Creates a site with these pages in all forms.
pub(super) fn site_with(pages: &[Page], encode: fn(ContentCoding, &[u8]) -> Vec<u8>) -> Arc<Site> {
    let names: Vec<String> = pages.iter().map(|page| format!("{}.html", page.name)).collect();
    let files: Vec<FileWithStream> =
        names.iter().zip(pages).map(|(name, page)| (&**name, &*page.content, page.stream.as_deref())).collect();
    let version = version_with_streams(&files);
    let codings = PrecompressedCodings {
        brotli: Some(precompress(&version, pages, ContentCoding::Brotli, encode)),
        zstd: Some(precompress(&version, pages, ContentCoding::Zstd, encode)),
        ..PrecompressedCodings::empty(version.id)
    };
    let site = Site::new(SiteSettings::default());
    site.set_version(version);
    site.set_precompressed(Some(codings));
    site
}

pub(super) fn send(site: &Site, method: Method, target: &str, fields: &[(HeaderName, &str)]) -> Response<ResponseBody> {
    let mut request = Request::builder().method(method).uri(target).header(HOST, "x").body(()).unwrap();
    for (name, value) in fields {
        request.headers_mut().append(name.clone(), value.parse().unwrap());
    }
    handle(site, &request, None)
}

fn field(response: &Response<ResponseBody>, name: HeaderName) -> Option<&str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

/// Returns the bytes of a body, which has the announced length.
pub(super) fn read(response: Response<ResponseBody>) -> Vec<u8> {
    let announced = field(&response, CONTENT_LENGTH).map(str::to_owned);
    let mut body = response.into_body();
    let (len, mut bytes) = (body.len(), Vec::new());
    loop {
        match Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => {}
            Poll::Ready(Some(Ok(frame))) => {
                bytes.extend(frame.into_data().into_iter().flat_map(|chunk| chunk.parts().concat()));
            }
            Poll::Ready(None) => break,
        }
    }
    assert_eq!((bytes.len() as u64, Some(bytes.len().to_string())), (len, announced));
    bytes
}

/// Decodes a body as a client does. A client may read only one gzip member and one Zstandard frame.
fn decode(coding: Option<&str>, body: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    match coding {
        None => content.extend_from_slice(body),
        Some("gzip") => {
            let mut decoder = flate2::bufread::GzDecoder::new(body);
            decoder.read_to_end(&mut content).expect("a valid gzip file");
            assert!(decoder.into_inner().is_empty(), "nothing follows the member");
        }
        Some("br") => {
            brotli_decompressor::Decompressor::new(body, 4096).read_to_end(&mut content).expect("valid Brotli");
        }
        Some(_) => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(body).expect("memory").single_frame();
            decoder.read_to_end(&mut content).expect("valid Zstandard");
            assert!(decoder.finish().is_empty(), "nothing follows the frame");
        }
    }
    content
}

/// Inserts the digest of the tag into an entity tag.
fn with_digest(entity_tag: &str, tag: &InsertedTag) -> String {
    let (content, coding) = entity_tag.split_at(1 + 16);
    format!("{content}-i{}{coding}", encode_hex(&Digest::compute(tag.bytes()).0[..4]))
}

#[test]
fn the_tag_is_one_script_element_below_the_base_path() {
    for (base_path, expected) in [
        ("/", "<script src=\"/_docwharf/search.js\" defer></script>"),
        ("/a/b.c_d-e~/", "<script src=\"/a/b.c_d-e~/_docwharf/search.js\" defer></script>"),
        // The configuration refuses such a base path; it could not end the attribute either.
        ("/\"><i>/", "<script src=\"/%22%3E%3Ci%3E/_docwharf/search.js\" defer></script>"),
    ] {
        let tag = InsertedTag::new(base_path).expect("a short base path");
        assert_eq!(tag.bytes(), expected);
        assert_eq!(tag.digest().0, Digest::compute(expected.as_bytes()).0[..4]);
    }
    let longest = MAX_ADDED_BYTES - "<script src=\"/_docwharf/search.js\" defer></script>".len();
    let base_path = |len: usize| format!("/{}", "x".repeat(len));
    assert!(InsertedTag::new(&base_path(longest)).is_some());
    assert!(InsertedTag::new(&base_path(longest + 1)).is_none());
}

#[test]
fn each_form_of_a_page_decodes_to_the_page_and_the_tag() {
    let (pages, tag) = (pages(), tag());
    let (plain, site) = (site_with(&pages, encode), site_with(&pages, encode));
    site.set_inserted_tag(Some(Arc::clone(&tag)));
    for page in &pages {
        let target = format!("/{}", page.name);
        let expected = [&page.content[..], tag.bytes()].concat();
        for accepted in ACCEPTED {
            let case = format!("{} {accepted}", page.name);
            let fields = [(ACCEPT_ENCODING, accepted)];
            let before = send(&plain, Method::GET, &target, &fields);
            // The first response inflates the page, later ones may have it from the cache.
            for _ in 0..3 {
                let response = send(&site, Method::GET, &target, &fields);
                assert_eq!(response.status(), StatusCode::OK, "{case}");
                let coding = field(&response, CONTENT_ENCODING);
                let is_coded = accepted != "identity" && page.stream.is_some();
                assert_eq!(coding, is_coded.then_some(accepted), "{case}");
                assert_eq!(
                    field(&response, ETAG).map(str::to_owned),
                    field(&before, ETAG).map(|entity_tag| with_digest(entity_tag, &tag)),
                    "{case}"
                );
                for (name, value) in before.headers() {
                    if *name != ETAG && *name != CONTENT_LENGTH {
                        assert_eq!(response.headers().get(name), Some(value), "{case}: {name}");
                    }
                }
                assert_eq!(response.headers().len(), before.headers().len(), "{case}");
                let head = send(&site, Method::HEAD, &target, &fields);
                assert_eq!((head.headers(), head.body().len()), (response.headers(), 0), "{case}");
                let coding = coding.map(str::to_owned);
                assert!(decode(coding.as_deref(), &read(response)) == expected, "{case}");
            }
            let coding = field(&before, CONTENT_ENCODING).map(str::to_owned);
            assert!(decode(coding.as_deref(), &read(before)) == page.content, "{case}: without a tag");
        }
    }
}

#[test]
fn a_range_of_each_form_has_the_bytes_of_the_whole_response() {
    let (pages, tag) = (pages(), tag());
    for page in &pages {
        for accepted in ACCEPTED {
            // A new site, so that some responses are made from a file that is not cached.
            let site = site_with(std::slice::from_ref(page), encode);
            site.set_inserted_tag(Some(Arc::clone(&tag)));
            let target = format!("/{}", page.name);
            let get = |fields: &[(HeaderName, &str)]| {
                send(&site, Method::GET, &target, &[&[(ACCEPT_ENCODING, accepted)], fields].concat())
            };
            let full = get(&[]);
            let (entity_tag, coding) = (field(&full, ETAG).unwrap().to_owned(), field(&full, CONTENT_ENCODING));
            let (coding, n) = (coding.map(str::to_owned), usize::try_from(full.body().len()).unwrap());
            let t = tag.bytes().len();
            let check_ranges = |full: &[u8]| {
                for (range, start, end) in [
                    ("bytes=0-".to_owned(), 0, n),
                    ("bytes=0-0".to_owned(), 0, 1),
                    ("bytes=-1".to_owned(), n - 1, n),
                    (format!("bytes=-{t}"), n - t, n),
                    (format!("bytes=-{}", t + 1), n - n.min(t + 1), n),
                    (format!("bytes=-{}", n + 5), 0, n),
                    (format!("bytes={}-{}", n - t, n - t), n - t, n - t + 1),
                    (format!("bytes={}-{}", n / 2, n - 3), n / 2, n - 2),
                    (format!("bytes={}-{}", n - 1, n + 5), n - 1, n),
                ] {
                    let case = format!("{range} of {} {accepted}", page.name);
                    let response = get(&[(RANGE, &*range), (IF_RANGE, &*entity_tag)]);
                    assert_eq!(response.status(), StatusCode::PARTIAL_CONTENT, "{case}");
                    let content_range = format!("bytes {start}-{}/{n}", end - 1);
                    assert_eq!(field(&response, CONTENT_RANGE), Some(&*content_range), "{case}");
                    assert_eq!(field(&response, ETAG), Some(&*entity_tag), "{case}");
                    let fields = [(ACCEPT_ENCODING, accepted), (RANGE, &*range)];
                    let head = send(&site, Method::HEAD, &target, &fields);
                    assert_eq!((head.headers(), head.body().len()), (response.headers(), 0), "{case}");
                    assert!(read(response) == full[start..end], "{case}");
                }
                let slices = [(0, 2), (n / 2, n / 2 + 2), (n - 2, n)];
                let list = slices.map(|(start, end)| format!("{start}-{}", end - 1)).join(",");
                let response = get(&[(RANGE, &*format!("bytes={list}"))]);
                let case = format!("{list} of {} {accepted}", page.name);
                assert_eq!(response.status(), StatusCode::PARTIAL_CONTENT, "{case}");
                let content_type = field(&response, CONTENT_TYPE).unwrap();
                let boundary = content_type.strip_prefix("multipart/byteranges; boundary=").unwrap().to_owned();
                let coding =
                    coding.as_ref().map(|coding| format!("Content-Encoding: {coding}\r\n")).unwrap_or_default();
                let mut expected = Vec::new();
                for (start, end) in slices {
                    let line_end = if expected.is_empty() { "" } else { "\r\n" };
                    let head = format!(
                        "{line_end}--{boundary}\r\nContent-Type: text/html; charset=utf-8\r\n{coding}\
                         Content-Range: bytes {start}-{}/{n}\r\n\r\n",
                        end - 1
                    );
                    expected.extend_from_slice(head.as_bytes());
                    expected.extend_from_slice(&full[start..end]);
                }
                expected.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
                assert!(read(response) == expected, "{case}");
                let beyond = get(&[(RANGE, &*format!("bytes={n}-"))]);
                assert_eq!(beyond.status(), StatusCode::RANGE_NOT_SATISFIABLE, "{case}");
                assert_eq!(field(&beyond, CONTENT_RANGE), Some(&*format!("bytes */{n}")), "{case}");
            };
            let reference = site_with(std::slice::from_ref(page), encode);
            reference.set_inserted_tag(Some(Arc::clone(&tag)));
            let whole = read(send(&reference, Method::GET, &target, &[(ACCEPT_ENCODING, accepted)]));
            check_ranges(&whole);
            assert!(read(full) == whole);
            site.inflated_file_cache.insert(Digest::compute(&page.content), page.content.clone().into());
            check_ranges(&whole);
        }
    }
}

#[test]
fn conditions_compare_the_entity_tag_of_the_page_with_the_tag() {
    let (pages, tag) = (pages(), tag());
    let (plain, site) = (site_with(&pages, encode), site_with(&pages, encode));
    site.set_inserted_tag(Some(tag));
    for accepted in ACCEPTED {
        let fields = [(ACCEPT_ENCODING, accepted)];
        let full = send(&site, Method::GET, "/sealed", &fields);
        let without = send(&plain, Method::GET, "/sealed", &fields);
        let (entity_tag, other) = (field(&full, ETAG).unwrap(), field(&without, ETAG).unwrap());
        for (name, value, status) in [
            (IF_NONE_MATCH, entity_tag, 304),
            (IF_NONE_MATCH, other, 200),
            (IF_MATCH, entity_tag, 200),
            (IF_MATCH, other, 412),
        ] {
            for method in [Method::GET, Method::HEAD] {
                let case = format!("{method} {accepted} {name}: {value}");
                let response = send(&site, method, "/sealed", &[fields[0].clone(), (name.clone(), value)]);
                assert_eq!(response.status(), status, "{case}");
                assert_eq!(field(&response, ETAG), Some(entity_tag), "{case}");
                assert_eq!(field(&response, LAST_MODIFIED), field(&without, LAST_MODIFIED), "{case}");
            }
        }
        // Parts of a page with and without the tag are never combined.
        let range = [fields[0].clone(), (RANGE, "bytes=0-9"), (IF_RANGE, other)];
        assert_eq!(send(&site, Method::GET, "/sealed", &range).status(), StatusCode::OK, "{accepted}");
    }
}

#[test]
fn only_responses_with_the_media_type_of_html_have_the_tag() {
    let headers = "/plain\n Content-Type: text/plain\n/readme\n Content-Type: text/html\n\
                   /twice\n Content-Type: text/html\n Content-Type: text/plain\n/*\n X-A: 1\n";
    let site = Site::new(SiteSettings::default());
    site.set_version(version_with_files(
        &[
            ("_headers", headers),
            ("404.html", "<p>missing"),
            ("a.css", "a{}"),
            ("data.zip", "PK"),
            ("page.html", "<p>page"),
            ("page.md", "# page"),
            ("plain.html", "<p>plain"),
            ("readme", "<p>readme"),
            ("twice.html", "<p>twice"),
            ("x.svg", "<svg/>"),
            ("x.xhtml", "<html/>"),
        ],
        0,
    ));
    let tag = tag();
    site.set_inserted_tag(Some(Arc::clone(&tag)));
    for (target, accept, content, status, has_tag) in [
        ("/page", "*/*", "<p>page", 200, true),
        ("/page", "text/markdown", "# page", 200, false),
        ("/page.md", "*/*", "# page", 200, false),
        ("/a.css", "*/*", "a{}", 200, false),
        ("/data.zip", "*/*", "PK", 200, false),
        ("/x.svg", "*/*", "<svg/>", 200, false),
        ("/x.xhtml", "*/*", "<html/>", 200, false),
        ("/plain", "*/*", "<p>plain", 200, false),
        ("/readme", "*/*", "<p>readme", 200, true),
        ("/twice", "*/*", "<p>twice", 200, false),
        ("/nowhere", "*/*", "<p>missing", 404, true),
        ("/nowhere.js", "*/*", "404: no such file\n", 404, false),
    ] {
        for accepted in ["identity", "gzip"] {
            let case = format!("{target} {accept} {accepted}");
            let response = send(&site, Method::GET, target, &[(ACCEPT, accept), (ACCEPT_ENCODING, accepted)]);
            assert_eq!(response.status(), status, "{case}");
            let has_digest = field(&response, ETAG).is_some_and(|entity_tag| entity_tag.contains("-i"));
            assert_eq!(has_digest, has_tag && status == 200, "{case}");
            let coding = field(&response, CONTENT_ENCODING).map(str::to_owned);
            let expected = format!("{content}{}", if has_tag { std::str::from_utf8(tag.bytes()).unwrap() } else { "" });
            assert_eq!(decode(coding.as_deref(), &read(response)), expected.as_bytes(), "{case}");
        }
    }
}

#[test]
fn the_built_in_404_page_has_the_tag_and_the_page_without_a_version_has_none() {
    let site = Site::new(SiteSettings { base_path: "/docs/".to_owned(), ..SiteSettings::default() });
    let tag = tag();
    site.set_inserted_tag(Some(Arc::clone(&tag)));
    let response = send(&site, Method::GET, "/docs/x", &[]);
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(!read(response).ends_with(tag.bytes()));
    site.set_version(version_with_files(&[("a.html", "<p>a")], 0));
    for target in ["/docs/nowhere", "/outside"] {
        let response = send(&site, Method::GET, target, &[]);
        assert_eq!(response.status(), StatusCode::NOT_FOUND, "{target}");
        let head = send(&site, Method::HEAD, target, &[]);
        assert_eq!((head.headers(), head.body().len()), (response.headers(), 0), "{target}");
        assert!(read(response).ends_with(tag.bytes()), "{target}");
        site.set_inserted_tag(None);
        assert!(!read(send(&site, Method::GET, target, &[])).ends_with(tag.bytes()), "{target}");
        site.set_inserted_tag(Some(Arc::clone(&tag)));
    }
}

#[test]
fn a_brotli_or_zstandard_form_that_cannot_be_continued_is_replaced_by_gzip() {
    let pages = pages();
    let site = site_with(&pages, |_, _| b"a stream that ends otherwise".to_vec());
    let accept = [(ACCEPT_ENCODING, "br, zstd, gzip;q=0.5")];
    let coding = |site: &Site| field(&send(site, Method::GET, "/sealed", &accept), CONTENT_ENCODING).map(str::to_owned);
    assert_eq!(coding(&site).as_deref(), Some("br"));
    site.set_inserted_tag(Some(tag()));
    assert_eq!(coding(&site).as_deref(), Some("gzip"));
    let fields = [(ACCEPT_ENCODING, "br, zstd")];
    let response = send(&site, Method::GET, "/sealed", &fields);
    assert_eq!(field(&response, CONTENT_ENCODING), None);
    // A rule can give the media type of HTML to a file that was not encoded as a page.
    for (path, expected) in [("a.html", true), ("a.HTM", true), ("LICENSE", false), ("a.txt", false)] {
        assert_eq!(is_continuable_form(ContentCoding::Brotli, path.as_bytes(), b"\x0b\x03"), expected, "{path}");
        assert!(!is_continuable_form(ContentCoding::Brotli, path.as_bytes(), b"\x0b"), "{path}");
    }
}
