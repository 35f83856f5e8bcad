//! A DEFLATE decoder (RFC 1951) for verifying archives and for serving.
//!
//! The decoder is resumable, needs one fixed window and never allocates after [`InflateDecoder::new`]. It reports two
//! positions that libraries do not: the bit at which the header of the last block begins, and the bit at which the
//! stream ends. It accepts exactly the streams that zlib accepts, so that any client can decode a sealed file. The
//! tests compare the two.

// Without inlining, the decoding loop has a third of its speed (measured).
#![allow(clippy::inline_always)]

mod bit_reader;
mod block_header;
mod fault;

use super::huffman::{DIST_BITS, DIST_SIZE, END, INVALID, LINK, LITERAL, LITLEN_BITS, LITLEN_SIZE, SPECIAL};

use bit_reader::BitReader;
pub use fault::InflateFault;

/// The largest distance of a match in bytes (RFC 1951, 3.2.5).
const MAX_DISTANCE_BYTES: usize = 32 * 1024;
/// The output of one call in bytes, where one stream is decoded at a time.
const LARGE_OUTPUT_BYTES: usize = 224 * 1024;
/// The output of one call in bytes, where many streams are decoded in turn and none may occupy its thread for long.
pub const SMALL_OUTPUT_BYTES: usize = 32 * 1024;
/// The bytes that a match may write after the position at which the window is full: a match has up to 258 bytes and is
/// copied in steps of 16.
const MATCH_SLACK_BYTES: usize = 258 + 32;
/// The length of a large window in bytes. It is a constant so that the compiler can omit bounds checks.
const LARGE_WINDOW_BYTES: usize = MAX_DISTANCE_BYTES + LARGE_OUTPUT_BYTES + MATCH_SLACK_BYTES;
const SMALL_WINDOW_BYTES: usize = MAX_DISTANCE_BYTES + SMALL_OUTPUT_BYTES + MATCH_SLACK_BYTES;

/// A decoder with a large window. It returns up to 256 KiB at first and 224 KiB at a time from then on.
pub type Inflater = InflateDecoder<LARGE_WINDOW_BYTES>;
/// A decoder with a small window, which needs [`SMALL_INFLATER_BYTES`] of memory. It returns up to 64 KiB at first and
/// [`SMALL_OUTPUT_BYTES`] bytes at a time from then on.
pub type SmallInflater = InflateDecoder<SMALL_WINDOW_BYTES>;
/// The memory of a [`SmallInflater`] in bytes.
pub const SMALL_INFLATER_BYTES: usize = SMALL_WINDOW_BYTES + 4 * (LITLEN_SIZE + DIST_SIZE);
/// An upper bound for a block header and for a symbol, in bytes: a dynamic header has at most 17 + 19 * 3 + 316 * 14
/// bits.
const MAX_BLOCK_HEADER_BYTES: usize = 576;

/// The reason why [`InflateDecoder::run`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InflateStatus {
    /// All usable input has been consumed.
    NeedInput,
    /// The window is full: the caller reads [`InflateDecoder::output`] and calls again.
    WindowFull,
    /// The last block has ended.
    Done,
}

/// The result of one call of [`InflateDecoder::run`].
#[derive(Debug, Clone, Copy)]
pub struct InflateStep {
    /// The number of input bytes that were consumed.
    pub consumed: usize,
    /// The reason why the call returned.
    pub status: InflateStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InflateState {
    Header,
    Stored { remaining: usize },
    Coded,
    Done,
}

/// The state of one stream that is being decoded. `WINDOW` is the length of its window in bytes.
pub struct InflateDecoder<const WINDOW: usize> {
    state: InflateState,
    last_block: bool,
    bits: u64,
    bit_count: u32,
    /// The number of input bytes consumed so far, without the whole bytes that are still in `bits`.
    consumed: u64,
    last_header: u64,
    window: Box<[u8; WINDOW]>,
    /// The output of the last call is `window[start..pos]`.
    start: usize,
    pos: usize,
    litlen: Box<[u32; LITLEN_SIZE]>,
    dist: Box<[u32; DIST_SIZE]>,
    /// Whether `litlen` and `dist` are the tables of the fixed codes.
    has_fixed_tables: bool,
}

impl<const WINDOW: usize> std::fmt::Debug for InflateDecoder<WINDOW> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InflateDecoder")
            .field("state", &self.state)
            .field("consumed", &self.consumed)
            .finish_non_exhaustive()
    }
}

