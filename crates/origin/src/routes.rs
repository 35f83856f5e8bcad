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

use super::api_keys::{self, AuthenticatedClient, KeyScope};
use super::body::{ApiBody, OriginBody};
use super::key_file::OrganizationApiKeyFile;
use super::limits::SharedResource;
use super::operations::{Operation, RouteMatch, find_route};
use super::previews::{self, AcceptedDeployment};
use super::responses::{error, method_not_allowed, not_found, set_field, text, try_later, unavailable, with_details};
use super::server::OriginServer;
use super::settings::PREVIEW_PATH_PREFIX;
use super::{bundle_downloads, management, openapi, requests, sitemap};

/// The largest request body, in bytes.
const MAX_BODY_BYTES: u64 = 64 * 1024;
/// The largest body of a request with a batch, in bytes: 1,000 searches of the largest size. It also holds 1,000
/// counts.
const MAX_BATCH_BODY_BYTES: u64 = 8 << 20;

const GET_AND_HEAD: [&str; 2] = ["GET", "HEAD"];

/// Responds to any request. The response to HEAD is the response to GET without its body.
pub(super) async fn respond(origin: Arc<OriginServer>, mut request: Request<Incoming>) -> Response<OriginBody> {
    let is_analytics = request.uri().path().starts_with("/v1/analytics/");
    if !has_valid_host(&request) {
        let refusal = error(StatusCode::BAD_REQUEST, "the request needs exactly one Host field with a valid host");
        return if is_analytics { with_details(refusal) } else { refusal }.map(Either::Left);
    }
    if let Some((project, slug)) = origin.addressed_preview(&request) {
        origin.note_public_scheme(&mut request);
        let response = match origin.preview_service.site(&project, &slug) {
            Some(site) => previews::respond_to_preview(&site, request).await,
            None => preview_not_found(),
        };
        return response.map(Either::Right);
    }
    let is_head = request.method() == Method::HEAD;
    let mut response = route_request(origin, request).await;
    if is_analytics {
        response = with_details(response);
    }
    if is_head {
        *response.body_mut() = ApiBody::empty();
    }
    response.map(Either::Left)
}

/// Whether a request has exactly one valid host (RFC 9112, section 3.2). Before HTTP/1.1 and in HTTP/2 it may have
/// none.
fn has_valid_host<B>(request: &Request<B>) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => request.version() != Version::HTTP_11,
        (Some(host), None) => is_host(host),
        (Some(_), Some(_)) => false,
    }
}

async fn route_request(origin: Arc<OriginServer>, request: Request<Incoming>) -> Response<ApiBody> {
    let path = request.uri().path().to_owned();
    let is_get = matches!(*request.method(), Method::GET | Method::HEAD);
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    match parts[..] {
        ["v1", ..] => respond_to_operation(origin, request, &path).await,
        ["bundles" | "sites", ..] | ["openapi.json" | "livez" | "readyz"] if !is_get => {
            method_not_allowed(&GET_AND_HEAD)
        }
        ["bundles", job, name] => {
            let (job, name) = (job.to_owned(), name.to_owned());
            let (head, _) = request.into_parts();
            run_blocking(origin, move |origin| {
                let job = percent_encoding::percent_decode_str(&job).decode_utf8_lossy();
                let now = now_unix_seconds();
                bundle_downloads::respond_to_download(origin, (&job, &name), head.uri.query(), &head.headers, now)
            })
            .await
        }
        ["sites", domain, "sitemap.xml"] => sitemap::respond_with_sitemap(&origin, domain, request.headers()).await,
        ["openapi.json"] => text(StatusCode::OK, "application/json", openapi::document_json().to_owned()),
        ["livez"] => text(StatusCode::OK, "text/plain; charset=utf-8", "ok\n".to_owned()),
        ["readyz"] => run_blocking(origin, OriginServer::readiness).await,
        _ => not_found(),
    }
}

/// Runs an operation that waits for the disk on a blocking thread, so that it does not delay other connections.
async fn run_blocking(
    origin: Arc<OriginServer>,
    operation_fn: impl FnOnce(&OriginServer) -> Response<ApiBody> + Send + 'static,
) -> Response<ApiBody> {
    match tokio::task::spawn_blocking(move || operation_fn(&origin)).await {
        Ok(response) => response,
        // The operation has panicked, and the panic hook has logged it.
        Err(_) => try_later(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the operation failed unexpectedly; the log of the origin has the reason",
        ),
    }
}

