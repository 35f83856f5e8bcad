//! Checks the links of a preview: how many are broken, and which of these are new compared with production.

use std::fmt::Write as _;

use docwharf_base::error_chain::OneLine;
use docwharf_base::model::units::count_noun;
use docwharf_site::link_check::{BrokenLinkComparison, BrokenLinks, compare_broken_links, find_broken_links};
use docwharf_site::lookup::Addresses;
use docwharf_site::rules::route::ComparisonBudget;
use docwharf_site::sealed_version::SealedVersion;

/// Maximum number of bytes that are compared to look up the links of a preview and of production: seconds at worst.
const MOST_COMPARED: u64 = 1 << 33;
/// Maximum length of an address in a summary, in bytes.
const SHOWN: usize = 60;

/// Describes the links of `site`, compared with `production` if that is known; `None` if `stop` returned true
/// meanwhile. Both are checked as sites that begin at `/`, wherever they are served.
pub(super) fn look(
    site: &SealedVersion,
    production: Option<&SealedVersion>,
    threads: usize,
    stop: &(dyn Fn() -> bool + Sync),
) -> Option<String> {
    let (addresses, budget) = (Addresses::default(), ComparisonBudget::new(MOST_COMPARED));
    match production {
        Some(production) => {
            let beside = compare_broken_links(site, production, &addresses, threads, &budget, stop)?;
            Some(say(&beside.all, Some(&beside)))
        }
        None => Some(say(&find_broken_links(site, &addresses, threads, &budget, stop)?, None)),
    }
}

fn say(all: &BrokenLinks, beside: Option<&BrokenLinkComparison>) -> String {
    let mut text = match all.count {
        0 => "no broken links".to_owned(),
        number => count_noun(number, "broken link"),
    };
    if all.is_cut {
        // Links that were not looked up may be broken.
        let _ = write!(text, " found, and not all could be looked up in reasonable time");
    }
    let new = beside.and_then(|beside| beside.new.as_ref());
    match new {
        _ if all.count == 0 => {}
        Some(new) => {
            let number = if new.count == 0 { "none".to_owned() } else { new.count.to_string() };
            let _ = write!(text, ", {number} of them new against production");
        }
        None if beside.is_some() => text.push_str(", production has too many to compare them with"),
        None => {}
    }
    // Users who deploy a branch need the new ones.
    let shown = new.unwrap_or(all);
    for (n, (page, target)) in shown.examples.iter().enumerate() {
        let _ = write!(text, "{} {} -> {}", if n == 0 { ":" } else { "," }, address(page, "/"), address(target, ""));
    }
    if shown.count > shown.examples.len() as u64 && !shown.examples.is_empty() {
        text.push_str(", …");
    }
    text
}

/// Returns an address on one line, cut so that several fit a summary.
fn address(bytes: &[u8], begin: &str) -> String {
    let cut = &bytes[..bytes.len().min(SHOWN)];
    let more = if cut.len() < bytes.len() { "…" } else { "" };
    format!("{begin}{}{more}", OneLine(&String::from_utf8_lossy(cut)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(count: u64, examples: &[(&str, &str)]) -> BrokenLinks {
        let of = |text: &&str| text.as_bytes().to_vec();
        let examples = examples.iter().map(|(page, target)| (of(page), of(target))).collect();
        BrokenLinks { count, pages: 1, examples, is_cut: false }
    }

    #[test]
    fn what_is_new_against_production_is_what_is_shown() {
        let all = found(3, &[("a.html", "/x"), ("a.html", "/y"), ("b.html", "/z")]);
        assert_eq!(say(&found(0, &[]), None), "no broken links");
        assert_eq!(say(&all, None), "3 broken links: /a.html -> /x, /a.html -> /y, /b.html -> /z");
        let beside = |new| BrokenLinkComparison { all: all.clone(), new };
        let two = beside(Some(found(1, &[("b.html", "/z")])));
        assert_eq!(say(&all, Some(&two)), "3 broken links, 1 of them new against production: /b.html -> /z");
        let none = beside(Some(found(0, &[])));
        assert_eq!(say(&all, Some(&none)), "3 broken links, none of them new against production");
        assert!(say(&all, Some(&beside(None))).contains("too many to compare"));
    }

    #[test]
    fn a_summary_stays_on_one_line_whatever_a_page_points_at() {
        let long = format!("/{}", "x".repeat(500));
        let text = say(&found(9, &[("a\n.html", "/\u{1b}[2J"), ("b.html", &long)]), None);
        assert!(!text.contains(char::is_control) && text.len() < 300, "{text}");
        assert!(text.ends_with("…, …"), "{text}");
    }
}
