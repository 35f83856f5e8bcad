//! Heads of answers as they go over the wire in HTTP/2: names by the table that never changes, values as strings, nothing kept
//! (RFC 7541, 6.2.2).

use http::StatusCode;

use super::huffman;
use super::table::STATIC;

/// Says that nothing will be kept (RFC 7541, 6.3), at the beginning of a connection's first block: then it does not matter how
/// much the peer would keep, and when it changes its mind.
pub const NOTHING_KEPT: u8 = 0x20;

/// Puts `:status` behind `out`. It is the first field.
pub fn status(status: StatusCode, out: &mut Vec<u8>) {
    let text = status.as_str();
    if let Some(at) = STATIC.iter().position(|known| *known == (":status", text)) {
        out.push(0x80 | (at + 1) as u8);
    } else {
        field(":status", text.as_bytes(), out);
    }
}

/// Puts a field behind `out`.
pub fn field(name: &str, value: &[u8], out: &mut Vec<u8>) {
    if let Some(at) = STATIC.iter().position(|(known, _)| *known == name) {
        number(at + 1, 4, 0, out);
    } else {
        out.push(0);
        string(name.as_bytes(), out);
    }
    string(value, out);
}

fn string(text: &[u8], out: &mut Vec<u8>) {
    let len = huffman::len(text);
    if len < text.len() {
        number(len, 7, 0x80, out);
        huffman::encode(text, out);
    } else {
        number(text.len(), 7, 0, out);
        out.extend_from_slice(text);
    }
}

/// A number in the low `bits` of a byte, whose others are `first`, and as many more bytes as it takes (RFC 7541, 5.1).
fn number(mut value: usize, bits: u32, first: u8, out: &mut Vec<u8>) {
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
    use super::super::{Decoder, Fields};
    use super::*;

    #[test]
    fn heads_are_read_as_they_were_written() {
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
            let mut block = vec![NOTHING_KEPT];
            status(code, &mut block);
            for (name, value) in head {
                field(name, value.as_bytes(), &mut block);
            }
            let mut fields = Fields::default();
            Decoder::default().decode(&block, &mut fields).unwrap();
            let expected = [(":status", code.as_str())].into_iter().chain(head);
            assert!(fields.iter().eq(expected.map(|(name, value)| (name.as_bytes(), value.as_bytes()))));
        }
        let mut block = Vec::new();
        field("x-long", long.as_bytes(), &mut block);
        let mut fields = Fields::default();
        Decoder::default().decode(&block, &mut fields).unwrap();
        assert!(fields.is_too_large());
    }
}
