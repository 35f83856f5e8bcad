//! Client of the management API: one request, one response. It does no disk I/O, and it sends the key to the API's own
//! origin only (`docs/design/agent.md`, rule 6).
//!
//! [`responses`] parses responses: it requires only the fields that the specification guarantees. [`export`] and
//! [`preview`] decide what the state of a job means, [`analytics`] reads pages of search terms, [`views`] reads the
//! views of pages, [`calls`] has advice about failed calls. The caller retries (`docwharf_base::net::retry`).

pub mod analytics;
pub mod calls;
pub mod export;
pub mod preview;
pub mod responses;
pub mod views;

use std::fmt::Write;
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use percent_encoding::utf8_percent_encode;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use docwharf_base::encode_sets;
use docwharf_base::error_chain::OneLine;
use docwharf_base::net::client::HttpClient;
use docwharf_base::net::redirects::{
    FollowRedirectsError, RedirectPolicy, RedirectRefusal, RedirectScope, follow_redirects,
};
use docwharf_base::net::request_error::{RequestError, RequestErrorCause};
use docwharf_base::secret::{SafeUrl, Secret, SecretRedactor};

use analytics::{SearchPage, SearchPageRequest};
use preview::{PreviewDeployment, StartedPreview};
use responses::{ApiResponse, ExportJob, SignedLink};
use views::{CountKey, CountList, RowsRequest, ViewList};

/// Upper bound of a response body in bytes; the API's responses are small.
const MAX_RESPONSE_BYTES: usize = 1024 * 1024;
/// Upper bound of the response with the state of a deployment in bytes; it contains the log of a build.
const MAX_DEPLOYMENT_BYTES: usize = 16 * 1024 * 1024;
/// Upper bound of the bytes that are read of an error response.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;
/// Upper bound of the time that is spent on reading an error response.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// The response to a request without effects; see [`ApiClient::probe_api`].
#[derive(Debug)]
pub struct ApiProbeResponse {
    /// Status code of the response.
    pub status: u16,
    /// Whether the body is a JSON object, as all responses of the API are.
    pub is_json_object: bool,
    /// Status and body in one line, without secrets.
    pub summary: String,
    /// Header fields of the response.
    pub headers: HeaderMap,
    /// The server's certificate in DER, if the connection used TLS.
    pub certificate: Option<Vec<u8>>,
}

/// The kind of a batch of analytics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnalyticsBatchKind {
    /// Searches of readers.
    Searches,
    /// Views of pages, and other daily counts.
    Views,
}

/// Client of the API at one base URL, with its key.
#[derive(Debug, Clone)]
pub struct ApiClient {
    http: HttpClient,
    /// Base URL; a trailing slash is ignored.
    base: SafeUrl,
    key: Secret,
    call_timeout: Duration,
    max_redirects: usize,
    redactor: SecretRedactor,
}

impl ApiClient {
    /// Creates a client of the API at `base`; `call_timeout` bounds each call as a whole.
    pub fn new(
        http: HttpClient,
        base: SafeUrl,
        key: Secret,
        call_timeout: Duration,
        max_redirects: usize,
    ) -> ApiClient {
        let mut redactor = SecretRedactor::default();
        redactor.hide(&key);
        redactor.hide_url(&base);
        ApiClient { http, base, key, call_timeout, max_redirects, redactor }
    }

    /// Hides the key and the secrets of the base URL in texts of this API.
    pub fn redactor(&self) -> &SecretRedactor {
        &self.redactor
    }

    /// Starts an export of `domain` (POST /static-export/jobs); returns the job's id.
    pub async fn start_export(&self, domain: &str, version: Option<&str>) -> Result<String, RequestError> {
        let mut body = json!({ "domain": domain });
        if let Some(version) = version {
            body["version"] = json!(version);
        }
        let (status, response, bytes) = self.call(Method::POST, &["static-export", "jobs"], &[], Some(&body)).await?;
        responses::parse_job_id(&response).map_err(|why| RequestError::unreadable(status, &why, &bytes, &self.redactor))
    }

