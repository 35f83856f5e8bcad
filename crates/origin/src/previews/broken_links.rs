//! The broken links of a preview: how many there are, and which of them are new compared with production.

use std::fmt::Write as _;

use docwharf_base::error_chain::OneLine;
use docwharf_base::model::units::format_count;
use docwharf_site::link_check::{BrokenLinkComparison, BrokenLinks, compare_broken_links, find_broken_links};
use docwharf_site::lookup::AddressSettings;
use docwharf_site::rules::route::ComparisonBudget;
use docwharf_site::sealed_version::SealedVersion;

/// Maximum number of bytes that are compared to look up the links of a preview and of production: seconds at worst.
const MAX_COMPARED_BYTES: u64 = 1 << 33;
/// Maximum length of an address in a summary, in bytes.
const MAX_SHOWN_ADDRESS_BYTES: usize = 60;

/// Describes the broken links of `version`, compared with `production` if that is known; `None` if `stop` returned true
/// meanwhile. Both are checked as sites that begin at `/`, wherever they are served.
pub(super) fn describe_broken_links(
    version: &SealedVersion,
    production: Option<&SealedVersion>,
    threads: usize,
    stop: &(dyn Fn() -> bool + Sync),
) -> Option<String> {
    let (addresses, budget) = (AddressSettings::default(), ComparisonBudget::new(MAX_COMPARED_BYTES));
    match production {
        Some(production) => {
            let comparison = compare_broken_links(version, production, &addresses, threads, &budget, stop)?;
            Some(describe(&comparison.all, Some(&comparison)))
        }
        None => Some(describe(&find_broken_links(version, &addresses, threads, &budget, stop)?, None)),
    }
}

fn describe(all: &BrokenLinks, comparison: Option<&BrokenLinkComparison>) -> String {
    let mut text = match all.count {
        0 => "no broken links".to_owned(),
        number => format_count(number, "broken link"),
    };
    if all.is_incomplete {
        // Links that were not checked may be broken, too.
        let _ = write!(text, " found, and not all links could be checked in reasonable time");
    }
    let new = comparison.and_then(|comparison| comparison.new.as_ref());
    match new {
        _ if all.count == 0 => {}
        Some(new) => {
            let number = if new.count == 0 { "none".to_owned() } else { new.count.to_string() };
            let _ = write!(text, ", {number} of them new against production");
        }
        None if comparison.is_some() => text.push_str(", production has too many to compare them"),
        None => {}
    }
    // A user who deploys a branch needs the new ones.
    let shown = new.unwrap_or(all);
    for (n, (page, target)) in shown.examples.iter().enumerate() {
        let _ = write!(
            text,
            "{} {} -> {}",
            if n == 0 { ":" } else { "," },
            shorten_address(page, "/"),
            shorten_address(target, "")
        );
    }
    if shown.count > shown.examples.len() as u64 && !shown.examples.is_empty() {
        text.push_str(", …");
    }
    text
}

/// Returns an address on one line, cut so that several fit a summary.
fn shorten_address(bytes: &[u8], prefix: &str) -> String {
    let cut = &bytes[..bytes.len().min(MAX_SHOWN_ADDRESS_BYTES)];
    let ellipsis = if cut.len() < bytes.len() { "…" } else { "" };
    format!("{prefix}{}{ellipsis}", OneLine(&String::from_utf8_lossy(cut)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken_links(count: u64, examples: &[(&str, &str)]) -> BrokenLinks {
        let bytes = |text: &&str| text.as_bytes().to_vec();
        let examples = examples.iter().map(|(page, target)| (bytes(page), bytes(target))).collect();
        BrokenLinks { count, pages: 1, examples, is_incomplete: false }
    }

    #[test]
    fn a_broken_link_summary_lists_links_that_are_new_against_production() {
        let all = broken_links(3, &[("a.html", "/x"), ("a.html", "/y"), ("b.html", "/z")]);
        assert_eq!(describe(&broken_links(0, &[]), None), "no broken links");
        assert_eq!(describe(&all, None), "3 broken links: /a.html -> /x, /a.html -> /y, /b.html -> /z");
        let comparison = |new| BrokenLinkComparison { all: all.clone(), new };
        let one_new = comparison(Some(broken_links(1, &[("b.html", "/z")])));
        assert_eq!(describe(&all, Some(&one_new)), "3 broken links, 1 of them new against production: /b.html -> /z");
        let none_new = comparison(Some(broken_links(0, &[])));
        assert_eq!(describe(&all, Some(&none_new)), "3 broken links, none of them new against production");
        assert!(describe(&all, Some(&comparison(None))).contains("too many to compare"));
        let incomplete = BrokenLinks { is_incomplete: true, ..broken_links(0, &[]) };
        let expected = "no broken links found, and not all links could be checked in reasonable time";
        assert_eq!(describe(&incomplete, None), expected);
    }

    #[test]
    fn a_broken_link_summary_is_one_short_line_without_control_characters() {
        let long = format!("/{}", "x".repeat(500));
        let text = describe(&broken_links(9, &[("a\n.html", "/\u{1b}[2J"), ("b.html", &long)]), None);
        assert!(!text.contains(char::is_control) && text.len() < 300, "{text}");
        assert!(text.ends_with("…, …"), "{text}");
    }
}
