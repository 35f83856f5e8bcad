//! The export operations of the management API, tested with the real program.

use std::fs::File;
use std::io::Write;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use serde_json::{Value, json};
use support::h2::Http2Client;
use support::http::{self, PersistentConnection, Response, request};
use support::{
    Daemon, ReservedPort, docwharf, run_docwharf, run_to_end, sample_text, temporary_folder, until,
    until_done_in_background, write_site,
};

const KEY: &str = "adm_s3cret-admin-key";
const DOMAIN: &str = "docs.example";
const JOBS_PATH: &str = "/v1/static-export/jobs";

/// A running origin with one site, and its folder.
struct OriginProcess {
    dir: tempfile::TempDir,
    daemon: Daemon,
}

impl OriginProcess {
    /// Starts an origin with a site of these files, and with further arguments.
    #[track_caller]
    fn with_files(files: &[(&str, &str)], arguments: &[&str]) -> OriginProcess {
        let dir = temporary_folder();
        write_site(&dir.path().join("site"), files);
        OriginProcess::in_folder(dir, arguments)
    }

    /// Starts an origin with the site `site` in this folder.
    #[track_caller]
    fn in_folder(dir: tempfile::TempDir, arguments: &[&str]) -> OriginProcess {
        let temporary = dir.path().join("tmp");
        std::fs::create_dir_all(&temporary).unwrap();
        let key = key_file(dir.path(), KEY);
        let log = File::create(dir.path().join("log")).unwrap();
        let site = format!("{DOMAIN}={}", dir.path().join("site").display());
        let mut command = docwharf();
        command.args(["origin", "-vv", "--listen", "127.0.0.1:0", "--site", &site, "--key-file"]).arg(key);
        let daemon = Daemon::start(command.args(arguments).env("TMPDIR", temporary).stderr(log));
        OriginProcess { dir, daemon }
    }

    fn site(&self) -> PathBuf {
        self.dir.path().join("site")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    /// Sends a request with the key, and with a body if there is one.
    #[track_caller]
    fn send_request(&self, method: &str, target: &str, body: Option<&str>) -> Response {
        let mut fields = vec![format!("Authorization: Bearer {KEY}")];
        fields.extend(body.map(|body| format!("Content-Length: {}", body.len())));
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\n{}\r\n\r\n{}",
            self.daemon.address,
            fields.join("\r\n"),
            body.unwrap_or_default()
        );
        http::exchange(http::connect(&self.daemon.address), head.as_bytes(), method == "HEAD")
    }

