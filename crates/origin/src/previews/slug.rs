//! Slugs of previews: a branch name as one label of a host name (RFC 1035, 2.3.1). Pure functions.

use docwharf_base::model::digest::Digest;

/// Maximum length of a label of a host name, in bytes (RFC 1035, 2.3.4).
const MAX_LABEL_BYTES: usize = 63;
/// Numbers of hex digits that tell apart branches with similar names, tried in this order.
const DIGEST_DIGITS: [usize; 4] = [6, 12, 24, 40];

/// Returns the labels that a branch can have, the best first: its name; then, in case another branch has that label,
/// the name with digits that are always those of this branch.
pub(super) fn slug_candidates(project: &str, branch: &str) -> impl Iterator<Item = String> {
    let plain = to_label_characters(branch);
    // A branch name contains no NUL, so the digest's input is unambiguous.
    let digest = Digest::compute(format!("{project}\0{branch}").as_bytes()).to_hex();
    let first = truncate_label(&plain, MAX_LABEL_BYTES).to_owned();
    let with_digits = DIGEST_DIGITS.map(|n| {
        let digits = &digest[..n];
        match truncate_label(&plain, MAX_LABEL_BYTES - 1 - n) {
            "" => format!("branch-{digits}"),
            prefix => format!("{prefix}-{digits}"),
        }
    });
    std::iter::once(first).filter(|first| !first.is_empty()).chain(with_digits)
}

/// Returns lower-case letters, digits and single hyphens, without a hyphen at the beginning or end.
fn to_label_characters(branch: &str) -> String {
    let mut plain = String::with_capacity(branch.len());
    for c in branch.chars() {
        if c.is_ascii_alphanumeric() {
            plain.push(c.to_ascii_lowercase());
        } else if !plain.is_empty() && !plain.ends_with('-') {
            plain.push('-');
        }
    }
    plain.trim_end_matches('-').to_owned()
}

fn truncate_label(label: &str, max_bytes: usize) -> &str {
    label[..label.len().min(max_bytes)].trim_end_matches('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slugs_of(branch: &str) -> Vec<String> {
        slug_candidates("p", branch).collect()
    }

    #[test]
    fn the_first_slug_candidate_is_the_branch_name_as_a_dns_label() {
        for (branch, expected) in [
            ("main", "main"),
            ("Feature/New_Login", "feature-new-login"),
            ("--v1.2..", "v1-2"),
            ("a//b", "a-b"),
            ("fix/überholt", "fix-berholt"),
        ] {
            assert_eq!(slugs_of(branch)[0], expected);
        }
    }

    #[test]
    fn every_slug_candidate_is_a_valid_dns_label_for_any_branch_name() {
        let long = "x".repeat(200);
        let hyphens = format!("{}-{}", "y".repeat(62), "z".repeat(9));
        for branch in ["main", "日本", "-", long.as_str(), hyphens.as_str(), "a/b/c"] {
            let slugs = slugs_of(branch);
            assert!(slugs.len() >= DIGEST_DIGITS.len(), "{branch}");
            for label in slugs {
                assert!((1..=MAX_LABEL_BYTES).contains(&label.len()), "{label}");
                assert!(label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'), "{label}");
                assert!(!label.starts_with('-') && !label.ends_with('-'), "{label}");
            }
        }
    }

    #[test]
    fn slug_digests_differ_between_projects_and_similar_branch_names() {
        assert_eq!(slugs_of("a/b")[0], slugs_of("a-b")[0]);
        assert_ne!(slugs_of("a/b")[1], slugs_of("a-b")[1]);
        assert_ne!(slugs_of("main")[1], slug_candidates("q", "main").nth(1).unwrap());
        assert_eq!(slugs_of("main"), slugs_of("main"));
        assert!(slugs_of("日本")[0].starts_with("branch-"), "the branch name has no character of a host name");
    }
}
