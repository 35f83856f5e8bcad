//! Keys of the API in the database. Each belongs to one organization and has a scope.
//!
//! A key is `dw_<8 digits>_<64 digits>`, both hexadecimal. The first part identifies it and may be shown; the second is
//! 256 random bits. Only the SHA-256 digest of the key is stored. A slow hash would protect a short secret against
//! guessing, which is not necessary for 256 random bits.

use std::time::Duration;

use rusqlite::{OptionalExtension, Row, params};
use zeroize::Zeroizing;

use docwharf_base::clock::now_unix_millis;
use docwharf_base::model::digest::{Digest, encode_hex};

use super::database::{Database, DatabaseError};
use super::random_bytes::random_bytes;
use super::signed_links::OriginSecret;

/// The beginning of every key.
const KEY_PREFIX: &str = "dw_";
/// The number of hexadecimal digits that identify a key.
const KEY_ID_DIGITS: usize = 8;
/// The largest length of a key's name, in bytes.
const MAX_KEY_NAME_BYTES: usize = 100;

/// The operations that a key allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyScope {
    /// GET and HEAD only.
    Read,
    /// All operations.
    Write,
}

impl KeyScope {
    /// Returns the name of the scope.
    pub fn name(self) -> &'static str {
        match self {
            KeyScope::Read => "read",
            KeyScope::Write => "write",
        }
    }

    /// Returns the scope of this name.
    pub fn from_name(name: &str) -> Option<KeyScope> {
        [KeyScope::Read, KeyScope::Write].into_iter().find(|scope| scope.name() == name)
    }
}

/// An authenticated client: its organization and the scope of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AuthenticatedClient {
    pub(super) organization: String,
    pub(super) scope: KeyScope,
}

/// A key as lists show it.
#[derive(Debug, Clone)]
pub struct ApiKey {
    /// The organization that owns it.
    pub organization: String,
    /// Its name.
    pub name: String,
    /// The part of it that may be shown.
    pub prefix: String,
    /// Its scope.
    pub scope: KeyScope,
    /// The time of its creation, in milliseconds since 1970.
    pub created: i64,
    /// The time at which it expires, in milliseconds since 1970.
    pub expires: Option<i64>,
    /// The time at which it was revoked, in milliseconds since 1970.
    pub revoked: Option<i64>,
}