    /// Polls an export job (GET /static-export/jobs/{jobId}).
    pub async fn poll_export(&self, id: &str) -> Result<ExportJob, RequestError> {
        let (status, response, bytes) = self.call(Method::GET, &["static-export", "jobs", id], &[], None).await?;
        responses::parse_job(&response, &self.redactor)
            .map_err(|why| RequestError::unreadable(status, &why, &bytes, &self.redactor))
    }

    /// Starts a preview of `branch`, or deploys an existing one again (POST /project/preview/{projectId}).
    pub async fn start_preview(&self, project: &str, branch: &str) -> Result<StartedPreview, RequestError> {
        let body = json!({ "branch": branch });
        let (_, response, _) = self.call(Method::POST, &["project", "preview", project], &[], Some(&body)).await?;
        // The preview has been started even if the response has no fields: a repetition would start another one.
        Ok(preview::parse_started_preview(&response))
    }

    /// Polls the deployment of a preview (GET `api.statusPath`).
    pub async fn poll_deployment(&self, path: &[&str]) -> Result<PreviewDeployment, RequestError> {
        let (status, response, bytes) =
            self.call_with_limit(Method::GET, path, &[], None, MAX_DEPLOYMENT_BYTES).await?;
        let deployment = preview::parse_deployment(&response, &self.redactor);
        deployment.map_err(|why| RequestError::unreadable(status, &why, &bytes, &self.redactor))
    }

    /// Requests one page of search analytics (GET /analytics/{projectId}/searches).
    pub async fn search_page(
        &self,
        project: &str,
        request: &SearchPageRequest<'_>,
    ) -> Result<SearchPage, RequestError> {
        let (status, response, bytes) =
            self.call(Method::GET, &["analytics", project, "searches"], &request.parameters(), None).await?;
        analytics::parse_search_page(&response)
            .map_err(|why| RequestError::unreadable(status, &why, &bytes, &self.redactor))
    }

    /// Requests the views of pages (GET /analytics/{projectId}/views).
    pub async fn views(&self, project: &str, request: &RowsRequest<'_>) -> Result<ViewList, RequestError> {
        let (status, response, bytes) =
            self.call(Method::GET, &["analytics", project, "views"], &request.parameters(), None).await?;
        views::parse_views(&response).map_err(|why| RequestError::unreadable(status, &why, &bytes, &self.redactor))
    }

    /// Requests counts by a key (GET /analytics/{projectId}/pages), which only servers of docwharf have.
    pub async fn page_counts(
        &self,
        project: &str,
        by: CountKey,
        request: &RowsRequest<'_>,
    ) -> Result<CountList, RequestError> {
        let (status, response, bytes) =
            self.call(Method::GET, &["analytics", project, "pages"], &request.parameters_by(by), None).await?;
        views::parse_counts(&response, by).map_err(|why| RequestError::unreadable(status, &why, &bytes, &self.redactor))
    }

    /// Sends a batch of analytics (POST /analytics/{projectId}/searches or …/views), which only servers of docwharf
    /// accept. A batch may be sent again: the server counts it once.
    pub async fn send_analytics(
        &self,
        project: &str,
        kind: AnalyticsBatchKind,
        batch: &Value,
    ) -> Result<(), RequestError> {
        let route = match kind {
            AnalyticsBatchKind::Searches => "searches",
            AnalyticsBatchKind::Views => "views",
        };
        let path = ["analytics", project, route];
        let (status, _, bytes) = self.call(Method::POST, &path, &[], Some(batch)).await?;
        // Another service at that address may respond with 200 as well.
        let receipt: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if receipt["batchId"].is_string() && receipt["batchId"] == batch["batchId"] {
            return Ok(());
        }
        let why = "the response does not have the id of the batch, so this is not the API of an origin of docwharf";
        Err(RequestError::unreadable(status, why, &bytes, &self.redactor))
    }

