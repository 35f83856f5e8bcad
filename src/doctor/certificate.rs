//! Checks the site's certificate and its key: whether they can be used, until when, and which other users can read the
//! key.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::SystemTime;

use crate::config::checked::Config;
use docwharf_base::clock::format_system_time;
use docwharf_base::error_chain::ErrorChain;
use docwharf_serve::key_pair::{CertificateValidity, KeyPair};

use super::check::DoctorCheck;
use super::network::EXPIRY_WARNING_PERIOD;

const CHECK_NAME: &str = "certificate";

pub(super) fn check(config: &Config) -> Vec<DoctorCheck> {
    let Some(tls) = &config.tls else {
        return vec![DoctorCheck::ok(CHECK_NAME, "not needed: nothing is served encrypted")];
    };
    let files = &tls.files;
    let pair = match KeyPair::load(files) {
        Ok(pair) => pair,
        Err(error) => {
            let advice = "docwharf cannot start with it; a running docwharf keeps its previous pair";
            return vec![DoctorCheck::error(CHECK_NAME, ErrorChain(&error).to_string(), advice)];
        }
    };
    let now = SystemTime::now();
    let path = files.certificate.display();
    let (begin, end) = (format_system_time(pair.not_before), format_system_time(pair.not_after));
    let mut checks = vec![match pair.validity(now) {
        CertificateValidity::Expired => DoctorCheck::error(
            CHECK_NAME,
            format!("{path} expired on {end}"),
            "replace it by a renewed certificate, which docwharf loads at once",
        ),
        CertificateValidity::NotYet => DoctorCheck::error(
            CHECK_NAME,
            format!("{path} is not valid before {begin}"),
            "check this machine's clock, or wait",
        ),
        CertificateValidity::Valid
            if pair.not_after.duration_since(now).is_ok_and(|remaining| remaining < EXPIRY_WARNING_PERIOD) =>
        {
            DoctorCheck::warning(
                CHECK_NAME,
                format!("{path} expires soon: {end}"),
                "renew it; docwharf loads the new certificate at once",
            )
        }
        CertificateValidity::Valid => DoctorCheck::ok(CHECK_NAME, format!("{path} until {end}, and its key")),
    }];
    if is_open(&files.key) {
        let found = format!("the key {} can be read by all users of this machine", files.key.display());
        checks.push(DoctorCheck::warning(
            CHECK_NAME,
            found,
            "chmod 0640 it, and replace it if other users may have read it",
        ));
    }
    checks
}

fn is_open(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o007 != 0)
}
