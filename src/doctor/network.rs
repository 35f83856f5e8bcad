//! Checks names, TLS and servers. The API is asked for a job that does not exist, which starts nothing and shows
//! whether it accepts the key. A probe is read as in a sync. A link may work only once, so only its host is contacted.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::DATE;

use crate::config::checked::Config;
use docwharf_agent::api::{AccessCheck, ApiClient};
use docwharf_agent::sync::{ApiSource, BundleLocation};
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::net::certificate;
use docwharf_base::net::client::build_client;
use docwharf_base::net::request_error::{RequestError, RequestErrorCause};
use docwharf_base::secret::SafeUrl;

use super::{Check, proxy};

const PROBE: &str = "probe";
/// A certificate that expires within this time is a warning.
pub(super) const SOON: Duration = Duration::from_hours(14 * 24);

/// The purpose of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Api,
    Probe,
    Link,
}

/// An address to which a sync would send requests.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) what: What,
    pub(super) url: SafeUrl,
}

/// A `Date` header field of a server, and the local time when it arrived.
#[derive(Debug)]
pub(super) struct Dated {
    pub(super) host: String,
    pub(super) theirs: SystemTime,
    pub(super) ours: SystemTime,
}

/// The results of the network checks.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) checks: Vec<Check>,
    pub(super) dates: Vec<Dated>,
    /// Lines that begin with a host whose certificate is trusted, followed by its expiry.
    trusted: Vec<String>,
    /// Whether a certificate was not trusted.
    distrusted: bool,
}

/// Returns every address to which a sync with this configuration would send requests.
pub(super) fn targets(config: &Config) -> Vec<Target> {
    let intent = &config.intent;
    let mut targets = Vec::new();
    if let Some(api) = &intent.api {
        targets.push(Target { what: What::Api, url: api.base.clone() });
        targets.extend(intent.probes.iter().map(|url| Target { what: What::Probe, url: url.clone() }));
    }
    if let Some(BundleLocation::Link(url)) = &intent.bundle {
        targets.push(Target { what: What::Link, url: url.clone() });
    }
    targets
}

pub(super) async fn look(config: &Config) -> Seen {
    let mut seen = Seen::default();
    let targets = targets(config);
    if targets.is_empty() {
        seen.checks.push(Check::ok("names", "nothing is asked over the network"));
        return seen;
    }
    let lost = seen.names(config, &targets).await;
    let http = match build_client(&config.intent.network) {
        Ok(http) => http,
        Err(error) => {
            seen.checks.push(Check::error("tls", ErrorChain(&error).to_string(), "correct api.caFile"));
            return seen;
        }
    };
    for target in targets.iter().filter(|target| !lost.contains(&target.url.host())) {
        match (target.what, &config.intent.api) {
            (What::Api, Some(api)) => seen.ask_api(config, api, &http).await,
            _ => seen.ask(config, target, &http).await,
        }
    }
    if !seen.trusted.is_empty() {
        seen.checks.push(Check::ok("tls", format!("trusted: {}", seen.trusted.join(", "))));
    } else if !seen.distrusted && targets.iter().all(|target| !target.url.is_encrypted()) {
        seen.checks.push(Check::ok("tls", "not used: no address is https"));
    }
    seen
}

impl Seen {
    /// Looks up each host and returns those that have no address. A host behind a proxy is left to the proxy.
    async fn names(&mut self, config: &Config, targets: &[Target]) -> Vec<String> {
        let matcher = proxy::matcher();
        let (mut found, mut lost): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        for Target { url, .. } in targets {
            let host = url.host();
            if found.iter().any(|line| line.starts_with(&format!("{host} "))) || lost.contains(&host) {
                continue;
            }
            if matcher.as_ref().is_some_and(|matcher| proxy::through(matcher, url).is_some()) {
                found.push(format!("{host} is the proxy's to find"));
                continue;
            }
            let name = url.expose().host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let port = url.expose().port_or_known_default().unwrap_or(443);
            let asked =
                tokio::time::timeout(config.intent.network.connect_timeout, tokio::net::lookup_host((name, port)));
            let why = match asked.await {
                Ok(Ok(mut addresses)) => match addresses.next() {
                    Some(address) => {
                        found.push(format!("{host} is {}", address.ip()));
                        continue;
                    }
                    None => "it has no address".to_owned(),
                },
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer in time".to_owned(),
            };
            self.checks.push(Check::error(
                "names",
                format!("{host}: {why}"),
                "check the name, /etc/resolv.conf, and whether this machine may ask for names",
            ));
            lost.push(host);
        }
        if !found.is_empty() {
            self.checks.push(Check::ok("names", found.join(", ")));
        }
        lost
    }

