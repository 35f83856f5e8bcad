//! Parses the address of a repository (a URL, `host:path` for ssh, or a path) and separates its secrets.

use percent_encoding::percent_decode_str;
use url::Url;

use docwharf_base::secret::{Scrubber, Secret};

use super::GitError;

/// Protocols that only transfer a repository. Others, `ext` above all, run a command that the URL contains.
pub(super) const PROTOCOLS: [&str; 5] = ["https", "http", "ssh", "git", "file"];

/// User name and password of a URL, for the one host that they are meant for.
#[derive(Debug)]
pub(super) struct GitCredentials {
    /// Scheme, host and port.
    pub(super) origin: String,
    pub(super) user: Secret,
    pub(super) password: Secret,
}

/// Parsed address of a repository.
#[derive(Debug)]
pub(super) struct RepositoryAddress {
    /// The address that git gets: without credentials, except for a plain user name of ssh.
    pub(super) plain: String,
    /// The redacted address, for messages.
    pub(super) shown: String,
    pub(super) credentials: Option<GitCredentials>,
    scrubber: Scrubber,
}

impl RepositoryAddress {
    /// Parses the configured address.
    pub(super) fn read(repository: &str) -> Result<RepositoryAddress, GitError> {
        let shown = redact(repository);
        split(repository)
            .map(|(plain, credentials)| {
                let mut scrubber = Scrubber::default();
                if let Some(GitCredentials { user, password, .. }) = &credentials {
                    scrubber.hide(password);
                    // Some servers accept a token as the user name.
                    scrubber.hide(user);
                }
                RepositoryAddress { plain, shown: shown.clone(), credentials, scrubber }
            })
            .map_err(|why| GitError::Repository { repository: shown, why })
    }

    /// Removes secrets from the output of git.
    pub(super) fn scrub(&self, text: &str) -> String {
        redact(&self.scrubber.scrub(text))
    }
}

/// Separates the address that git gets from the credentials that it gets apart.
fn split(repository: &str) -> Result<(String, Option<GitCredentials>), &'static str> {
    if repository.is_empty() {
        return Err("it is empty");
    }
    if repository.starts_with('-') {
        return Err("it begins with a hyphen, like an option");
    }
    if repository.contains(char::is_control) {
        return Err("it has a control character in it");
    }
    let before_colon = repository.split(':').next().unwrap_or_default();
    if repository[before_colon.len()..].starts_with("::") && before_colon.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return Err("its protocol may run programs; https, http, ssh, git, file, host:path and paths are taken");
    }
    if let Some((scheme, rest)) = repository.split_once("://") {
        return split_url(repository, scheme, rest);
    }
    if repository.len() > before_colon.len() && !before_colon.contains('/') {
        // `host:path`, for ssh.
        return Ok((repository.to_owned(), None));
    }
    let path = std::path::absolute(repository).map_err(|_| "the path cannot be made absolute")?;
    // The repository is valid UTF-8; the working directory need not be.
    Ok((path.into_os_string().into_string().map_err(|_| "the path is not UTF-8")?, None))
}

fn split_url(whole: &str, scheme: &str, rest: &str) -> Result<(String, Option<GitCredentials>), &'static str> {
    if !PROTOCOLS.contains(&scheme) {
        return Err("its protocol is not taken; https, http, ssh, git, file, host:path and paths are");
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let Some((user_info, host)) = rest[..end].rsplit_once('@') else {
        return Ok((whole.to_owned(), None));
    };
    if !scheme.starts_with("http") {
        let is_user_only = !user_info.contains(':');
        return if is_user_only { Ok((whole.to_owned(), None)) } else { Err("only http takes a password in the URL") };
    }
    if host.is_empty() {
        // A WHATWG URL parser takes the first path segment as the host.
        return Err("it names no host");
    }
    let plain = format!("{scheme}://{host}{}", &rest[end..]);
    let url = Url::parse(&plain).map_err(|_| "it is no URL")?;
    let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
    let decode = |text: &str| match percent_decode_str(text).decode_utf8() {
        // The credential helper protocol of git is line-based (gitcredentials(7)).
        Ok(text) if !text.contains(char::is_control) => Ok(Secret::new(text.into_owned())),
        _ => Err("user or password are not UTF-8, or have a control character in them"),
    };
    let origin = url.origin().ascii_serialization();
    Ok((plain, Some(GitCredentials { origin, user: decode(user)?, password: decode(password)? })))
}

