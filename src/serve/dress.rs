//! What goes along with every answer, whatever it is.

use http::header::X_CONTENT_TYPE_OPTIONS;
use http::{HeaderValue, Request, Response};

use crate::site::sealed::Sealed;

use super::Site;
use super::access::insist_on_tls;
use super::body::Body;

/// Adds to an answer what does not depend on how it came about. `version` is what was served when the request began.
pub fn dress<B>(site: &Site, _version: Option<&Sealed>, request: &Request<B>, response: &mut Response<Body>) {
    if !response.status().is_informational() {
        response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
    insist_on_tls(site, request, response.headers_mut());
}
