//! Checks names, TLS and servers. The API gets a request for a job that does not exist, which starts nothing and shows
//! whether the API accepts the key. A probe is read as in a sync. A link may work only once, so only its host is
//! contacted.

use std::time::{Duration, SystemTime};

use http::header::DATE;
use http::{HeaderMap, Method};
use hyper_util::client::proxy::matcher::Matcher;

use crate::config::checked::Config;
use docwharf_agent::api::{ApiClient, ApiProbeResponse};
use docwharf_agent::sync::{ApiSource, BundleLocation};
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::net::certificate;
use docwharf_base::net::client::{HttpClient, build_client};
use docwharf_base::net::connect::{self, LookupError};
use docwharf_base::net::request_error::{RequestError, RequestErrorCause};
use docwharf_base::secret::SafeUrl;

use super::check::DoctorCheck;
use super::{playground, proxy_rules};

const PROBE_CHECK_NAME: &str = "probe";
/// The advice for a name that the system cannot look up.
const NAME_ADVICE: &str = "check the name, /etc/resolv.conf, and whether this machine may send DNS queries";
/// A certificate that expires within this time is a warning.
pub(super) const EXPIRY_WARNING_PERIOD: Duration = Duration::from_hours(14 * 24);

/// The purpose of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetPurpose {
    Api,
    Probe,
    Link,
    /// The origin to which analytics are delivered.
    Delivery,
    /// The endpoint of the model that answers questions.
    Model,
    /// An API to which pages may send requests.
    Playground,
}

/// An address to which a sync, a delivery or a request of a reader would lead.
#[derive(Debug, Clone)]
pub(super) struct NetworkTarget {
    pub(super) purpose: TargetPurpose,
    pub(super) url: SafeUrl,
}

impl NetworkTarget {
    /// Returns whether requests to this address may go through a proxy. The playground uses none, because a proxy would
    /// choose the address; nor does a model on this machine, because a proxy would look for it on its own.
    fn uses_proxies(&self) -> bool {
        match self.purpose {
            TargetPurpose::Api | TargetPurpose::Probe | TargetPurpose::Link | TargetPurpose::Delivery => true,
            TargetPurpose::Model => !self.url.is_loopback(),
            TargetPurpose::Playground => false,
        }
    }

    /// Returns the proxy through which requests to this address go, without user name and password.
    pub(super) fn proxy(&self, matcher: Option<&Matcher>) -> Option<String> {
        matcher.filter(|_| self.uses_proxies()).and_then(|matcher| proxy_rules::proxy_for(matcher, &self.url))
    }
}

/// A `Date` header field of a server, and the local time when it arrived.
#[derive(Debug)]
pub(super) struct ServerDate {
    pub(super) host: String,
    pub(super) server_time: SystemTime,
    pub(super) local_time: SystemTime,
}

/// The results of the network checks.
#[derive(Debug, Default)]
pub(super) struct NetworkResults {
    pub(super) checks: Vec<DoctorCheck>,
    pub(super) dates: Vec<ServerDate>,
    /// Lines that begin with a host whose certificate is trusted, followed by its expiry.
    trusted: Vec<String>,
    /// Whether a certificate was not trusted.
    has_untrusted: bool,
}

/// Returns every address to which the daemon with this configuration would send requests.
pub(super) fn targets(config: &Config) -> Vec<NetworkTarget> {
    let sync_settings = &config.sync_settings;
    let mut targets = Vec::new();
    if let Some(api) = &sync_settings.api {
        targets.push(NetworkTarget { purpose: TargetPurpose::Api, url: api.base.clone() });
        targets.extend(
            sync_settings.probes.iter().map(|url| NetworkTarget { purpose: TargetPurpose::Probe, url: url.clone() }),
        );
    }
    if let Some(BundleLocation::Link(url)) = &sync_settings.bundle {
        targets.push(NetworkTarget { purpose: TargetPurpose::Link, url: url.clone() });
    }
    if let Some(delivery) = &config.analytics.deliver {
        targets.push(NetworkTarget { purpose: TargetPurpose::Delivery, url: delivery.base.clone() });
    }
    if let Some(ask) = &config.assistant.ask {
        targets.push(NetworkTarget { purpose: TargetPurpose::Model, url: ask.base_url.clone() });
    }
    if config.playground.enabled {
        let origins = config.playground.origins().into_iter();
        let urls = origins.filter_map(|(origin, _)| SafeUrl::parse(&origin).ok());
        targets.extend(urls.map(|url| NetworkTarget { purpose: TargetPurpose::Playground, url }));
    }
    targets
}