/// Returns the text with the user info and the query of each URL replaced by `***`. The user name `git` is not secret.
pub(super) fn redact(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown.push_str(before);
        let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | '`');
        let url = &after[..after.find(is_end).unwrap_or(after.len())];
        // A password may contain an unescaped `/`, `?` or `#`; then only the last `@` tells where it ends. Removing too
        // much is better than removing too little.
        let user_info = url.rfind('@').unwrap_or(0);
        if user_info > 0 && &url[..user_info] != "git" {
            shown.push_str("***");
            rest = &after[user_info..];
        } else {
            rest = after;
        }
        let left = &after[after.len() - rest.len()..url.len()];
        if let Some(query) = left.find('?') {
            shown.push_str(&left[..=query]);
            shown.push_str("***");
            rest = &after[url.len()..];
        }
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_is_given_has_no_password() {
        let address = RepositoryAddress::read("https://us%65r:p%40ss:w0rd@Host.example:8443/a/b.git").unwrap();
        assert_eq!(address.plain, "https://Host.example:8443/a/b.git");
        let credentials = address.credentials.as_ref().unwrap();
        assert_eq!(credentials.origin, "https://host.example:8443");
        assert_eq!((credentials.user.expose(), credentials.password.expose()), ("user", "p@ss:w0rd"));
        assert!(!format!("{address:?}").contains("w0rd"), "{address:?}");
        let token = RepositoryAddress::read("https://ghp_0123456789@host.example/a.git").unwrap();
        assert_eq!(token.plain, "https://host.example/a.git");
        assert_eq!(token.scrub("bad token ghp_0123456789!"), "bad token ***!");
    }

    #[test]
    fn what_people_see_has_no_password() {
        let shown = [
            ("https://u:hunter22@host/a.git", "https://***@host/a.git"),
            ("see https://tok@host/a and http://x:y@z/b.", "see https://***@host/a and http://***@z/b."),
            ("https://u:p/a?s#s@host/a", "https://***@host/a"),
            ("https://u:hunter@22@host/a", "https://***@host/a"),
            ("https://git:hunter22@host/a", "https://***@host/a"),
            ("https://host/a?token=hunter22 or ssh://git@host/b", "https://host/a?*** or ssh://git@host/b"),
            ("https://u:hunter22@host/a?b=c", "https://***@host/a?***"),
            ("git@host:a/b.git", "git@host:a/b.git"),
            ("'https://u:p@host/'", "'https://***@host/'"),
            ("://@", "://@"),
        ];
        for (text, expected) in shown {
            assert_eq!(redact(text), expected);
        }
    }

    #[test]
    fn places_that_git_may_be_sent_to() {
        for good in [
            "https://host/a",
            "ssh://git@host/a",
            "git@host:a",
            "host:a/b",
            "file:///srv/a",
            "/srv/a",
            "/srv/a:b",
            "./c:d",
        ] {
            assert!(RepositoryAddress::read(good).is_ok(), "{good}");
        }
        assert!(RepositoryAddress::read("a/b").unwrap().plain.ends_with("/a/b"));
        assert!(RepositoryAddress::read("a/b").unwrap().plain.starts_with('/'));
        let bad = [
            "",
            "-x",
            "--upload-pack=/bin/false",
            "ext::sh -c id",
            "fd::17",
            "ftp://host/a",
            "rsync://host/a",
            "ext::https://host/",
            "ssh://u:hunter22@host/a",
            "https://host/a\nb",
            "https://a%0ab@host/a",
            "https://u@/a",
        ];
        for text in bad {
            let error = RepositoryAddress::read(text).unwrap_err().to_string();
            assert!(error.starts_with("cannot use the repository ") && !error.contains("hunter22"), "{error}");
        }
    }
}
