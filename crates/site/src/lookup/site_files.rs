//! A site as the look-up of addresses sees it.

use crate::rules::rule_set::RuleSet;

/// The paths and rules of a site, as the look-up needs them.
pub trait SiteFiles {
    /// Returns the number of the file at exactly this path.
    fn find(&self, path: &[u8]) -> Option<usize>;

    /// Whether the site is a Next.js export. The Next.js client requests payloads under several names (see
    /// `next_payloads`).
    fn is_next(&self) -> bool {
        false
    }

    /// Returns the rules in the site's own files.
    fn rules(&self) -> &RuleSet;

    /// Returns the number of the Markdown file with the same text as a page.
    fn markdown(&self, page: usize) -> Option<usize>;
}

#[cfg(test)]
pub(crate) mod paths {
    use super::*;

    /// A site of paths without contents and rules.
    pub(crate) struct Paths<'a>(pub(crate) &'a [&'a str]);

    impl SiteFiles for Paths<'_> {
        fn find(&self, path: &[u8]) -> Option<usize> {
            self.0.iter().position(|p| p.as_bytes() == path)
        }

        fn rules(&self) -> &RuleSet {
            static NONE: std::sync::OnceLock<RuleSet> = std::sync::OnceLock::new();
            NONE.get_or_init(RuleSet::default)
        }

        fn markdown(&self, _page: usize) -> Option<usize> {
            None
        }
    }
}