impl<const WINDOW: usize> Default for InflateDecoder<WINDOW> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const WINDOW: usize> InflateDecoder<WINDOW> {
    /// The position at which the window counts as full. The last match may end after it.
    const WINDOW_FULL_AT: usize = WINDOW - MATCH_SLACK_BYTES;

    /// Creates a decoder at the start of a stream.
    pub fn new() -> Self {
        InflateDecoder {
            state: InflateState::Header,
            last_block: false,
            bits: 0,
            bit_count: 0,
            consumed: 0,
            last_header: 0,
            // Allocated on the heap at once: an array on the stack might exceed the stack of a small thread.
            window: vec![0; WINDOW].try_into().unwrap_or_else(|_| unreachable!("the length is the same constant")),
            start: 0,
            pos: 0,
            litlen: Box::new([0; LITLEN_SIZE]),
            dist: Box::new([0; DIST_SIZE]),
            has_fixed_tables: false,
        }
    }

    /// Prepares for the start of another stream and reuses the memory.
    pub fn reset(&mut self) {
        self.state = InflateState::Header;
        self.last_block = false;
        (self.bits, self.bit_count, self.consumed, self.last_header) = (0, 0, 0, 0);
        (self.start, self.pos) = (0, 0);
    }

    /// The output of the last call of [`InflateDecoder::run`].
    pub fn output(&self) -> &[u8] {
        &self.window[self.start..self.pos]
    }

    /// The number of input bytes consumed so far. After [`InflateStatus::Done`] only some bits of the last byte may
    /// belong to the stream.
    pub fn bytes_consumed(&self) -> u64 {
        self.consumed
    }

    /// The bit at which the header of the latest block begins, counted from the start of the stream.
    pub fn last_block_bit(&self) -> u64 {
        self.last_header
    }

    /// After [`InflateStatus::Done`]: the number of bits in the last byte that do not belong to the stream (0 to 7).
    pub fn spare_bits(&self) -> u8 {
        self.bit_count as u8
    }

    /// Decodes until the input is used up, the window is full or the stream ends. The next call must begin with the
    /// bytes that were not consumed. `is_last` means that no input follows. With at least 1 KiB of input every call
    /// makes progress.
    pub fn run(&mut self, input: &[u8], is_last: bool) -> Result<InflateStep, InflateFault> {
        self.drop_old_output();
        let mut input = BitReader { bytes: input, position: 0, is_last, bits: self.bits, bit_count: self.bit_count };
        let result = self.decode(&mut input);
        input.unread_whole_bytes();
        (self.bits, self.bit_count) = (input.bits, input.bit_count);
        self.consumed += input.position as u64;
        Ok(InflateStep { consumed: input.position, status: result? })
    }

    /// Drops the output of earlier calls, except the history that matches may refer to.
    fn drop_old_output(&mut self) {
        if self.pos >= Self::WINDOW_FULL_AT {
            self.window.copy_within(self.pos - MAX_DISTANCE_BYTES..self.pos, 0);
            self.pos = MAX_DISTANCE_BYTES;
        }
        self.start = self.pos;
    }

    fn decode(&mut self, input: &mut BitReader<'_>) -> Result<InflateStatus, InflateFault> {
        loop {
            let status = match self.state {
                InflateState::Done => return Ok(InflateStatus::Done),
                InflateState::Header => {
                    if !input.is_last && input.bytes.len() - input.position < MAX_BLOCK_HEADER_BYTES {
                        return Ok(InflateStatus::NeedInput);
                    }
                    self.read_block_header(input)?;
                    None
                }
                InflateState::Stored { remaining } => self.decode_stored(input, remaining)?,
                InflateState::Coded => self.decode_coded(input)?,
            };
            if let Some(status) = status {
                return Ok(status);
            }
        }
    }

    fn end_of_block(&mut self) {
        self.state = if self.last_block { InflateState::Done } else { InflateState::Header };
    }

    fn decode_stored(
        &mut self,
        input: &mut BitReader<'_>,
        remaining: usize,
    ) -> Result<Option<InflateStatus>, InflateFault> {
        // The last match may have written after the position at which the window is full.
        let space = Self::WINDOW_FULL_AT.saturating_sub(self.pos);
        let n = remaining.min(space).min(input.bytes.len() - input.position);
        self.window[self.pos..self.pos + n].copy_from_slice(&input.bytes[input.position..input.position + n]);
        self.pos += n;
        input.position += n;
        if n == remaining {
            self.end_of_block();
            return Ok(None);
        }
        self.state = InflateState::Stored { remaining: remaining - n };
        if self.pos >= Self::WINDOW_FULL_AT {
            Ok(Some(InflateStatus::WindowFull))
        } else if input.is_last {
            Err(InflateFault::Truncated)
        } else {
            Ok(Some(InflateStatus::NeedInput))
        }
    }

