//! Marks the responses of the resources that this program has below `_docwharf/`.

use http::Response;

use super::body::ResponseBody;
use super::search::SearchResource;

/// A mark among the extensions of a response: the bundle has no part in the resource, so its rules do not apply.
/// Responses of the search are marked with [`SearchResource`] instead.
#[derive(Debug, Clone, Copy)]
struct BuiltInResource;

/// Marks the response of a resource of this program.
pub(super) fn mark_built_in(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    response.extensions_mut().insert(BuiltInResource);
    response
}

/// Returns whether a response is that of a resource of this program.
pub(super) fn is_built_in(response: &Response<ResponseBody>) -> bool {
    let extensions = response.extensions();
    extensions.get::<BuiltInResource>().is_some() || extensions.get::<SearchResource>().is_some()
}