/// Responds to a request below `/v1`, counts it and logs it.
async fn respond_to_operation(origin: Arc<OriginServer>, request: Request<Incoming>, path: &str) -> Response<ApiBody> {
    let started = Instant::now();
    let (head, body) = request.into_parts();
    let (route_match, method) = (find_route(&head.method, path), head.method.clone());
    let operation_id = match &route_match {
        RouteMatch::ApiRoute(route, _) => route.id,
        _ => "none",
    };
    let (organization, response) = match route_match {
        RouteMatch::ApiRoute(route, value) if route.method == Method::GET => {
            let value = value.unwrap_or_default().into_owned();
            run_authenticated(Arc::clone(&origin), head, move |origin, head, client| {
                management::run_get_operation(origin, route.operation, &value, head, client)
            })
            .await
        }
        RouteMatch::ApiRoute(route, value) => {
            let value = value.unwrap_or_default().into_owned();
            respond_to_post(Arc::clone(&origin), route.operation, value, head, body).await
        }
        RouteMatch::OtherMethods(methods) => {
            run_authenticated(Arc::clone(&origin), head, move |_, _, _| method_not_allowed(&methods)).await
        }
        RouteMatch::NotFound => run_authenticated(Arc::clone(&origin), head, |_, _, _| not_found()).await,
    };
    let status = response.status().as_u16();
    origin.metrics.count_request(operation_id, status);
    let (milliseconds, organization) = (started.elapsed().as_millis() as u64, organization.unwrap_or_default());
    tracing::debug!(operation = operation_id, %method, status, organization, milliseconds, "response sent");
    response
}

/// The organization of the authenticated client, and the response.
type ManagementResponse = (Option<String>, Response<ApiBody>);

/// Authenticates the client and runs `operation_fn`, both on one blocking thread.
async fn run_authenticated(
    origin: Arc<OriginServer>,
    head: Parts,
    operation_fn: impl FnOnce(&OriginServer, &Parts, &AuthenticatedClient) -> Response<ApiBody> + Send + 'static,
) -> ManagementResponse {
    let task = tokio::task::spawn_blocking(move || match origin.authenticate(&head.headers, &head.method) {
        Ok(client) => {
            let response = operation_fn(&origin, &head, &client);
            (Some(client.organization), response)
        }
        Err(refusal) => (None, *refusal),
    });
    task.await.unwrap_or_else(|_| {
        let reason = "the operation failed unexpectedly; the log of the origin has the reason";
        (None, try_later(StatusCode::INTERNAL_SERVER_ERROR, reason))
    })
}

