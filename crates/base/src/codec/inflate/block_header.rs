//! The header of a block, and the codes that it describes (RFC 1951, 3.2.3 to 3.2.7).

use super::bit_reader::BitReader;
use super::fault::InflateFault;
use super::{InflateDecoder, InflateState};
use crate::codec::huffman::{self, CODE_LENGTH_BITS, CODE_LENGTH_SIZE, DIST_BITS, LITLEN_BITS};

impl<const WINDOW: usize> InflateDecoder<WINDOW> {
    /// Reads the header of a block, and builds the tables of its codes.
    pub(super) fn read_block_header(&mut self, input: &mut BitReader<'_>) -> Result<(), InflateFault> {
        self.last_header = (self.consumed + input.position as u64) * 8 - u64::from(input.bit_count);
        self.last_block = input.read_bits(1)? == 1;
        match input.read_bits(2)? {
            0 => {
                let padding_bits = input.bit_count & 7;
                input.drop_bits(padding_bits);
                let (len, nlen) = (input.read_bits(16)?, input.read_bits(16)?);
                if len != !nlen & 0xffff {
                    return Err(InflateFault::Damaged("a stored block's length"));
                }
                input.unread_whole_bytes();
                self.state = InflateState::Stored { remaining: len as usize };
            }
            1 => {
                if !self.has_fixed_tables {
                    self.build_fixed_tables()?;
                }
                self.state = InflateState::Coded;
            }
            2 => {
                self.read_dynamic_codes(input)?;
                self.state = InflateState::Coded;
            }
            _ => return Err(InflateFault::Damaged("a block of unknown type")),
        }
        Ok(())
    }

    fn build_fixed_tables(&mut self) -> Result<(), InflateFault> {
        let mut lengths = [8u8; 288];
        lengths[144..256].fill(9);
        lengths[256..280].fill(7);
        self.build_tables(&lengths, &[5; 32])?;
        self.has_fixed_tables = true;
        Ok(())
    }

    fn build_tables(&mut self, litlen: &[u8], dist: &[u8]) -> Result<(), InflateFault> {
        huffman::build_table(&mut self.litlen[..], LITLEN_BITS, litlen, huffman::litlen_entry, true)
            .map_err(|_| InflateFault::Damaged("the literal and length code"))?;
        huffman::build_table(&mut self.dist[..], DIST_BITS, dist, huffman::dist_entry, true)
            .map_err(|_| InflateFault::Damaged("the distance code"))
    }

    /// Reads the codes of a block with dynamic codes (RFC 1951, 3.2.7).
    fn read_dynamic_codes(&mut self, input: &mut BitReader<'_>) -> Result<(), InflateFault> {
        /// The order in which the lengths of the code length code are stored.
        const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
        self.has_fixed_tables = false;
        let litlen_codes = input.read_bits(5)? as usize + 257;
        let dist_codes = input.read_bits(5)? as usize + 1;
        let code_length_codes = input.read_bits(4)? as usize + 4;
        if litlen_codes > 286 || dist_codes > 30 {
            return Err(InflateFault::Damaged("too many codes"));
        }
        let mut code_length_lengths = [0u8; 19];
        for &slot in &ORDER[..code_length_codes] {
            code_length_lengths[slot] = input.read_bits(3)? as u8;
        }
        let mut code_length_table = [0u32; CODE_LENGTH_SIZE];
        huffman::build_table(
            &mut code_length_table,
            CODE_LENGTH_BITS,
            &code_length_lengths,
            huffman::code_length_entry,
            false,
        )
        .map_err(|_| InflateFault::Damaged("the code length code"))?;

        let mut lengths = [0u8; 286 + 30];
        let total = litlen_codes + dist_codes;
        let mut filled = 0;
        while filled < total {
            input.refill_slow();
            let entry = code_length_table[(input.bits & ((1 << CODE_LENGTH_BITS) - 1)) as usize];
            let used = entry & 0xff;
            if used > input.bit_count {
                return Err(InflateFault::Truncated);
            }
            input.drop_bits(used);
            let (value, repeat) = match entry >> 16 {
                16 if filled == 0 => return Err(InflateFault::Damaged("a repeat of nothing")),
                16 => (lengths[filled - 1], 3 + input.read_bits(2)?),
                17 => (0, 3 + input.read_bits(3)?),
                18 => (0, 11 + input.read_bits(7)?),
                length => (length as u8, 1),
            };
            let end = filled + repeat as usize;
            let Some(run) = lengths[..total].get_mut(filled..end) else {
                return Err(InflateFault::Damaged("a repeat past the end"));
            };
            run.fill(value);
            filled = end;
        }
        if lengths[256] == 0 {
            return Err(InflateFault::Damaged("no end-of-block code"));
        }
        let (litlen, dist) = lengths[..total].split_at(litlen_codes);
        self.build_tables(litlen, dist)
    }
}
