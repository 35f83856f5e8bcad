//! Where a repository is: a URL, `host:path` for ssh, or a path; and what of it is secret.

use percent_encoding::percent_decode_str;
use url::Url;

use docwharf_base::secret::{Scrubber, Secret};

use super::GitError;

/// The protocols that do no more than carry a repository. Others, `ext` above all, run what the URL says.
pub(super) const PROTOCOLS: [&str; 5] = ["https", "http", "ssh", "git", "file"];

/// User and password of a URL, for the one host that they are meant for.
#[derive(Debug)]
pub(super) struct Credentials {
    /// Scheme, host and port.
    pub(super) origin: String,
    pub(super) user: Secret,
    pub(super) password: Secret,
}

/// A repository's place.
#[derive(Debug)]
pub(super) struct Address {
    /// What git is given: without credentials, unless they are a mere user name of ssh.
    pub(super) plain: String,
    /// What people are shown.
    pub(super) shown: String,
    pub(super) credentials: Option<Credentials>,
    scrubber: Scrubber,
}

impl Address {
    /// Reads what was configured.
    pub(super) fn read(repository: &str) -> Result<Address, GitError> {
        let shown = redact(repository);
        split(repository)
            .map(|(plain, credentials)| {
                let mut scrubber = Scrubber::default();
                if let Some(Credentials { user, password, .. }) = &credentials {
                    scrubber.hide(password);
                    // A token may stand where a user name is expected.
                    scrubber.hide(user);
                }
                Address { plain, shown: shown.clone(), credentials, scrubber }
            })
            .map_err(|why| GitError::Repository { repository: shown, why })
    }

    /// What git has said, without what is secret.
    pub(super) fn scrub(&self, text: &str) -> String {
        redact(&self.scrubber.scrub(text))
    }
}

/// What git is given as a place, and what it is given aside.
fn split(repository: &str) -> Result<(String, Option<Credentials>), &'static str> {
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
        // host:path, by ssh.
        return Ok((repository.to_owned(), None));
    }
    let path = std::path::absolute(repository).map_err(|_| "the path cannot be made absolute")?;
    // It was UTF-8 before, and so is the working directory mostly.
    Ok((path.into_os_string().into_string().map_err(|_| "the path is not UTF-8")?, None))
}

fn split_url(whole: &str, scheme: &str, rest: &str) -> Result<(String, Option<Credentials>), &'static str> {
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
        // A browser would take the path's first folder for the host (WHATWG URL).
        return Err("it names no host");
    }
    let plain = format!("{scheme}://{host}{}", &rest[end..]);
    let url = Url::parse(&plain).map_err(|_| "it is no URL")?;
    let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
    let decode = |text: &str| match percent_decode_str(text).decode_utf8() {
        // git hands them on in lines.
        Ok(text) if !text.contains(char::is_control) => Ok(Secret::new(text.into_owned())),
        _ => Err("user or password are not UTF-8, or have a control character in them"),
    };
    let origin = url.origin().ascii_serialization();
    Ok((plain, Some(Credentials { origin, user: decode(user)?, password: decode(password)? })))
}

/// The text with what stands before the host of any URL in it left out, and so its query. The user name `git` is no secret.
pub(super) fn redact(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown.push_str(before);
        let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | '`');
        let url = &after[..after.find(is_end).unwrap_or(after.len())];
        // A password may have been written with `/`, `?` or `#` unescaped: then there is no telling where it ends but by
        // the last `@`. Rather too much is left out than too little.
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
        let address = Address::read("https://us%65r:p%40ss:w0rd@Host.example:8443/a/b.git").unwrap();
        assert_eq!(address.plain, "https://Host.example:8443/a/b.git");
        let credentials = address.credentials.as_ref().unwrap();
        assert_eq!(credentials.origin, "https://host.example:8443");
        assert_eq!((credentials.user.expose(), credentials.password.expose()), ("user", "p@ss:w0rd"));
        assert!(!format!("{address:?}").contains("w0rd"), "{address:?}");
        let token = Address::read("https://ghp_0123456789@host.example/a.git").unwrap();
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
            assert!(Address::read(good).is_ok(), "{good}");
        }
        assert!(Address::read("a/b").unwrap().plain.ends_with("/a/b"));
        assert!(Address::read("a/b").unwrap().plain.starts_with('/'));
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
            let error = Address::read(text).unwrap_err().to_string();
            assert!(error.starts_with("cannot use the repository ") && !error.contains("hunter22"), "{error}");
        }
    }
}
