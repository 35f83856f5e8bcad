//! The text of `state.json`: JSON with a checksum.

use serde::Deserialize;

use docwharf_base::model::digest::Digest;

use super::types::{OfferedVersion, SCHEMA_VERSION, StoreRecord};
use crate::store::json;

/// Beginning of the last line, a checksum of the bytes before it. It detects a disk that changes a bit of a label or an
/// id, which would change the version that is served.
const SUM: &str = ",\n  \"sum\": \"";

/// Encodes the record with its checksum.
pub(in crate::store) fn encode(record: &StoreRecord) -> Vec<u8> {
    let mut bytes = json::encode(record);
    // "\n}\n"
    bytes.truncate(bytes.len() - 3);
    let sum = sum(&bytes);
    bytes.extend_from_slice(format!("{SUM}{sum}\"\n}}\n").as_bytes());
    bytes
}

/// The reason why the file contains no record.
#[derive(Debug)]
pub(in crate::store) enum DecodeError {
    /// The content does not parse, or its checksum is wrong.
    Damaged(serde_json::Error),
    /// A later docwharf has written it, with this `schemaVersion`.
    Later(u32),
}

/// The field that the file has in every schema version.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Schema {
    schema_version: u32,
}

/// Decodes the file. One without a checksum was written by hand, or by a docwharf before 0.1.
pub(in crate::store) fn decode(bytes: &[u8]) -> Result<StoreRecord, DecodeError> {
    check_sum(bytes).map_err(DecodeError::Damaged)?;
    let schema: Schema = serde_json::from_slice(bytes).map_err(DecodeError::Damaged)?;
    if schema.schema_version > SCHEMA_VERSION {
        return Err(DecodeError::Later(schema.schema_version));
    }
    let mut record: StoreRecord = serde_json::from_slice(bytes).map_err(DecodeError::Damaged)?;
    if schema.schema_version < 2 {
        // Schema 1 did not store the offered version: the bundle that was checked last came from the source.
        let looked = record.looked.as_ref();
        let offered =
            looked.and_then(|looked| Some(OfferedVersion { source: looked.source.clone(), version: looked.version? }));
        record.offered = offered;
    }
    record.schema_version = SCHEMA_VERSION;
    Ok(record)
}

fn check_sum(bytes: &[u8]) -> Result<(), serde_json::Error> {
    if let Some(end) = memchr::memmem::rfind(bytes, SUM.as_bytes()) {
        let said = bytes[end + SUM.len()..].split(|&byte| byte == b'"').next();
        if said != Some(sum(&bytes[..end]).as_bytes()) {
            return Err(serde::de::Error::custom("its checksum (\"sum\") is of another content"));
        }
    }
    Ok(())
}

/// The first 16 hex digits of the SHA-256.
fn sum(bytes: &[u8]) -> String {
    let mut digits = Digest::of(bytes).hex();
    digits.truncate(16);
    digits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::record::types::BundleCheck;
    use docwharf_base::model::version::VersionId;

    fn id(n: u8) -> VersionId {
        VersionId(Digest::of(&[n]))
    }

    fn with_schema(record: &StoreRecord, version: u32) -> Vec<u8> {
        let text = String::from_utf8(encode(record)).unwrap();
        let (text, _) = text.split_once(SUM).unwrap();
        format!("{text}\n}}").replace("\"schemaVersion\": 2", &format!("\"schemaVersion\": {version}")).into_bytes()
    }

    #[test]
    fn an_earlier_record_is_read_and_a_later_one_is_refused() {
        let looked = BundleCheck {
            source: "s".into(),
            label: None,
            demanded: None,
            size: 1,
            modified: 0,
            validator: None,
            sha256: None,
            version: Some(id(1)),
            refusal: None,
        };
        let record = StoreRecord { newest: Some(id(2)), looked: Some(looked), ..StoreRecord::default() };
        let earlier = decode(&with_schema(&record, 1)).unwrap();
        assert_eq!(earlier.offered, Some(OfferedVersion { source: "s".into(), version: id(1) }));
        assert_eq!((earlier.schema_version, earlier.newest), (SCHEMA_VERSION, Some(id(2))));
        assert_eq!(decode(&with_schema(&record, 2)).unwrap(), record);
        assert!(matches!(decode(&with_schema(&record, 3)), Err(DecodeError::Later(3))));
    }
}
