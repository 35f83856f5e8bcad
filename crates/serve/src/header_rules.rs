//! Header fields that rules add to the responses of a path: first the rules of the bundle, then those of the operator.

use http::{Response, StatusCode};

use docwharf_site::external::csp::CspPreset;
use docwharf_site::lookup::SiteFiles;
use docwharf_site::media_types::runs_scripts;
use docwharf_site::rules::header_fields::HeaderFieldRules;
use docwharf_site::rules::operator_restrictions::OperatorRestrictions;

use super::body::ResponseBody;
use super::built_in_resource::is_built_in;
use super::request_context::RequestContext;

/// Adds the fields of the bundle's matching rules to a response about a path of the site. A request that is refused
/// before its path matters gets none. Resources of this program are not a part of the bundle, so they get none, either.
pub(super) fn apply_bundle_rules(context: &RequestContext<'_>, response: &mut Response<ResponseBody>) {
    if let Some(version) = context.version().filter(|_| !is_built_in(response)) {
        apply_rules(context, &version.rules().fields, Some(operator_restrictions(context)), response);
    }
}

/// Adds the fields of the operator's matching rules, to the same responses as [`apply_bundle_rules`].
pub(super) fn apply_operator_rules(context: &RequestContext<'_>, response: &mut Response<ResponseBody>) {
    if context.version().is_some() {
        apply_rules(context, &context.site().rules().fields, None, response);
    }
}

fn apply_rules(
    context: &RequestContext<'_>,
    rules: &HeaderFieldRules,
    restrictions: Option<OperatorRestrictions>,
    response: &mut Response<ResponseBody>,
) {
    let status = response.status();
    if !rules.is_empty()
        && is_about_path(status)
        && let Some(path) = context.path_in_site()
    {
        rules.apply(path, restrictions, status, response.headers_mut());
    }
}

/// Returns the value of Content-Type that rules set in a response with a file; `None` if no rule sets it. The
/// operator's rules replace those of the bundle, and values of several rules are joined, as in the response.
pub(super) fn content_type_of_rules(context: &RequestContext<'_>) -> Option<String> {
    let (bundle, operator) = (&context.version()?.rules().fields, context.site().rules());
    if bundle.is_empty() && operator.fields.is_empty() {
        return None;
    }
    let path = context.path_in_site()?;
    let join = |rules: &HeaderFieldRules| {
        let media_types: Vec<&str> = rules.media_types(path).collect();
        Some(media_types.join(", ")).filter(|_| !media_types.is_empty())
    };
    join(&operator.fields).or_else(|| join(bundle))
}

/// Returns whether a rule sets a media type for the requested path with which scripts may run.
pub(super) fn may_run_scripts(context: &RequestContext<'_>) -> bool {
    let Some(version) = context.version() else { return false };
    let (bundle, operator) = (&version.rules().fields, context.site().rules());
    if bundle.is_empty() && operator.fields.is_empty() {
        return false;
    }
    let Some(path) = context.path_in_site() else { return false };
    bundle.media_types(path).chain(operator.fields.media_types(path)).any(runs_scripts)
}

/// Returns the settings that the bundle's rules must not override: the operator's settings take precedence over it,
/// and the bundle over the defaults.
fn operator_restrictions(context: &RequestContext<'_>) -> OperatorRestrictions {
    let security_headers = &context.site().settings.security_headers;
    OperatorRestrictions {
        sets_referrer_policy: security_headers.referrer.is_some(),
        sets_frame_policy: security_headers.frames.is_some(),
        is_airgapped: security_headers.csp.as_ref().is_some_and(|csp| csp.preset == CspPreset::Airgap),
        restricts_access: !context.access_control().rules.is_open(),
    }
}

fn is_about_path(status: StatusCode) -> bool {
    // A client without access must not learn about paths, not even which rules match them.
    const REFUSED: [StatusCode; 4] =
        [StatusCode::BAD_REQUEST, StatusCode::FORBIDDEN, StatusCode::METHOD_NOT_ALLOWED, StatusCode::NO_CONTENT];
    !REFUSED.contains(&status) && !status.is_server_error()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_rules_apply_to_path_responses_but_not_to_refusals_or_server_errors() {
        for status in [200, 206, 301, 304, 307, 404, 412, 416] {
            assert!(is_about_path(StatusCode::from_u16(status).unwrap()), "{status}");
        }
        for status in [204, 400, 403, 405, 500, 503] {
            assert!(!is_about_path(StatusCode::from_u16(status).unwrap()), "{status}");
        }
    }
}
