//! Reads the bits of a DEFLATE stream.

// Without inlining, the decoding loop has a third of its speed (measured).
#![allow(clippy::inline_always)]

use super::fault::InflateFault;

/// Reads bits from the input of one call of [`super::InflateDecoder::run`].
pub(super) struct BitReader<'a> {
    pub(super) bytes: &'a [u8],
    /// The index in `bytes` of the next byte that is not in `bits`.
    pub(super) position: usize,
    /// Whether no input follows `bytes`.
    pub(super) is_last: bool,
    /// The next bits of the stream, from the least significant one.
    pub(super) bits: u64,
    /// The number of valid bits in `bits`.
    pub(super) bit_count: u32,
}

impl BitReader<'_> {
    /// Refills to at least 56 bits. Returns `false`, without refilling, if fewer than 8 bytes of input are left.
    #[inline(always)]
    pub(super) fn refill_fast(&mut self) -> bool {
        let Some(word) = self.bytes.get(self.position..self.position + 8) else {
            return false;
        };
        // The slice has 8 bytes, so the conversion cannot fail.
        self.bits |= u64::from_le_bytes(word.try_into().unwrap_or_default()) << self.bit_count;
        self.position += ((63 - self.bit_count) >> 3) as usize;
        self.bit_count |= 56;
        true
    }

    /// Refills to at least 56 bits, or with all bytes of input that are left.
    pub(super) fn refill_slow(&mut self) {
        self.bits &= (1u64 << self.bit_count) - 1;
        while self.bit_count < 56 {
            let Some(&byte) = self.bytes.get(self.position) else {
                break;
            };
            self.bits |= u64::from(byte) << self.bit_count;
            self.position += 1;
            self.bit_count += 8;
        }
    }

    #[inline(always)]
    pub(super) fn drop_bits(&mut self, n: u32) {
        self.bits >>= n;
        self.bit_count -= n;
    }

    /// Reads `n` bits (at most 16).
    pub(super) fn read_bits(&mut self, n: u32) -> Result<u32, InflateFault> {
        if self.bit_count < n {
            self.refill_slow();
            if self.bit_count < n {
                return Err(InflateFault::Truncated);
            }
        }
        let value = (self.bits & ((1 << n) - 1)) as u32;
        self.drop_bits(n);
        Ok(value)
    }

    /// Returns whole unused bytes to the input, so that fewer than 8 bits stay buffered.
    pub(super) fn unread_whole_bytes(&mut self) {
        self.position -= (self.bit_count / 8) as usize;
        self.bit_count &= 7;
        self.bits &= (1 << self.bit_count) - 1;
    }
}
