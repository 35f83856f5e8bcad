//! The Huffman code of RFC 7541, appendix B. It is canonical: the codes follow from their lengths, in order of length
//! and symbol.

/// The length of each symbol's code in bits. The last symbol is EOS, which never occurs in a string.
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12,
    10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6,
    5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22,
    22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20,
    22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28,
    27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28,
    27, 27, 27, 27, 27, 26, 30,
];
const SYMBOLS: usize = 257;
/// The EOS symbol.
const EOS: u16 = 256;
const MAX_CODE_BITS: usize = 30;
/// The longest code, in bits, that one table lookup decodes.
const LOOKUP_BITS: usize = 8;

struct HuffmanCode {
    codes: [u32; SYMBOLS],
    /// The symbols in the order of their codes.
    symbols: [u16; SYMBOLS],
    /// For each length, the end of the codes of at most this length, left-aligned in 32 bits.
    codes_end: [u64; MAX_CODE_BITS + 1],
    /// For each length, its first code, and the number of symbols with shorter codes.
    first: [(u32, u32); MAX_CODE_BITS + 1],
    /// The symbol for each value of the first bits, and the length of its code; the length is 0 if the code is longer.
    lookup: [(u8, u8); 1 << LOOKUP_BITS],
}

static CODE: HuffmanCode = build_code();

const fn build_code() -> HuffmanCode {
    let mut code = HuffmanCode {
        codes: [0; SYMBOLS],
        symbols: [0; SYMBOLS],
        codes_end: [0; MAX_CODE_BITS + 1],
        first: [(0, 0); MAX_CODE_BITS + 1],
        lookup: [(0, 0); 1 << LOOKUP_BITS],
    };
    let (mut next, mut count, mut length) = (0u32, 0usize, 1usize);
    while length <= MAX_CODE_BITS {
        next <<= 1;
        code.first[length] = (next, count as u32);
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                code.codes[symbol] = next;
                code.symbols[count] = symbol as u16;
                if length <= LOOKUP_BITS {
                    let from = (next as usize) << (LOOKUP_BITS - length);
                    let mut at = from;
                    while at < from + (1 << (LOOKUP_BITS - length)) {
                        code.lookup[at] = (symbol as u8, length as u8);
                        at += 1;
                    }
                }
                next += 1;
                count += 1;
            }
            symbol += 1;
        }
        code.codes_end[length] = (next as u64) << (32 - length);
        length += 1;
    }
    code
}

/// Returns the symbol at the start of these 32 bits, and the length of its code.
fn decode_symbol(bits: u32) -> (u16, usize) {
    let (symbol, length) = CODE.lookup[(bits >> (32 - LOOKUP_BITS)) as usize];
    if length > 0 {
        return (u16::from(symbol), usize::from(length));
    }
    let found_length = (LOOKUP_BITS + 1..MAX_CODE_BITS).find(|&length| u64::from(bits) < CODE.codes_end[length]);
    let length = found_length.unwrap_or(MAX_CODE_BITS);
    let (first, shorter) = CODE.first[length];
    (CODE.symbols[(shorter + (bits >> (32 - length)) - first) as usize], length)
}

/// Decodes `coded` and appends the result to `out`; false if the coding is wrong (RFC 7541, section 5.2).
pub(super) fn decode(coded: &[u8], out: &mut Vec<u8>) -> bool {
    let (mut bits, mut bit_count, mut rest) = (0u64, 0usize, coded);
    loop {
        while bit_count <= 56
            && let Some((&byte, more)) = rest.split_first()
        {
            bits = bits << 8 | u64::from(byte);
            bit_count += 8;
            rest = more;
        }
        if bit_count == 0 {
            return true;
        }
        // The bits after the end are ones, as in the padding.
        let top = match bit_count {
            32.. => (bits >> (bit_count - 32)) as u32,
            _ => (bits << (32 - bit_count)) as u32 | u32::MAX >> bit_count,
        };
        let (symbol, length) = decode_symbol(top);
        if length > bit_count {
            // Padding is shorter than a byte and consists of ones.
            return bit_count < 8 && bits & ((1 << bit_count) - 1) == (1 << bit_count) - 1;
        }
        if symbol == EOS {
            return false;
        }
        out.push(symbol as u8);
        bit_count -= length;
    }
}

/// Returns the encoded length of `text` in bytes.
pub(super) fn encoded_len(text: &[u8]) -> usize {
    text.iter().map(|&byte| usize::from(LENGTHS[usize::from(byte)])).sum::<usize>().div_ceil(8)
}

/// Encodes `text` and appends the result to `out`.
pub(super) fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut bit_count) = (0u64, 0u32);
    for &byte in text {
        let length = u32::from(LENGTHS[usize::from(byte)]);
        bits = bits << length | u64::from(CODE.codes[usize::from(byte)]);
        bit_count += length;
        while bit_count >= 8 {
            bit_count -= 8;
            out.push((bits >> bit_count) as u8);
        }
    }
    if bit_count > 0 {
        out.push((bits << (8 - bit_count)) as u8 | (0xff >> bit_count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(coded: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        decode(coded, &mut out).then_some(out)
    }

    #[test]
    fn the_examples_of_rfc_7541_are_read_and_written() {
        for (text, coded) in [
            ("www.example.com", &[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff][..]),
            ("no-cache", &[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]),
            ("custom-value", &[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xb8, 0xe8, 0xb4, 0xbf]),
            ("302", &[0x64, 0x02]),
            ("private", &[0xae, 0xc3, 0x77, 0x1a, 0x4b]),
        ] {
            assert_eq!(decoded(coded).as_deref(), Some(text.as_bytes()));
            let mut out = Vec::new();
            encode(text.as_bytes(), &mut out);
            assert_eq!((&out[..], encoded_len(text.as_bytes())), (coded, coded.len()), "{text}");
        }
    }

    #[test]
    fn huffman_encoding_round_trips_for_every_byte() {
        let all: Vec<u8> = (0..=255).collect();
        for text in (0..256).map(|at| &all[at..]).chain((0..256).map(|at| &all[at..=at])) {
            let mut out = Vec::new();
            encode(text, &mut out);
            assert_eq!(out.len(), encoded_len(text));
            assert_eq!(decoded(&out).as_deref(), Some(text));
        }
    }

    #[test]
    fn huffman_padding_is_fewer_than_8_one_bits_and_eos_is_refused() {
        assert_eq!(decoded(b""), Some(Vec::new()));
        // The code of "0" is five zeros.
        assert_eq!(decoded(&[0b0000_0111]), Some(b"0".to_vec()));
        for wrong in [&[0b0000_0110][..], &[0b0000_0000], &[0xff], &[0b0000_0111, 0xff], &[0xff; 4], &[0xff; 9]] {
            assert_eq!(decoded(wrong), None, "{wrong:02x?}");
        }
    }
}
