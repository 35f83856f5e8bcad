//! Access control: decides by client address, and by the user that a trusted proxy has authenticated, which requests
//! may read the site. A refusal is the same for paths that exist and paths that do not.

use http::header::{CONNECTION, STRICT_TRANSPORT_SECURITY, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};

use super::body::ResponseBody;
use super::cidr::IpRanges;
use super::fixed_responses;
use super::peer::ClientIdentity;
use super::site::Site;

/// The conditions that a request must meet to be answered, all of them. The default has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessPolicy {
    /// The client's address must lie in one of these ranges.
    pub allow: Option<IpRanges>,
    /// The request must come through a trusted proxy that names the authenticated user in this field.
    pub user_header: Option<HeaderName>,
}

/// The access conditions and the proxies they rely on. It can be replaced while the server runs, and is read anew for
/// each request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessControl {
    /// The conditions for reading the site.
    pub access: AccessPolicy,
    /// The proxies whose forwarding fields are believed.
    pub proxies: IpRanges,
}

impl AccessPolicy {
    /// Returns whether every client may read the site.
    pub fn is_open(&self) -> bool {
        self.allow.is_none() && self.user_header.is_none()
    }

    fn admits(&self, client: ClientIdentity, headers: &HeaderMap) -> bool {
        // Behind a proxy that does not name its client, the address of the connection is not the client's.
        let may = |allow: &IpRanges| client.is_known && allow.contains(client.address);
        self.allow.as_ref().is_none_or(may) && (self.user_header.is_none() || self.user(client, headers).is_some())
    }

    /// Returns the authenticated user as a trusted proxy names it. If the field occurs twice, one of the two comes from
    /// the client, so neither counts.
    pub fn user<'a>(&self, client: ClientIdentity, headers: &'a HeaderMap) -> Option<&'a HeaderValue> {
        let mut values = headers.get_all(self.user_header.as_ref()?).iter();
        let user = values.next().filter(|_| client.is_by_proxy && values.next().is_none())?;
        (!user.as_bytes().trim_ascii().is_empty()).then_some(user)
    }
}

