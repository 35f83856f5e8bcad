//! Routing and authentication: from a request to the response of an operation.

use std::sync::Arc;
use std::time::Instant;

use http::header::{CONNECTION, HOST, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body_util::Either;
use hyper::body::Incoming;

use docwharf_base::clock::{now_unix_millis, now_unix_seconds};
use docwharf_base::error_chain::ErrorChain;
use docwharf_serve::host_field::is_host;
use docwharf_serve::peer::Peer;

use super::api_keys::{self, AuthenticatedClient, Scope};
use super::body::{ApiBody, OriginBody};
use super::limits::SharedResource;
use super::operations::{Operation, RouteMatch, find_route};
use super::previews::{self, Started};
use super::responses::{error, internal_error, not_allowed, nothing_here, set_field, text, try_later, with_details};
use super::server::OriginServer;
use super::settings::PREVIEW_PATH_PREFIX;
use super::{bundle_downloads, management, openapi, requests, sitemap};

/// The largest request body, in bytes.
const MAX_BODY_BYTES: u64 = 64 * 1024;
/// The largest body of a batch of searches, in bytes: 1000 searches of the largest size.
const MAX_BATCH_BYTES: u64 = 8 << 20;

const GET_AND_HEAD: [&str; 2] = ["GET", "HEAD"];

/// Answers any request. The response to HEAD is the one to GET without its body.
pub(super) async fn answer(origin: Arc<OriginServer>, request: Request<Incoming>) -> Response<OriginBody> {
    let is_analytics = request.uri().path().starts_with("/v1/analytics/");
    if !has_good_host(&request) {
        let refusal = error(StatusCode::BAD_REQUEST, "the request needs one Host field with a host in it");
        return if is_analytics { with_details(refusal) } else { refusal }.map(Either::Left);
    }
    if let Some(response) = origin.preview_response(&request) {
        return response.map(Either::Right);
    }
    let head = request.method() == Method::HEAD;
    let mut response = route(origin, request).await;
    if is_analytics {
        response = with_details(response);
    }
    if head {
        *response.body_mut() = ApiBody::empty();
    }
    response.map(Either::Left)
}

/// Whether a request has exactly one valid host (RFC 9112, section 3.2). Before HTTP/1.1 and in HTTP/2 it may have
/// none.
fn has_good_host<B>(request: &Request<B>) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => request.version() != Version::HTTP_11,
        (Some(host), None) => is_host(host),
        (Some(_), Some(_)) => false,
    }
}

async fn route(origin: Arc<OriginServer>, request: Request<Incoming>) -> Response<ApiBody> {
    let path = request.uri().path().to_owned();
    let is_get = matches!(*request.method(), Method::GET | Method::HEAD);
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    match parts[..] {
        ["v1", ..] => management(origin, request, &path).await,
        ["bundles" | "sites", ..] | ["openapi.json" | "livez" | "readyz"] if !is_get => not_allowed(&GET_AND_HEAD),
        ["bundles", job, name] => {
            let (job, name) = (job.to_owned(), name.to_owned());
            let (head, _) = request.into_parts();
            run_blocking(origin, move |origin| {
                let job = percent_encoding::percent_decode_str(&job).decode_utf8_lossy();
                let now = now_unix_seconds();
                bundle_downloads::answer(origin, (&job, &name), head.uri.query(), &head.headers, now)
            })
            .await
        }
        ["sites", domain, "sitemap.xml"] => sitemap::sitemap(&origin, domain, request.headers()).await,
        ["openapi.json"] => text(StatusCode::OK, "application/json", openapi::document_json().to_owned()),
        ["livez"] => text(StatusCode::OK, "text/plain; charset=utf-8", "ok\n".to_owned()),
        ["readyz"] => run_blocking(origin, OriginServer::readiness).await,
        _ => nothing_here(),
    }
}

/// Runs work that waits for the disk on a blocking thread, so that it does not delay other connections.
async fn run_blocking(
    origin: Arc<OriginServer>,
    work: impl FnOnce(&OriginServer) -> Response<ApiBody> + Send + 'static,
) -> Response<ApiBody> {
    match tokio::task::spawn_blocking(move || work(&origin)).await {
        Ok(response) => response,
        // The work has panicked, and the panic hook has logged it.
        Err(_) => try_later(StatusCode::INTERNAL_SERVER_ERROR, "the origin stopped unexpectedly; its log says where"),
    }
}