/// Responds to a POST request. A client without permission is refused before the body is read.
async fn respond_to_post(
    origin: Arc<OriginServer>,
    operation: Operation,
    value: String,
    head: Parts,
    body: Incoming,
) -> ManagementResponse {
    let server = Arc::clone(&origin);
    let authentication =
        tokio::task::spawn_blocking(move || (server.authenticate(&head.headers, &head.method), head)).await;
    let (client, head) = match authentication {
        Ok((Ok(client), head)) => (client, head),
        Ok((Err(refusal), _)) => return (None, *refusal),
        Err(_) => return (None, not_found()),
    };
    let max_body_bytes = if operation.receives_batch() { MAX_BATCH_BODY_BYTES } else { MAX_BODY_BYTES };
    let organization = Some(client.organization.clone());
    // A request that fails whatever its body contains must not cost memory for the body.
    if let Err(refusal) = management::check_before_body(&origin, operation, &value, &client) {
        return (organization, requests::respond_without_reading_body(*refusal, &head.headers, body).await);
    }
    let share = origin.pools.acquire(
        &client.organization,
        SharedResource::BodyBytes,
        requests::expected_body_bytes(&body, max_body_bytes),
    );
    let mut share = match share {
        Ok(share) => share,
        Err(reason) => {
            let refusal = requests::body_limit_reached(reason);
            return (organization, requests::respond_without_reading_body(refusal, &head.headers, body).await);
        }
    };
    let body = match requests::read_body(body, max_body_bytes, &mut share).await {
        Ok(body) => body,
        Err(refusal) => return (organization, refusal),
    };
    let waiting_batch_share =
        (operation.receives_batch()).then(|| origin.waiting_batches.acquire(&client.organization, 1));
    let Ok(waiting_batch_share) = waiting_batch_share.transpose() else {
        let reason = "too many batches wait for the disk; send this one again";
        return (organization, try_later(StatusCode::SERVICE_UNAVAILABLE, reason));
    };
    let operation_fn = move |origin: &OriginServer| {
        let _held_shares = (waiting_batch_share, share);
        management::run_post_operation(origin, operation, &value, &head, &body, &client)
    };
    (organization, run_blocking(origin, operation_fn).await)
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
        let client = match self.find_key(token.unwrap_or_default()) {
            Ok(Some(client)) => client,
            Ok(None) if token.is_some() => {
                return Err(Box::new(unauthorized("this key is wrong, revoked or expired; request a new one")));
            }
            Ok(None) => return Err(Box::new(unauthorized("send an API key: Authorization: Bearer <key>"))),
            Err(refusal) => return Err(refusal),
        };
        let is_reading = matches!(*method, Method::GET | Method::HEAD);
        if client.scope < KeyScope::Write && !is_reading {
            let reason = "this key may only read (GET); use one of scope write";
            return Err(Box::new(error(StatusCode::FORBIDDEN, reason)));
        }
        Ok(client)
    }

    /// Returns the client that this token belongs to; `None` if the token is not valid.
    fn find_key(&self, token: &[u8]) -> Result<Option<AuthenticatedClient>, Box<Response<ApiBody>>> {
        if let Some(OrganizationApiKeyFile { organization, file }) = &self.key_file {
            match file.current_key() {
                Some(key) if self.secret.is_equal(key.as_bytes(), token) => {
                    return Ok(Some(AuthenticatedClient {
                        organization: organization.clone(),
                        scope: KeyScope::Write,
                    }));
                }
                Some(_) => {}
                None => {
                    let reason = "the origin cannot read its API key file; its log has the reason";
                    return Err(Box::new(try_later(StatusCode::SERVICE_UNAVAILABLE, reason)));
                }
            }
        }
        api_keys::authenticate(&self.database, &self.secret, token, now_unix_millis())
            .map_err(|reason| Box::new(unavailable("look up a key", &ErrorChain(&reason))))
    }

    /// Returns the beginning of links: the configured URL, or the scheme and host of this request.
    pub(super) fn link_base_url(&self, head: &Parts) -> Option<String> {
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

fn unauthorized(reason: &str) -> Response<ApiBody> {
    let mut response = error(StatusCode::UNAUTHORIZED, reason);
    set_field(response.headers_mut(), WWW_AUTHENTICATE, "Bearer");
    // The client may still be sending a body, which is not read.
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

// ---------------------------------------------------------------------------------------------------------------------
// Previews

impl OriginServer {
    /// Returns the project and the slug of the preview for which a request is, by its host or below its path, whether
    /// or not there is such a preview; `None` if the request is for the API.
    fn addressed_preview(&self, request: &Request<Incoming>) -> Option<(String, String)> {
        if let Some(host) = &self.preview_host {
            let authority = request.headers().get(HOST).and_then(|host| host.to_str().ok());
            let authority = authority.or_else(|| request.uri().authority().map(http::uri::Authority::as_str))?;
            let name = authority.rsplit_once(':').map_or(authority, |(name, _)| name).to_ascii_lowercase();
            // A fully qualified name may end with a dot.
            let name = name.strip_suffix('.').unwrap_or(&name);
            let label = name.strip_suffix(host.as_str())?.strip_suffix('.')?;
            // A request for a host below the preview host never reaches the API, whether or not the preview exists.
            Some(self.preview_service.find_by_host_label(label).unwrap_or_default())
        } else {
            let mut parts = request.uri().path().strip_prefix(PREVIEW_PATH_PREFIX)?.split('/');
            Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
        }
    }

    /// Marks a request as encrypted if the public URL is `https`: a proxy before this server decrypts it, and addresses
    /// in a response must be those that the client uses.
    fn note_public_scheme<B>(&self, request: &mut Request<B>) {
        let scheme = self.public_url.as_ref().and_then(|url| url.as_str().split(':').next());
        let is_encrypted = scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
        if let Some(peer) = request.extensions_mut().get_mut::<Peer>() {
            peer.is_encrypted |= is_encrypted;
        }
    }

    /// Returns the URL of a preview.
    pub(super) fn preview_url(&self, base_url: &str, project: &str, accepted: &AcceptedDeployment) -> String {
        let Some(host) = &self.preview_host else {
            return format!("{base_url}{PREVIEW_PATH_PREFIX}{project}/{}/", accepted.slug);
        };
        // A preview has the scheme and port under which the client has reached this origin.
        let (scheme, rest) = base_url.split_once("://").unwrap_or(("http", base_url));
        let authority = rest.split('/').next().unwrap_or_default();
        let port = authority.rsplit_once(':').map(|(_, port)| port).filter(|port| port.parse::<u16>().is_ok());
        let port = port.map_or_else(String::new, |port| format!(":{port}"));
        format!("{scheme}://{}.{host}{port}/", accepted.slug)
    }
}

fn preview_not_found() -> Response<docwharf_serve::body::ResponseBody> {
    let text = "404: there is no preview at this address; its branch was deleted, or it was not built yet\n";
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
    fn http_1_1_needs_exactly_one_valid_host_field_and_other_versions_may_have_none() {
        for (hosts, is_valid_in_http_11, is_valid_in_others) in [
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
            for (version, expected) in [
                (Version::HTTP_11, is_valid_in_http_11),
                (Version::HTTP_10, is_valid_in_others),
                (Version::HTTP_2, is_valid_in_others),
            ] {
                let mut request = Request::new(());
                *request.version_mut() = version;
                for host in hosts {
                    request.headers_mut().append(HOST, host.parse().unwrap());
                }
                assert_eq!(has_valid_host(&request), expected, "{hosts:?} {version:?}");
            }
        }
    }
}
