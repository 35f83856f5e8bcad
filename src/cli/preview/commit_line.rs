//! A commit on one line.

use docwharf_agent::api::preview::PreviewCommit;

/// Formats a commit: `0a1b2c3d main first line of its message (files: 1 added, 2 modified)`.
pub(super) fn commit_line(commit: &PreviewCommit) -> String {
    let sha: String = commit.sha.as_deref().unwrap_or_default().chars().take(8).collect();
    let message = commit.message.as_deref().and_then(|message| message.lines().next()).unwrap_or_default();
    let branch = commit.branch.as_deref().unwrap_or_default();
    let files = &commit.files_changed;
    let counts = [(files.added, "added"), (files.modified, "modified"), (files.removed, "removed")];
    let counts: Vec<String> =
        counts.into_iter().filter_map(|(n, what)| n.filter(|n| *n > 0).map(|n| format!("{n} {what}"))).collect();
    let counts = if counts.is_empty() { String::new() } else { format!("(files: {})", counts.join(", ")) };
    let parts = [sha.as_str(), branch, message, counts.as_str()];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use docwharf_agent::api::preview::ChangedFileCounts;

    #[test]
    fn commit_line_contains_only_the_known_fields() {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        for (sha, branch, message, [added, modified, removed], expected) in [
            (
                "0a1b2c3d4e5f",
                "main",
                "first\nsecond",
                [Some(1), Some(2), Some(0)],
                "0a1b2c3d main first (files: 1 added, 2 modified)",
            ),
            ("0a1b2c3", "main", "", [None, None, Some(3)], "0a1b2c3 main (files: 3 removed)"),
            ("", "", "first", [Some(0), None, None], "first"),
            ("", "", "", [None; 3], ""),
        ] {
            let files_changed = ChangedFileCounts { added, modified, removed };
            let commit = PreviewCommit { sha: text(sha), branch: text(branch), message: text(message), files_changed };
            assert_eq!(commit_line(&commit), expected);
        }
    }
}
