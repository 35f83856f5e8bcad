//! The encoder of response heads: a `:status` in the static table by its index (RFC 7541, section 6.1); other fields as
//! literals that are not added to the dynamic table (section 6.2.2), with the name by its index in the static table or
//! as a string literal, and the value as a string literal.

use http::StatusCode;

use super::huffman;
use super::table::STATIC_TABLE;

/// The dynamic table size update to 0 (RFC 7541, section 6.3) at the start of a connection's first block. After it, the
/// table size that the peer allows does not matter.
pub const TABLE_SIZE_ZERO: u8 = 0x20;

/// Appends the `:status` field, which must be the first one, to `out`.
pub fn append_status(status: StatusCode, out: &mut Vec<u8>) {
    let text = status.as_str();
    if let Some(position) = STATIC_TABLE.iter().position(|entry| *entry == (":status", text)) {
        out.push(0x80 | (position + 1) as u8);
    } else {
        append_field(":status", text.as_bytes(), out);
    }
}

/// Appends a field to `out`.
pub fn append_field(name: &str, value: &[u8], out: &mut Vec<u8>) {
    if let Some(position) = STATIC_TABLE.iter().position(|(entry_name, _)| *entry_name == name) {
        append_integer(position + 1, 4, 0, out);
    } else {
        out.push(0);
        append_string(name.as_bytes(), out);
    }
    append_string(value, out);
}

fn append_string(text: &[u8], out: &mut Vec<u8>) {
    let len = huffman::encoded_len(text);
    if len < text.len() {
        append_integer(len, 7, 0x80, out);
        huffman::encode(text, out);
    } else {
        append_integer(text.len(), 7, 0, out);
        out.extend_from_slice(text);
    }
}

/// Appends an integer with a prefix of `bits` bits, whose other bits are `first` (RFC 7541, section 5.1).
fn append_integer(mut value: usize, bits: u32, first: u8, out: &mut Vec<u8>) {
    let mask = (1usize << bits) - 1;
    if value < mask {
        out.push(first | value as u8);
        return;
    }
    out.push(first | mask as u8);
    value -= mask;
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::super::{DecodedFields, HpackDecoder};
    use super::*;

    #[test]
    fn encoded_response_heads_decode_to_the_same_fields() {
        let long = "x".repeat(70_000);
        let head = [
            ("content-type", "text/html; charset=utf-8"),
            ("etag", "\"2d711642b726b044-g0102abcd\""),
            ("www-authenticate", "Basic"),
            ("x-content-type-options", "nosniff"),
            ("x-empty", ""),
            ("x-odd", "\u{fc}\t\\\""),
        ];
        for code in [200, 204, 206, 304, 307, 404, 416, 500, 503] {
            let code = StatusCode::from_u16(code).unwrap();
            let mut block = vec![TABLE_SIZE_ZERO];
            append_status(code, &mut block);
            for (name, value) in head {
                append_field(name, value.as_bytes(), &mut block);
            }
            let mut fields = DecodedFields::default();
            HpackDecoder::default().decode(&block, &mut fields).unwrap();
            let expected = [(":status", code.as_str())].into_iter().chain(head);
            assert!(fields.iter().eq(expected.map(|(name, value)| (name.as_bytes(), value.as_bytes()))));
        }
        let mut block = Vec::new();
        append_field("x-long", long.as_bytes(), &mut block);
        let mut fields = DecodedFields::default();
        HpackDecoder::default().decode(&block, &mut fields).unwrap();
        assert!(fields.is_too_large());
    }
}
