//! The header of a block, and the codes that it describes (RFC 1951, 3.2.3 to 3.2.7).

use super::bit_reader::BitReader;
use super::fault::InflateFault;
use super::{InflateDecoder, InflateState};
use crate::codec::huffman::{self, CODE_LENGTH_BITS, CODE_LENGTH_SIZE, DIST_BITS, LITLEN_BITS};

impl<const WINDOW: usize> InflateDecoder<WINDOW> {
    /// Reads the header of a block, and builds the tables of its codes.
    pub(super) fn header(&mut self, input: &mut BitReader<'_>) -> Result<(), InflateFault> {
        self.last_header = (self.taken + input.at as u64) * 8 - u64::from(input.count);
        self.last_block = input.take(1)? == 1;
        match input.take(2)? {
            0 => {
                let odd = input.count & 7;
                input.drop_bits(odd);
                let (len, check) = (input.take(16)?, input.take(16)?);
                if len != !check & 0xffff {
                    return Err(InflateFault::Damaged("a stored block's length"));
                }
                input.give_back();
                self.mode = InflateState::Stored { left: len as usize };
            }
            1 => {
                if !self.fixed {
                    self.build_fixed()?;
                }
                self.mode = InflateState::Coded;
            }
            2 => {
                self.dynamic(input)?;
                self.mode = InflateState::Coded;
            }
            _ => return Err(InflateFault::Damaged("a block of unknown type")),
        }
        Ok(())
    }

    fn build_fixed(&mut self) -> Result<(), InflateFault> {
        let mut lengths = [8u8; 288];
        lengths[144..256].fill(9);
        lengths[256..280].fill(7);
        self.build(&lengths, &[5; 32])?;
        self.fixed = true;
        Ok(())
    }

    fn build(&mut self, litlen: &[u8], dist: &[u8]) -> Result<(), InflateFault> {
        huffman::build_table(&mut self.litlen[..], LITLEN_BITS, litlen, huffman::litlen_entry, true)
            .map_err(|_| InflateFault::Damaged("the literal and length code"))?;
        huffman::build_table(&mut self.dist[..], DIST_BITS, dist, huffman::dist_entry, true)
            .map_err(|_| InflateFault::Damaged("the distance code"))
    }

    fn dynamic(&mut self, input: &mut BitReader<'_>) -> Result<(), InflateFault> {
        const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
        self.fixed = false;
        let litlens = input.take(5)? as usize + 257;
        let dists = input.take(5)? as usize + 1;
        let pres = input.take(4)? as usize + 4;
        if litlens > 286 || dists > 30 {
            return Err(InflateFault::Damaged("too many codes"));
        }
        let mut pre_lengths = [0u8; 19];
        for &slot in &ORDER[..pres] {
            pre_lengths[slot] = input.take(3)? as u8;
        }
        let mut pre = [0u32; CODE_LENGTH_SIZE];
        huffman::build_table(&mut pre, CODE_LENGTH_BITS, &pre_lengths, huffman::code_length_entry, false)
            .map_err(|_| InflateFault::Damaged("the code length code"))?;

        let mut lengths = [0u8; 286 + 30];
        let total = litlens + dists;
        let mut at = 0;
        while at < total {
            input.refill_slow();
            let entry = pre[(input.bits & ((1 << CODE_LENGTH_BITS) - 1)) as usize];
            let used = entry & 0xff;
            if used > input.count {
                return Err(InflateFault::Truncated);
            }
            input.drop_bits(used);
            let (value, repeat) = match entry >> 16 {
                16 if at == 0 => return Err(InflateFault::Damaged("a repeat of nothing")),
                16 => (lengths[at - 1], 3 + input.take(2)?),
                17 => (0, 3 + input.take(3)?),
                18 => (0, 11 + input.take(7)?),
                length => (length as u8, 1),
            };
            let to = at + repeat as usize;
            let Some(run) = lengths[..total].get_mut(at..to) else {
                return Err(InflateFault::Damaged("a repeat past the end"));
            };
            run.fill(value);
            at = to;
        }
        if lengths[256] == 0 {
            return Err(InflateFault::Damaged("no end-of-block code"));
        }
        let (litlen, dist) = lengths[..total].split_at(litlens);
        self.build(litlen, dist)
    }
}
