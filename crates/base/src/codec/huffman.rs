//! Huffman decoding tables (RFC 1951, 3.2.2), built for speed: one look-up decodes most codes, together with the number
//! of extra bits that follow.
//!
//! An entry is a `u32`:
//!
//! | bits | meaning |
//! |---|---|
//! | 0..8 | number of bits to consume: the code and its extra bits (in a link: the index bits of the first level) |
//! | 8..13 | number of bits of the code alone (in a link: the index bits of the second level) |
//! | 13 | end of block |
//! | 14 | link to a second-level table |
//! | 15 | invalid: no symbol has this code |
//! | 16..31 | literal byte, base of a length or distance, or start of the second-level table |
//! | 31 | literal |

pub(super) const LITERAL: u32 = 1 << 31;
pub(super) const END: u32 = 1 << 13;
pub(super) const LINK: u32 = 1 << 14;
pub(super) const INVALID: u32 = 1 << 15;
/// The flags of an entry that is neither a literal nor a length.
pub(super) const SPECIAL: u32 = END | LINK | INVALID;

/// The number of index bits of the first level for literals and lengths.
pub(super) const LITLEN_BITS: u32 = 11;
/// The number of index bits of the first level for distances.
pub(super) const DIST_BITS: u32 = 8;
/// The number of index bits for the code length code. One level suffices, because its codes have at most 7 bits.
pub(super) const CODE_LENGTH_BITS: u32 = 7;

/// The number of entries for literals and lengths: the first level and the worst case of the second. For complete codes
/// zlib's `enough` computes 2,342, and 402 for distances ([`DIST_SIZE`]).
pub(super) const LITLEN_SIZE: usize = 2400;
pub(super) const DIST_SIZE: usize = 448;
pub(super) const CODE_LENGTH_SIZE: usize = 128;

const MAX_CODE_BITS: usize = 15;

/// The reason why a list of code lengths does not define a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CodeFault {
    /// There are more codes than fit into their lengths.
    Oversubscribed,
    /// Some codes are unused, where the format does not allow that.
    Incomplete,
}

/// Returns the entry of a literal/length symbol without its code length: value and number of extra bits, or a flag.
pub(super) fn litlen_entry(symbol: usize) -> u32 {
    match symbol {
        0..=255 => LITERAL | (symbol as u32) << 16,
        256 => END,
        257..=285 => {
            let (base, extra) = LENGTHS[symbol - 257];
            u32::from(base) << 16 | u32::from(extra)
        }
        _ => INVALID,
    }
}

/// Returns the entry of a distance symbol without its code length. Symbols 30 and 31 never occur in valid data.
pub(super) fn dist_entry(symbol: usize) -> u32 {
    match DISTANCES.get(symbol) {
        Some(&(base, extra)) => u32::from(base) << 16 | u32::from(extra),
        None => INVALID,
    }
}

/// Returns the entry of a symbol of the code length code without its code length. Its value is the symbol itself.
pub(super) fn code_length_entry(symbol: usize) -> u32 {
    (symbol as u32) << 16
}

#[rustfmt::skip]
const LENGTHS: [(u16, u8); 29] = [
    (3, 0), (4, 0), (5, 0), (6, 0), (7, 0), (8, 0), (9, 0), (10, 0), (11, 1), (13, 1), (15, 1), (17, 1), (19, 2), (23, 2), (27, 2), (31, 2),
    (35, 3), (43, 3), (51, 3), (59, 3), (67, 4), (83, 4), (99, 4), (115, 4), (131, 5), (163, 5), (195, 5), (227, 5), (258, 0),
];

#[rustfmt::skip]
const DISTANCES: [(u16, u8); 30] = [
    (1, 0), (2, 0), (3, 0), (4, 0), (5, 1), (7, 1), (9, 2), (13, 2), (17, 3), (25, 3), (33, 4), (49, 4), (65, 5), (97, 5), (129, 6), (193, 6),
    (257, 7), (385, 7), (513, 8), (769, 8), (1025, 9), (1537, 9), (2049, 10), (3073, 10), (4097, 11), (6145, 11), (8193, 12), (12289, 12),
    (16385, 13), (24577, 13),
];