async fn management(origin: Arc<OriginServer>, request: Request<Incoming>, path: &str) -> Response<ApiBody> {
    let began = Instant::now();
    let (head, body) = request.into_parts();
    let (found, method) = (find_route(&head.method, path), head.method.clone());
    let counted = match &found {
        RouteMatch::ApiRoute(route, _) => route.id,
        _ => "none",
    };
    let (organization, response) = match found {
        RouteMatch::ApiRoute(route, value) if route.method == Method::GET => {
            let value = value.unwrap_or_default().into_owned();
            run_authenticated(Arc::clone(&origin), head, move |origin, head, caller| {
                management::answer_get(origin, route.operation, &value, head, caller)
            })
            .await
        }
        RouteMatch::ApiRoute(route, value) => {
            let value = value.unwrap_or_default().into_owned();
            answer_post(Arc::clone(&origin), route.operation, value, head, body).await
        }
        RouteMatch::OtherMethods(methods) => {
            run_authenticated(Arc::clone(&origin), head, move |_, _, _| not_allowed(&methods)).await
        }
        RouteMatch::NotFound => run_authenticated(Arc::clone(&origin), head, |_, _, _| nothing_here()).await,
    };
    let status = response.status().as_u16();
    origin.metrics.count_request(counted, status);
    let (milliseconds, organization) = (began.elapsed().as_millis() as u64, organization.unwrap_or_default());
    tracing::debug!(operation = counted, %method, status, organization, milliseconds, "answered");
    response
}

type ManagementResponse = (Option<String>, Response<ApiBody>);

/// Authenticates the client and runs `work` on one blocking thread.
async fn run_authenticated(
    origin: Arc<OriginServer>,
    head: Parts,
    work: impl FnOnce(&OriginServer, &Parts, &AuthenticatedClient) -> Response<ApiBody> + Send + 'static,
) -> ManagementResponse {
    let answered = tokio::task::spawn_blocking(move || match origin.authenticate(&head.headers, &head.method) {
        Ok(caller) => {
            let response = work(&origin, &head, &caller);
            (Some(caller.organization), response)
        }
        Err(refusal) => (None, *refusal),
    });
    answered.await.unwrap_or_else(|_| {
        let why = "the origin stopped unexpectedly; its log says where";
        (None, try_later(StatusCode::INTERNAL_SERVER_ERROR, why))
    })
}

/// Answers a POST request. A client without permission is refused before the body is read.
async fn answer_post(
    origin: Arc<OriginServer>,
    operation: Operation,
    value: String,
    head: Parts,
    body: Incoming,
) -> ManagementResponse {
    let asked = Arc::clone(&origin);
    let admitted = tokio::task::spawn_blocking(move || (asked.authenticate(&head.headers, &head.method), head)).await;
    let (caller, head) = match admitted {
        Ok((Ok(caller), head)) => (caller, head),
        Ok((Err(refusal), _)) => return (None, *refusal),
        Err(_) => return (None, nothing_here()),
    };
    let longest = if operation == Operation::Ingest { MAX_BATCH_BYTES } else { MAX_BODY_BYTES };
    let whose = Some(caller.organization.clone());
    // A request that fails whatever its body contains must not cost memory for the body.
    if let Err(refusal) = management::check_before_body(&origin, operation, &value, &caller) {
        return (whose, requests::respond_without_reading_body(*refusal, &head.headers, body).await);
    }
    let share = origin.shares.take(
        &caller.organization,
        SharedResource::BodyBytes,
        requests::expected_body_bytes(&body, longest),
    );
    let mut share = match share {
        Ok(share) => share,
        Err(why) => {
            let refusal = requests::body_limit_reached(why);
            return (whose, requests::respond_without_reading_body(refusal, &head.headers, body).await);
        }
    };
    let body = match requests::read_body(body, longest, &mut share).await {
        Ok(body) => body,
        Err(refusal) => return (whose, refusal),
    };
    let turn = (operation == Operation::Ingest).then(|| origin.ingests.take(&caller.organization, 1));
    let Ok(turn) = turn.transpose() else {
        let why = "too many batches wait for the disk; send this one again";
        return (whose, try_later(StatusCode::SERVICE_UNAVAILABLE, why));
    };
    let work = move |origin: &OriginServer| {
        let _held = (turn, share);
        management::answer_post(origin, operation, &value, &head, &body, &caller)
    };
    (whose, run_blocking(origin, work).await)
}

impl OriginServer {
    /// Authenticates a client. The error is 401 for any path below `/v1`, whether or not it exists; 403 for a key that
    /// does not allow the method; 503 if keys cannot be checked.
    fn authenticate(
        &self,
        headers: &HeaderMap,
        method: &Method,
    ) -> Result<AuthenticatedClient, Box<Response<ApiBody>>> {
        let token = requests::bearer_token(headers);
        let caller = match self.find_key(token.unwrap_or_default()) {
            Ok(Some(caller)) => caller,
            Ok(None) if token.is_some() => {
                return Err(Box::new(unauthorized("this key is wrong, revoked or over; ask for a new one")));
            }
            Ok(None) => return Err(Box::new(unauthorized("send an admin key: Authorization: Bearer <key>"))),
            Err(refusal) => return Err(refusal),
        };
        let is_reading = matches!(*method, Method::GET | Method::HEAD);
        if caller.scope < Scope::Write && !is_reading {
            let why = "this key may only read (GET); use one of scope write";
            return Err(Box::new(error(StatusCode::FORBIDDEN, why)));
        }
        Ok(caller)
    }

