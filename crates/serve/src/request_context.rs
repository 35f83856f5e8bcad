//! A request and everything that is derived from it: method class, decoded path, client, route. All but the first are
//! derived at most once, when they are first needed: a response from the cache needs none of them.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::Arc;

use arc_swap::Guard;
use http::{HeaderMap, Method, Request, Uri, Version};
use percent_encoding::{CONTROLS, percent_decode, utf8_percent_encode};

use docwharf_site::lookup::{BasePathMatch, match_base_path};
use docwharf_site::rules::route::{RouteResult, RouteSettings, route_address};
use docwharf_site::sealed_version::SealedVersion;

use super::access::AccessControl;
use super::peer::{ClientIdentity, Peer};
use super::site::Site;

/// A class of methods that are answered in the same manner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MethodClass {
    /// GET: a representation.
    Get,
    /// HEAD: the head of the response to GET.
    Head,
    /// OPTIONS: the methods that are supported.
    Options,
    /// Any other method, none of which is supported.
    Unsupported,
}

impl MethodClass {
    fn from_method(method: &Method) -> MethodClass {
        match *method {
            Method::GET => MethodClass::Get,
            Method::HEAD => MethodClass::Head,
            Method::OPTIONS => MethodClass::Options,
            _ => MethodClass::Unsupported,
        }
    }
}

/// A request to a site, with the version and the access control that were in force when its processing began.
pub(super) struct RequestContext<'r> {
    site: &'r Site,
    version: Guard<Option<Arc<SealedVersion>>>,
    access_control: Guard<Arc<AccessControl>>,
    peer: Option<Peer>,
    method: &'r Method,
    target: &'r Uri,
    protocol: Version,
    headers: &'r HeaderMap,
    decoded_path: OnceCell<Cow<'r, [u8]>>,
    client: OnceCell<ClientIdentity>,
    route: OnceCell<RouteResult>,
}