/// Fills `table` for the code that `lengths` defines. As in zlib, an incomplete code is allowed only if `allows_single`
/// is set and it has one code of one bit, or no code at all. Unused codes decode to [`INVALID`].
pub(super) fn build_table(
    table: &mut [u32],
    bits: u32,
    lengths: &[u8],
    make_entry: fn(usize) -> u32,
    allows_single: bool,
) -> Result<(), CodeFault> {
    let mut count = [0u16; MAX_CODE_BITS + 1];
    for &len in lengths {
        count[usize::from(len)] += 1;
    }
    count[0] = 0;
    let longest = (1..=MAX_CODE_BITS).rev().find(|&len| count[len] != 0).unwrap_or(0);

    let mut unused = 1i32;
    for &n in &count[1..] {
        unused = (unused << 1) - i32::from(n);
        if unused < 0 {
            return Err(CodeFault::Oversubscribed);
        }
    }
    if unused > 0 {
        if !allows_single || longest > 1 {
            return Err(CodeFault::Incomplete);
        }
        // One code of one bit, or none: the entries that are not written below stay unused.
        table[..1 << bits].fill(INVALID | 1);
    }

    // Symbols in the order of their codes: by length, then by value.
    let mut next = [0u16; MAX_CODE_BITS + 2];
    for len in 1..=MAX_CODE_BITS {
        next[len + 1] = next[len] + count[len];
    }
    let starts = next;
    let mut sorted = [0u16; 320];
    for (symbol, &len) in lengths.iter().enumerate() {
        if len != 0 {
            let slot = &mut next[usize::from(len)];
            sorted[usize::from(*slot)] = symbol as u16;
            *slot += 1;
        }
    }

    // Codes are read from the least significant bit, so they count up reversed. A code of `len` bits has an entry at
    // every index whose low bits are that code: write the codes of one length, then double the filled part.
    let mut code = 0usize; // reversed
    let first_level = (bits as usize).min(longest.max(1));
    let mut filled = 1usize << 1;
    let mut len = 1usize;
    loop {
        for index in starts[len]..starts[len + 1] {
            let entry = make_entry(usize::from(sorted[usize::from(index)]));
            table[code] = entry + (len as u32) + ((len as u32) << 8);
            code = next_code(code, len);
        }
        if len >= first_level {
            break;
        }
        table.copy_within(0..filled, filled);
        filled <<= 1;
        len += 1;
    }
    // The first level is wider than the longest code: repeat it.
    while filled < 1 << bits {
        table.copy_within(0..filled, filled);
        filled <<= 1;
    }
    if longest <= bits as usize {
        return Ok(());
    }
    build_second_level(table, bits as usize, &starts, &sorted, longest, code, make_entry);
    Ok(())
}

/// Fills the second-level tables for the codes that are longer than `bits`. `code` is the first of them, reversed.
fn build_second_level(
    table: &mut [u32],
    bits: usize,
    starts: &[u16; MAX_CODE_BITS + 2],
    sorted: &[u16; 320],
    longest: usize,
    mut code: usize,
    make_entry: fn(usize) -> u32,
) {
    let mut free = 1usize << bits;
    let mut prefix = usize::MAX;
    let mut sub_start = 0usize;
    let mask = (1 << bits) - 1;
    for len in bits + 1..=longest {
        for index in starts[len]..starts[len + 1] {
            if code & mask != prefix {
                prefix = code & mask;
                sub_start = free;
                // The second-level table is as wide as the codes with this prefix need: it grows until they fill it.
                let mut sub_bits = len - bits;
                let mut unused = (1i32 << sub_bits) - i32::from(starts[len + 1] - index);
                while unused > 0 {
                    sub_bits += 1;
                    let next_len = bits + sub_bits;
                    unused = (unused << 1) - i32::from(starts[next_len + 1] - starts[next_len]);
                }
                free += 1 << sub_bits;
                table[prefix] = LINK | (sub_start as u32) << 16 | (sub_bits as u32) << 8 | bits as u32;
            }
            let entry = make_entry(usize::from(sorted[usize::from(index)]));
            let rest_bits = (len - bits) as u32;
            let value = entry + rest_bits + (rest_bits << 8);
            let mut slot = sub_start + (code >> bits);
            while slot < free {
                table[slot] = value;
                slot += 1 << rest_bits;
            }
            code = next_code(code, len);
        }
    }
}

/// Returns the code after `code` among codes of `len` bits, both reversed. The result is also the first code of the
/// next length, because the zero that is appended is its highest bit.
fn next_code(code: usize, len: usize) -> usize {
    let ones = (1usize << len) - 1;
    if code == ones {
        return code; // the last code
    }
    // The highest zero bit becomes one and the bits above it become zero: an increment of the reversed number.
    let bit = 1usize << (usize::BITS - 1 - (code ^ ones).leading_zeros());
    (code & (bit - 1)) | bit
}
