//! Tests of requests and responses, without a server.

use std::cell::RefCell;
use std::sync::LazyLock;

use http::HeaderName;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, DATE, LAST_MODIFIED};
use tempfile::TempDir;

use docwharf_base::net::client::build_client;

use super::*;

const NOON: &str = "Tue, 01 Jan 2030 12:00:00 GMT";
const A_SECOND_LATER: &str = "Tue, 01 Jan 2030 12:00:01 GMT";

/// A client that sends no request in these tests.
static HTTP: LazyLock<HttpClient> = LazyLock::new(|| build_client(&NetworkSettings::default()).unwrap());

type Fields<'a> = &'a [(HeaderName, &'a str)];
/// Known bundles, the If-None-Match of the request, the `ETag` of the 304, and the bundle that it means.
type ConditionCase<'a> = (&'a [&'a BundleValidator], Option<&'a str>, Option<&'a str>, Option<&'a BundleValidator>);
/// Name of the case, header fields and body length of a response, the limit, the result, the bytes received, and the
/// calls that reserve disk space.
type BodyCase<'a> = (&'a str, Fields<'a>, usize, u64, Result<u64, RequestErrorCause>, u64, &'a [(u64, u64)]);

fn headers(fields: Fields<'_>) -> HeaderMap {
    fields.iter().map(|(name, value)| (name.clone(), HeaderValue::from_bytes(value.as_bytes()).unwrap())).collect()
}

fn response(status: u16, fields: Fields<'_>, body: &[u8]) -> reqwest::Response {
    let mut response = http::Response::new(body.to_vec());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    *response.headers_mut() = headers(fields);
    response.into()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn known(validator: &str, size: u64) -> BundleValidator {
    BundleValidator { validator: validator.to_owned(), size }
}

/// Creates a download with `received` of ten bytes received, with the entity tag "v".
fn download(limit: u64, received: usize, known: Vec<BundleValidator>) -> (TempDir, Download) {
    let dir = tempfile::tempdir().unwrap();
    let (http, network) = (HTTP.clone(), NetworkSettings::default());
    let progress = Arc::new(DownloadProgress::default());
    let directory = Directory::open(dir.path()).unwrap();
    let mut download = Download::new(http, network, progress, &directory, "source", limit, known);
    if received > 0 {
        download.received_part.begin("source", Some("\"v\"".to_owned()), Some(10), false).unwrap();
        download.received_part.append().unwrap().write_all(&vec![b'x'; received]).unwrap();
        download.received_part.add_received(received as u64);
    }
    (dir, download)
}

fn check_response(
    download: &mut Download,
    response: reqwest::Response,
) -> Result<Option<BundleValidator>, RequestErrorCause> {
    match block_on(download.check_response(response, &SecretRedactor::default())) {
        Ok(DownloadResponse::Unchanged(known)) => Ok(Some(known)),
        Ok(DownloadResponse::Body(_)) => Ok(None),
        Err(request_error) => Err(request_error.cause),
    }
}

#[test]
fn download_resumes_only_with_a_strong_validator() {
    let tag = Some("\"t\"");
    let cases: [(Fields<'_>, Option<&str>, Option<&str>); 11] = [
        (&[(ETAG, "\"t\"")], tag, tag),
        (&[(ETAG, " \"t\" "), (LAST_MODIFIED, NOON)], tag, tag),
        (&[(ETAG, "W/\"t\"")], None, None),
        (&[(ETAG, "t")], None, None),
        (&[(ETAG, "W/\"t\""), (LAST_MODIFIED, NOON), (DATE, A_SECOND_LATER)], Some(NOON), Some(NOON)),
        (&[(LAST_MODIFIED, NOON), (DATE, A_SECOND_LATER)], Some(NOON), Some(NOON)),
        (&[(LAST_MODIFIED, NOON), (DATE, NOON)], Some(NOON), None),
        (&[(LAST_MODIFIED, A_SECOND_LATER), (DATE, NOON)], Some(A_SECOND_LATER), None),
        (&[(LAST_MODIFIED, NOON)], Some(NOON), None),
        (&[(LAST_MODIFIED, "noon"), (DATE, NOON)], Some("noon"), None),
        (&[], None, None),
    ];
    for (fields, validator_text, strong_text) in cases {
        let headers = headers(fields);
        assert_eq!(validator(&headers).as_deref(), validator_text, "{fields:?}");
        assert_eq!(strong_validator(&headers).as_deref(), strong_text, "{fields:?}");
    }
    for (text, bytes) in [("10", Some(10)), (" 10 ", Some(10)), ("-1", None), ("x", None), ("", None)] {
        assert_eq!(content_length(&headers(&[(CONTENT_LENGTH, text)])), bytes, "{text}");
    }
    assert_eq!(content_length(&HeaderMap::new()), None);
}

#[test]
fn if_none_match_lists_known_etags_and_a_304_identifies_one_bundle() {
    let (a, b, dated) = (known("\"a\"", 1), known("\"b\"", 2), known(NOON, 3));
    let cases: [ConditionCase<'_>; 9] = [
        (&[&a, &dated, &b], Some("\"a\", \"b\""), Some("\"b\""), Some(&b)),
        (&[&a, &dated, &b], Some("\"a\", \"b\""), Some("W/\"a\""), Some(&a)),
        (&[&a, &dated, &b], Some("\"a\", \"b\""), Some("\"c\""), None),
        (&[&a, &dated, &b], Some("\"a\", \"b\""), None, None),
        (&[&a, &dated], Some("\"a\""), None, Some(&a)),
        (&[&a, &dated], Some("\"a\""), Some("\"b\""), None),
        (&[&a, &dated], Some("\"a\""), Some(NOON), None),
        (&[&dated], None, None, None),
        (&[], None, None, None),
    ];
    for (all, condition, tag, unchanged) in cases {
        let (_dir, mut download) = download(9, 0, all.iter().map(|known| (*known).clone()).collect());
        assert_eq!(download.if_none_match().as_deref(), condition);
        let fields: Vec<_> = tag.map(|tag| (ETAG, tag)).into_iter().collect();
        assert_eq!(download.find_unmodified(&headers(&fields)), unchanged, "{tag:?} of {all:?}");
        download.is_304_ambiguous = true;
        assert_eq!(download.if_none_match(), None);
    }
    // The rest of a part is requested without a condition on the known bundles.
    for (received, condition) in [(0, Some("\"a\"")), (5, None)] {
        let (_dir, download) = download(20, received, vec![a.clone()]);
        assert_eq!(download.condition().as_deref(), condition, "{received}");
    }
}

#[test]
fn response_head_decides_whether_the_part_is_continued_restarted_or_unchanged() {
    let rest = (CONTENT_RANGE, "bytes 5-9/10");
    let lost = Err(RequestErrorCause::NoUsableResponse);
    // With five of ten bytes received: the result, and the bytes received afterwards.
    let cases: [(u16, Fields<'_>, Result<(), RequestErrorCause>, u64); 19] = [
        (206, &[rest.clone(), (ETAG, "\"v\"")], Ok(()), 5),
        (206, std::slice::from_ref(&rest), Ok(()), 5),
        (206, &[rest.clone(), (ETAG, "\"w\"")], lost, 0),
        (206, &[rest.clone(), (LAST_MODIFIED, NOON)], lost, 0),
        (206, &[(CONTENT_RANGE, "bytes 4-9/10")], lost, 0),
        (206, &[(CONTENT_RANGE, "bytes 5-10/11")], lost, 0),
        (206, &[], lost, 0),
        (416, &[], lost, 0),
        (304, &[], Err(RequestErrorCause::Unreadable), 5),
        (200, &[(ETAG, "\"v\""), (CONTENT_LENGTH, "10")], Ok(()), 0),
        (200, &[], Ok(()), 0),
        (203, &[], Ok(()), 0),
        (299, &[], Ok(()), 0),
        (200, &[(CONTENT_LENGTH, "20")], Ok(()), 0),
        (200, &[(CONTENT_LENGTH, "21")], Err(RequestErrorCause::TooLarge), 5),
        (300, &[], Err(RequestErrorCause::Status(300)), 5),
        (403, &[], Err(RequestErrorCause::Status(403)), 5),
        (404, &[(CONTENT_LENGTH, "21")], Err(RequestErrorCause::Status(404)), 5),
        (503, &[], Err(RequestErrorCause::Status(503)), 5),
    ];
    for (status, fields, result, received) in cases {
        let (_dir, mut download) = download(20, 5, Vec::new());
        let found = check_response(&mut download, response(status, fields, b""));
        assert_eq!((found, download.received()), (result.map(|()| None), received), "{status} {fields:?}");
    }
    // With nothing received.
    for (status, fields) in [(206, &[(CONTENT_RANGE, "bytes 0-9/10")][..]), (416, &[])] {
        let (_dir, mut download) = download(20, 0, Vec::new());
        let expected = if status == 206 { RequestErrorCause::NoUsableResponse } else { RequestErrorCause::Status(416) };
        assert_eq!(check_response(&mut download, response(status, fields, b"")), Err(expected));
    }
}

#[test]
fn a_bundle_is_known_by_its_validator_and_its_length() {
    let (tagged, dated) = (known("\"a\"", 7), known(NOON, 8));
    let cases: [(Fields<'_>, Option<&BundleValidator>); 8] = [
        (&[(ETAG, "\"a\""), (CONTENT_LENGTH, "7")], Some(&tagged)),
        (&[(ETAG, "\"a\"")], Some(&tagged)),
        (&[(ETAG, "\"a\""), (CONTENT_LENGTH, "8")], None),
        (&[(ETAG, "W/\"a\""), (CONTENT_LENGTH, "7")], None),
        (&[(LAST_MODIFIED, NOON), (DATE, A_SECOND_LATER), (CONTENT_LENGTH, "8")], Some(&dated)),
        (&[(LAST_MODIFIED, NOON), (DATE, NOON), (CONTENT_LENGTH, "8")], None),
        (&[(ETAG, "\"b\""), (CONTENT_LENGTH, "7")], None),
        (&[(CONTENT_LENGTH, "7")], None),
    ];
    for (fields, unchanged) in cases {
        let (_dir, mut download) = download(20, 0, vec![dated.clone(), tagged.clone()]);
        assert_eq!(check_response(&mut download, response(200, fields, b"")), Ok(unchanged.cloned()), "{fields:?}");
    }
    let (_dir, mut download) = download(6, 0, vec![tagged.clone()]);
    let known_response = response(200, &[(ETAG, "\"a\""), (CONTENT_LENGTH, "7")], b"");
    assert_eq!(
        check_response(&mut download, known_response),
        Ok(Some(tagged)),
        "a known bundle is not downloaded, however large it is"
    );
    for (coding, encoded) in [("gzip", true), ("identity", false)] {
        let (_dir, mut download) = self::download(20, 0, Vec::new());
        check_response(&mut download, response(200, &[(CONTENT_ENCODING, coding)], b"")).unwrap();
        assert_eq!(download.received_part.finish().encoded, encoded, "{coding}");
    }
}

/// The result, the bytes received, and the calls that reserve disk space: size and remaining bytes.
type ReceiveResult = (Result<u64, RequestErrorCause>, u64, Vec<(u64, u64)>);

fn receive(download: &mut Download, response: reqwest::Response, has_space: bool) -> ReceiveResult {
    let calls = RefCell::new(Vec::new());
    let before_receiving = |expected: &ExpectedBundle<'_>| {
        calls.borrow_mut().push((expected.size, expected.remaining));
        if has_space { Ok(()) } else { Err(RequestError::new(RequestErrorCause::Disk, "full")) }
    };
    let url = SafeUrl::parse("https://bucket.example/").unwrap();
    let result = block_on(async {
        match download.check_response(response, &SecretRedactor::default()).await? {
            DownloadResponse::Body(response) => download.receive_body(response, &url, &before_receiving).await,
            DownloadResponse::Unchanged(known) => Ok(DownloadResult::Unchanged(known)),
        }
    });
    let result = match result {
        Ok(DownloadResult::Received(bundle)) => Ok(std::fs::metadata(bundle.path).unwrap().len()),
        Ok(DownloadResult::Unchanged(known)) => panic!("{known:?}"),
        Err(request_error) => Err(request_error.cause),
    };
    (result, download.received(), calls.into_inner())
}

#[test]
fn body_is_received_up_to_its_content_length_and_not_beyond_the_limit() {
    let (length, tag) = ((CONTENT_LENGTH, "10"), (ETAG, "\"w\""));
    let cases: [BodyCase<'_>; 9] = [
        ("complete", &[length.clone(), tag.clone()], 10, 10, Ok(10), 10, &[(10, 10)]),
        ("over the limit", std::slice::from_ref(&length), 10, 9, Err(RequestErrorCause::TooLarge), 0, &[]),
        ("truncated", &[length.clone(), tag], 6, 20, Err(RequestErrorCause::NoUsableResponse), 6, &[(10, 10)]),
        (
            "truncated before the first byte",
            std::slice::from_ref(&length),
            0,
            20,
            Err(RequestErrorCause::NoUsableResponse),
            0,
            &[(10, 10)],
        ),
        (
            "longer than announced",
            std::slice::from_ref(&length),
            11,
            20,
            Err(RequestErrorCause::NoUsableResponse),
            0,
            &[(10, 10)],
        ),
        ("of unknown length", &[], 10, 11, Ok(10), 10, &[]),
        ("of unknown length, at the limit", &[], 10, 10, Ok(10), 10, &[]),
        ("of unknown length, over the limit", &[], 10, 9, Err(RequestErrorCause::TooLarge), 0, &[]),
        ("of unknown length, empty", &[], 0, 9, Ok(0), 0, &[]),
    ];
    for (case, fields, bytes, limit, result, received, calls) in cases {
        let (_dir, mut download) = download(limit, 0, Vec::new());
        let found = receive(&mut download, response(200, fields, &vec![b'x'; bytes]), true);
        assert_eq!(found, (result, received, calls.to_vec()), "{case}");
    }
    let (_dir, mut download) = download(10, 5, Vec::new());
    let rest = response(206, &[(CONTENT_RANGE, "bytes 5-9/10")], b"yyyyy");
    assert_eq!(receive(&mut download, rest, true), (Ok(10), 10, vec![(10, 5)]));
    assert_eq!((download.progress.received(), download.progress.total()), (10, 10));
    assert_eq!(std::fs::read(download.received_part.path()).unwrap(), b"xxxxxyyyyy");
    download.restart();
    assert_eq!((download.received(), download.received_part.path().exists()), (0, false));
}

// Regression: a response that was too long was reported as cut off at 0 bytes.
#[test]
fn a_body_of_another_length_is_reported_as_cut_off_or_as_longer_than_announced() {
    for (bytes, reason) in [
        (6, "the response was cut off at 6 of 10 bytes"),
        (11, "the response has more than the 10 bytes that it announced"),
    ] {
        let (_dir, mut download) = download(20, 0, Vec::new());
        let url = SafeUrl::parse("https://bucket.example/").unwrap();
        let response = response(200, &[(CONTENT_LENGTH, "10")], &vec![b'x'; bytes]);
        let result = block_on(async {
            match download.check_response(response, &SecretRedactor::default()).await? {
                DownloadResponse::Body(response) => download.receive_body(response, &url, &|_| Ok(())).await,
                DownloadResponse::Unchanged(known) => panic!("{known:?}"),
            }
        });
        let Err(error) = result else { panic!("a body of {bytes} bytes was accepted") };
        assert_eq!(error.to_string(), reason);
    }
}

#[test]
fn full_disk_stops_a_download_and_preserves_a_resumable_part() {
    let disk = Err(RequestErrorCause::Disk);
    let (_dir, mut download) = download(20, 5, Vec::new());
    let rest = || response(206, &[(CONTENT_RANGE, "bytes 5-9/10")], b"yyyyy");
    assert_eq!(receive(&mut download, rest(), false), (disk, 5, vec![(10, 5)]));
    assert_eq!(receive(&mut download, rest(), true), (Ok(10), 10, vec![(10, 5)]));
    let (dir, mut download) = self::download(20, 0, Vec::new());
    let complete = response(200, &[(CONTENT_LENGTH, "5"), (ETAG, "\"w\"")], b"yyyyy");
    assert_eq!(receive(&mut download, complete, false), (disk, 0, vec![(5, 5)]));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    // Free space for a bundle of unknown length is checked as it grows.
    let bytes = vec![b'x'; SPACE_CHECK_BYTES as usize];
    for (body, has_space, result, calls) in [
        (&bytes[1..], false, Ok(SPACE_CHECK_BYTES - 1), vec![]),
        (&bytes[..], true, Ok(SPACE_CHECK_BYTES), vec![(SPACE_CHECK_BYTES, 0)]),
        (&bytes[..], false, disk, vec![(SPACE_CHECK_BYTES, 0)]),
    ] {
        let (_dir, mut download) = self::download(u64::MAX, 0, Vec::new());
        assert_eq!(receive(&mut download, response(200, &[], body), has_space), (result, body.len() as u64, calls));
    }
}

#[test]
fn each_new_mebibyte_of_a_download_counts_as_progress() {
    let (_dir, mut download) = download(u64::MAX, 0, Vec::new());
    let bytes = vec![b'x'; PROGRESS_BYTES as usize];
    for (body, has_progressed) in [(&bytes[1..], false), (&bytes[..], true), (&bytes[..], false)] {
        receive(&mut download, response(200, &[], body), true).0.unwrap();
        assert_eq!(
            (download.has_received_another_mebibyte(), download.has_received_another_mebibyte()),
            (has_progressed, false),
            "{}",
            body.len()
        );
    }
    // Bytes that an earlier process has received are no progress.
    let (dir, mut earlier) = self::download(u64::MAX, 5, Vec::new());
    let directory = Directory::open(dir.path()).unwrap();
    earlier.known.push(known("\"a\"", 1));
    let Download { http, network, progress, known, .. } = earlier;
    let resumed = Download::new(http, network, progress, &directory, "source", 10, known);
    assert_eq!((resumed.received(), resumed.max_len, resumed.len_at_reset, resumed.known.len()), (5, 5, 5, 1));
    let other = resumed.http.clone();
    let other = Download::new(other, NetworkSettings::default(), Arc::default(), &directory, "other", 10, Vec::new());
    assert_eq!(other.received(), 0);
}