/// An error in the administration of keys.
#[derive(Debug, thiserror::Error)]
pub enum ApiKeyError {
    /// The database failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The organization has a valid key of this name already.
    #[error("{organization} has a key called {name:?} already; revoke it first, or give this one another name")]
    NameInUse {
        /// The organization.
        organization: String,
        /// The name.
        name: String,
    },
    /// The organization has no valid key of this name or prefix.
    #[error("{organization} has no key called {name:?}; `docwharf origin key list` lists them")]
    Unknown {
        /// The organization.
        organization: String,
        /// The name or prefix.
        name: String,
    },
    /// The name is not allowed.
    #[error("a key's name has 1 to {MAX_KEY_NAME_BYTES} bytes and no control characters")]
    Name,
    /// The operating system returned no random bytes.
    #[error("cannot generate a key")]
    Random(#[source] std::io::Error),
}

/// Creates a key for `organization` and returns it. It cannot be read again: only its digest is stored.
pub fn create(
    db: &Database,
    organization: &str,
    name: &str,
    scope: KeyScope,
    lifetime: Option<Duration>,
) -> Result<Zeroizing<String>, ApiKeyError> {
    if name.is_empty() || name.len() > MAX_KEY_NAME_BYTES || name.chars().any(char::is_control) {
        return Err(ApiKeyError::Name);
    }
    let random = Zeroizing::new(random_bytes::<36>().map_err(ApiKeyError::Random)?);
    let (prefix, secret) = random.split_at(KEY_ID_DIGITS / 2);
    let prefix = format!("{KEY_PREFIX}{}", encode_hex(prefix));
    let key = Zeroizing::new(format!("{prefix}_{}", encode_hex(secret)));
    let hash = Digest::compute(key.as_bytes()).0;
    let now = now_unix_millis();
    let expires = lifetime.map(|lifetime| now.saturating_add(i64::try_from(lifetime.as_millis()).unwrap_or(i64::MAX)));
    let row = (organization.to_owned(), name.to_owned(), prefix, scope.name());
    let is_new = db.write(move |transaction| {
        let (organization, name, prefix, scope) = row;
        // The unique index covers keys that are not revoked, so a revoked key does not block its name.
        transaction.execute(
            "INSERT OR IGNORE INTO keys (organization, name, prefix, hash, scope, created, expires) \
             VALUES (?, ?, ?, ?, ?, ?, ?)",
            params![organization, name, prefix, hash, scope, now, expires],
        )
    })? == 1;
    if !is_new {
        return Err(ApiKeyError::NameInUse { organization: organization.to_owned(), name: name.to_owned() });
    }
    Ok(key)
}

/// Lists all keys, including expired and revoked ones.
pub fn list(db: &Database) -> Result<Vec<ApiKey>, DatabaseError> {
    db.read(|connection| {
        let mut rows = connection.prepare(
            "SELECT organization, name, prefix, scope, created, expires, revoked FROM keys ORDER BY organization, created, id",
        )?;
        rows.query_map([], api_key_from_row)?.collect()
    })
}

fn api_key_from_row(row: &Row<'_>) -> rusqlite::Result<ApiKey> {
    let scope: String = row.get("scope")?;
    Ok(ApiKey {
        organization: row.get("organization")?,
        name: row.get("name")?,
        prefix: row.get("prefix")?,
        // A CHECK constraint of the table allows no other scope.
        scope: KeyScope::from_name(&scope).unwrap_or(KeyScope::Read),
        created: row.get("created")?,
        expires: row.get("expires")?,
        revoked: row.get("revoked")?,
    })
}

/// Revokes the key of this name or prefix, with immediate effect.
pub fn revoke(db: &Database, organization: &str, name: &str) -> Result<(), ApiKeyError> {
    let now = now_unix_millis();
    let row = (organization.to_owned(), name.to_owned());
    let revoked = db.write(move |transaction| {
        transaction.execute(
            "UPDATE keys SET revoked = ?1 WHERE organization = ?2 AND (name = ?3 OR prefix = ?3) AND revoked IS NULL",
            params![now, row.0, row.1],
        )
    })?;
    if revoked == 0 {
        return Err(ApiKeyError::Unknown { organization: organization.to_owned(), name: name.to_owned() });
    }
    Ok(())
}

/// Authenticates a token; `None` if it is unknown, expired or revoked. The row is found by the public prefix, and the
/// digest is compared in constant time.
pub(super) fn authenticate(
    db: &Database,
    origin_secret: &OriginSecret,
    token: &[u8],
    now: i64,
) -> Result<Option<AuthenticatedClient>, DatabaseError> {
    let Some(prefix) = public_prefix(token) else { return Ok(None) };
    let found = db.read(|connection| {
        let mut statement = connection.prepare_cached(
            "SELECT organization, scope, hash FROM keys WHERE prefix = ? AND revoked IS NULL AND (expires IS NULL OR expires > ?)",
        )?;
        let row = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, [u8; 32]>(2)?));
        statement.query_row(params![prefix, now], row).optional()
    })?;
    let Some((organization, scope, hash)) = found else { return Ok(None) };
    let is_same_key = origin_secret.is_equal(&hash, &Digest::compute(token).0);
    Ok(KeyScope::from_name(&scope).filter(|_| is_same_key).map(|scope| AuthenticatedClient { organization, scope }))
}

