//! What goes along with answers to protect readers: `server.csp`, `.cspSize`, `.frames`, `.referrerPolicy`.

use docwharf_base::model::units::parse_size;
use docwharf_serve::dress::{Frames, Protection, REFERRER};
use docwharf_site::outside::csp::{CspPreset, CspRules};

use super::checker::Checker;
use super::raw::Value;

/// Bytes that a policy may have. Servers in front take 4 KiB for all fields of an answer where nobody has said
/// otherwise (nginx's `proxy_buffer_size`), and the other fields need their share.
pub const CSP_SIZE: usize = 3 << 10;
/// Room for what has no hash in it; and what the most patient of servers and browsers take.
const SIZES: (u64, u64) = (1 << 10, 64 << 10);

/// The words of the Referrer Policy recommendation.
const REFERRERS: [&str; 8] = [
    "no-referrer",
    "no-referrer-when-downgrade",
    "same-origin",
    "origin",
    "strict-origin",
    "origin-when-cross-origin",
    REFERRER,
    "unsafe-url",
];

pub(super) fn check(checker: &mut Checker<'_>) -> Protection {
    let referrer = checker.parsed("server.referrerPolicy", parse_referrer);
    let frames = checker.parsed("server.frames", parse_frames);
    let preset = checker.parsed("server.csp", parse_csp).flatten();
    let most = checker.value("server.cspSize", |value| {
        let size = match value {
            Value::Text(text) => parse_size(text)?,
            Value::Number(number) => u64::try_from(*number).unwrap_or(0),
            _ => return Err("a size such as \"3KiB\" is needed".to_owned()),
        };
        if (SIZES.0..=SIZES.1).contains(&size) {
            Ok(size as usize)
        } else {
            Err("a size from 1KiB to 64KiB is needed".to_owned())
        }
    });
    protection(preset, frames, most.unwrap_or(CSP_SIZE), referrer)
}

/// Puts together what was said.
pub fn protection(preset: Option<CspPreset>, frames: Option<Frames>, most: usize, referrer: Option<String>) -> Protection {
    let csp = preset.map(|preset| CspRules { preset, ancestors: frames.unwrap_or_default().ancestors(), max_bytes: most });
    Protection { referrer, frames, csp }
}

/// A preset, or none for `off`.
pub fn parse_csp(text: &str) -> Result<Option<CspPreset>, String> {
    match text {
        "off" => Ok(None),
        "report" => Ok(Some(CspPreset::Report)),
        "connected" => Ok(Some(CspPreset::Connected)),
        "airgap" => Ok(Some(CspPreset::Airgap)),
        _ => Err("\"off\", \"report\", \"connected\" or \"airgap\" is needed".to_owned()),
    }
}

fn parse_frames(text: &str) -> Result<Frames, String> {
    match text {
        "same" => Ok(Frames::Same),
        "none" => Ok(Frames::Nobody),
        "any" => Ok(Frames::Any),
        _ => Err("\"same\", \"none\" or \"any\" is needed".to_owned()),
    }
}

fn parse_referrer(text: &str) -> Result<String, String> {
    match text {
        "off" => Ok(String::new()),
        _ if REFERRERS.contains(&text) => Ok(text.to_owned()),
        _ => Err(format!("\"off\" or one of {} is needed", REFERRERS.join(", "))),
    }
}