    fn find_key(&self, token: &[u8]) -> Result<Option<AuthenticatedClient>, Box<Response<ApiBody>>> {
        if let Some((whose, file)) = &self.key_file {
            match file.current() {
                Some(key) if self.signer.is_equal(key.as_bytes(), token) => {
                    return Ok(Some(AuthenticatedClient { organization: whose.clone(), scope: Scope::Write }));
                }
                Some(_) => {}
                None => {
                    let why = "the origin cannot read its admin key; its log says why";
                    return Err(Box::new(try_later(StatusCode::SERVICE_UNAVAILABLE, why)));
                }
            }
        }
        api_keys::authenticate(&self.database, &self.signer, token, now_unix_millis())
            .map_err(|why| Box::new(internal_error("look up a key", &ErrorChain(&why))))
    }

    /// Returns the beginning of links: the configured URL, or the scheme and host of this request.
    pub(super) fn own_address(&self, head: &Parts) -> Option<String> {
        if let Some(url) = &self.public_url {
            return Some(url.as_str().to_owned());
        }
        let mut hosts = head.headers.get_all(HOST).iter();
        let host = match (hosts.next(), hosts.next()) {
            (Some(host), None) if is_host(host) => host.to_str().ok()?,
            (None, _) => head.uri.authority()?.as_str(),
            _ => return None,
        };
        let is_encrypted = head.extensions.get::<Peer>().is_some_and(|peer| peer.is_encrypted);
        Some(format!("{}://{host}", if is_encrypted { "https" } else { "http" }))
    }
}

fn unauthorized(why: &str) -> Response<ApiBody> {
    let mut response = error(StatusCode::UNAUTHORIZED, why);
    set_field(response.headers_mut(), WWW_AUTHENTICATE, "Bearer");
    // The client may still be sending a body, which is not read.
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

// ---------------------------------------------------------------------------------------------------------------------
// Previews

impl OriginServer {
    /// Answers a request for a preview, which is addressed by its host or below its path; `None` if it is for the API.
    fn preview_response(&self, request: &Request<Incoming>) -> Option<Response<docwharf_serve::body::ResponseBody>> {
        let (project, slug) = if let Some(host) = &self.preview_host {
            let asked = request.headers().get(HOST).and_then(|host| host.to_str().ok());
            let asked = asked.or_else(|| request.uri().authority().map(http::uri::Authority::as_str))?;
            let name = asked.rsplit_once(':').map_or(asked, |(name, _)| name).to_ascii_lowercase();
            // A fully qualified name may end with a dot.
            let name = name.strip_suffix('.').unwrap_or(&name);
            let label = name.strip_suffix(host.as_str())?.strip_suffix('.')?;
            // A request for a host below the preview host never reaches the API, whether or not the preview exists.
            self.previews.by_host_label(label).unwrap_or_default()
        } else {
            let mut parts = request.uri().path().strip_prefix(PREVIEW_PATH_PREFIX)?.split('/');
            (parts.next()?.to_owned(), parts.next()?.to_owned())
        };
        Some(match self.previews.site(&project, &slug) {
            Some(site) => previews::respond_to_preview(&site, request),
            None => preview_not_found(),
        })
    }

    /// Returns the URL of a preview.
    pub(super) fn preview_url(&self, begin: &str, project: &str, started: &Started) -> String {
        let Some(host) = &self.preview_host else {
            return format!("{begin}{PREVIEW_PATH_PREFIX}{project}/{}/", started.slug);
        };
        // A preview has the scheme and port under which the client has reached this origin.
        let (scheme, rest) = begin.split_once("://").unwrap_or(("http", begin));
        let authority = rest.split('/').next().unwrap_or_default();
        let port = authority.rsplit_once(':').map(|(_, port)| port).filter(|port| port.parse::<u16>().is_ok());
        let port = port.map_or_else(String::new, |port| format!(":{port}"));
        format!("{scheme}://{}.{host}{port}/", started.slug)
    }
}

fn preview_not_found() -> Response<docwharf_serve::body::ResponseBody> {
    let text = "404: there is no preview here; its branch was deleted, or it was not built yet\n";
    let mut response = Response::new(docwharf_serve::body::ResponseBody::full(text));
    *response.status_mut() = StatusCode::NOT_FOUND;
    let fields = response.headers_mut();
    set_field(fields, http::header::CONTENT_TYPE, "text/plain; charset=utf-8");
    set_field(fields, http::header::CACHE_CONTROL, "no-store");
    set_field(fields, http::HeaderName::from_static("x-robots-tag"), "noindex");
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_one_host_and_only_older_ones_may_have_none() {
        for (hosts, eleven, others) in [
            (&["docs.example"][..], true, true),
            (&["docs.example:8080"], true, true),
            (&["[::1]:80"], true, true),
            (&[], false, true),
            (&[""], false, false),
            (&["a b"], false, false),
            (&["a/b"], false, false),
            (&["u@a"], false, false),
            (&["a", "a"], false, false),
        ] {
            for (version, expected) in
                [(Version::HTTP_11, eleven), (Version::HTTP_10, others), (Version::HTTP_2, others)]
            {
                let mut request = Request::new(());
                *request.version_mut() = version;
                for host in hosts {
                    request.headers_mut().append(HOST, host.parse().unwrap());
                }
                assert_eq!(has_good_host(&request), expected, "{hosts:?} {version:?}");
            }
        }
    }
}