    fn decode_coded(&mut self, input: &mut BitReader<'_>) -> Result<Option<InflateStatus>, InflateFault> {
        loop {
            if self.decode_coded_fast(input)? {
                self.end_of_block();
                return Ok(None);
            }
            if self.pos >= Self::WINDOW_FULL_AT {
                return Ok(Some(InflateStatus::WindowFull));
            }
            // Near the end of the input the fast loop cannot refill: decode one symbol at a time.
            input.refill_slow();
            if !input.is_last && input.bit_count < 48 {
                return Ok(Some(InflateStatus::NeedInput));
            }
            if self.decode_one_symbol(input)? {
                self.end_of_block();
                return Ok(None);
            }
        }
    }

    /// Decodes symbols while 8 bytes of input and space for the longest match are left. Returns `true` at the end of
    /// the block.
    fn decode_coded_fast(&mut self, input: &mut BitReader<'_>) -> Result<bool, InflateFault> {
        const LIT_MASK: u64 = (1 << LITLEN_BITS) - 1;
        const DIST_MASK: u64 = (1 << DIST_BITS) - 1;
        let (litlen, dist) = (&*self.litlen, &*self.dist);
        let window = &mut *self.window;
        let mut pos = self.pos;
        let result = loop {
            if pos >= Self::WINDOW_FULL_AT || !input.refill_fast() {
                break Ok(false);
            }
            let mut entry = litlen[(input.bits & LIT_MASK) as usize];
            if entry & LITERAL != 0 {
                // Up to three literals for one refill: 3 * 11 bits leave 23 of 56, enough to look up the next code.
                window[pos] = (entry >> 16) as u8;
                pos += 1;
                input.drop_bits(entry & 0xff);
                entry = litlen[(input.bits & LIT_MASK) as usize];
                if entry & LITERAL != 0 {
                    window[pos] = (entry >> 16) as u8;
                    pos += 1;
                    input.drop_bits(entry & 0xff);
                    entry = litlen[(input.bits & LIT_MASK) as usize];
                    if entry & LITERAL != 0 {
                        window[pos] = (entry >> 16) as u8;
                        pos += 1;
                        input.drop_bits(entry & 0xff);
                        continue;
                    }
                }
                if !input.refill_fast() {
                    break Ok(false);
                }
            }
            if entry & SPECIAL != 0 {
                if entry & LINK != 0 {
                    input.drop_bits(entry & 0xff);
                    let index = (entry >> 16) as usize + (input.bits & ((1 << (entry >> 8 & 0x1f)) - 1)) as usize;
                    entry = litlen[index];
                    if entry & LITERAL != 0 {
                        window[pos] = (entry >> 16) as u8;
                        pos += 1;
                        input.drop_bits(entry & 0xff);
                        continue;
                    }
                }
                if entry & END != 0 {
                    input.drop_bits(entry & 0xff);
                    break Ok(true);
                }
                if entry & INVALID != 0 {
                    break Err(InflateFault::Damaged("an invalid code"));
                }
            }
            let bits_before = input.bits;
            input.drop_bits(entry & 0xff);
            let len = (entry >> 16) as usize + extra_bits_value(bits_before, entry);

            let mut entry = dist[(input.bits & DIST_MASK) as usize];
            if entry & (LINK | INVALID) != 0 {
                if entry & INVALID != 0 {
                    break Err(InflateFault::Damaged("an invalid distance code"));
                }
                input.drop_bits(entry & 0xff);
                entry = dist[(entry >> 16) as usize + (input.bits & ((1 << (entry >> 8 & 0x1f)) - 1)) as usize];
                if entry & INVALID != 0 {
                    break Err(InflateFault::Damaged("an invalid distance code"));
                }
            }
            let bits_before = input.bits;
            input.drop_bits(entry & 0xff);
            let distance = (entry >> 16) as usize + extra_bits_value(bits_before, entry);
            if distance > pos {
                break Err(InflateFault::Damaged("a match from before the start"));
            }
            copy_match(window, pos, distance, len);
            pos += len;
        };
        self.pos = pos;
        result
    }