    #[track_caller]
    fn start_job(&self) -> String {
        let response = self.send_request("POST", JOBS_PATH, Some(&json!({ "domain": DOMAIN }).to_string()));
        assert_eq!(response.status, 202, "{}", response.text());
        json_body(&response)["jobId"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    fn job(&self, id: &str) -> Value {
        let response = self.send_request("GET", &format!("{JOBS_PATH}/{id}"), None);
        assert_eq!(response.status, 200, "{}", response.text());
        json_body(&response)
    }

    /// Waits for the end of a job, and returns the job.
    #[track_caller]
    fn wait_for_job(&self, id: &str) -> Value {
        let mut job = Value::Null;
        until_done_in_background("the job ends", || {
            job = self.job(id);
            job["status"] == "completed" || job["status"] == "failed"
        });
        job
    }

    /// Waits for the completion of a job, and returns the target of a new link to its bundle.
    #[track_caller]
    fn link(&self, id: &str) -> String {
        let job = self.wait_for_job(id);
        assert_eq!(job["status"], "completed", "{job}");
        let response = self.send_request("POST", &format!("{JOBS_PATH}/{id}/bundle"), None);
        assert_eq!(response.status, 200, "{}", response.text());
        let url = json_body(&response)["bundleUrl"].as_str().unwrap().to_owned();
        url.strip_prefix(&format!("http://{}", self.daemon.address)).expect("a link to this origin").to_owned()
    }

    /// Downloads the bundle of a new job.
    #[track_caller]
    fn bundle(&self) -> Response {
        let response = self.get(&self.link(&self.start_job()), &[]);
        assert_eq!(response.status, 200);
        response
    }

    /// Sends a GET without the key.
    #[track_caller]
    fn get(&self, target: &str, fields: &[&str]) -> Response {
        request(&self.daemon.address, "GET", target, fields)
    }
}

fn key_file(dir: &Path, key: &str) -> PathBuf {
    let path = dir.join("key");
    std::fs::write(&path, format!("{key}\n")).unwrap();
    path
}

#[track_caller]
fn json_body(response: &Response) -> Value {
    assert_eq!(response.header("content-type"), Some("application/json"), "{response:?}");
    serde_json::from_slice(&response.body).unwrap_or_else(|e| panic!("not JSON ({e}): {}", response.text()))
}

#[track_caller]
fn error_message(response: &Response) -> String {
    json_body(response)["error"].as_str().expect("an error has a text").to_owned()
}

fn small_site() -> Vec<(&'static str, &'static str)> {
    vec![("index.html", "<p>home"), ("guides/start.html", "<p>start"), ("404.html", "<p>no"), ("a.css", "a{}")]
}

/// Writes a site that takes a while to pack.
fn write_large_site(dir: &Path) {
    let text = sample_text(4 << 20);
    for n in 0..10 {
        write_site(&dir.join("site"), &[(&format!("p{n}.html"), &text)]);
    }
    write_site(&dir.join("site"), &[("index.html", "<p>home")]);
}

// ---------------------------------------------------------------------------------------------------------------------
// The four steps

#[test]
fn export_job_is_started_polled_linked_and_downloaded() {
    let origin = OriginProcess::with_files(&small_site(), &[]);
    let response =
        origin.send_request("POST", JOBS_PATH, Some(r#"{"domain":"Docs.Example","version":"1.4","extra":[1]}"#));
    assert_eq!(response.status, 202);
    let job = json_body(&response);
    let id = job["jobId"].as_str().unwrap();
    assert!(id.len() == 19 && id.starts_with("se_") && id[3..].bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
    for (field, expected) in [("domain", json!(DOMAIN)), ("version", json!("1.4")), ("error", Value::Null)] {
        assert_eq!(job[field], expected, "{job}");
    }
    assert!(job["status"].is_string() && job["progress"].is_number() && job["pageCount"].is_number(), "{job}");
    let job = origin.wait_for_job(id);
    for (field, expected) in [("status", json!("completed")), ("progress", json!(100)), ("pageCount", json!(3))] {
        assert_eq!(job[field], expected, "{job}");
    }
    for field in ["createdAt", "updatedAt"] {
        assert!(job[field].as_str().is_some_and(|time| time.parse::<jiff::Timestamp>().is_ok()), "{job}");
    }
    let response = origin.send_request("POST", &format!("{JOBS_PATH}/{id}/bundle"), None);
    assert_eq!(response.status, 200);
    let link = json_body(&response);
    assert_eq!(link["jobId"], id);
    let expires: jiff::Timestamp = link["expiresAt"].as_str().unwrap().parse().unwrap();
    let minutes = expires.duration_since(jiff::Timestamp::now()).as_mins();
    assert!((14..=15).contains(&minutes), "{link}");
    let url = link["bundleUrl"].as_str().unwrap();
    let path = format!("http://{}/bundles/{id}/bundle.tar.gz?expires=", origin.daemon.address);
    assert!(url.starts_with(&path), "{url}");
    assert!(url.contains(&format!("expires={}&", expires.as_second())), "{link}");
    let bundle = origin.get(url.strip_prefix(&format!("http://{}", origin.daemon.address)).unwrap(), &[]);
    assert_eq!(link["sizeBytes"], bundle.body.len());
    // The downloaded bundle has the content of the site.
    let file = origin.dir.path().join("downloaded");
    std::fs::write(&file, &bundle.body).unwrap();
    let version = |path: &Path| {
        let verified = run_to_end(docwharf().args(["bundle", "verify", "--json"]).arg(path)).expect(0).json();
        verified["version"].clone()
    };
    assert_eq!(version(&file), version(&origin.site()));
}

#[test]
fn job_progress_and_page_count_are_updated_and_never_decrease() {
    let dir = temporary_folder();
    write_large_site(dir.path());
    let origin = OriginProcess::in_folder(dir, &[]);
    let id = origin.start_job();
    let (mut last, mut has_partial_progress, mut statuses) = ((0, 0), false, Vec::new());
    until_done_in_background("the job ends", || {
        let job = origin.job(&id);
        let current = (job["progress"].as_u64().unwrap(), job["pageCount"].as_u64().unwrap());
        assert!(current.0 >= last.0 && current.1 >= last.1, "{last:?}, then {job}");
        has_partial_progress |= (1..100).contains(&current.0);
        last = current;
        statuses.push(job["status"].as_str().unwrap().to_owned());
        statuses.dedup();
        job["status"] == "completed"
    });
    assert_eq!(last, (100, 11));
    assert!(has_partial_progress, "progress was never between 0 and 100");
    assert!(["queued", "running", "completed"].join(" ").ends_with(&statuses.join(" ")), "{statuses:?}");
}

#[test]
fn link_request_for_an_uncompleted_job_returns_409() {
    let dir = temporary_folder();
    write_large_site(dir.path());
    let origin = OriginProcess::in_folder(dir, &[]);
    let [first, second, queued] = [(); 3].map(|()| origin.start_job());
    // Each of the two workers takes longer for its job than the requests take, so the third job cannot have started.
    for id in [&first, &second, &queued] {
        let response = origin.send_request("POST", &format!("{JOBS_PATH}/{id}/bundle"), None);
        assert_eq!(response.status, 409);
        assert!(error_message(&response).contains("completed"), "{}", response.text());
    }
    assert_eq!(origin.job(&queued)["status"], "queued");
}

#[test]
fn export_job_of_an_invalid_site_fails_with_its_reason_and_the_next_job_runs() {
    let origin = OriginProcess::with_files(&[("a.css", "a{}")], &[]);
    let failed = origin.start_job();
    let job = origin.wait_for_job(&failed);
    assert_eq!(job["status"], "failed");
    assert!(job["error"].as_str().unwrap().contains("page"), "{job}");
    let response = origin.send_request("POST", &format!("{JOBS_PATH}/{failed}/bundle"), None);
    assert_eq!(response.status, 409);
    assert!(error_message(&response).contains("failed"), "{}", response.text());
    write_site(&origin.site(), &small_site());
    assert_eq!(origin.bundle().status, 200);
    std::fs::remove_dir_all(origin.site()).unwrap();
    let job = origin.wait_for_job(&origin.start_job());
    assert!(job["status"] == "failed" && job["error"].as_str().unwrap().contains("cannot read"), "{job}");
}

#[test]
fn export_of_a_constantly_changing_site_fails_and_succeeds_once_it_is_stable() {
    let dir = temporary_folder();
    write_large_site(dir.path());
    let origin = OriginProcess::in_folder(dir, &[]);
    let id = origin.start_job();
    let mut page = File::options().append(true).open(origin.site().join("p0.html")).unwrap();
    let mut job = Value::Null;
    until_done_in_background("the job fails", || {
        page.write_all(b"<p>more").unwrap();
        job = origin.job(&id);
        job["status"] == "failed"
    });
    assert!(job["error"].as_str().unwrap().contains("changed during each attempt"), "{job}");
    assert_eq!(origin.wait_for_job(&origin.start_job())["status"], "completed");
}

#[test]
fn too_many_queued_jobs_return_429_with_retry_after() {
    let dir = temporary_folder();
    write_large_site(dir.path());
    let origin = OriginProcess::in_folder(dir, &[]);
    let body = json!({ "domain": DOMAIN }).to_string();
    let mut jobs = Vec::new();
    for _ in 0..1_000 {
        let response = origin.send_request("POST", JOBS_PATH, Some(&body));
        if response.status != 429 {
            assert_eq!(response.status, 202);
            jobs.push(json_body(&response)["jobId"].as_str().unwrap().to_owned());
            continue;
        }
        assert!(response.header("retry-after").is_some_and(|s| s.parse::<u32>().is_ok()));
        error_message(&response);
        assert!(jobs.len() >= 64, "only {} jobs were accepted", jobs.len());
        // Some have ended meanwhile, more of them on a machine on which this client gets little time. Those that had
        // ended long before are no longer known.
        let ended = |id: &String| {
            let job = origin.send_request("GET", &format!("{JOBS_PATH}/{id}"), None);
            job.status == 404 || ["completed", "failed"].iter().any(|status| json_body(&job)["status"] == *status)
        };
        let waiting = jobs.iter().filter(|id| !ended(id)).count();
        assert!(waiting <= 66, "{waiting} jobs wait or run");
        return;
    }
    panic!("a thousand jobs were accepted");
}

// Regression: an origin reported a job as ended a moment before it removed the old jobs; the test meets that moment
// only by chance.
#[test]
fn old_jobs_are_removed_with_their_bundles() {
    let origin = OriginProcess::with_files(&small_site(), &[]);
    let first = origin.start_job();
    let link = origin.link(&first);
    for _ in 0..32 {
        origin.wait_for_job(&origin.start_job());
    }
    assert_eq!(origin.send_request("GET", &format!("{JOBS_PATH}/{first}"), None).status, 404);
    let response = origin.get(&link, &[]);
    assert_eq!(response.status, 404);
    assert!(response.text().contains("<Code>NoSuchKey</Code>"), "{}", response.text());
}

// ---------------------------------------------------------------------------------------------------------------------
// Authentication and invalid requests

#[test]
fn every_v1_route_returns_401_without_a_valid_key() {
    let origin = OriginProcess::with_files(&small_site(), &[]);
    let id = origin.start_job();
    let wrong = ["", "Authorization: Bearer", "Authorization: Bearer wrong", &format!("Authorization: Basic {KEY}")]
        .map(str::to_owned);
    for field in wrong.into_iter().chain([
        format!("Authorization: Bearer {KEY}x"),
        format!("Authorization: Bearer {}", &KEY[1..]),
        format!("Authorization: Bearer {KEY}\r\nAuthorization: Bearer {KEY}"),
    ]) {
        for (method, target) in [
            ("POST", JOBS_PATH.to_owned()),
            ("GET", format!("{JOBS_PATH}/{id}")),
            ("HEAD", format!("{JOBS_PATH}/{id}")),
            ("POST", format!("{JOBS_PATH}/{id}/bundle")),
            ("DELETE", JOBS_PATH.to_owned()),
            ("GET", format!("{JOBS_PATH}/se_0000000000000000")),
            ("GET", "/v1".to_owned()),
            ("GET", "/v1/nothing".to_owned()),
        ] {
            let fields: Vec<&str> = if field.is_empty() { vec![] } else { vec![&field] };
            let response = request(&origin.daemon.address, method, &target, &fields);
            assert_eq!(response.status, 401, "{method} {target} with {field:?}");
            assert_eq!(response.header("www-authenticate"), Some("Bearer"));
            assert_eq!(response.header("connection"), Some("close"), "a body that is still being sent is not read");
            if method != "HEAD" {
                error_message(&response);
            }
        }
    }
}

#[test]
fn key_file_can_be_replaced_or_removed_while_the_origin_runs() {
    let origin = OriginProcess::with_files(&small_site(), &[]);
    let status =
        |key: &str| request(&origin.daemon.address, "GET", "/v1/x", &[&format!("Authorization: Bearer {key}")]).status;
    assert_eq!((status(KEY), status("adm_other")), (404, 401));
    key_file(origin.dir.path(), "adm_other");
    assert_eq!((status(KEY), status("adm_other")), (401, 404));
    std::fs::write(origin.dir.path().join("key"), "").unwrap();
    assert_eq!((status(KEY), status("adm_other"), status("")), (503, 503, 503));
    std::fs::remove_file(origin.dir.path().join("key")).unwrap();
    assert_eq!(status("adm_other"), 503);
    key_file(origin.dir.path(), KEY);
    assert_eq!((status(KEY), status("adm_other")), (404, 401));
}

#[test]
fn invalid_api_requests_return_an_error_status_and_message() {
    let origin = OriginProcess::with_files(&small_site(), &[]);
    let huge = format!("{{\"domain\":\"{DOMAIN}\",\"x\":\"{}\"}}", "x".repeat(64 * 1024));
    let object = r#"{"domain":"other.example"}"#;
    let exact = format!("{object}{}", " ".repeat(64 * 1024 - object.len()));
    let longer = format!("{exact} ");
    for (body, status, message) in [
        ("", 400, "JSON object"),
        ("[1]", 400, "JSON object"),
        ("{\"domain\":", 400, "JSON object"),
        ("{}", 400, "domain is missing"),
        (r#"{"domain":""}"#, 400, "bad domain"),
        (r#"{"domain":"https://docs.example"}"#, 400, "scheme"),
        (r#"{"domain":"docs.example/"}"#, 400, "slash"),
        (r#"{"domain":"other.example"}"#, 400, "other.example is not served here"),
        (r#"{"domain":"docs.example","paths":["guides"]}"#, 400, "begins with /"),
        (r#"{"domain":"docs.example","version":""}"#, 400, "version"),
        (&exact, 400, "other.example is not served here"),
        (&longer, 413, "65536 bytes"),
        (&huge, 413, "65536 bytes"),
    ] {
        let response = origin.send_request("POST", JOBS_PATH, Some(body));
        assert_eq!(response.status, status, "{}", response.text());
        assert!(error_message(&response).contains(message), "{}", response.text());
    }
    for (method, target, status, allow) in [
        ("GET", JOBS_PATH, 405, Some("POST")),
        ("PUT", JOBS_PATH, 405, Some("POST")),
        ("POST", "/v1/static-export/jobs/se_0", 405, Some("GET, HEAD")),
        ("GET", "/v1/static-export/jobs/se_0/bundle", 405, Some("POST")),
        ("POST", "/sites/docs.example/sitemap.xml", 405, Some("GET, HEAD")),
        ("DELETE", "/bundles/se_0/bundle.tar.gz", 405, Some("GET, HEAD")),
        ("GET", "/v1/static-export/jobs/se_0", 404, None),
        ("GET", "/v1/static-export/jobs/%2e%2e%2fx%ff", 404, None),
        ("POST", "/v1/static-export/jobs/se_0/bundle", 404, None),
        ("GET", "/v1/static-export", 404, None),
        ("GET", "/v1/static-export/jobs/se_0/", 404, None),
        ("GET", "/", 404, None),
        ("OPTIONS", "*", 404, None),
    ] {
        let response = origin.send_request(method, target, None);
        assert_eq!((response.status, response.header("allow")), (status, allow), "{method} {target}");
        error_message(&response);
    }
    let chunked = format!(
        "POST {JOBS_PATH} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {KEY}\r\n\
         Transfer-Encoding: chunked\r\n\r\n19\r\n{{\"domain\":\"docs.example\"}}\r\n0\r\n\r\n"
    );
    assert_eq!(http::parse(&http::send_bytes(&origin.daemon.address, chunked.as_bytes()), false).status, 202);
}

#[test]
fn percent_encoded_job_id_is_decoded() {
    let origin = OriginProcess::with_files(&small_site(), &[]);
    let id = origin.start_job();
    let encoded_id = id.replace('_', "%5f");
    assert_eq!(origin.job(&encoded_id)["jobId"], id.as_str());
}

// ---------------------------------------------------------------------------------------------------------------------
// Links

#[test]
fn signed_link_works_without_a_bearer_key_and_returns_403_after_it_expires() {
    let origin = OriginProcess::with_files(&small_site(), &["--link-lifetime", "3s"]);
    let id = origin.start_job();
    let link = origin.link(&id);
    let response = origin.get(&link, &[]);
    assert_eq!((response.status, response.header("content-type")), (200, Some("application/gzip")));
    let response_to_both = origin.send_request("GET", &link, None);
    assert_eq!(response_to_both.status, 400);
    assert!(response_to_both.text().contains("<Code>InvalidArgument</Code>"), "{}", response_to_both.text());
    let mut expired = None;
    until("the link expires", || {
        let response = origin.get(&link, &[]);
        expired = (response.status != 200).then_some(response);
        expired.is_some()
    });
    let expired = expired.unwrap();
    assert_eq!((expired.status, expired.header("content-type")), (403, Some("application/xml")));
    assert_eq!(expired.header("cache-control"), Some("no-store"));
    assert_eq!(
        expired.text(),
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>AccessDenied</Code>\
         <Message>Request has expired</Message></Error>"
    );
    // The job still works.
    assert_eq!(origin.get(&origin.link(&id), &[]).status, 200);
}

#[test]
fn an_altered_link_is_refused() {
    let origin = OriginProcess::with_files(&small_site(), &[]);
    let (id, other) = (origin.start_job(), origin.start_job());
    let link = origin.link(&id);
    origin.wait_for_job(&other);
    let (path, query) = link.split_once('?').unwrap();
    let other_digit = if link.ends_with('0') { "1" } else { "0" };
    for altered in [
        link.replace(&id, &other),
        link.replace("expires=1", "expires=2"),
        format!("{}{other_digit}", &link[..link.len() - 1]),
        format!("{link}&x=1"),
        format!("{path}?{}", query.split('&').next().unwrap()),
    ] {
        let response = origin.get(&altered, &[]);
        assert_eq!(response.status, 403, "{altered}");
        assert!(response.text().contains("<Code>SignatureDoesNotMatch</Code>"), "{}", response.text());
    }
    let response = origin.get(path, &[]);
    assert_eq!(response.status, 403);
    assert!(response.text().contains("<Code>AccessDenied</Code>"), "{}", response.text());
    // Every process with a temporary state creates new secrets.
    let second = OriginProcess::with_files(&small_site(), &[]);
    assert!(second.get(&link, &[]).text().contains("SignatureDoesNotMatch"));
    let name = link.replace("bundle.tar.gz", "bundle.zip");
    assert_eq!(origin.get(&name, &[]).status, 404);
}

#[test]
fn signed_links_begin_with_the_configured_public_url() {
    let origin = OriginProcess::with_files(&small_site(), &["--public-url", "https://exports.example/docs/"]);
    let id = origin.start_job();
    origin.wait_for_job(&id);
    let link = json_body(&origin.send_request("POST", &format!("{JOBS_PATH}/{id}/bundle"), Some("{}")));
    let expected_start = format!("https://exports.example/docs/bundles/{id}/bundle.tar.gz?");
    assert!(link["bundleUrl"].as_str().unwrap().starts_with(&expected_start), "{link}");
}

#[test]
fn bundle_download_supports_range_and_conditional_requests() {
    let origin = OriginProcess::with_files(&[("index.html", &sample_text(600_000))], &[]);
    let link = origin.link(&origin.start_job());
    let full_response = origin.get(&link, &[]);
    let (tag, date) = (full_response.header("etag").unwrap(), full_response.header("last-modified").unwrap());
    let (bytes, len) = (&full_response.body, full_response.body.len());
    assert_eq!((full_response.header("accept-ranges"), tag.len()), (Some("bytes"), 34));
    let head = request(&origin.daemon.address, "HEAD", &link, &[]);
    assert_eq!((head.status, head.body.len()), (200, 0));
    for field in ["etag", "last-modified", "content-length", "content-type", "accept-ranges"] {
        assert_eq!(head.header(field), full_response.header(field), "{field}");
    }
    for (range, start, end) in
        [("0-9".to_owned(), 0, 10), ("100-".to_owned(), 100, len), ("-7".to_owned(), len - 7, len)]
    {
        for condition in [None, Some(format!("If-Range: {tag}")), Some(format!("If-Range: {date}"))] {
            let fields = [format!("Range: bytes={range}"), condition.unwrap_or_else(|| "X-Y: z".to_owned())];
            let part = origin.get(&link, &fields.each_ref().map(String::as_str));
            assert_eq!((part.status, part.header("etag")), (206, Some(tag)), "{fields:?}");
            assert_eq!(part.header("content-range"), Some(&*format!("bytes {start}-{}/{len}", end - 1)));
            assert_eq!(part.body, bytes[start..end], "{range}");
        }
    }
    let beyond = origin.get(&link, &[&format!("Range: bytes={len}-")]);
    assert_eq!((beyond.status, beyond.header("content-range")), (416, Some(&*format!("bytes */{len}"))));
    for fields in [
        &["Range: bytes=0-1,5-6"][..],
        &["Range: bytes=0-9", "If-Range: \"another\""],
        &["Range: bytes=0-9", &format!("If-Range: W/{tag}")],
        &["Range: lines=0-9"],
        &["If-None-Match: \"another\""],
    ] {
        let response = origin.get(&link, fields);
        assert_eq!((response.status, &response.body), (200, bytes), "{fields:?}");
    }
    for condition in
        [format!("If-None-Match: {tag}"), format!("If-None-Match: \"x\", {tag}"), "If-None-Match: *".to_owned()]
    {
        let response = origin.get(&link, &[&condition]);
        assert_eq!((response.status, response.body.len(), response.header("etag")), (304, 0, Some(tag)), "{condition}");
    }
    for (condition, status, sent) in [
        (&*format!("If-Modified-Since: {date}"), 304, 0),
        ("If-Modified-Since: Thu, 01 Jan 2015 00:00:00 GMT", 200, len),
        (&format!("If-Unmodified-Since: {date}"), 200, len),
        ("If-Unmodified-Since: Thu, 01 Jan 2015 00:00:00 GMT", 412, 0),
        ("If-Match: \"another\"", 412, 0),
        (&format!("If-Match: {tag}"), 200, len),
        ("Range: bytes=0-9", 206, 10),
        (&format!("Range: bytes={len}-"), 416, 0),
    ] {
        let response = origin.get(&link, &[condition]);
        assert_eq!((response.status, response.body.len()), (status, sent), "{condition}");
        assert_eq!(response.header("etag"), Some(tag), "{condition}");
        // The link expires, and a copy in a shared cache would not.
        let fields = ["cache-control", "x-content-type-options"].map(|name| response.header(name));
        assert_eq!(fields, [Some("private, no-cache"), Some("nosniff")], "{condition}");
    }
    // HTTP/2 has the same responses.
    let mut client = Http2Client::open(&origin.daemon.address);
    for (method, range, status, sent) in
        [("GET", "bytes=0-", 206, &bytes[..]), ("GET", "bytes=100-299", 206, &bytes[100..300]), ("HEAD", "x", 200, b"")]
    {
        let stream = client.request(method, &link, &[("range", range)]);
        let response = client.response(stream);
        assert!((response.status, &response.body[..]) == (status, sent), "{method} {range}: {}", response.status);
        assert_eq!((response.header("etag"), response.header("accept-ranges")), (Some(tag), Some("bytes")));
    }
}

#[test]
fn bundle_and_etag_change_only_with_the_content_of_the_folder() {
    let origin = OriginProcess::with_files(&small_site(), &[]);
    let (first, second) = (origin.bundle(), origin.bundle());
    assert_eq!((first.header("etag"), &first.body), (second.header("etag"), &second.body));
    let elsewhere = OriginProcess::with_files(&small_site(), &[]);
    assert_eq!(elsewhere.bundle().header("etag"), first.header("etag"));
    write_site(&origin.site(), &[("new.html", "<p>new")]);
    let third = origin.bundle();
    assert_ne!(third.header("etag"), first.header("etag"));
    assert_ne!(third.body, first.body);
}

#[test]
fn archive_source_is_served_unchanged_and_an_invalid_one_fails_the_job() {
    let dir = temporary_folder();
    let built = write_site(&dir.path().join("built"), &small_site());
    let zip = dir.path().join("b.zip");
    run_to_end(docwharf().args(["bundle", "pack"]).arg(&built).arg(&zip)).expect(0);
    let bytes = std::fs::read(&zip).unwrap();
    std::fs::rename(&zip, dir.path().join("site")).unwrap();
    let origin = OriginProcess::in_folder(dir, &[]);
    let id = origin.start_job();
    let link = origin.link(&id);
    assert_eq!(origin.job(&id)["pageCount"], 3);
    assert!(link.contains("/bundle.zip?"), "{link}");
    // Some pages of an archive are unpacked and packed again.
    let body = json!({ "domain": DOMAIN, "paths": ["/guides/start"] }).to_string();
    let part = json_body(&origin.send_request("POST", JOBS_PATH, Some(&body)));
    let part = origin.wait_for_job(part["jobId"].as_str().unwrap());
    assert_eq!((&part["status"], &part["pageCount"]), (&json!("completed"), &json!(2)), "the page and the 404 page");
    // The verified copy is served, even if the original changes.
    std::fs::write(origin.site(), "<html>not an archive").unwrap();
    let response = origin.get(&link, &[]);
    assert_eq!(response.header("content-type"), Some("application/zip"));
    assert_eq!(response.body, bytes);
    let job = origin.wait_for_job(&origin.start_job());
    assert_eq!(job["status"], "failed");
    let (reason, site) = (job["error"].as_str().unwrap(), origin.site());
    assert!(reason.contains(site.to_str().unwrap()) && reason.contains("HTML"), "{job}");
}

// ---------------------------------------------------------------------------------------------------------------------
// The sitemap

#[test]
fn sitemap_and_its_etag_change_with_any_file_of_the_site() {
    let origin = OriginProcess::with_files(&small_site(), &[]);
    let target = "/sites/Docs.Example/sitemap.xml";
    let mut last = origin.get(target, &[]);
    assert_eq!((last.status, last.header("content-type")), (200, Some("application/xml")));
    for address in ["", "guides/start"] {
        let line = format!("<url><loc>https://docs.example/{address}</loc><lastmod>20");
        assert!(last.text().contains(&line), "{}", last.text());
    }
    assert_eq!(last.text().matches("<loc>").count(), 2, "{}", last.text());
    let change = |n: usize| match n {
        0 => std::fs::write(origin.site().join("a.css"), "a{color:red}").unwrap(),
        1 => std::fs::write(origin.site().join("picture.png"), "").unwrap(),
        2 => std::fs::remove_file(origin.site().join("a.css")).unwrap(),
        3 => File::options()
            .append(true)
            .open(origin.site().join("index.html"))
            .and_then(|file| file.set_modified(std::time::UNIX_EPOCH + Duration::new(1_700_000_000, 7)))
            .unwrap(),
        _ => std::fs::rename(origin.site().join("guides"), origin.site().join("guide")).unwrap(),
    };
    for n in 0..5 {
        let tag = format!("If-None-Match: {}", last.header("etag").unwrap());
        let unchanged = origin.get(target, &[&tag]);
        assert_eq!((unchanged.status, unchanged.body.len(), unchanged.header("etag")), (304, 0, last.header("etag")));
        for response in [&last, &unchanged] {
            assert_eq!(response.header("cache-control"), Some("no-cache"), "a probe has to ask each time");
        }
        change(n);
        let next = origin.get(target, &[&tag, "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT"]);
        assert_eq!(next.status, 200, "change {n}");
        assert_ne!(next.body, last.body, "change {n}");
        last = next;
    }
    assert!(last.text().contains("<lastmod>2023-11-14T22:13:20.000000007Z</lastmod>"), "{}", last.text());
    // A deletion leaves no date, so only conditions on entity tags apply.
    for date in
        ["If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT", "If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT"]
    {
        assert_eq!(origin.get(target, &[date]).status, 200, "{date}");
    }
    let failed = origin.get(target, &["If-Match: \"another\""]);
    assert_eq!((failed.status, failed.header("etag")), (412, last.header("etag")));
    assert!(error_message(&failed).contains("If-Match"), "{}", failed.text());
    let head = request(&origin.daemon.address, "HEAD", target, &[]);
    assert_eq!((head.header("etag"), head.body.len()), (last.header("etag"), 0));
    for unknown in ["/sites/other.example/sitemap.xml", "/sites/%2e%2e/sitemap.xml", "/sites/docs.example/robots.txt"] {
        let response = origin.get(unknown, &[]);
        assert_eq!(response.status, 404, "{unknown}");
        error_message(&response);
    }
    std::fs::remove_dir_all(origin.site()).unwrap();
    let response = origin.get(target, &[]);
    assert_eq!(response.status, 503);
    assert!(!error_message(&response).contains(origin.dir.path().to_str().unwrap()), "{}", response.text());
}

/// Counts how often a folder is opened.
struct FolderWatch(std::os::fd::OwnedFd);

impl FolderWatch {
    fn new(folder: &Path) -> FolderWatch {
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&watch, folder, WatchFlags::OPEN | WatchFlags::ONLYDIR).unwrap();
        FolderWatch(watch)
    }

    /// Returns how often the folder itself was opened since the last call.
    fn count(&self) -> usize {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.0, &mut buffer);
        let mut count = 0;
        while let Ok(event) = events.next() {
            assert!(!event.events().contains(ReadFlags::QUEUE_OVERFLOW), "too many events to count");
            // An event of a file in the folder has its name.
            count += usize::from(event.file_name().is_none() && event.events().contains(ReadFlags::OPEN));
        }
        count
    }
}

// Regression: clients with many connections and no key kept agents from reading sitemaps.
#[test]
fn concurrent_sitemap_requests_share_few_folder_listings_and_all_succeed() {
    const REQUESTS: usize = 100;
    let dir = temporary_folder();
    let site = dir.path().join("site");
    write_site(&site, &small_site());
    // Listing so many files takes longer than reading the requests.
    for n in 0..20_000 {
        std::fs::write(site.join(format!("{n}.txt")), "").unwrap();
    }
    let origin = OriginProcess::in_folder(dir, &[]);
    let watch = FolderWatch::new(&origin.site());
    let target = format!("/sites/{DOMAIN}/sitemap.xml");
    let one = origin.get(&target, &[]);
    let opened_each_time = watch.count();
    assert!(one.status == 200 && opened_each_time > 0, "{opened_each_time}: {}", one.text());
    // The requests wait in the kernel, so that the origin reads all of them at once.
    origin.daemon.signal("STOP");
    let mut connections: Vec<PersistentConnection> = (0..REQUESTS)
        .map(|_| {
            let mut connection = PersistentConnection::open(&origin.daemon.address);
            connection.send(format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n"));
            connection
        })
        .collect();
    origin.daemon.signal("CONT");
    for connection in &mut connections {
        let response = connection.response(false);
        assert_eq!((response.status, response.body.len()), (200, one.body.len()), "{}", response.text());
    }
    // One for the first request, and one for those that arrived meanwhile. More are for requests that a busy machine reads
    // late; without a shared result there are as many as requests.
    let listings = watch.count() / opened_each_time;
    assert!((1..10).contains(&listings), "{listings} listings for {REQUESTS} requests");
}

// ---------------------------------------------------------------------------------------------------------------------
// The process

#[test]
fn log_contains_no_key_or_link_and_a_stop_leaves_no_temporary_files() {
    let mut origin = OriginProcess::with_files(&small_site(), &[]);
    let link = origin.link(&origin.start_job());
    origin.get(&link, &[]);
    origin.get("/v1/x", &[&format!("Authorization: Bearer {KEY}x")]);
    let signature = link.split("signature=").nth(1).unwrap().to_owned();
    let temporary = origin.dir.path().join("tmp");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 1);
    origin.daemon.signal("TERM");
    assert_eq!(origin.daemon.wait(Duration::from_secs(20)), Some(0));
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
    let log = origin.log();
    assert!(log.contains("making the bundle of docs.example") && log.contains("completed, 3 pages"), "{log}");
    for secret in [KEY, &signature, "signature="] {
        assert!(!log.contains(secret), "{log}");
    }
}

#[test]
fn sigterm_cancels_the_running_job_and_removes_its_files() {
    let dir = temporary_folder();
    write_large_site(dir.path());
    let mut origin = OriginProcess::in_folder(dir, &[]);
    let id = origin.start_job();
    until_done_in_background("the bundle is being written", || origin.job(&id)["progress"].as_u64() > Some(25));
    origin.daemon.signal("TERM");
    assert_eq!(origin.daemon.wait(Duration::from_secs(20)), Some(0));
    assert_eq!(std::fs::read_dir(origin.dir.path().join("tmp")).unwrap().count(), 0, "{}", origin.log());
}

#[test]
fn running_download_is_completed_after_sigint() {
    // Larger than the buffers of sockets, so that the download is running when the origin is stopped.
    let dir = temporary_folder();
    let mut noise = Vec::with_capacity(24 << 20);
    let mut state = 1u64;
    while noise.len() < 24 << 20 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        noise.extend_from_slice(&(state >> 8).to_le_bytes()[..6]);
    }
    write_site(&dir.path().join("site"), &[("index.html", "<p>home")]);
    std::fs::write(dir.path().join("site/noise.bin"), noise).unwrap();
    let mut origin = OriginProcess::in_folder(dir, &[]);
    let link = origin.link(&origin.start_job());
    let mut connection = http::PersistentConnection::open(&origin.daemon.address);
    connection.send(format!("GET {link} HTTP/1.1\r\nHost: x\r\n\r\n"));
    let mut first = [0; 1];
    connection.stream.peek(&mut first).unwrap();
    origin.daemon.signal("INT");
    until("new connections are refused", || std::net::TcpStream::connect(&origin.daemon.address).is_err());
    assert!(connection.response(false).body.len() > 20 << 20);
    assert_eq!(origin.daemon.wait(Duration::from_secs(20)), Some(0));
}

#[test]
fn origin_server_can_be_embedded_in_another_program() {
    use docwharf::origin::source::ProjectSource;
    use docwharf::origin::{Domain, Organization, OriginProject, OriginServer, OriginSettings, serve};
    let dir = temporary_folder();
    let project = OriginProject {
        id: "docs".to_owned(),
        domain: Domain::parse(DOMAIN).unwrap(),
        source: ProjectSource::FolderOrArchive(write_site(&dir.path().join("site"), &small_site())),
        allows_exports: true,
        allows_previews: false,
    };
    let limits = docwharf::model::limits::BundleLimits::default();
    let settings = OriginSettings {
        organizations: vec![Organization { id: "acme".to_owned(), projects: vec![project] }],
        key_file: Some(("acme".to_owned(), key_file(dir.path(), KEY))),
        ..OriginSettings::new(docwharf::seal::SealOptions::new(limits))
    };
    let origin = OriginServer::new(settings).unwrap();
    assert!(!format!("{origin:?}").contains(KEY));
    // The reservation keeps other processes from getting the port after the stop.
    let port = ReservedPort::new();
    let listener = docwharf::serve::listener::bind(port.address.parse().unwrap()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let served = runtime.spawn(serve(origin, vec![listener], stopped));
    assert_eq!(http::get(&port.address, "/sites/docs.example/sitemap.xml").status, 200);
    stop.send_replace(true);
    runtime.block_on(served).unwrap().unwrap();
    assert!(std::net::TcpStream::connect(&port.address).is_err());
}

#[test]
fn invalid_origin_options_are_one_line_and_exit_2() {
    let dir = temporary_folder();
    write_site(&dir.path().join("site"), &small_site());
    let key = key_file(dir.path(), KEY);
    let (key, site) = (key.to_str().unwrap(), format!("{DOMAIN}={}", dir.path().join("site").display()));
    let (missing, empty, two_lines) = (dir.path().join("none"), dir.path().join("empty"), dir.path().join("two"));
    std::fs::write(&empty, " \n").unwrap();
    std::fs::write(&two_lines, "adm_s3cret-one\nadm_s3cret-two\n").unwrap();
    for (arguments, message) in [
        (&["--key-file", key][..], "--site"),
        (&["--site", &site], "--key-file"),
        (&["--site", &site, "--key-file", missing.to_str().unwrap()], "API key"),
        (&["--site", &site, "--key-file", empty.to_str().unwrap()], "is empty"),
        (&["--site", &site, "--key-file", two_lines.to_str().unwrap()], "control characters"),
        (&["--site", "docs.example=/no/such/site", "--key-file", key], "/no/such/site"),
        (&["--site", "docs.example", "--key-file", key], "docs.example.com=path"),
        (&["--site", "https://docs.example=.", "--key-file", key], "scheme"),
        (&["--site", &site, "--site", &site, "--key-file", key], "twice"),
        (&["--site", &site, "--key-file", key, "--link-lifetime", "8d"], "7d"),
        (&["--site", &site, "--key-file", key, "--link-lifetime", "1"], "duration"),
        (&["--site", &site, "--key-file", key, "--public-url", "docs.example"], "scheme"),
        (&["--site", &site, "--key-file", key, "--listen", "nowhere"], "address"),
    ] {
        let ended = run_docwharf(["origin"].iter().chain(arguments)).expect(2);
        assert_eq!((ended.stderr.lines().count(), ended.stdout.as_str()), (1, ""), "{}", ended.stderr);
        assert!(ended.stderr.starts_with("docwharf: ") && ended.stderr.contains(message), "{}", ended.stderr);
        assert!(!ended.stderr.contains("s3cret"), "{}", ended.stderr);
    }
}
