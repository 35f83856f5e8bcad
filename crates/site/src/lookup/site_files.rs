//! The interface of a site that the lookup of addresses uses.

use crate::rules::rule_set::RuleSet;

/// A site, as the lookup of addresses uses it: its paths and rules. The number of a file is its position among the
/// files of the site (in a sealed version: in the index), from 0.
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
    fn markdown_of(&self, page: usize) -> Option<usize>;
}

#[cfg(test)]
pub(crate) mod path_list {
    use super::*;

    /// A site with these paths, without contents and rules.
    pub(crate) struct PathListSite<'a>(pub(crate) &'a [&'a str]);

    impl SiteFiles for PathListSite<'_> {
        fn find(&self, path: &[u8]) -> Option<usize> {
            self.0.iter().position(|p| p.as_bytes() == path)
        }

        fn rules(&self) -> &RuleSet {
            static NO_RULES: std::sync::OnceLock<RuleSet> = std::sync::OnceLock::new();
            NO_RULES.get_or_init(RuleSet::default)
        }

        fn markdown_of(&self, _page: usize) -> Option<usize> {
            None
        }
    }
}
