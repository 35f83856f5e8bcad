//! The decoder of field blocks (RFC 7541, sections 3 and 6).

use super::fields::DecodedFields;
use super::huffman;
use super::table::DynamicTable;

/// The error for a field block that cannot be decoded. It is a connection error, because later blocks cannot be decoded
/// either (RFC 9113, section 4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HpackError;

/// The decoder of a connection. It has to decode all field blocks in order.
#[derive(Debug, Default)]
pub struct HpackDecoder {
    table: DynamicTable,
}

/// Decodes an integer whose prefix is the low `bits` of the first byte (RFC 7541, section 5.1).
fn decode_integer(block: &mut &[u8], bits: u32) -> Result<usize, HpackError> {
    let mask = (1usize << bits) - 1;
    let (&first, mut rest) = block.split_first().ok_or(HpackError)?;
    let mut value = usize::from(first) & mask;
    if value == mask {
        let mut shift = 0;
        loop {
            let (&byte, more) = rest.split_first().ok_or(HpackError)?;
            rest = more;
            value += usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
            // At most four bytes follow the prefix: no valid block needs a larger integer. The limit also bounds
            // padding with zeros.
            if shift > 21 {
                return Err(HpackError);
            }
        }
    }
    *block = rest;
    Ok(value)
}

/// Decodes a string literal (RFC 7541, section 5.2) and appends it to `out`.
fn decode_string(block: &mut &[u8], out: &mut Vec<u8>) -> Result<(), HpackError> {
    let is_huffman = block.first().is_some_and(|first| first & 0x80 != 0);
    let len = decode_integer(block, 7)?;
    let (text, rest) = block.split_at_checked(len).ok_or(HpackError)?;
    *block = rest;
    if !is_huffman {
        out.extend_from_slice(text);
    } else if !huffman::decode(text, out) {
        return Err(HpackError);
    }
    Ok(())
}

impl HpackDecoder {
    /// Decodes a block and adds its fields to `fields`. A block with too many fields is decoded to its end, because
    /// later blocks depend on the dynamic table.
    pub fn decode(&mut self, mut block: &[u8], fields: &mut DecodedFields) -> Result<(), HpackError> {
        let mut may_resize = true;
        while let Some(&first) = block.first() {
            if first & 0xe0 == 0x20 {
                // A size update is allowed only at the start of a block (RFC 7541, section 4.2).
                let max_size = decode_integer(&mut block, 5)?;
                if !may_resize || !self.table.resize(max_size) {
                    return Err(HpackError);
                }
                continue;
            }
            may_resize = false;
            if first & 0x80 != 0 {
                self.decode_indexed_field(decode_integer(&mut block, 7)?, fields)?;
            } else if first & 0x40 != 0 {
                self.decode_literal_field(&mut block, 6, fields)?;
            } else {
                self.decode_literal_field(&mut block, 4, fields)?;
            }
        }
        Ok(())
    }

    /// Decodes an indexed field (RFC 7541, section 6.1).
    fn decode_indexed_field(&self, index: usize, fields: &mut DecodedFields) -> Result<(), HpackError> {
        if fields.is_too_large() {
            // One byte can stand for a field of four thousand bytes. These fields are dropped, so they are not copied.
            return self.table.has(index).then_some(()).ok_or(HpackError);
        }
        let (name, value) = self.table.get(index).ok_or(HpackError)?;
        let (text, begin) = fields.begin_field();
        text.extend_from_slice(name);
        text.extend_from_slice(value);
        fields.end_field(begin, begin + name.len());
        Ok(())
    }

