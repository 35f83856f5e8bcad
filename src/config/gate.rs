//! `[gate]` and `[activate]`: the conditions for a version, and whether it becomes active automatically.

use docwharf_agent::sync::ActivationMode;
use docwharf_agent::sync::gate::GateConditions;
use docwharf_site::lookup::AddressSettings;

use super::checker::ValueChecker;

/// Checks the conditions of the gate. A condition that is not set is met by every version.
pub(super) fn check_gate(checker: &mut ValueChecker<'_>, address_settings: AddressSettings) -> GateConditions {
    GateConditions {
        require: check_require(checker),
        min_pages: checker.number("gate.minPages"),
        max_shrink: checker.parsed("gate.maxShrink", parse_percent),
        max_broken_links: checker.number("gate.maxBrokenLinks"),
        address_settings,
    }
}

/// Checks whether versions become active automatically or by a command (`activate.mode`).
pub(super) fn check_activation(checker: &mut ValueChecker<'_>) -> ActivationMode {
    let modes = [("auto", ActivationMode::Auto), ("manual", ActivationMode::Manual)];
    checker.word("activate.mode", &modes).unwrap_or_default()
}

fn check_require(checker: &mut ValueChecker<'_>) -> Vec<String> {
    let texts = checker.texts("gate.require").unwrap_or_default();
    let texts: Vec<String> = texts.into_iter().filter(|text| !text.is_empty()).collect();
    match texts.iter().map(|text| check_address(text)).collect::<Result<Vec<()>, String>>() {
        Ok(_) => texts,
        Err(why) => {
            checker.value::<()>("gate.require", |_| Err(why));
            Vec::new()
        }
    }
}

/// Checks the path of a page as clients request it, percent-encoded where necessary.
fn check_address(text: &str) -> Result<(), String> {
    let plain = text.starts_with('/') && !text.contains(['?', '#']) && !text.chars().any(char::is_control);
    let wrong =
        || format!("{text:?} is not the address of a page: write it like \"/guides/start\", without host and query");
    plain.then_some(()).ok_or_else(wrong)
}

/// Parses whole percent, such as `30%`.
fn parse_percent(text: &str) -> Result<u8, String> {
    let number = text.strip_suffix('%').map(str::trim_end).filter(|n| n.bytes().all(|b| b.is_ascii_digit()));
    let percent = number.and_then(|number| number.parse().ok()).filter(|&percent| percent <= 100);
    percent.ok_or_else(|| "whole percent from \"0%\" to \"100%\" are needed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_are_whole_and_at_most_a_hundred() {
        for (text, percent) in [("0%", 0), ("30%", 30), ("30 %", 30), ("100%", 100)] {
            assert_eq!(parse_percent(text), Ok(percent), "{text}");
        }
        for text in ["", "%", "30", "101%", "-1%", "+1%", "1.5%", "30%%", "300%"] {
            assert!(parse_percent(text).is_err(), "{text}");
        }
    }

    #[test]
    fn gate_address_has_neither_host_nor_query() {
        assert!(check_address("/").is_ok() && check_address("/a%20b/ä").is_ok());
        for text in ["", "a", "https://x.example/", "/a?b", "/a#b", "/a\nb"] {
            assert!(check_address(text).is_err(), "{text}");
        }
    }
}
