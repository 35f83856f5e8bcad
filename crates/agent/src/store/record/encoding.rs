//! The text of `state.json`: JSON with a checksum.

use serde::Deserialize;

use docwharf_base::model::digest::Digest;

use super::types::{OfferedVersion, SCHEMA_VERSION, StoreRecord};
use crate::store::json;

/// Beginning of the last line, which is a checksum of the bytes before it. The checksum detects a disk that changes a
/// bit of a label or an id, which would change the served version.
const CHECKSUM_FIELD: &str = ",\n  \"sum\": \"";

/// Encodes the record with its checksum.
pub(in crate::store) fn encode(record: &StoreRecord) -> Vec<u8> {
    let mut bytes = json::encode(record);
    // "\n}\n"
    bytes.truncate(bytes.len() - 3);
    let checksum = checksum(&bytes);
    bytes.extend_from_slice(format!("{CHECKSUM_FIELD}{checksum}\"\n}}\n").as_bytes());
    bytes
}

/// The reason why the file contains no record.
#[derive(Debug)]
pub(in crate::store) enum DecodeError {
    /// The content does not parse, or its checksum is wrong.
    Damaged(serde_json::Error),
    /// A later version of docwharf has written it, with this `schemaVersion`.
    Later(u32),
}

/// The field that the file has in every schema version.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Schema {
    schema_version: u32,
}

/// Decodes the file. A file without a checksum was written by hand, or by a docwharf before 0.1.
pub(in crate::store) fn decode(bytes: &[u8]) -> Result<StoreRecord, DecodeError> {
    verify_checksum(bytes).map_err(DecodeError::Damaged)?;
    let schema: Schema = serde_json::from_slice(bytes).map_err(DecodeError::Damaged)?;
    if schema.schema_version > SCHEMA_VERSION {
        return Err(DecodeError::Later(schema.schema_version));
    }
    let mut record: StoreRecord = serde_json::from_slice(bytes).map_err(DecodeError::Damaged)?;
    if schema.schema_version < 2 {
        // Schema 1 did not store the offered version: the bundle that was checked last came from the source.
        record.offered = record.last_checked_bundle.as_ref().and_then(|last_check| {
            Some(OfferedVersion { source: last_check.source.clone(), version: last_check.version? })
        });
    }
    record.schema_version = SCHEMA_VERSION;
    Ok(record)
}

fn verify_checksum(bytes: &[u8]) -> Result<(), serde_json::Error> {
    if let Some(end) = memchr::memmem::rfind(bytes, CHECKSUM_FIELD.as_bytes()) {
        let stored = bytes[end + CHECKSUM_FIELD.len()..].split(|&byte| byte == b'"').next();
        if stored != Some(checksum(&bytes[..end]).as_bytes()) {
            return Err(serde::de::Error::custom("its checksum (\"sum\") does not match its content"));
        }
    }
    Ok(())
}

