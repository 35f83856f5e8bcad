//! Who may read the site: addresses, and those whom a proxy has signed in. A refusal says nothing about what there is.

use http::header::{CONNECTION, STRICT_TRANSPORT_SECURITY, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};

use super::body::Body;
use super::cidr::Networks;
use super::peer::Client;
use super::{Site, reply};

/// What a request must fulfil; all of it. By default nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// The client's address lies in one of these.
    pub allow: Option<Networks>,
    /// It comes through a trusted proxy, which names in this field who has signed in.
    pub header: Option<HeaderName>,
}

/// Who comes in, and whose word counts about who stands there: exchangeable under a running server, and asked anew for each
/// request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Door {
    /// Who may read.
    pub access: Access,
    /// Proxies whose word is believed about who asks.
    pub proxies: Networks,
}

impl Access {
    /// Whether everybody may read.
    pub fn is_open(&self) -> bool {
        self.allow.is_none() && self.header.is_none()
    }

    fn admits(&self, client: Client, headers: &HeaderMap) -> bool {
        // Behind a proxy that does not say for whom it speaks, the address says nothing about who asks.
        let may = |allow: &Networks| client.is_known && allow.contains(client.address);
        self.allow.as_ref().is_none_or(may) && (self.header.is_none() || self.user(client, headers).is_some())
    }

    /// Who has signed in, as a trusted proxy says. A field that is there twice was added by the client, too.
    pub fn user<'a>(&self, client: Client, headers: &'a HeaderMap) -> Option<&'a HeaderValue> {
        let mut values = headers.get_all(self.header.as_ref()?).iter();
        let user = values.next().filter(|_| client.is_by_proxy && values.next().is_none())?;
        (!user.as_bytes().trim_ascii().is_empty()).then_some(user)
    }
}

/// The refusal of a request that may not be answered: the same for every address and method.
pub(super) fn refuse<B>(site: &Site, request: &Request<B>) -> Option<Response<Body>> {
    let door = site.door();
    if door.access.is_open() || door.access.admits(Client::of(&door.proxies, request), request.headers()) {
        return None;
    }
    let mut response = reply::forbidden(request.method() == Method::HEAD);
    if request.headers().contains_key(TRANSFER_ENCODING) {
        // As for every other resource: what follows such a head cannot be trusted (RFC 9112, section 6.1).
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Some(response)
}

/// Strict-Transport-Security, where it is configured and the client speaks https (RFC 6797, section 7.2).
pub(super) fn insist_on_tls<B>(site: &Site, request: &Request<B>, headers: &mut HeaderMap) {
    if let Some(hsts) = &site.settings.hsts
        && Client::of(&site.door().proxies, request).is_https
    {
        headers.insert(STRICT_TRANSPORT_SECURITY, hsts.clone());
    }
}
