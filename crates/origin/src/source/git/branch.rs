//! Validation of branch names.

/// Whether a branch can have this name: the rules of `git check-ref-format --branch` (git-check-ref-format(1)), without
/// a repository. A valid name never begins with `-`, and is neither a pattern nor a revision expression.
pub fn is_branch_name(name: &str) -> bool {
    let is_refused = |c: char| c <= ' ' || matches!(c, '\u{7f}' | '~' | '^' | ':' | '?' | '*' | '[' | '\\');
    // `strip_suffix`, because the suffix is case-sensitive: `.LOCK` is allowed.
    let is_component = |part: &str| !part.is_empty() && !part.starts_with('.') && part.strip_suffix(".lock").is_none();
    !name.starts_with('-')
        && name != "HEAD"
        && !name.ends_with('.')
        && !name.contains("..")
        && !name.contains("@{")
        && !name.contains(is_refused)
        && name.split('/').all(is_component)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branch_names_are_validated_like_git_check_ref_format() {
        for name in [
            "main",
            "feature/a-b_c",
            "ü",
            "a@",
            "{",
            "a{",
            "!",
            "@a",
            "refs/heads/x",
            "a#1",
            "v1.0",
            "a.LOCK",
            "HEADER",
        ] {
            assert!(is_branch_name(name), "{name:?}");
        }
        let bad = [
            "",
            "-x",
            "--upload-pack=x",
            "HEAD",
            "a.lock",
            "a.lock/b",
            "a/.b",
            "./a",
            "a/.",
            ".",
            "..",
            "a..b",
            "a@{b",
            "@{-1}",
            "a.",
            "a b",
            "a/",
            "/a",
            "a//b",
            "a~1",
            "a^",
            "a:b",
            "a?",
            "a*",
            "[a",
            "a\\b",
            "a\nb",
            "a\0b",
            "a\u{7f}",
            "+a:b",
        ];
        for name in bad {
            assert!(!is_branch_name(name), "{name:?}");
        }
    }
}
