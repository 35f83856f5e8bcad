//! Parses the address of a repository (a URL, `host:path` for ssh, or a path) and separates its secrets.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use percent_encoding::percent_decode_str;
use url::Url;

use docwharf_base::model::deployment::OutboundPolicy;
use docwharf_base::net::connect;
use docwharf_base::secret::{Secret, SecretRedactor};

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
    pub(super) redacted: String,
    pub(super) credentials: Option<GitCredentials>,
    pub(super) location: RepositoryLocation,
    redactor: SecretRedactor,
}

/// Where a repository is, which decides whether git needs the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RepositoryLocation {
    /// In the file system.
    Local,
    /// At an http or https URL whose host is an address.
    Address(SocketAddr),
    /// At a host that has a name, or that another program connects to.
    Other,
}

impl RepositoryLocation {
    /// Parses an address without credentials.
    fn parse(plain: &str) -> RepositoryLocation {
        if plain.starts_with('/') || plain.starts_with("file://") {
            return RepositoryLocation::Local;
        }
        let Some((scheme, rest)) = plain.split_once("://") else { return RepositoryLocation::Other };
        let default_port = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return RepositoryLocation::Other,
        };
        let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
        parse_authority(authority, default_port).map_or(RepositoryLocation::Other, RepositoryLocation::Address)
    }

    /// Returns why git must not read a repository there; `None` if it may.
    fn find_outbound_problem(self, policy: &OutboundPolicy) -> Option<String> {
        if !policy.is_air_gapped() {
            return None;
        }
        match self {
            RepositoryLocation::Local => None,
            RepositoryLocation::Address(address) => {
                connect::check_address(address, policy).err().map(|error| error.to_string())
            }
            RepositoryLocation::Other => Some(
                "deployment.type is \"air-gapped\": use a path, file:// or http(s), and write the host as an IP \
                 address, not as a name"
                    .to_owned(),
            ),
        }
    }
}

/// Parses `ADDRESS` or `ADDRESS:PORT`. Every other way to write a host is `None`, also a single number, which not all
/// programs read as an address.
fn parse_authority(authority: &str, default_port: u16) -> Option<SocketAddr> {
    if let Ok(address) = authority.parse::<SocketAddr>() {
        return Some(address);
    }
    let ip = match authority.strip_prefix('[') {
        Some(rest) => IpAddr::V6(rest.strip_suffix(']')?.parse::<Ipv6Addr>().ok()?),
        None => IpAddr::V4(authority.parse().ok()?),
    };
    Some(SocketAddr::new(ip, default_port))
}

/// Returns why this policy does not permit that git reads a repository; `None` if it does, or if the address is not one
/// of a repository.
pub fn find_outbound_problem(repository: &str, policy: &OutboundPolicy) -> Option<String> {
    let (plain, _) = split_credentials(repository).ok()?;
    RepositoryLocation::parse(&plain).find_outbound_problem(policy)
}

impl RepositoryAddress {
    /// Parses the configured address. An address that the policy does not permit is an error.
    pub(super) fn parse(repository: &str, policy: &OutboundPolicy) -> Result<RepositoryAddress, GitError> {
        let redacted = redact(repository);
        let parts = split_credentials(repository).map_err(str::to_owned);
        let permitted = parts.and_then(|(plain, credentials)| {
            let location = RepositoryLocation::parse(&plain);
            location.find_outbound_problem(policy).map_or(Ok((plain, credentials, location)), Err)
        });
        permitted
            .map(|(plain, credentials, location)| {
                let mut redactor = SecretRedactor::default();
                if let Some(GitCredentials { user, password, .. }) = &credentials {
                    redactor.hide(password);
                    // Some servers accept a token as the user name.
                    redactor.hide(user);
                }
                RepositoryAddress { plain, redacted: redacted.clone(), credentials, location, redactor }
            })
            .map_err(|reason| GitError::Repository { repository: redacted, reason })
    }

    /// Removes secrets from the output of git.
    pub(super) fn redact(&self, text: &str) -> String {
        redact(&self.redactor.redact(text))
    }
}

/// Separates the address that git gets from the credentials.
fn split_credentials(repository: &str) -> Result<(String, Option<GitCredentials>), &'static str> {
    if repository.is_empty() {
        return Err("it is empty");
    }
    if repository.starts_with('-') {
        return Err("it begins with a hyphen, like a command line option");
    }
    if repository.contains(char::is_control) {
        return Err("it contains a control character");
    }
    let before_colon = repository.split(':').next().unwrap_or_default();
    if repository[before_colon.len()..].starts_with("::") && before_colon.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return Err("its protocol may run programs; allowed are https, http, ssh, git, file, host:path and paths");
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

/// Separates a URL from its credentials. `rest` is the part of the URL after `://`.
fn split_url(url_text: &str, scheme: &str, rest: &str) -> Result<(String, Option<GitCredentials>), &'static str> {
    if !PROTOCOLS.contains(&scheme) {
        return Err("its protocol is not supported; allowed are https, http, ssh, git, file, host:path and paths");
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let Some((user_info, host)) = rest[..end].rsplit_once('@') else {
        return Ok((url_text.to_owned(), None));
    };
    if !scheme.starts_with("http") {
        let is_user_only = !user_info.contains(':');
        return if is_user_only {
            Ok((url_text.to_owned(), None))
        } else {
            Err("only an http or https URL may contain a password")
        };
    }
    if host.is_empty() {
        // A WHATWG URL parser takes the first path segment as the host.
        return Err("it has no host");
    }
    let plain = format!("{scheme}://{host}{}", &rest[end..]);
    let url = Url::parse(&plain).map_err(|_| "it is not a URL")?;
    let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
    let decode = |text: &str| match percent_decode_str(text).decode_utf8() {
        // The credential helper protocol of git is line-based (gitcredentials(7)).
        Ok(text) if !text.contains(char::is_control) => Ok(Secret::new(text.into_owned())),
        _ => Err("the user or the password is not UTF-8 or contains a control character"),
    };
    let origin = url.origin().ascii_serialization();
    Ok((plain, Some(GitCredentials { origin, user: decode(user)?, password: decode(password)? })))
}