impl<'r> RequestContext<'r> {
    /// Begins the processing of a request. Without a `peer` the request was received through the control socket.
    pub(super) fn new<B>(site: &'r Site, request: &'r Request<B>, peer: Option<Peer>) -> RequestContext<'r> {
        RequestContext {
            site,
            version: site.load_served_version(),
            access_control: site.access_control(),
            peer,
            method: request.method(),
            target: request.uri(),
            protocol: request.version(),
            headers: request.headers(),
            decoded_path: OnceCell::new(),
            client: OnceCell::new(),
            route: OnceCell::new(),
        }
    }

    /// Continues the processing of a request that began while `version` was served; `None` means the version that is
    /// served now.
    pub(super) fn with_version(self, version: Option<Arc<SealedVersion>>) -> RequestContext<'r> {
        match version {
            Some(version) => RequestContext { version: Guard::from_inner(Some(version)), ..self },
            None => self,
        }
    }

    /// Returns the site that the request is for.
    pub(super) fn site(&self) -> &'r Site {
        self.site
    }

    /// Returns the version that is served, if there is one.
    pub(super) fn version(&self) -> Option<&SealedVersion> {
        self.version.as_deref()
    }

    /// Returns the version that is served, for use after this request.
    pub(super) fn shared_version(&self) -> Option<Arc<SealedVersion>> {
        Option::clone(&self.version)
    }

    /// Returns the access control in force.
    pub(super) fn access_control(&self) -> &AccessControl {
        &self.access_control
    }

    /// Returns the method.
    pub(super) fn method(&self) -> &'r Method {
        self.method
    }

    /// Returns the class of the method.
    pub(super) fn method_class(&self) -> MethodClass {
        MethodClass::from_method(self.method)
    }

    /// Returns whether the response is sent without its body.
    pub(super) fn is_head(&self) -> bool {
        self.method_class() == MethodClass::Head
    }

    /// Returns the request target.
    pub(super) fn target(&self) -> &'r Uri {
        self.target
    }

    /// Returns the version of HTTP.
    pub(super) fn protocol(&self) -> Version {
        self.protocol
    }

    /// Returns the header fields.
    pub(super) fn headers(&self) -> &'r HeaderMap {
        self.headers
    }

    /// Returns the path of the target, percent-decoded, with its leading slash.
    pub(super) fn decoded_path(&self) -> &[u8] {
        self.decoded_path.get_or_init(|| percent_decode(self.target.path().as_bytes()).into())
    }

    /// Returns how the decoded path relates to the base path.
    pub(super) fn base_path_match(&self) -> BasePathMatch<'_> {
        match_base_path(&self.site.settings.base_path, self.decoded_path())
    }

    /// Returns the decoded path within the site, with its leading slash; `None` if the path is not below the base path.
    pub(super) fn path_in_site(&self) -> Option<&[u8]> {
        let BasePathMatch::Inside(_) = self.base_path_match() else { return None };
        // The path includes the slash that ends the base path, because paths in rules begin with one.
        self.decoded_path().get(self.site.settings.base_path.len() - 1..)
    }

    /// Returns the query of the target, percent-encoded where necessary. It may become part of Location. A field value
    /// is ASCII (RFC 9110, 5.5), but the parser accepts any UTF-8 in a request line.
    pub(super) fn query(&self) -> Option<Cow<'r, str>> {
        self.target.query().map(|query| utf8_percent_encode(query, CONTROLS).into())
    }

    /// Returns where the path within the site leads, by the rules that are in force at the first call; `None` if the
    /// path is not below the base path, or there is no version.
    pub(super) fn route(&self) -> Option<&RouteResult> {
        let (version, path) = (self.version()?, self.path_in_site()?);
        Some(self.route.get_or_init(|| self.route_path(version, path)))
    }

    /// Returns where a decoded path within the site, with its leading slash, leads in a version.
    pub(super) fn route_path(&self, version: &SealedVersion, path: &[u8]) -> RouteResult {
        let (settings, rules) = (&self.site.settings, self.site.rules());
        let slashes = settings.slashes.unwrap_or(version.auto_slashes);
        let settings = RouteSettings { base_path: &settings.base_path, slashes, rules: &rules };
        route_address(version, &settings, path, self.query().as_deref())
    }

    /// Returns the peer of the connection; `None` if the request was received through the control socket.
    pub(super) fn peer(&self) -> Option<Peer> {
        self.peer
    }

    /// Returns the client that sent the request.
    pub(super) fn client(&self) -> ClientIdentity {
        *self.client.get_or_init(|| ClientIdentity::identify(&self.access_control.proxies, self.peer, self.headers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SiteSettings;

    fn context<'r>(site: &'r Site, request: &'r Request<()>) -> RequestContext<'r> {
        RequestContext::new(site, request, None)
    }

    #[test]
    fn a_path_is_decoded_once_and_placed_relative_to_the_base_path() {
        let site = Site::new(SiteSettings { base_path: "/docs/".to_owned(), ..SiteSettings::default() });
        for (target, decoded, in_site) in [
            ("/docs/", "/docs/", Some("/")),
            ("/docs/a%20b?c%20d", "/docs/a b", Some("/a b")),
            ("/%64ocs/a", "/docs/a", Some("/a")),
            ("/docs", "/docs", None),
            ("/", "/", None),
            ("/other/a", "/other/a", None),
        ] {
            let request = Request::get(target).body(()).unwrap();
            let context = context(&site, &request);
            let first = context.decoded_path().as_ptr();
            assert_eq!(context.decoded_path(), decoded.as_bytes(), "{target}");
            assert_eq!(context.path_in_site(), in_site.map(str::as_bytes), "{target}");
            assert_eq!(context.decoded_path().as_ptr(), first, "{target}");
        }
    }

    #[test]
    fn only_get_head_and_options_are_supported_methods() {
        let site = Site::new(SiteSettings::default());
        for (method, class) in [
            ("GET", MethodClass::Get),
            ("HEAD", MethodClass::Head),
            ("OPTIONS", MethodClass::Options),
            ("POST", MethodClass::Unsupported),
            ("get", MethodClass::Unsupported),
            ("BREW", MethodClass::Unsupported),
        ] {
            let request = Request::builder().method(method).uri("/").body(()).unwrap();
            let context = context(&site, &request);
            assert_eq!((context.method_class(), context.is_head()), (class, method == "HEAD"), "{method}");
        }
    }
}
