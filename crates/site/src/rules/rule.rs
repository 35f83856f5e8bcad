//! One redirect or rewrite.

use super::destination::RuleDestination;
use super::pattern::{Pattern, PatternDialect};

/// The action of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleAction {
    /// Redirects the client, with this status: 301, 302, 303, 307 or 308.
    Redirect(u16),
    /// Serves another file of the site, with this status: 200 or 404.
    Rewrite(u16),
}

impl RuleAction {
    /// Returns the action for a status.
    pub fn from_status(status: u16) -> Result<RuleAction, String> {
        match status {
            301 | 302 | 303 | 307 | 308 => Ok(RuleAction::Redirect(status)),
            200 | 404 => Ok(RuleAction::Rewrite(status)),
            _ => Err(format!("the status {status} is none of 301, 302, 303, 307, 308, 200 and 404")),
        }
    }

    /// Returns the status of the response.
    pub fn status(self) -> u16 {
        match self {
            RuleAction::Redirect(status) | RuleAction::Rewrite(status) => status,
        }
    }
}

/// A redirect or rewrite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedirectRule {
    /// The file and line of the rule, for messages.
    pub place: Box<str>,
    /// The source, as written.
    pub source: Box<str>,
    /// The destination, as written.
    pub destination: Box<str>,
    /// The pattern that the address must match.
    pub pattern: Pattern,
    /// `destination`, parsed.
    pub parsed_destination: RuleDestination,
    /// The action.
    pub action: RuleAction,
    /// Whether the rule also applies where the site has a file.
    pub force: bool,
}

impl RedirectRule {
    /// Parses and checks a rule.
    pub fn new(
        place: String,
        source: &str,
        destination: &str,
        dialect: PatternDialect,
        action: RuleAction,
        force: bool,
    ) -> Result<RedirectRule, String> {
        let pattern = Pattern::parse(source, dialect)?;
        let parsed_destination = RuleDestination::parse(destination, pattern.names())?;
        if matches!(action, RuleAction::Rewrite(_)) && parsed_destination.is_on_other_host() {
            return Err(
                "docwharf cannot serve a file of another host: redirect to it instead (301, 302, 307, 308)".to_owned()
            );
        }
        let (source, destination) = (source.into(), destination.into());
        Ok(RedirectRule { place: place.into(), source, destination, pattern, parsed_destination, action, force })
    }
}

#[cfg(test)]
mod tests {
    use super::super::netlify_files;
    use super::super::rule_draft::RuleDraft;
    use super::*;

    #[test]
    fn only_redirect_and_rewrite_statuses_are_accepted_in_rules() {
        for status in 0..1000 {
            let action = RuleAction::from_status(status);
            let expected = match status {
                301 | 302 | 303 | 307 | 308 => Some(RuleAction::Redirect(status)),
                200 | 404 => Some(RuleAction::Rewrite(status)),
                _ => None,
            };
            assert_eq!(action.as_ref().ok(), expected.as_ref(), "{status}");
            assert_eq!(action.map_or(status, RuleAction::status), status);
        }
    }

    #[test]
    fn rewrite_to_another_host_is_refused_and_redirect_to_another_host_is_accepted() {
        for (line, is_rule) in [
            ("/a https://x.example/ 200", false),
            ("/a https://x.example/ 404", false),
            ("/a https://x.example/ 301", true),
            ("/a https://x.example/ 308!", true),
            ("/a /b 200", true),
        ] {
            let mut draft = RuleDraft::default();
            netlify_files::read_redirects(line, netlify_files::REDIRECTS_FILE, &mut draft);
            assert_eq!(draft.rules.len() == 1, is_rule, "{line}");
        }
    }
}