/// Returns the text with the user info and the query of each URL replaced by `***`. The user name `git` is not secret.
pub(super) fn redact(text: &str) -> String {
    let mut redacted = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(position) = rest.find("://") {
        let (before, after) = rest.split_at(position + 3);
        redacted.push_str(before);
        let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | '`');
        let url = &after[..after.find(is_end).unwrap_or(after.len())];
        // A password may contain an unescaped `/`, `?` or `#`; then only the last `@` shows where it ends. Removing too
        // much is better than removing too little.
        let user_info = url.rfind('@').unwrap_or(0);
        if user_info > 0 && &url[..user_info] != "git" {
            redacted.push_str("***");
            rest = &after[user_info..];
        } else {
            rest = after;
        }
        let remaining = &after[after.len() - rest.len()..url.len()];
        if let Some(query) = remaining.find('?') {
            redacted.push_str(&remaining[..=query]);
            redacted.push_str("***");
            rest = &after[url.len()..];
        }
    }
    redacted + rest
}

#[cfg(test)]
mod tests {
    use docwharf_base::model::deployment::AllowedAddress;

    use super::*;

    fn parse(repository: &str) -> Result<RepositoryAddress, GitError> {
        RepositoryAddress::parse(repository, &OutboundPolicy::Any)
    }

    #[test]
    fn the_repository_address_passed_to_git_contains_no_credentials() {
        let address = parse("https://us%65r:p%40ss:w0rd@Host.example:8443/a/b.git").unwrap();
        assert_eq!(address.plain, "https://Host.example:8443/a/b.git");
        let credentials = address.credentials.as_ref().unwrap();
        assert_eq!(credentials.origin, "https://host.example:8443");
        assert_eq!((credentials.user.expose(), credentials.password.expose()), ("user", "p@ss:w0rd"));
        assert!(!format!("{address:?}").contains("w0rd"), "{address:?}");
        let token = parse("https://ghp_0123456789@host.example/a.git").unwrap();
        assert_eq!(token.plain, "https://host.example/a.git");
        assert_eq!(token.redact("bad token ghp_0123456789!"), "bad token ***!");
    }

    #[test]
    fn redacted_text_contains_no_credentials_or_url_queries() {
        let cases = [
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
        for (text, expected) in cases {
            assert_eq!(redact(text), expected);
        }
    }

    #[test]
    fn repository_addresses_use_https_ssh_or_file_and_cannot_be_options() {
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
            assert!(parse(good).is_ok(), "{good}");
        }
        assert!(parse("a/b").unwrap().plain.ends_with("/a/b"));
        assert!(parse("a/b").unwrap().plain.starts_with('/'));
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
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with("cannot use the repository ") && !error.contains("hunter22"), "{error}");
        }
    }

    #[test]
    fn an_air_gapped_origin_reads_repositories_in_files_and_at_allowed_addresses_only() {
        let allow = ["10.0.0.0/8:8443", "fd00::/8"].map(|text| AllowedAddress::parse(text).unwrap());
        let policy = OutboundPolicy::AirGapped { allow: allow.as_slice().into() };
        for good in [
            "/srv/a",
            "a/b",
            "./c:d",
            "file:///srv/a",
            "http://127.0.0.1/a",
            "http://127.0.0.1:3000/a",
            "http://[::1]/a",
            "https://10.1.2.3:8443/a.git",
            "https://user:hunter22@10.1.2.3:8443/a.git",
            "http://[fd00::5]/a",
            "http://[fd00::5]:81/a",
        ] {
            assert_eq!(find_outbound_problem(good, &policy), None, "{good}");
            assert!(RepositoryAddress::parse(good, &policy).is_ok(), "{good}");
        }
        for (bad, reason) in [
            ("https://10.1.2.3/a.git", "deployment.allow; add it there"),
            ("http://192.0.2.1:8443/a", "deployment.allow; add it there"),
            ("http://[2001:db8::1]/a", "deployment.allow; add it there"),
            ("https://git.example/a.git", "not as a name"),
            ("http://localhost/a", "not as a name"),
            ("ssh://git@127.0.0.1/a", "not as a name"),
            ("git@127.0.0.1:a", "not as a name"),
            ("127.0.0.1:a", "not as a name"),
            ("git://127.0.0.1/a", "not as a name"),
            // Each of these is 127.0.0.1 for some programs only.
            ("http://2130706433/a", "not as a name"),
            ("http://0x7f.1/a", "not as a name"),
            ("http://127.1/a", "not as a name"),
            ("http://127.0.0.01/a", "not as a name"),
            ("http://127.0.0.1:080x/a", "not as a name"),
            ("http://127.0.0.1\\@git.example/a", "not as a name"),
            ("http://127.0.0.1%2f@git.example/a", "not as a name"),
            ("http://127.0.0.1@git.example/a", "not as a name"),
            ("http:///127.0.0.1/a", "not as a name"),
        ] {
            assert!(find_outbound_problem(bad, &policy).is_some_and(|why| why.contains(reason)), "{bad}");
            let error = RepositoryAddress::parse(bad, &policy).unwrap_err().to_string();
            assert!(error.starts_with("cannot use the repository ") && error.contains(reason), "{error}");
            assert_eq!(find_outbound_problem(bad, &OutboundPolicy::Any), None, "{bad}");
        }
    }
}