    /// Requests a job that does not exist, to learn whether the API answers and accepts the key. It starts nothing.
    pub async fn probe_api(&self) -> Result<ApiProbeResponse, RequestError> {
        let url = format!("{}/static-export/jobs/docwharf-doctor", self.base.expose().as_str().trim_end_matches('/'));
        let url = SafeUrl::parse(&url).map_err(|why| RequestError::new(RequestErrorCause::Unreadable, why))?;
        let timeout_error = |_| {
            Err(RequestError::new(
                RequestErrorCause::NoUsableResponse,
                format!("no response within {}", docwharf_base::net::format_seconds(self.call_timeout)),
            ))
        };
        tokio::time::timeout(self.call_timeout, self.send_api_probe(&url)).await.unwrap_or_else(timeout_error)
    }

    async fn send_api_probe(&self, url: &SafeUrl) -> Result<ApiProbeResponse, RequestError> {
        let request = self.http.request(Method::GET, url)?.header(ACCEPT, "application/json");
        let request = request.header(AUTHORIZATION, self.authorization_value()?);
        let mut response = request.send().await.map_err(|error| RequestError::from_client(error, url))?;
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let tls = response.extensions().get::<reqwest::tls::TlsInfo>();
        let certificate = tls.and_then(|tls| tls.peer_certificate()).map(<[u8]>::to_vec);
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| RequestError::from_client(error, url))? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_ERROR_BODY_BYTES {
                break;
            }
        }
        let summary = RequestError::from_response(status, &headers, &body, &self.redactor).to_string();
        Ok(ApiProbeResponse {
            status,
            is_json_object: ApiResponse::parse(&body).is_some(),
            summary,
            headers,
            certificate,
        })
    }

    /// Requests a fresh link to a bundle (POST /static-export/jobs/{jobId}/bundle, without a body).
    pub async fn request_link(&self, id: &str) -> Result<SignedLink, RequestError> {
        let path = ["static-export", "jobs", id, "bundle"];
        // The body may contain the link itself, so it is never quoted in an error.
        let (status, response, _) =
            self.call(Method::POST, &path, &[], None).await.map_err(|request_error| match request_error.cause {
                RequestErrorCause::Unreadable => {
                    RequestError::new(RequestErrorCause::Unreadable, "the response is no valid JSON object")
                }
                _ => request_error,
            })?;
        responses::parse_link(&response)
            .map_err(|why| RequestError::new(RequestErrorCause::Unreadable, format!("{status}, but {why}")))
    }

    /// Makes one call within its timeout. Any 2xx with a JSON object counts (`docs/design/agent.md`, rule 1).
    async fn call(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, String)],
        body: Option<&Value>,
    ) -> Result<(u16, ApiResponse, Vec<u8>), RequestError> {
        self.call_with_limit(method, path, query, body, MAX_RESPONSE_BYTES).await
    }

    /// Makes one call like [`ApiClient::call`], with a response body of at most `max_bytes`.
    async fn call_with_limit(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, String)],
        body: Option<&Value>,
        max_bytes: usize,
    ) -> Result<(u16, ApiResponse, Vec<u8>), RequestError> {
        let mut url = self.base.expose().as_str().trim_end_matches('/').to_owned();
        for segment in path {
            if matches!(*segment, "." | "..") {
                // A URL parser would remove the segment, encoded or not.
                return Err(RequestError::new(
                    RequestErrorCause::Unreadable,
                    format!("the id {segment:?} cannot be part of an address"),
                ));
            }
            url.push('/');
            url.extend(utf8_percent_encode(segment, encode_sets::SEGMENT));
        }
        if !query.is_empty() {
            let _ = write!(url, "?{}", query_string(query));
        }
        let url = SafeUrl::parse(&url).map_err(|why| RequestError::new(RequestErrorCause::Unreadable, why))?;
        let request = format!("{method} /{}", path.join("/"));
        let start = std::time::Instant::now();
        let result =
            tokio::time::timeout(self.call_timeout, self.send_following_redirects(method, url, body, max_bytes)).await;
        let result = result.unwrap_or_else(|_| {
            Err(RequestError::new(
                RequestErrorCause::NoUsableResponse,
                format!("no response within {}", docwharf_base::net::format_seconds(self.call_timeout)),
            ))
        });
        let (request, duration_ms) = (OneLine(&request), start.elapsed().as_millis());
        match &result {
            Ok((status, ..)) => tracing::debug!("{request}: {status} in {duration_ms} ms"),
            // An unreadable response may contain a link.
            Err(request_error) if request_error.cause == RequestErrorCause::Unreadable => {
                tracing::debug!("{request}: unreadable after {duration_ms} ms");
            }
            Err(request_error) => {
                tracing::debug!("{request}: {} after {duration_ms} ms", OneLine(&request_error.to_string()));
            }
        }
        result
    }

    async fn send_following_redirects(
        &self,
        method: Method,
        url: SafeUrl,
        body: Option<&Value>,
        max_bytes: usize,
    ) -> Result<(u16, ApiResponse, Vec<u8>), RequestError> {
        let scope = RedirectScope::OwnOrigin(self.authorization_value()?);
        let policy = RedirectPolicy { scope, max_redirects: self.max_redirects };
        let followed = follow_redirects(&self.http, &method, &url, &policy, async |hop| {
            let mut request = hop.request()?.header(ACCEPT, "application/json");
            if let Some(body) = body {
                request = request.header(CONTENT_TYPE, "application/json").body(body.to_string());
            }
            request.send().await.map_err(|error| RequestError::from_client(error, hop.url))
        });
        let (mut response, url) = followed.await.map_err(describe_follow_error)?;
        let status = response.status().as_u16();
        if !(200..300).contains(&status) {
            return Err(read_error_response(response, &url, &self.redactor).await);
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| RequestError::from_client(error, &url))? {
            if bytes.len() + chunk.len() > max_bytes {
                let max_mib = max_bytes >> 20;
                return Err(RequestError::new(
                    RequestErrorCause::Unreadable,
                    format!("{status}, but the response is over {max_mib} MiB"),
                ));
            }
            bytes.extend_from_slice(&chunk);
        }
        match ApiResponse::parse(&bytes) {
            Some(response) => Ok((status, response, bytes)),
            None => Err(RequestError::unreadable(status, "the response is no JSON object", &bytes, &self.redactor)),
        }
    }

    fn authorization_value(&self) -> Result<HeaderValue, RequestError> {
        let text = Zeroizing::new(format!("Bearer {}", self.key.expose()));
        let mut value = HeaderValue::from_str(&text)
            .map_err(|_| RequestError::new(RequestErrorCause::Unreadable, "the API key cannot be sent in a header"))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// Formats parameters as the query of a URL.
pub fn query_string(parameters: &[(&str, String)]) -> String {
    let pairs =
        parameters.iter().map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, encode_sets::SEGMENT)));
    pairs.collect::<Vec<_>>().join("&")
}