    /// Decodes a literal field (RFC 7541, section 6.2). A name index with a prefix of six bits means that the field is
    /// added to the dynamic table.
    fn decode_literal_field(
        &mut self,
        block: &mut &[u8],
        bits: u32,
        fields: &mut DecodedFields,
    ) -> Result<(), HpackError> {
        let name_index = decode_integer(block, bits)?;
        let (text, begin) = fields.begin_field();
        if name_index == 0 {
            decode_string(block, text)?;
        } else {
            text.extend_from_slice(self.table.get(name_index).ok_or(HpackError)?.0);
        }
        let value_offset = text.len();
        decode_string(block, text)?;
        if bits == 6 {
            self.table.insert(&text[begin..], value_offset - begin);
        }
        fields.end_field(begin, value_offset);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(decoder: &mut HpackDecoder, hex: &str) -> Option<String> {
        let digits: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        let block: Vec<u8> =
            digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect();
        let mut fields = DecodedFields::default();
        decoder.decode(&block, &mut fields).ok()?;
        let lines = fields
            .iter()
            .map(|(name, value)| format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value)));
        Some(lines.collect::<Vec<_>>().join("\n"))
    }

    const REQUESTS: [&str; 3] = [
        ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com",
        ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\ncache-control: no-cache",
        ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\ncustom-key: custom-value",
    ];

    #[test]
    fn the_requests_of_rfc_7541_c_3_and_c_4_are_read() {
        let plain = [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ];
        let coded = [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ];
        for blocks in [plain, coded] {
            let mut decoder = HpackDecoder::default();
            for (block, expected) in blocks.iter().zip(REQUESTS) {
                assert_eq!(decoded(&mut decoder, block).as_deref(), Some(expected));
            }
        }
    }

    #[test]
    fn the_response_examples_of_rfc_7541_c_5_are_decoded_with_dynamic_table_eviction() {
        let mut decoder = HpackDecoder::default();
        let first = "3fe101 4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 \
                     3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d";
        let all = "cache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\nlocation: https://www.example.com";
        assert_eq!(decoded(&mut decoder, first), Some(format!(":status: 302\n{all}")));
        assert_eq!(decoded(&mut decoder, "4803 3330 37c1 c0bf"), Some(format!(":status: 307\n{all}")));
        assert_eq!(decoder.table.get(65).map(|(name, _)| name), Some(&b"cache-control"[..]));
        assert_eq!(decoder.table.get(66), None, "the oldest entry was evicted");
    }

    #[test]
    fn invalid_hpack_field_blocks_are_refused() {
        for wrong in [
            "80",                       // index 0
            "be",                       // an index without an entry
            "ffffffff7f",               // a large index without an entry
            "ffffffffffffffffffffff01", // an integer that is too large
            "00",                       // no name
            "0001",                     // a name that is cut
            "000161",                   // no value
            "00016105",                 // a value that is cut
            "7f",                       // an integer that is cut
            "0f",                       // another integer that is cut
            "8220",                     // a size update after a field
            "3fe21f",                   // a table size of 4,097
            "000161 81ff",              // padding of a whole byte
            "000161 8100",              // padding that is not ones
        ] {
            assert_eq!(decoded(&mut HpackDecoder::default(), wrong), None, "{wrong}");
        }
        assert_eq!(decoded(&mut HpackDecoder::default(), "20 3fe11f 82").as_deref(), Some(":method: GET"));
    }

    #[test]
    fn an_oversized_field_list_is_not_stored_but_later_blocks_are_decoded() {
        let mut block = vec![0x40, 1, b'a', 0x7f, 0xa1, 0x1e];
        block.extend_from_slice(&[b'v'; 4000]);
        block.extend_from_slice(&[0xbe; 10_000]);
        let (mut decoder, mut fields) = (HpackDecoder::default(), DecodedFields::default());
        decoder.decode(&block, &mut fields).unwrap();
        let stored: usize = fields.iter().map(|(name, value)| name.len() + value.len()).sum();
        assert!(fields.is_too_large() && stored < super::super::fields::MAX_FIELD_LIST_BYTES);
        assert!(
            decoder.decode(&[0xbf], &mut fields).is_err(),
            "an index without an entry is an error above the limit as well"
        );
        fields.clear();
        decoder.decode(&[0xbe], &mut fields).unwrap();
        assert!(!fields.is_too_large());
        assert_eq!(fields.iter().next(), Some((&b"a"[..], &[b'v'; 4000][..])));
    }

    #[test]
    fn an_entry_larger_than_the_dynamic_table_empties_the_table() {
        let mut table = DynamicTable::default();
        table.insert(b"ab", 1);
        table.insert(&[0; 4096], 1);
        assert_eq!(table.get(62), None);
        table.insert(&[0; 4064], 1);
        assert!(table.get(62).is_some());
        assert!(table.resize(0) && table.get(62).is_none());
    }
}
