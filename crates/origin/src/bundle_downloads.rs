//! Downloads of bundles by signed links, in the manner of an object store with presigned links: the link is the only
//! credential, errors are XML, and downloads can be resumed (RFC 9110, section 14).

use http::header::{
    ACCEPT_RANGES, AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use docwharf_base::error_chain::ErrorChain;
use docwharf_serve::byte_range::{self, RequestedRange};
use docwharf_serve::conditional::{self, ContentDates, PreconditionOutcome};

use super::body::ApiBody;
use super::exports::{BundleFile, BundleLookup};
use super::responses::set_field;
use super::server::OriginServer;
use super::signed_links::LinkRefusal;

/// Responds to GET and HEAD of a link. `job` and `name` are the last two components of its path.
pub(super) fn respond_to_download(
    origin: &OriginServer,
    (job, name): (&str, &str),
    query: Option<&str>,
    headers: &HeaderMap,
    now: i64,
) -> Response<ApiBody> {
    if headers.contains_key(AUTHORIZATION) {
        // An object store refuses a presigned link that comes with an Authorization field. docwharf refuses it too, so
        // that a client that sends its key with a link fails against this origin before it leaks the key to an object
        // store.
        let message = "Only one auth mechanism allowed: the link is signed, so send no Authorization header";
        return xml_error(StatusCode::BAD_REQUEST, "InvalidArgument", message);
    }
    match origin.secret.verify_link(job, query, now) {
        Ok(()) => {}
        Err(LinkRefusal::Unsigned) => return xml_error(StatusCode::FORBIDDEN, "AccessDenied", "Access Denied"),
        Err(LinkRefusal::Expired) => return xml_error(StatusCode::FORBIDDEN, "AccessDenied", "Request has expired"),
        Err(LinkRefusal::Altered) => {
            let message = "The request signature does not match; request a new link";
            return xml_error(StatusCode::FORBIDDEN, "SignatureDoesNotMatch", message);
        }
    }
    match origin.export_jobs.find_bundle(job, None) {
        Ok(BundleLookup::Found(bundle)) if bundle.link_file_name() == name => send_bundle(&bundle, headers),
        Err(error) => {
            tracing::error!("cannot look up the bundle of job {job}: {}", ErrorChain(&error));
            xml_error(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", "Please try again")
        }
        _ => xml_error(StatusCode::NOT_FOUND, "NoSuchKey", "The bundle no longer exists; start another job"),
    }
}

/// Creates the response with the bundle or the requested range of it.
fn send_bundle(bundle: &BundleFile, headers: &HeaderMap) -> Response<ApiBody> {
    let tag = format!("\"{}\"", &bundle.digest.to_hex()[..32]);
    let full_range = RequestedRange::Single(0, bundle.len);
    match conditional::evaluate_preconditions(headers, &tag, ContentDates::never_replaced(bundle.completed_at)) {
        PreconditionOutcome::NotModified => return bundle_response(bundle, &tag, StatusCode::NOT_MODIFIED),
        PreconditionOutcome::Failed => return bundle_response(bundle, &tag, StatusCode::PRECONDITION_FAILED),
        PreconditionOutcome::Proceed => {}
    }
    let range = if conditional::if_range_matches(headers, &tag, Some(ContentDates::never_replaced(bundle.completed_at)))
    {
        byte_range::parse_range(headers, bundle.len)
    } else {
        RequestedRange::Whole
    };
    let (status, range) = match range {
        // Several ranges of a bundle are of no use to a client. A server may ignore Range (RFC 9110, section 14.2).
        RequestedRange::Whole | RequestedRange::Multiple(_) => (StatusCode::OK, full_range),
        RequestedRange::Single(..) => (StatusCode::PARTIAL_CONTENT, range),
        RequestedRange::NotSatisfiable => (StatusCode::RANGE_NOT_SATISFIABLE, range),
    };
    let mut response = bundle_response(bundle, &tag, status);
    let fields = response.headers_mut();
    match range {
        RequestedRange::Single(start, end) => {
            if status == StatusCode::PARTIAL_CONTENT {
                set_field(fields, CONTENT_RANGE, &format!("bytes {start}-{}/{}", end - 1, bundle.len));
            }
            fields.insert(CONTENT_LENGTH, HeaderValue::from(end - start));
            fields.insert(CONTENT_TYPE, HeaderValue::from_static(media_type(&bundle.kind)));
            *response.body_mut() = ApiBody::file_range(bundle.file.clone(), start, end);
        }
        _ => set_field(fields, CONTENT_RANGE, &format!("bytes */{}", bundle.len)),
    }
    response
}

/// Creates a response with the header fields that all responses about a bundle share, and without a body.
fn bundle_response(bundle: &BundleFile, tag: &str, status: StatusCode) -> Response<ApiBody> {
    let mut response = Response::new(ApiBody::empty());
    *response.status_mut() = status;
    let fields = response.headers_mut();
    set_field(fields, ETAG, tag);
    if let Ok(seconds) = u64::try_from(bundle.completed_at) {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        set_field(fields, LAST_MODIFIED, &httpdate::fmt_http_date(time));
    }
    fields.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    // A copy in a shared cache would outlive the link, which expires.
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    fields.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if status != StatusCode::NOT_MODIFIED {
        fields.insert(CONTENT_LENGTH, HeaderValue::from(0));
    }
    response
}

fn media_type(kind: &str) -> &'static str {
    match kind {
        "zip" => "application/zip",
        "tar" => "application/x-tar",
        "tar.zst" => "application/zstd",
        _ => "application/gzip",
    }
}

/// Creates an error in the XML format of an object store. `code` and `message` are constants of this module and need no
/// escaping.
fn xml_error(status: StatusCode, code: &str, message: &str) -> Response<ApiBody> {
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
    );
    let mut response = Response::new(ApiBody::empty());
    *response.status_mut() = status;
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    fields.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    *response.body_mut() = ApiBody::Memory(text.into());
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_has_the_media_type_of_its_archive() {
        for (kind, expected) in [
            ("zip", "application/zip"),
            ("tar", "application/x-tar"),
            ("tar.zst", "application/zstd"),
            ("tar.gz", "application/gzip"),
        ] {
            assert_eq!(media_type(kind), expected, "{kind}");
        }
    }
}