/// Returns the 403 response if the request may not be answered. It is the same for every path and method.
pub(super) fn check_access<B>(site: &Site, request: &Request<B>) -> Option<Response<ResponseBody>> {
    let door = site.access_control();
    if door.access.is_open() || door.access.admits(ClientIdentity::identify(&door.proxies, request), request.headers())
    {
        return None;
    }
    let mut response = fixed_responses::forbidden(request.method() == Method::HEAD);
    if request.headers().contains_key(TRANSFER_ENCODING) {
        // What follows such a head on the connection cannot be trusted (RFC 9112, section 6.1).
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Some(response)
}

/// Adds Strict-Transport-Security if it is configured and the client uses https (RFC 6797, section 7.2).
pub(super) fn add_hsts<B>(site: &Site, request: &Request<B>, headers: &mut HeaderMap) {
    if let Some(hsts) = &site.settings.hsts
        && ClientIdentity::identify(&site.access_control().proxies, request).is_https
    {
        headers.insert(STRICT_TRANSPORT_SECURITY, hsts.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SiteSettings;
    use crate::peer::Peer;

    const LISTED: &str = "192.0.2.7";
    const OTHER: &str = "203.0.113.7";

    fn access(is_listed: bool, is_named: bool) -> AccessPolicy {
        AccessPolicy {
            allow: is_listed.then(|| IpRanges::parse(&["192.0.2.0/24"]).unwrap()),
            user_header: is_named.then(|| HeaderName::from_static("x-user")),
        }
    }

    #[test]
    fn whatever_is_configured_must_hold_and_a_user_is_who_the_proxy_alone_has_named() {
        // Whether there is a list of ranges and a user field; the client's address, whether it is known, whether it
        // comes through a trusted proxy; the values of the user field; whether the request is admitted.
        for (lists, names, address, is_known, is_by_proxy, users, expected) in [
            (false, false, OTHER, true, false, &[][..], true),
            (false, false, OTHER, false, true, &[], true),
            (true, false, LISTED, true, false, &[], true),
            (true, false, LISTED, true, true, &[], true),
            (true, false, LISTED, false, true, &["anna"], false),
            (true, false, OTHER, true, true, &["anna"], false),
            (false, true, OTHER, true, true, &["anna"], true),
            (false, true, OTHER, false, true, &[" anna "], true),
            (false, true, OTHER, true, false, &["anna"], false),
            (false, true, OTHER, true, true, &[], false),
            (false, true, OTHER, true, true, &[""], false),
            (false, true, OTHER, true, true, &[" \t "], false),
            (false, true, OTHER, true, true, &["root", "anna"], false),
            (false, true, OTHER, true, true, &["anna", "anna"], false),
            (false, true, OTHER, true, true, &["anna", ""], false),
            (true, true, LISTED, true, true, &["anna"], true),
            (true, true, LISTED, true, true, &[], false),
            (true, true, LISTED, true, false, &["anna"], false),
            (true, true, LISTED, false, true, &["anna"], false),
            (true, true, OTHER, true, true, &["anna"], false),
        ] {
            let what = format!("{lists} {names} {address} {is_known} {is_by_proxy} {users:?}");
            let access = access(lists, names);
            assert_eq!(access.is_open(), !lists && !names, "{what}");
            let mut headers = HeaderMap::new();
            for user in users {
                headers.append("x-user", user.parse().unwrap());
            }
            let client = ClientIdentity { address: address.parse().unwrap(), is_known, is_https: false, is_by_proxy };
            assert_eq!(access.admits(client, &headers), expected, "{what}");
            let is_user = names && is_by_proxy && matches!(users, [user] if !user.trim().is_empty());
            assert_eq!(access.user(client, &headers).is_some(), is_user, "{what}");
        }
        let nobody = AccessPolicy { allow: Some(IpRanges::default()), user_header: None };
        assert!(!nobody.is_open(), "a list without a range lets nobody in");
    }

    fn request(method: Method, fields: &[(HeaderName, &str)], is_encrypted: bool) -> Request<()> {
        let mut request = Request::new(());
        *request.method_mut() = method;
        for (name, value) in fields {
            request.headers_mut().append(name.clone(), value.parse().unwrap());
        }
        let address = (OTHER.parse::<std::net::IpAddr>().unwrap(), 4711).into();
        request.extensions_mut().insert(Peer { address, is_encrypted });
        request
    }

    #[test]
    fn a_refusal_closes_only_where_what_follows_the_head_cannot_be_trusted() {
        let door = AccessControl { access: access(true, false), proxies: IpRanges::default() };
        let closed = Site::new(SiteSettings { access_control: door, ..SiteSettings::default() });
        let open = Site::new(SiteSettings::default());
        let chunked = (TRANSFER_ENCODING, "chunked");
        for (method, fields, closes) in [
            (Method::GET, &[][..], false),
            (Method::HEAD, &[], false),
            (Method::POST, &[], false),
            (Method::GET, std::slice::from_ref(&chunked), true),
        ] {
            let request = request(method.clone(), fields, false);
            assert!(check_access(&open, &request).is_none(), "{method}");
            let answer = check_access(&closed, &request).unwrap();
            assert_eq!(answer.status(), 403, "{method}");
            assert_eq!(answer.headers().get(CONNECTION).is_some_and(|value| value == "close"), closes, "{method}");
            assert_eq!(answer.body().is_empty(), method == Method::HEAD, "{method}");
        }
        closed.set_access_control(AccessControl { access: access(false, false), proxies: IpRanges::default() });
        assert!(check_access(&closed, &request(Method::GET, &[], false)).is_none(), "who may read can change");
    }

    #[test]
    fn strict_transport_security_is_for_those_who_speak_https_where_it_is_configured() {
        let value = HeaderValue::from_static("max-age=60");
        let proxies = IpRanges::parse(&[OTHER]).unwrap();
        let https = (HeaderName::from_static("x-forwarded-proto"), "https");
        for (is_configured, is_trusted, fields, is_encrypted, expected) in [
            (true, false, &[][..], true, true),
            (true, false, &[], false, false),
            (true, false, std::slice::from_ref(&https), false, false),
            (true, true, std::slice::from_ref(&https), false, true),
            (true, true, &[], false, false),
            (false, true, std::slice::from_ref(&https), true, false),
        ] {
            let proxies = if is_trusted { proxies.clone() } else { IpRanges::default() };
            let door = AccessControl { access: AccessPolicy::default(), proxies };
            let hsts = is_configured.then(|| value.clone());
            let site = Site::new(SiteSettings { access_control: door, hsts, ..SiteSettings::default() });
            let mut headers = HeaderMap::new();
            add_hsts(&site, &request(Method::GET, fields, is_encrypted), &mut headers);
            let sent = headers.get(STRICT_TRANSPORT_SECURITY);
            assert_eq!(sent, Some(&value).filter(|_| expected), "{is_configured} {is_trusted} {is_encrypted}");
        }
    }
}