pub(super) async fn check_network(config: &Config) -> NetworkResults {
    let mut results = NetworkResults::default();
    let targets = targets(config);
    if targets.is_empty() {
        results.checks.push(DoctorCheck::ok("names", "not needed: no requests are sent over the network"));
        return results;
    }
    let unresolved = results.check_names(config, &targets).await;
    let clients = build_client(&config.sync_settings.network)
        .and_then(|http| Ok((http, build_client(&config.playground.settings.network)?)));
    let (http, http_without_proxies) = match clients {
        Ok(clients) => clients,
        Err(error) => {
            results.checks.push(DoctorCheck::error("tls", ErrorChain(&error).to_string(), "correct api.caFile"));
            return results;
        }
    };
    for target in targets.iter().filter(|target| !unresolved.contains(&target.url.host())) {
        let http = if target.uses_proxies() { &http } else { &http_without_proxies };
        let refused = match target.purpose {
            TargetPurpose::Playground => playground::check_addresses(&config.playground, &target.url).await,
            _ => None,
        };
        match (target.purpose, &config.sync_settings.api) {
            _ if refused.is_some() => results.checks.extend(refused),
            (TargetPurpose::Api, Some(api)) => results.check_api(config, api, http).await,
            _ => results.check_target(config, target, http).await,
        }
    }
    if !results.trusted.is_empty() {
        results.checks.push(DoctorCheck::ok("tls", format!("trusted: {}", results.trusted.join(", "))));
    } else if !results.has_untrusted && targets.iter().all(|target| !target.url.is_encrypted()) {
        results.checks.push(DoctorCheck::ok("tls", "not used: no address is https"));
    }
    results
}

impl NetworkResults {
    /// Looks up each host and returns those that have no address. The name of a host behind a proxy is left to the
    /// proxy.
    async fn check_names(&mut self, config: &Config, targets: &[NetworkTarget]) -> Vec<String> {
        let network = &config.sync_settings.network;
        let matcher = proxy_rules::matcher(&network.outbound);
        let (mut resolved, mut unresolved): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        for target in targets {
            let NetworkTarget { url, .. } = target;
            let host = url.host();
            if resolved.iter().any(|line| line.starts_with(&format!("{host} "))) || unresolved.contains(&host) {
                continue;
            }
            if target.proxy(matcher.as_ref()).is_some() {
                resolved.push(format!("{host} is looked up by the proxy"));
                continue;
            }
            let name = url.expose().host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let port = url.expose().port_or_known_default().unwrap_or(443);
            let lookup = tokio::time::timeout(network.connect_timeout, connect::lookup(&name, port, &network.outbound));
            let (why, advice) = match lookup.await {
                Ok(Ok(addresses)) => match addresses.first() {
                    Some(address) => {
                        resolved.push(format!("{host} is {}", address.ip()));
                        continue;
                    }
                    None => ("it has no address".to_owned(), NAME_ADVICE),
                },
                Ok(Err(error @ LookupError::Outbound(_))) => {
                    (error.to_string(), "correct /etc/hosts or deployment.allow")
                }
                Ok(Err(error)) => (error.to_string(), NAME_ADVICE),
                Err(_) => ("no response in time".to_owned(), NAME_ADVICE),
            };
            self.checks.push(DoctorCheck::error("names", format!("{host}: {why}"), advice));
            unresolved.push(host);
        }
        if !resolved.is_empty() {
            self.checks.push(DoctorCheck::ok("names", resolved.join(", ")));
        }
        unresolved
    }

