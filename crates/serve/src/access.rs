//! Access control: decides by client address, and by the user that a trusted proxy has authenticated, which requests
//! may read the site.

use http::{HeaderMap, HeaderName, HeaderValue};

use docwharf_base::model::cidr::IpRanges;

use super::peer::ClientIdentity;

/// The conditions that a request must meet to be answered, all of them. The default has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessRules {
    /// The client's address must lie in one of these ranges.
    pub allow: Option<IpRanges>,
    /// The request must be received through a trusted proxy that names the authenticated user in this field.
    pub user_header: Option<HeaderName>,
}

/// The access conditions and the proxies they rely on. It can be replaced while the server runs, and is read anew for
/// each request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessControl {
    /// The conditions for reading the site.
    pub rules: AccessRules,
    /// The proxies whose forwarding fields are believed.
    pub proxies: IpRanges,
}

impl AccessRules {
    /// Returns whether every client may read the site.
    pub fn is_open(&self) -> bool {
        self.allow.is_none() && self.user_header.is_none()
    }

    /// Returns whether a client may read the site.
    pub(super) fn admits(&self, client: ClientIdentity, headers: &HeaderMap) -> bool {
        // Behind a proxy that does not name its client, the address of the connection is not the client's.
        let is_allowed = |allow: &IpRanges| client.is_known && allow.contains(client.address);
        self.allow.as_ref().is_none_or(is_allowed)
            && (self.user_header.is_none() || self.user(client, headers).is_some())
    }

    /// Returns the authenticated user that a trusted proxy names. If the field occurs twice, one of the two is from the
    /// client, so both are ignored.
    pub fn user<'a>(&self, client: ClientIdentity, headers: &'a HeaderMap) -> Option<&'a HeaderValue> {
        let mut values = headers.get_all(self.user_header.as_ref()?).iter();
        let user = values.next().filter(|_| client.is_via_proxy && values.next().is_none())?;
        (!user.as_bytes().trim_ascii().is_empty()).then_some(user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = "192.0.2.7";
    const OTHER: &str = "203.0.113.7";

    fn rules(is_listed: bool, is_named: bool) -> AccessRules {
        AccessRules {
            allow: is_listed.then(|| IpRanges::parse(&["192.0.2.0/24"]).unwrap()),
            user_header: is_named.then(|| HeaderName::from_static("x-user")),
        }
    }

    #[test]
    fn access_requires_every_configured_check_and_one_user_field_from_a_trusted_proxy() {
        // Whether there is a list of ranges and a user field; the client's address, whether it is known, whether it was
        // received through a trusted proxy; the values of the user field; whether the request is admitted.
        for (lists, names, address, is_known, is_via_proxy, users, expected) in [
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
            let case = format!("{lists} {names} {address} {is_known} {is_via_proxy} {users:?}");
            let rules = rules(lists, names);
            assert_eq!(rules.is_open(), !lists && !names, "{case}");
            let mut headers = HeaderMap::new();
            for user in users {
                headers.append("x-user", user.parse().unwrap());
            }
            let client = ClientIdentity {
                address: address.parse().unwrap(),
                is_known,
                is_https: false,
                is_scheme_stated: false,
                is_via_proxy,
            };
            assert_eq!(rules.admits(client, &headers), expected, "{case}");
            let is_user = names && is_via_proxy && matches!(users, [user] if !user.trim().is_empty());
            assert_eq!(rules.user(client, &headers).is_some(), is_user, "{case}");
        }
        let closed = AccessRules { allow: Some(IpRanges::default()), user_header: None };
        assert!(!closed.is_open(), "a list without a range admits no client");
    }
}
