//! `[tls]`: the certificate of the site, and the addresses on which it is served over TLS.

use std::net::SocketAddr;
use std::path::PathBuf;

use http::HeaderValue;

use docwharf_serve::key_pair::KeyPairFiles;

use super::checker::ValueChecker;
use super::problem::ConfigProblem;
use super::systemd_credentials::SystemdCredentials;
use super::value_parsers::parse_listen_list;

/// The names of the systemd credentials that contain certificate and key (`LoadCredential=`).
const CREDENTIAL_NAMES: [&str; 2] = ["tls-cert", "tls-key"];
const MISSING_FILE_ADVICE: &str = "[tls] needs certFile and keyFile, or the systemd credentials tls-cert and tls-key";

/// The settings of TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// The files of certificate and key.
    pub files: KeyPairFiles,
    /// The addresses to listen on, besides sockets that systemd passes under the name `https`.
    pub listen: Vec<SocketAddr>,
}

/// Checks the section; `None` if TLS is not configured.
pub(super) fn check_tls(checker: &mut ValueChecker<'_>, base_of: &dyn Fn(&str) -> PathBuf) -> Option<TlsSettings> {
    let mut file = |key: &str| checker.text(key).map(|path| base_of(key).join(path));
    let (certificate, key) = (file("tls.certFile"), file("tls.keyFile"));
    let listen = match checker.texts("tls.listen").map(|texts| parse_listen_list(&texts)) {
        Some(Ok(list)) => list,
        Some(Err(why)) => {
            checker.value::<()>("tls.listen", |_| Err(why));
            Vec::new()
        }
        None => Vec::new(),
    };
    let raw = checker.raw;
    let place_of = |key: &str| raw.get(key).map(|written| written.place.clone());
    match (place_of("tls.certFile"), place_of("tls.keyFile")) {
        (Some(place), None) => {
            checker
                .problems
                .push(ConfigProblem { place, message: format!("tls.keyFile is missing: {MISSING_FILE_ADVICE}") });
            None
        }
        (None, Some(place)) => {
            checker
                .problems
                .push(ConfigProblem { place, message: format!("tls.certFile is missing: {MISSING_FILE_ADVICE}") });
            None
        }
        (Some(_), Some(_)) => {
            Some(TlsSettings { files: KeyPairFiles { certificate: certificate?, key: key? }, listen })
        }
        (None, None) => {
            let found = credential_files(&raw.credentials);
            if let (None, Some(place)) = (&found, place_of("tls.listen"))
                && !listen.is_empty()
            {
                checker
                    .problems
                    .push(ConfigProblem { place, message: format!("tls.certFile is missing: {MISSING_FILE_ADVICE}") });
            }
            found.map(|files| TlsSettings { files, listen })
        }
    }
}

/// Returns the files of the systemd credentials, if there are any.
fn credential_files(credentials: &SystemdCredentials) -> Option<KeyPairFiles> {
    let [certificate, key] = CREDENTIAL_NAMES.map(|name| credentials.find(name).map(|credential| credential.path));
    let (certificate, key) = (certificate?, key?);
    // One of the two is enough: if the other one was forgotten, that must be reported.
    (certificate.exists() || key.exists()).then_some(KeyPairFiles { certificate, key })
}

/// Checks `tls.hsts`. It does not need a certificate in docwharf, because a trusted proxy may have one.
pub(super) fn check_hsts(checker: &mut ValueChecker<'_>) -> Option<HeaderValue> {
    let age = checker.duration("tls.hsts")?;
    HeaderValue::from_str(&format!("max-age={}", age.as_secs())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tls_credential_alone_enables_tls_so_that_the_missing_one_is_reported() {
        for (names, is_configured) in
            [(&[][..], false), (&["tls-cert"], true), (&["tls-key"], true), (&CREDENTIAL_NAMES, true)]
        {
            let folder = tempfile::tempdir().unwrap();
            for name in names {
                std::fs::write(folder.path().join(name), "").unwrap();
            }
            let found = credential_files(&SystemdCredentials::Passed(folder.path().to_owned()));
            let [certificate, key] = CREDENTIAL_NAMES.map(|name| folder.path().join(name));
            assert_eq!(found, is_configured.then_some(KeyPairFiles { certificate, key }), "{names:?}");
        }
        assert_eq!(credential_files(&SystemdCredentials::None), None);
    }
}