    async fn check_api(&mut self, config: &Config, source: &ApiSource, http: &HttpClient) {
        // Without a key the API cannot be checked; the check of the key reports that.
        let Ok(key) = source.api_key.read() else { return };
        let network = &config.sync_settings.network;
        let api = ApiClient::new(http.clone(), source.base.clone(), key, network.call_timeout, network.max_redirects);
        match api.probe_api().await {
            Ok(response) => {
                self.record_response(&source.base, &response.headers, response.certificate.as_deref());
                self.checks.push(judge_api_response(&source.base.host(), &response));
            }
            Err(request_error) => self.record_error("api", &source.base, &request_error),
        }
    }

    async fn check_target(&mut self, config: &Config, target: &NetworkTarget, http: &HttpClient) {
        // A link may work once only, and an origin or a model asks for its key. Their servers respond without them.
        let (name, not_tried) = match target.purpose {
            TargetPurpose::Link => ("link", Some("the link itself")),
            TargetPurpose::Delivery => ("delivery", Some("the key")),
            TargetPurpose::Model => ("assistant", Some("the model")),
            TargetPurpose::Playground => (playground::CHECK_NAME, Some("the API itself")),
            TargetPurpose::Api | TargetPurpose::Probe => (PROBE_CHECK_NAME, None),
        };
        let root = not_tried.and_then(|_| target.url.join("/").ok());
        let url = root.unwrap_or_else(|| target.url.clone());
        let request = match http.request(Method::GET, &url) {
            Ok(request) => request,
            Err(error) => return self.record_error(name, &url, &error),
        };
        let sent = tokio::time::timeout(config.sync_settings.network.call_timeout, request.send()).await;
        let response = match sent {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return self.record_error(name, &url, &RequestError::from_client(error, &url)),
            Err(_) => {
                return self.record_error(
                    name,
                    &url,
                    &RequestError::new(RequestErrorCause::NoUsableResponse, "no response in time"),
                );
            }
        };
        let certificate = response.extensions().get::<reqwest::tls::TlsInfo>().and_then(|tls| tls.peer_certificate());
        self.record_response(&url, response.headers(), certificate);
        let status = response.status().as_u16();
        self.checks.push(match (not_tried, status) {
            (Some(what), _) => DoctorCheck::ok(name, format!("{} responds; {what} was not tried", url.host())),
            (None, 200..400) => DoctorCheck::ok(name, format!("{url} responds with {status}")),
            _ => DoctorCheck::warning(
                name,
                format!("{url} responds with {status}, so it shows no changes"),
                "name pages in sync.probe that change with the content",
            ),
        });
    }

    /// Records the `Date` of a server that has responded, and checks when its certificate expires.
    fn record_response(&mut self, url: &SafeUrl, headers: &HeaderMap, certificate: Option<&[u8]>) {
        let host = url.host();
        let date = headers.get(DATE).and_then(|value| httpdate::parse_http_date(value.to_str().ok()?).ok());
        if let Some(server_time) = date {
            self.dates.push(ServerDate { host: host.clone(), server_time, local_time: SystemTime::now() });
        }
        if !url.is_encrypted() || self.trusted.iter().any(|line| line.starts_with(&format!("{host} "))) {
            return;
        }
        let Some(end) = certificate.and_then(certificate::parse_not_after) else {
            return self.trusted.push(format!("{host} "));
        };
        let until = docwharf_base::clock::format_system_time(end);
        if end.duration_since(SystemTime::now()).is_ok_and(|remaining| remaining < EXPIRY_WARNING_PERIOD) {
            let found = format!("the certificate of {host} expires soon: {until}");
            self.checks.push(DoctorCheck::warning("tls", found, "ask the operator of that server to renew it"));
        }
        self.trusted.push(format!("{host} until {until}"));
    }

