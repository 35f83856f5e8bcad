//! The bits of a DEFLATE stream.

// Without inlining, the decoding loop has a third of its speed (measured).
#![allow(clippy::inline_always)]

use super::fault::InflateFault;

/// A bit reader over the input of one call.
pub(super) struct BitReader<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
    pub(super) last: bool,
    pub(super) bits: u64,
    pub(super) count: u32,
}

impl BitReader<'_> {
    /// Refills to at least 56 bits. Returns `false`, without refilling, if fewer than 8 bytes of input are left.
    #[inline(always)]
    pub(super) fn refill_fast(&mut self) -> bool {
        let Some(word) = self.bytes.get(self.at..self.at + 8) else {
            return false;
        };
        // The slice has 8 bytes, so the conversion cannot fail.
        self.bits |= u64::from_le_bytes(word.try_into().unwrap_or_default()) << self.count;
        self.at += ((63 - self.count) >> 3) as usize;
        self.count |= 56;
        true
    }

    pub(super) fn refill_slow(&mut self) {
        self.bits &= (1u64 << self.count) - 1;
        while self.count < 56 {
            let Some(&byte) = self.bytes.get(self.at) else {
                break;
            };
            self.bits |= u64::from(byte) << self.count;
            self.at += 1;
            self.count += 8;
        }
    }

    #[inline(always)]
    pub(super) fn drop_bits(&mut self, n: u32) {
        self.bits >>= n;
        self.count -= n;
    }

    /// Takes `n` bits (at most 16).
    pub(super) fn take(&mut self, n: u32) -> Result<u32, InflateFault> {
        if self.count < n {
            self.refill_slow();
            if self.count < n {
                return Err(InflateFault::Truncated);
            }
        }
        let value = (self.bits & ((1 << n) - 1)) as u32;
        self.drop_bits(n);
        Ok(value)
    }

    /// Returns whole unused bytes to the input, so that fewer than 8 bits stay buffered.
    pub(super) fn give_back(&mut self) {
        self.at -= (self.count / 8) as usize;
        self.count &= 7;
        self.bits &= (1 << self.count) - 1;
    }
}