/// The first 16 hex digits of the SHA-256.
fn checksum(bytes: &[u8]) -> String {
    let mut digits = Digest::compute(bytes).to_hex();
    digits.truncate(16);
    digits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::record::types::BundleCheck;
    use docwharf_base::model::version::VersionId;

    fn id(n: u8) -> VersionId {
        VersionId(Digest::compute(&[n]))
    }

    fn with_schema(record: &StoreRecord, version: u32) -> Vec<u8> {
        let text = String::from_utf8(encode(record)).unwrap();
        let (text, _) = text.split_once(CHECKSUM_FIELD).unwrap();
        format!("{text}\n}}").replace("\"schemaVersion\": 2", &format!("\"schemaVersion\": {version}")).into_bytes()
    }

    #[test]
    fn record_of_an_earlier_schema_is_read_and_of_a_later_schema_is_refused() {
        let last_check = BundleCheck {
            source: "s".into(),
            pin: None,
            demanded: None,
            size: 1,
            modified: 0,
            validator: None,
            sha256: None,
            version: Some(id(1)),
            refusal: None,
        };
        let record =
            StoreRecord { newest: Some(id(2)), last_checked_bundle: Some(last_check), ..StoreRecord::default() };
        let earlier = decode(&with_schema(&record, 1)).unwrap();
        assert_eq!(earlier.offered, Some(OfferedVersion { source: "s".into(), version: id(1) }));
        assert_eq!((earlier.schema_version, earlier.newest), (SCHEMA_VERSION, Some(id(2))));
        assert_eq!(decode(&with_schema(&record, 2)).unwrap(), record);
        assert!(matches!(decode(&with_schema(&record, 3)), Err(DecodeError::Later(3))));
    }

    /// A record with a value in each field, under the names that stores have. `@1` stands for an id.
    const FULL_RECORD: &str = r#"{
        "schemaVersion": 2, "active": "@1", "activeSince": "t1", "previous": "@2", "newest": "@3",
        "offered": {"source": "s", "version": "@3"},
        "hold": {"who": "me", "when": "t2", "why": "because"},
        "labels": {"L": {"version": "@4", "source": "s", "sha256": "d", "time": "t3"}},
        "looked": {"source": "s", "label": "L", "demanded": "d", "size": 1, "modified": 2, "validator": "v",
            "sha256": "d", "version": "@3", "refusal": "why"},
        "lastAttempt": {"time": "t4", "result": "failed", "saw": "x", "error": "e", "failures": 3, "question": "q",
            "wait": 4},
        "lastGood": "t5",
        "lastSuccess": {"source": "s", "pin": "L", "time": "t6"},
        "job": {"id": "7", "source": "s", "pin": "L", "started": "t7",
            "probes": {"p": {"sha256": "d", "etag": "e", "lastModified": "m"}}},
        "jobsElsewhere": [{"id": "8", "source": "o", "pin": null, "started": "t8", "probes": {}}],
        "lastStart": {"source": "s", "pin": null, "time": "t9"},
        "probed": {"source": "s", "probes": {"p": {"sha256": "d", "etag": null, "lastModified": null}}},
        "busy": {"p": {"since": "t10", "wait": 5}},
        "triedLink": "d", "configError": "c",
        "gate": {"version": "@3", "against": "@1", "rules": "r", "refused": "why", "time": "t11", "addresses": "a",
            "links": {"@1": 6}}
    }"#;

    /// The fields without which an object of the record is damaged.
    const SHORTEST_RECORD: &str = r#"{
        "schemaVersion": 2,
        "labels": {"L": {"version": "@4", "source": "s", "time": "t3"}},
        "looked": {"source": "s", "size": 1, "modified": 2},
        "lastAttempt": {"time": "t4", "result": "failed"},
        "lastSuccess": {"source": "s", "time": "t6"},
        "job": {"id": "7", "source": "s", "started": "t7"},
        "gate": {"version": "@3", "rules": "r", "time": "t11"}
    }"#;

    fn with_ids(text: &str) -> String {
        (1..=4_u8).fold(text.to_owned(), |text, n| text.replace(&format!("@{n}"), &n.to_string().repeat(64)))
    }

    // A changed name loses the field of every store: a hold, a back-off, a job.
    #[test]
    fn record_of_an_earlier_release_round_trips_with_all_its_fields() {
        let text = with_ids(FULL_RECORD);
        let record = decode(text.as_bytes()).unwrap();
        let mut written: serde_json::Value = serde_json::from_slice(&encode(&record)).unwrap();
        assert!(written.as_object_mut().unwrap().remove("sum").is_some());
        assert_eq!(written, serde_json::from_str::<serde_json::Value>(&text).unwrap());
        let record = decode(with_ids(SHORTEST_RECORD).as_bytes()).unwrap();
        let attempt = record.last_attempt.unwrap();
        assert_eq!((attempt.failures, attempt.wait, attempt.source_digest.as_str()), (0, 0, ""));
        assert!(record.job.unwrap().probes.is_empty() && record.gate.unwrap().links.is_empty());
        assert!(record.jobs_elsewhere.is_empty() && record.probe_back_offs.is_empty());
    }
}
