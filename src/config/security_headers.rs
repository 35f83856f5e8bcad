//! Response headers that protect readers: `server.csp`, `.cspSize`, `.frames`, `.referrerPolicy`.

use docwharf_base::model::deployment::DeploymentType;
use docwharf_base::model::units::parse_size;
use docwharf_serve::security_headers::{DEFAULT_REFERRER_POLICY, FramePolicy, SecurityHeaderSettings};
use docwharf_site::external::csp::{CspPreset, CspSettings};

use super::checker::ValueChecker;
use super::key_table::size_range;
use super::written_value::ConfigValue;

/// The default of `server.cspSize`: the length in bytes above which a policy omits hash sources. By default, a reverse
/// proxy accepts 4 KiB for all header fields of a response (nginx's `proxy_buffer_size`), and the other fields need a
/// part of them.
pub const DEFAULT_CSP_BYTES: usize = 3 << 10;

/// The values of `Referrer-Policy` (W3C Referrer Policy, section 3).
const REFERRER_POLICIES: [&str; 8] = [
    "no-referrer",
    "no-referrer-when-downgrade",
    "same-origin",
    "origin",
    "strict-origin",
    "origin-when-cross-origin",
    DEFAULT_REFERRER_POLICY,
    "unsafe-url",
];

pub(super) fn check_security_headers(
    checker: &mut ValueChecker<'_>,
    deployment_type: DeploymentType,
) -> SecurityHeaderSettings {
    let referrer = checker.parsed("server.referrerPolicy", parse_referrer);
    let frames = checker.word(
        "server.frames",
        &[("same", FramePolicy::SameOrigin), ("none", FramePolicy::Deny), ("any", FramePolicy::Any)],
    );
    let preset = checker.parsed("server.csp", parse_csp).unwrap_or_else(|| default_csp(deployment_type));
    // The minimum is enough for a policy without hashes; the maximum is what servers and browsers accept.
    let (min, max) = checker.number_bounds("server.cspSize");
    let size = checker.value("server.cspSize", |value| {
        let size = match value {
            ConfigValue::Text(text) => parse_size(text)?,
            ConfigValue::Number(number) => u64::try_from(*number).unwrap_or(0),
            _ => return Err("a size such as \"3KiB\" is needed".to_owned()),
        };
        let fits = (min..=max).contains(&size);
        if fits { Ok(size as usize) } else { Err(format!("a size from {} is needed", size_range(min, max))) }
    });
    security_header_settings(preset, frames, size.unwrap_or(DEFAULT_CSP_BYTES), referrer)
}

/// Returns the default of `server.csp`. Where docwharf must not reach other networks, readers should not either.
fn default_csp(deployment_type: DeploymentType) -> Option<CspPreset> {
    (deployment_type == DeploymentType::AirGapped).then_some(CspPreset::Airgap)
}

/// Combines the values of the keys.
pub fn security_header_settings(
    preset: Option<CspPreset>,
    frames: Option<FramePolicy>,
    max_bytes: usize,
    referrer: Option<String>,
) -> SecurityHeaderSettings {
    let csp =
        preset.map(|preset| CspSettings { preset, ancestors: frames.unwrap_or_default().frame_ancestors(), max_bytes });
    SecurityHeaderSettings { referrer, frames, csp }
}

/// Parses a preset; `None` for `off`.
pub fn parse_csp(text: &str) -> Result<Option<CspPreset>, String> {
    match text {
        "off" => Ok(None),
        "report" => Ok(Some(CspPreset::Report)),
        "connected" => Ok(Some(CspPreset::Connected)),
        "airgap" => Ok(Some(CspPreset::Airgap)),
        _ => Err("\"off\", \"report\", \"connected\" or \"airgap\" is needed".to_owned()),
    }
}

fn parse_referrer(text: &str) -> Result<String, String> {
    match text {
        "off" => Ok(String::new()),
        _ if REFERRER_POLICIES.contains(&text) => Ok(text.to_owned()),
        _ => Err(format!("\"off\" or one of {} is needed", REFERRER_POLICIES.join(", "))),
    }
}