    /// Decodes one literal, match or end of block, and checks that all of its bits have arrived. Returns `true` at the
    /// end of the block.
    fn decode_one_symbol(&mut self, input: &mut BitReader<'_>) -> Result<bool, InflateFault> {
        let entry = decode_code(&self.litlen[..], LITLEN_BITS, input)?;
        if entry & LITERAL != 0 {
            self.window[self.pos] = (entry >> 16) as u8;
            self.pos += 1;
            return Ok(false);
        }
        if entry & END != 0 {
            return Ok(true);
        }
        let len = (entry >> 16) as usize + input.read_bits((entry & 0xff) - (entry >> 8 & 0x1f))? as usize;
        let entry = decode_code(&self.dist[..], DIST_BITS, input)?;
        let distance = (entry >> 16) as usize + input.read_bits((entry & 0xff) - (entry >> 8 & 0x1f))? as usize;
        if distance > self.pos {
            return Err(InflateFault::Damaged("a match from before the start"));
        }
        copy_match(&mut self.window, self.pos, distance, len);
        self.pos += len;
        Ok(false)
    }
}

/// Decodes a complete stream that should have `len` bytes of content. Decoding fails as soon as it has returned more
/// than `len` bytes without an end of the stream. A stream that ends within that step is returned completely.
pub fn inflate_all(coded: &[u8], len: usize) -> Result<Vec<u8>, InflateFault> {
    let mut inflater = Inflater::new();
    let mut out = Vec::with_capacity(len);
    let mut consumed = 0;
    loop {
        let step = inflater.run(&coded[consumed..], true)?;
        consumed += step.consumed;
        out.extend_from_slice(inflater.output());
        if step.status == InflateStatus::Done {
            return Ok(out);
        }
        if out.len() > len {
            return Err(InflateFault::Damaged("the content is longer than expected"));
        }
    }
}

/// Returns the value of the extra bits after a code. `bits_before` are the bits before the code was dropped.
#[inline(always)]
fn extra_bits_value(bits_before: u64, entry: u32) -> usize {
    ((bits_before & ((1u64 << (entry & 0xff)) - 1)) >> (entry >> 8 & 0x1f)) as usize
}

/// Looks up one code and drops its bits, but not its extra bits. Refuses invalid codes and codes that are cut off.
fn decode_code(table: &[u32], bits: u32, input: &mut BitReader<'_>) -> Result<u32, InflateFault> {
    let mut entry = table[(input.bits & ((1 << bits) - 1)) as usize];
    if entry & LINK != 0 {
        if input.bit_count < bits {
            return Err(InflateFault::Truncated);
        }
        input.drop_bits(bits);
        entry = table[(entry >> 16 & 0x7fff) as usize + (input.bits & ((1 << (entry >> 8 & 0x1f)) - 1)) as usize];
    }
    if entry & INVALID != 0 {
        // At the end of the input missing bits are read as zeros, so the code may be cut off rather than invalid.
        let is_cut = input.is_last && input.position == input.bytes.len() && input.bit_count < 15;
        return Err(if is_cut { InflateFault::Truncated } else { InflateFault::Damaged("an invalid code") });
    }
    let code_bits = if entry & (LITERAL | END) != 0 { entry & 0xff } else { entry >> 8 & 0x1f };
    if code_bits > input.bit_count {
        return Err(InflateFault::Truncated);
    }
    input.drop_bits(code_bits);
    Ok(entry)
}

/// Copies `len` bytes from `distance` bytes before `pos`. It may write up to 15 bytes more, which later output
/// overwrites.
#[inline(always)]
fn copy_match<const WINDOW: usize>(window: &mut [u8; WINDOW], pos: usize, distance: usize, len: usize) {
    let (mut from, mut to, end) = (pos - distance, pos, pos + len);
    if distance >= 16 {
        while to < end {
            let mut step = [0u8; 16];
            step.copy_from_slice(&window[from..from + 16]);
            window[to..to + 16].copy_from_slice(&step);
            from += 16;
            to += 16;
        }
    } else if distance >= 8 {
        while to < end {
            let mut step = [0u8; 8];
            step.copy_from_slice(&window[from..from + 8]);
            window[to..to + 8].copy_from_slice(&step);
            from += 8;
            to += 8;
        }
    } else if distance == 1 {
        let byte = window[from];
        window[pos..end].fill(byte);
    } else {
        while to < end {
            window[to] = window[from];
            from += 1;
            to += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Regression: each body that was inflated while it was sent took half a megabyte.
    #[test]
    fn small_inflater_allocates_76_kib() {
        let decoder = SmallInflater::new();
        let allocated = size_of_val(&*decoder.window) + size_of_val(&*decoder.litlen) + size_of_val(&*decoder.dist);
        assert_eq!(allocated, SMALL_INFLATER_BYTES);
        assert_eq!((allocated + size_of_val(&decoder)).div_ceil(1024), 76, "SECURITY.md names this number");
    }
}
