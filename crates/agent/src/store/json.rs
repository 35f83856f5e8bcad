//! JSON files of a store.

use serde::Serialize;

/// Encodes a value as indented JSON, for people.
pub(super) fn encode(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).expect("structs of strings and numbers can be encoded as JSON");
    bytes.push(b'\n');
    bytes
}
