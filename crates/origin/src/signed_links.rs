//! Links that expire: signing and verification. Pure functions.
//!
//! The [`OriginSecret`] is created once and stored in the origin's database; a reader of the database can sign links. A
//! signature covers the job and the expiry in seconds, exactly as the link has it, so that no part of one link is valid
//! in another.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use docwharf_base::model::digest::{Digest, encode_hex};

/// The size of the secret in bytes: one block of SHA-256, which HMAC uses without hashing it first (RFC 2104, section
/// 2).
pub(super) const SECRET_BYTES: usize = 64;

/// The reason why a link is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkRefusal {
    /// The link has no query, so it is not signed.
    Unsigned,
    /// The link differs from the one that was created.
    Altered,
    /// The link was valid and has expired.
    Expired,
}

/// The secret of an origin: it signs and verifies links, and compares API keys without revealing them by its timing.
#[derive(Clone)]
pub(super) struct OriginSecret(Hmac<Sha256>);

impl fmt::Debug for OriginSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl OriginSecret {
    pub(super) fn new(secret: [u8; SECRET_BYTES]) -> OriginSecret {
        OriginSecret(Hmac::new(&secret.into()))
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        for part in parts {
            mac.update(part);
        }
        mac
    }

    fn link_mac(&self, job: &str, expires: &str) -> Hmac<Sha256> {
        self.mac(&[b"link\n", job.as_bytes(), b"\n", expires.as_bytes()])
    }

    /// Returns the query of a link to the bundle of `job` that is valid before the second `expires`.
    pub(super) fn sign_link_query(&self, job: &str, expires: i64) -> String {
        let signature = self.link_mac(job, &expires.to_string()).finalize().into_bytes();
        format!("expires={expires}&signature={}", encode_hex(&signature))
    }

    /// Verifies that [`OriginSecret::sign_link_query`] has created `query` for `job`, and that it is valid at the
    /// second `now`.
    pub(super) fn verify_link(&self, job: &str, query: Option<&str>, now: i64) -> Result<(), LinkRefusal> {
        let query = query.filter(|query| !query.is_empty()).ok_or(LinkRefusal::Unsigned)?;
        let (expires, signature) = parse_query(query).ok_or(LinkRefusal::Altered)?;
        // The comparison takes constant time and comes before the expiry check: a client that alters a link learns
        // nothing else about it.
        self.link_mac(job, expires).verify_slice(&signature.0).map_err(|_| LinkRefusal::Altered)?;
        let expires: i64 = expires.parse().map_err(|_| LinkRefusal::Altered)?;
        if now < expires { Ok(()) } else { Err(LinkRefusal::Expired) }
    }

    /// Compares two byte strings through their HMACs under the secret, so that the time reveals neither where they
    /// differ nor the length of `expected`.
    pub(super) fn is_equal(&self, expected: &[u8], presented: &[u8]) -> bool {
        let expected = self.mac(&[b"key\n", expected]).finalize().into_bytes();
        self.mac(&[b"key\n", presented]).verify_slice(&expected).is_ok()
    }
}

/// Parses the two parameters of a link, in either order. `None` if there is another parameter or one occurs twice,
/// because no link of this origin has that.
fn parse_query(query: &str) -> Option<(&str, Digest)> {
    let (mut expires, mut signature) = (None, None);
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=')?;
        let slot = match name {
            "expires" => &mut expires,
            "signature" => &mut signature,
            _ => return None,
        };
        if slot.replace(value).is_some() {
            return None;
        }
    }
    Some((expires?, Digest::parse(signature?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn secret() -> OriginSecret {
        OriginSecret::new([7; SECRET_BYTES])
    }

    #[test]
    fn a_signed_link_is_valid_until_its_expiry_time() {
        let query = secret().sign_link_query("se_1", NOW + 60);
        for (now, expected) in [
            (NOW, Ok(())),
            (NOW + 59, Ok(())),
            (NOW + 60, Err(LinkRefusal::Expired)),
            (i64::MAX, Err(LinkRefusal::Expired)),
        ] {
            assert_eq!(secret().verify_link("se_1", Some(&query), now), expected, "{now}");
        }
    }

    #[test]
    fn any_change_of_a_signed_query_is_refused_as_altered() {
        let query = secret().sign_link_query("se_1", NOW + 60);
        let (expires, signature) = query.split_once('&').unwrap();
        let mut wrong = vec![
            query.replace("expires=1", "expires=2"),
            query.replace("expires=", "expires=0"),
            query.replace("expires=", "expires=+"),
            query.replace("signature", "Signature"),
            format!("{query}&x=1"),
            format!("{query}&{expires}"),
            format!("{query}&"),
            format!("&{query}"),
            expires.to_owned(),
            signature.to_owned(),
            "x".to_owned(),
            secret().sign_link_query("se_2", NOW + 60),
            OriginSecret::new([8; SECRET_BYTES]).sign_link_query("se_1", NOW + 60),
        ];
        for offset in 0..64 {
            let mut digits = query.clone().into_bytes();
            let digit = digits.len() - 1 - offset;
            digits[digit] = if digits[digit] == b'0' { b'1' } else { b'0' };
            wrong.push(String::from_utf8(digits).unwrap());
        }
        for query in wrong {
            assert_eq!(secret().verify_link("se_1", Some(&query), NOW), Err(LinkRefusal::Altered), "{query}");
            assert_eq!(secret().verify_link("se_1", Some(&query), NOW + 99), Err(LinkRefusal::Altered), "{query}");
        }
        assert_eq!(secret().verify_link("se_2", Some(&query), NOW), Err(LinkRefusal::Altered));
        assert_eq!(secret().verify_link("se_1", Some(&format!("{signature}&{expires}")), NOW), Ok(()));
        for unsigned in [None, Some("")] {
            assert_eq!(secret().verify_link("se_1", unsigned, NOW), Err(LinkRefusal::Unsigned));
        }
    }

    #[test]
    fn secrets_are_equal_only_if_all_bytes_match() {
        assert!(secret().is_equal(b"adm_1", b"adm_1"));
        for other in ["", "adm_", "adm_2", "adm_11", "ADM_1"] {
            assert!(!secret().is_equal(b"adm_1", other.as_bytes()), "{other}");
        }
        assert_eq!(format!("{:?}", secret()), "***");
    }
}