/// Describes a redirect to which the key must not be sent, with advice.
fn describe_follow_error(error: FollowRedirectsError) -> RequestError {
    let (status, why) = match error {
        FollowRedirectsError::Request(error) => return error,
        FollowRedirectsError::Refused { status, why } => (status, why),
    };
    let message = match why {
        RedirectRefusal::TooMany(max_redirects) => {
            let message = format!("the API redirects more than {max_redirects} times");
            return RequestError::new(RequestErrorCause::RefusedRedirect, message);
        }
        RedirectRefusal::OtherOrigin(target) => {
            format!(
                "the API redirects to {target}, where the key must not be sent; if that address is right, correct api.baseUrl"
            )
        }
        RedirectRefusal::Credentials(target) => format!(
            "the API redirects to {target} with a user name or a password; only the key may authenticate the request"
        ),
        RedirectRefusal::ChangesMethod(target) => format!("the API redirects a POST to {target}; correct api.baseUrl"),
        RedirectRefusal::NoLocation | RedirectRefusal::UnusableTarget(_) | RedirectRefusal::LeavesHttps(_) => {
            why.to_string()
        }
    };
    RequestError::new(RequestErrorCause::RefusedRedirect, format!("{status}: {message}"))
}

/// Converts an error response. The status decides; as much of the body is quoted as arrives within
/// [`ERROR_BODY_TIMEOUT`].
async fn read_error_response(
    mut response: reqwest::Response,
    url: &SafeUrl,
    redactor: &SecretRedactor,
) -> RequestError {
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let mut body = Vec::new();
    let read_body = async {
        while let Some(chunk) = response.chunk().await.map_err(|error| RequestError::from_client(error, url))? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_ERROR_BODY_BYTES {
                break;
            }
        }
        Ok::<(), RequestError>(())
    };
    let incomplete = match tokio::time::timeout(ERROR_BODY_TIMEOUT, read_body).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => {
            let timeout = docwharf_base::net::format_seconds(ERROR_BODY_TIMEOUT);
            Some(format!("the response was not complete within {timeout}"))
        }
    };
    let error = RequestError::from_response(status, &headers, &body, redactor);
    // Only a complete response means that the server has started no job.
    match incomplete {
        Some(reason) if status >= 500 => error.into_no_usable_response(&reason),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use docwharf_base::net::NetworkSettings;
    use docwharf_base::net::client::build_client;

    use super::*;

    fn api(key: &str) -> ApiClient {
        let base = SafeUrl::parse("https://api.example/v1/").unwrap();
        let http = build_client(&NetworkSettings::default()).unwrap();
        ApiClient::new(http, base, Secret::new(key.to_owned()), Duration::from_secs(30), 10)
    }

    #[test]
    fn a_refused_redirect_names_the_setting_to_correct() {
        let target = || "https://other/x".to_owned();
        for (why, message) in [
            (RedirectRefusal::NoLocation, "302: a redirect without a usable Location"),
            (RedirectRefusal::UnusableTarget("x".to_owned()), "302: a redirect with an unusable target: x"),
            (RedirectRefusal::LeavesHttps(target()), "302: a redirect from https to plain https://other/x"),
            (
                RedirectRefusal::OtherOrigin(target()),
                "302: the API redirects to https://other/x, where the key must not be sent; \
                 if that address is right, correct api.baseUrl",
            ),
            (
                RedirectRefusal::Credentials(target()),
                "302: the API redirects to https://other/x with a user name or a password; \
                 only the key may authenticate the request",
            ),
            (
                RedirectRefusal::ChangesMethod(target()),
                "302: the API redirects a POST to https://other/x; correct api.baseUrl",
            ),
            (RedirectRefusal::TooMany(10), "the API redirects more than 10 times"),
        ] {
            let error = describe_follow_error(FollowRedirectsError::Refused { status: 302, why });
            assert_eq!((error.cause, error.to_string().as_str()), (RequestErrorCause::RefusedRedirect, message));
        }
        let no_response = RequestError::new(RequestErrorCause::NoUsableResponse, "x");
        assert_eq!(
            describe_follow_error(FollowRedirectsError::Request(no_response)).cause,
            RequestErrorCause::NoUsableResponse
        );
    }

    #[test]
    fn api_key_is_sent_as_a_bearer_token_and_redacted_in_all_output() {
        let api = api("dwk_0123456789");
        let bearer = api.authorization_value().unwrap();
        assert_eq!((bearer.to_str().unwrap(), bearer.is_sensitive()), ("Bearer dwk_0123456789", true));
        assert_eq!(api.redactor().redact("dwk_0123456789"), "***");
        assert!(!format!("{api:?}").contains("dwk_"), "{api:?}");
        for key in ["a\nb", "a\0b", "a\u{7f}b"] {
            assert_eq!(
                self::api(key).authorization_value().unwrap_err().cause,
                RequestErrorCause::Unreadable,
                "{key:?}"
            );
        }
    }
}