    fn record_error(&mut self, name: &'static str, url: &SafeUrl, request_error: &RequestError) {
        let found = format!("{}: {request_error}", url.host());
        self.checks.push(match request_error.cause {
            RequestErrorCause::Tls => {
                self.has_untrusted = true;
                let advice = "if that is the right server, name its root certificate in api.caFile or SSL_CERT_FILE, and check this machine's clock";
                DoctorCheck::error("tls", found, advice)
            }
            // Without probes, exports continue, but less often.
            _ if name == PROBE_CHECK_NAME => DoctorCheck::warning(name, found, "correct sync.probe; until then, only sync.maxAge starts exports"),
            RequestErrorCause::NotConnected => DoctorCheck::error(name, found, "check the address, firewalls, and proxies"),
            _ => DoctorCheck::error(name, found, "check that this is the right address, then try again"),
        });
    }
}

/// Returns the check for the API's response to the request for a job that does not exist.
fn judge_api_response(host: &str, response: &ApiProbeResponse) -> DoctorCheck {
    const NAME: &str = "api";
    let summary = &response.summary;
    match response.status {
        400 | 404 | 422 | 200..300 if response.is_json_object => {
            DoctorCheck::ok(NAME, format!("{host} accepts the key"))
        }
        401 => DoctorCheck::error(
            NAME,
            format!("{host} does not accept the key: {summary}"),
            "the key is wrong, revoked or has expired: replace it by a valid one",
        ),
        403 => DoctorCheck::error(
            NAME,
            format!("{host} accepts the key, but not for this request: {summary}"),
            "the plan may lack static export, the key may be read-only, or this machine's address is not allowed",
        ),
        429 | 500.. => {
            DoctorCheck::warning(NAME, format!("{host} cannot respond at the moment: {summary}"), "try again later")
        }
        300..400 => {
            DoctorCheck::error(NAME, format!("{host} redirects to another address: {summary}"), "correct api.baseUrl")
        }
        _ => DoctorCheck::error(
            NAME,
            format!("{host} does not speak the management API: {summary}"),
            "correct api.baseUrl: it ends in /v1",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::CheckStatus::{Error, Ok as Good, Warning};
    use super::*;
    use crate::config::inputs::ConfigInputs;

    #[tokio::test]
    async fn without_an_address_the_check_of_names_says_that_it_is_not_needed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let config_path = Some(file.path().to_owned());
        let config = ConfigInputs { config_path, ignores_environment: true, ..ConfigInputs::default() }.load().unwrap();
        let checks = check_network(&config).await.checks;
        let found: Vec<&str> = checks.iter().map(|check| check.found.as_str()).collect();
        assert_eq!(found, ["not needed: no requests are sent over the network"]);
    }

    #[test]
    fn api_key_check_accepts_only_api_responses_and_its_advice_depends_on_the_status() {
        for (status, is_json_object, expected, found) in [
            (200, true, Good, "api.example accepts the key"),
            (299, true, Good, "api.example accepts the key"),
            (400, true, Good, "api.example accepts the key"),
            (404, true, Good, "api.example accepts the key"),
            (422, true, Good, "api.example accepts the key"),
            (200, false, Error, "api.example does not speak the management API: S"),
            (404, false, Error, "api.example does not speak the management API: S"),
            (405, true, Error, "api.example does not speak the management API: S"),
            (401, true, Error, "api.example does not accept the key: S"),
            (401, false, Error, "api.example does not accept the key: S"),
            (403, true, Error, "api.example accepts the key, but not for this request: S"),
            (429, true, Warning, "api.example cannot respond at the moment: S"),
            (500, false, Warning, "api.example cannot respond at the moment: S"),
            (599, true, Warning, "api.example cannot respond at the moment: S"),
            (300, true, Error, "api.example redirects to another address: S"),
            (399, false, Error, "api.example redirects to another address: S"),
        ] {
            let summary = "S".to_owned();
            let response =
                ApiProbeResponse { status, is_json_object, summary, headers: HeaderMap::new(), certificate: None };
            let check = judge_api_response("api.example", &response);
            assert_eq!((check.status, check.found.as_str()), (expected, found), "{status} {is_json_object}");
            assert_eq!(check.advice.is_none(), expected == Good, "{status} {is_json_object}");
        }
    }
}