/// Returns the part of a token that may be shown; `None` if the token does not have the form of a key.
fn public_prefix(token: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(token).ok()?;
    let rest = text.strip_prefix(KEY_PREFIX)?;
    let (id, _) = rest.split_once('_')?;
    let is_key_id = id.len() == KEY_ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_key_id.then(|| &text[..KEY_PREFIX.len() + KEY_ID_DIGITS])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::open_database;

    #[test]
    fn an_api_key_authenticates_its_organization_until_it_expires_or_is_revoked() {
        let dir = tempfile::tempdir().unwrap();
        let db = open_database(&dir.path().join("origin.db")).unwrap();
        let origin_secret = OriginSecret::new([7; 64]);
        let now = now_unix_millis();
        let client_of = |key: &str, now| authenticate(&db, &origin_secret, key.as_bytes(), now).unwrap();
        let lifetime = Some(Duration::from_mins(1));
        let read_key = create(&db, "acme", "ci", KeyScope::Read, lifetime).unwrap();
        let write_key = create(&db, "umbrella", "ci", KeyScope::Write, None).unwrap();
        let acme = AuthenticatedClient { organization: "acme".to_owned(), scope: KeyScope::Read };
        let umbrella = AuthenticatedClient { organization: "umbrella".to_owned(), scope: KeyScope::Write };
        assert_eq!(client_of(&read_key, now), Some(acme));
        assert_eq!(client_of(&read_key, now + 61_000), None, "it has expired");
        assert_eq!(client_of(&write_key, now + 61_000), Some(umbrella));
        for wrong in
            ["", "dw_", "dw_00000000_", &read_key[..read_key.len() - 1], &format!("{}0", &*read_key), &write_key[3..]]
        {
            assert_eq!(client_of(wrong, now), None, "{wrong}");
        }
        let forged = format!("{}{}", &read_key[..12], &write_key[12..]);
        assert_eq!(client_of(&forged, now), None, "the prefix of one key with the secret of another");
        assert!(matches!(create(&db, "acme", "ci", KeyScope::Write, None), Err(ApiKeyError::NameInUse { .. })));
        revoke(&db, "acme", "ci").unwrap();
        assert_eq!(client_of(&read_key, now), None);
        assert!(client_of(&write_key, now).is_some(), "the key with this name of another organization is still valid");
        assert!(matches!(revoke(&db, "acme", "ci"), Err(ApiKeyError::Unknown { .. })));
        create(&db, "acme", "ci", KeyScope::Write, None).unwrap();
        assert_eq!(list(&db).unwrap().len(), 3);
        let file = std::fs::read(dir.path().join("origin.db-wal")).unwrap();
        let secret = &read_key.as_bytes()[12..];
        assert!(memchr::memmem::find(&file, secret).is_none(), "the database does not contain the key itself");
    }

    #[test]
    fn an_api_key_expires_exactly_on_time_and_is_revoked_by_name_or_prefix() {
        let dir = tempfile::tempdir().unwrap();
        let db = open_database(&dir.path().join("origin.db")).unwrap();
        let origin_secret = OriginSecret::new([7; 64]);
        let is_valid = |key: &str, now| authenticate(&db, &origin_secret, key.as_bytes(), now).unwrap().is_some();
        for (name, is_good) in [
            ("", false),
            ("a\nb", false),
            ("\u{7f}", false),
            ("ci", true),
            ("a key", true),
            (&"n".repeat(100), true),
            (&"n".repeat(101), false),
        ] {
            let result = create(&db, "acme", name, KeyScope::Write, None);
            assert_eq!(result.is_ok(), is_good, "{name:?}");
            assert!(is_good || matches!(result, Err(ApiKeyError::Name)), "{name:?}");
        }
        let expiring = create(&db, "umbrella", "expiring", KeyScope::Read, Some(Duration::from_mins(1))).unwrap();
        let permanent = create(&db, "umbrella", "permanent", KeyScope::Write, None).unwrap();
        let keys: Vec<ApiKey> = list(&db).unwrap();
        let names: Vec<_> = keys.iter().map(|key| (key.organization.as_str(), key.name.len(), key.scope)).collect();
        let (read, write) = (KeyScope::Read, KeyScope::Write);
        let acme = [("acme", 2, write), ("acme", 5, write), ("acme", 100, write)];
        assert_eq!(names, [&acme[..], &[("umbrella", 8, read), ("umbrella", 9, write)]].concat());
        let expiry = keys[3].expires.unwrap();
        assert_eq!((expiry - keys[3].created, keys[4].expires), (60_000, None));
        assert!(is_valid(&expiring, expiry - 1) && !is_valid(&expiring, expiry) && is_valid(&permanent, i64::MAX));
        assert!(expiring.starts_with(&keys[3].prefix) && keys[3].prefix.len() == 11);
        let wrong = ["permanen", "", &permanent[..], &keys[3].prefix.to_uppercase()];
        for name in wrong {
            assert!(matches!(revoke(&db, "umbrella", name), Err(ApiKeyError::Unknown { .. })), "{name}");
        }
        assert!(matches!(revoke(&db, "acme", &keys[4].prefix), Err(ApiKeyError::Unknown { .. })));
        assert!(is_valid(&permanent, expiry));
        revoke(&db, "umbrella", &keys[4].prefix).unwrap();
        assert!(!is_valid(&permanent, expiry) && is_valid(&expiring, expiry - 1));
        let revoked: Vec<bool> = list(&db).unwrap().iter().map(|key| key.revoked.is_some()).collect();
        assert_eq!(revoked, [false, false, false, false, true]);
        assert_eq!(["read", "write", "all", ""].map(KeyScope::from_name), [Some(read), Some(write), None, None]);
    }
}
