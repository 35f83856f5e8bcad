//! Names of branches.

/// Whether a branch can have this name: what `git check-ref-format --branch` says (git-check-ref-format(1)), without asking
/// for a repository. So it never begins with `-`, and is no pattern and no expression.
pub fn is_branch_name(name: &str) -> bool {
    let is_refused = |c: char| c <= ' ' || matches!(c, '\u{7f}' | '~' | '^' | ':' | '?' | '*' | '[' | '\\');
    // By strip_suffix because this is no extension: `.LOCK` is fine.
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
    fn names_are_judged_as_git_does() {
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