    async fn ask_api(&mut self, config: &Config, source: &ApiSource, http: &reqwest::Client) {
        // Without a key the API cannot be checked; the check of the key reports that.
        let Ok(key) = source.api_key.read() else { return };
        let network = &config.intent.network;
        let api = ApiClient::new(http.clone(), source.base.clone(), key, network.call_timeout, network.max_redirects);
        match api.check_access().await {
            Ok(greeting) => {
                self.note(&source.base, &greeting.headers, greeting.certificate.as_deref());
                self.checks.push(judge(&source.base.host(), &greeting));
            }
            Err(trouble) => self.trouble("api", &source.base, &trouble),
        }
    }

    async fn ask(&mut self, config: &Config, target: &Target, http: &reqwest::Client) {
        let is_link = target.what == What::Link;
        let name = if is_link { "link" } else { PROBE };
        let url =
            if is_link { target.url.join("/").unwrap_or_else(|_| target.url.clone()) } else { target.url.clone() };
        let sent =
            tokio::time::timeout(config.intent.network.call_timeout, http.get(url.expose().clone()).send()).await;
        let response = match sent {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return self.trouble(name, &url, &RequestError::from_client(error, &url)),
            Err(_) => {
                return self.trouble(name, &url, &RequestError::new(RequestErrorCause::NoResponse, "no answer in time"));
            }
        };
        let certificate = response.extensions().get::<reqwest::tls::TlsInfo>().and_then(|tls| tls.peer_certificate());
        self.note(&url, response.headers(), certificate);
        let status = response.status().as_u16();
        self.checks.push(match status {
            _ if is_link => Check::ok(name, format!("{} answers; the link itself was not tried", url.host())),
            200..400 => Check::ok(name, format!("{url} answers {status}")),
            _ => Check::warning(
                name,
                format!("{url} answers {status}, so changes are not noticed by it"),
                "name pages in sync.probe that change with the content",
            ),
        });
    }

    /// Records the `Date` of a server that has responded, and checks when its certificate expires.
    fn note(&mut self, url: &SafeUrl, headers: &HeaderMap, certificate: Option<&[u8]>) {
        let host = url.host();
        let date = headers.get(DATE).and_then(|value| httpdate::parse_http_date(value.to_str().ok()?).ok());
        if let Some(theirs) = date {
            self.dates.push(Dated { host: host.clone(), theirs, ours: SystemTime::now() });
        }
        if !url.is_encrypted() || self.trusted.iter().any(|line| line.starts_with(&format!("{host} "))) {
            return;
        }
        let Some(end) = certificate.and_then(certificate::parse_not_after) else {
            return self.trusted.push(format!("{host} "));
        };
        let until = docwharf_base::model::units::show_time(end);
        if end.duration_since(SystemTime::now()).is_ok_and(|left| left < SOON) {
            let found = format!("the certificate of {host} ends soon: {until}");
            self.checks.push(Check::warning("tls", found, "have the operator of that server renew it"));
        }
        self.trusted.push(format!("{host} until {until}"));
    }

    fn trouble(&mut self, name: &'static str, url: &SafeUrl, trouble: &RequestError) {
        let found = format!("{}: {trouble}", url.host());
        self.checks.push(match trouble.cause {
            RequestErrorCause::Tls => {
                self.distrusted = true;
                let advice = "if that is the right server, name its root in api.caFile or SSL_CERT_FILE, and check this machine's clock";
                Check::error("tls", found, advice)
            }
            // Exports go on without probes, only less often.
            _ if name == PROBE => Check::warning(name, found, "correct sync.probe; until then only sync.maxAge counts"),
            RequestErrorCause::NotConnected => Check::error(name, found, "check the address, the firewall between, and proxies"),
            _ => Check::error(name, found, "check that this is the right address, then try again"),
        });
    }
}

/// Returns the check for the API's response to the request for a job that does not exist.
fn judge(host: &str, greeting: &AccessCheck) -> Check {
    const NAME: &str = "api";
    let said = &greeting.summary;
    match greeting.status {
        400 | 404 | 422 | 200..300 if greeting.is_json_object => Check::ok(NAME, format!("{host} takes the key")),
        401 => Check::error(
            NAME,
            format!("{host} does not take the key: {said}"),
            "the key is wrong, revoked or has expired: put a valid one in its place",
        ),
        403 => Check::error(
            NAME,
            format!("{host} takes the key, but not for this: {said}"),
            "the plan may lack static export, the key may be read-only, or this machine's address is not allowed",
        ),
        429 | 500.. => Check::warning(NAME, format!("{host} cannot answer at the moment: {said}"), "try again later"),
        300..400 => Check::error(NAME, format!("{host} sends elsewhere: {said}"), "correct api.baseUrl"),
        _ => Check::error(
            NAME,
            format!("{host} does not speak the management API: {said}"),
            "correct api.baseUrl: it ends in /v1",
        ),
    }
}
