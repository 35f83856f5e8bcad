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
/// The output between two drains in bytes, where one stream is decoded at a time.
const LARGE_OUTPUT_BYTES: usize = 224 * 1024;
/// The output between two drains in bytes, where many streams are decoded in turn and none may occupy its thread for
/// long.
pub const SMALL_OUTPUT_BYTES: usize = 32 * 1024;
/// The bytes that a match may write past the limit: it has up to 258 bytes and is copied in steps of 16.
const MATCH_SLACK_BYTES: usize = 258 + 32;
/// The length of a large window in bytes. It is a constant so that the compiler can omit bounds checks.
const LARGE_WINDOW_BYTES: usize = MAX_DISTANCE_BYTES + LARGE_OUTPUT_BYTES + MATCH_SLACK_BYTES;
const SMALL_WINDOW_BYTES: usize = MAX_DISTANCE_BYTES + SMALL_OUTPUT_BYTES + MATCH_SLACK_BYTES;

/// A decoder with a large window. It returns up to 256 KiB at first and 224 KiB at a time from then on.
pub type Inflate = InflateDecoder<LARGE_WINDOW_BYTES>;
/// A decoder with a small window, which needs [`SMALL_INFLATE_BYTES`] of memory. It returns up to 64 KiB at first and
/// [`SMALL_OUTPUT_BYTES`] bytes at a time from then on.
pub type SmallInflate = InflateDecoder<SMALL_WINDOW_BYTES>;
/// The memory of a [`SmallInflate`] in bytes.
pub const SMALL_INFLATE_BYTES: usize = SMALL_WINDOW_BYTES + 4 * (LITLEN_SIZE + DIST_SIZE);
/// An upper bound for a block header and for a symbol, in bytes: a dynamic header has at most 17 + 19 * 3 + 316 * 14
/// bits.
const MAX_BLOCK_HEADER_BYTES: usize = 576;

/// The reason why [`InflateDecoder::run`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InflateStatus {
    /// All usable input has been consumed.
    NeedInput,
    /// The window is full: the caller takes [`InflateDecoder::output`] and calls again.
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
    Stored { left: usize },
    Coded,
    Done,
}

/// The state of one stream that is being decoded. `WINDOW` is the length of its window in bytes.
pub struct InflateDecoder<const WINDOW: usize> {
    mode: InflateState,
    last_block: bool,
    bits: u64,
    count: u32,
    /// The number of input bytes consumed so far, without the whole bytes that are still in `bits`.
    taken: u64,
    last_header: u64,
    window: Box<[u8; WINDOW]>,
    start: usize,
    pos: usize,
    litlen: Box<[u32; LITLEN_SIZE]>,
    dist: Box<[u32; DIST_SIZE]>,
    fixed: bool,
}

impl<const WINDOW: usize> std::fmt::Debug for InflateDecoder<WINDOW> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").field("mode", &self.mode).field("taken", &self.taken).finish_non_exhaustive()
    }
}

impl<const WINDOW: usize> Default for InflateDecoder<WINDOW> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const WINDOW: usize> InflateDecoder<WINDOW> {
    /// The position at which the window counts as full. The last match may exceed it by its length.
    const WINDOW_FULL_AT: usize = WINDOW - MATCH_SLACK_BYTES;

    /// Creates a decoder at the start of a stream.
    pub fn new() -> Self {
        InflateDecoder {
            mode: InflateState::Header,
            last_block: false,
            bits: 0,
            count: 0,
            taken: 0,
            last_header: 0,
            // Allocated on the heap at once: an array on the stack might exceed the stack of a small thread.
            window: vec![0; WINDOW].try_into().unwrap_or_else(|_| unreachable!("the length is the same constant")),
            start: 0,
            pos: 0,
            litlen: Box::new([0; LITLEN_SIZE]),
            dist: Box::new([0; DIST_SIZE]),
            fixed: false,
        }
    }

    /// Prepares for the start of another stream and keeps the memory.
    pub fn reset(&mut self) {
        self.mode = InflateState::Header;
        self.last_block = false;
        (self.bits, self.count, self.taken, self.last_header) = (0, 0, 0, 0);
        (self.start, self.pos) = (0, 0);
    }

    /// The output of the last call of [`InflateDecoder::run`].
    pub fn output(&self) -> &[u8] {
        &self.window[self.start..self.pos]
    }

    /// The number of input bytes used so far. After [`InflateStatus::Done`] the last of them may be used in part.
    pub fn bytes_taken(&self) -> u64 {
        self.taken
    }

    /// The bit at which the header of the latest block begins, counted from the start of the stream.
    pub fn last_header_bit(&self) -> u64 {
        self.last_header
    }

    /// After [`InflateStatus::Done`]: the number of bits in the last byte that do not belong to the stream (0 to 7).
    pub fn spare_bits(&self) -> u8 {
        self.count as u8
    }

    /// Decodes until the input is used up, the window is full or the stream ends. The next call must begin with the
    /// bytes that were not consumed; `last` says that no input follows. With at least 1 KiB of input every call makes
    /// progress.
    pub fn run(&mut self, input: &[u8], last: bool) -> Result<InflateStep, InflateFault> {
        self.drop_drained();
        let mut input = BitReader { bytes: input, at: 0, last, bits: self.bits, count: self.count };
        let result = self.decode(&mut input);
        input.give_back();
        (self.bits, self.count) = (input.bits, input.count);
        self.taken += input.at as u64;
        Ok(InflateStep { consumed: input.at, status: result? })
    }

    /// Drops drained output, except the history that matches may refer to.
    fn drop_drained(&mut self) {
        if self.pos >= Self::WINDOW_FULL_AT {
            self.window.copy_within(self.pos - MAX_DISTANCE_BYTES..self.pos, 0);
            self.pos = MAX_DISTANCE_BYTES;
        }
        self.start = self.pos;
    }

    fn decode(&mut self, input: &mut BitReader<'_>) -> Result<InflateStatus, InflateFault> {
        loop {
            let status = match self.mode {
                InflateState::Done => return Ok(InflateStatus::Done),
                InflateState::Header => {
                    if !input.last && input.bytes.len() - input.at < MAX_BLOCK_HEADER_BYTES {
                        return Ok(InflateStatus::NeedInput);
                    }
                    self.header(input)?;
                    None
                }
                InflateState::Stored { left } => self.stored(input, left)?,
                InflateState::Coded => self.coded(input)?,
            };
            if let Some(status) = status {
                return Ok(status);
            }
        }
    }

    fn end_of_block(&mut self) {
        self.mode = if self.last_block { InflateState::Done } else { InflateState::Header };
    }

    fn stored(&mut self, input: &mut BitReader<'_>, left: usize) -> Result<Option<InflateStatus>, InflateFault> {
        // The last match may have written past the limit by its length.
        let room = Self::WINDOW_FULL_AT.saturating_sub(self.pos);
        let n = left.min(room).min(input.bytes.len() - input.at);
        self.window[self.pos..self.pos + n].copy_from_slice(&input.bytes[input.at..input.at + n]);
        self.pos += n;
        input.at += n;
        if n == left {
            self.end_of_block();
            return Ok(None);
        }
        self.mode = InflateState::Stored { left: left - n };
        if self.pos >= Self::WINDOW_FULL_AT {
            Ok(Some(InflateStatus::WindowFull))
        } else if input.last {
            Err(InflateFault::Truncated)
        } else {
            Ok(Some(InflateStatus::NeedInput))
        }
    }

    fn coded(&mut self, input: &mut BitReader<'_>) -> Result<Option<InflateStatus>, InflateFault> {
        loop {
            if self.coded_fast(input)? {
                self.end_of_block();
                return Ok(None);
            }
            if self.pos >= Self::WINDOW_FULL_AT {
                return Ok(Some(InflateStatus::WindowFull));
            }
            // Near the end of the input the fast loop cannot refill: decode one symbol at a time.
            input.refill_slow();
            if !input.last && input.count < 48 {
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
    fn coded_fast(&mut self, input: &mut BitReader<'_>) -> Result<bool, InflateFault> {
        const LIT_MASK: u64 = (1 << LITLEN_BITS) - 1;
        const DIST_MASK: u64 = (1 << DIST_BITS) - 1;
        let (litlen, dist) = (&*self.litlen, &*self.dist);
        let window = &mut *self.window;
        let mut pos = self.pos;
        let outcome = loop {
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
            let before = input.bits;
            input.drop_bits(entry & 0xff);
            let len = (entry >> 16) as usize + extra_bits_value(before, entry);

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
            let before = input.bits;
            input.drop_bits(entry & 0xff);
            let back = (entry >> 16) as usize + extra_bits_value(before, entry);
            if back > pos {
                break Err(InflateFault::Damaged("a match from before the start"));
            }
            copy_match(window, pos, back, len);
            pos += len;
        };
        self.pos = pos;
        outcome
    }

    /// Decodes one literal, match or end of block, and checks that all of its bits are there. Returns `true` at the end
    /// of the block.
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
        let len = (entry >> 16) as usize + input.take((entry & 0xff) - (entry >> 8 & 0x1f))? as usize;
        let entry = decode_code(&self.dist[..], DIST_BITS, input)?;
        let back = (entry >> 16) as usize + input.take((entry & 0xff) - (entry >> 8 & 0x1f))? as usize;
        if back > self.pos {
            return Err(InflateFault::Damaged("a match from before the start"));
        }
        copy_match(&mut self.window, self.pos, back, len);
        self.pos += len;
        Ok(false)
    }
}

/// Decodes a whole stream that should have `len` bytes of content. Decoding fails once more than `len` bytes are out
/// before the stream has ended; a stream that ends within the same step is returned whole.
pub fn inflate_all(coded: &[u8], len: usize) -> Result<Vec<u8>, InflateFault> {
    let mut inflate = Inflate::new();
    let mut out = Vec::with_capacity(len);
    let mut at = 0;
    loop {
        let step = inflate.run(&coded[at..], true)?;
        at += step.consumed;
        out.extend_from_slice(inflate.output());
        if step.status == InflateStatus::Done {
            return Ok(out);
        }
        if out.len() > len {
            return Err(InflateFault::Damaged("it holds more than it should"));
        }
    }
}

/// Returns the value of the extra bits behind a code. `before` are the bits before the code was dropped.
#[inline(always)]
fn extra_bits_value(before: u64, entry: u32) -> usize {
    ((before & ((1u64 << (entry & 0xff)) - 1)) >> (entry >> 8 & 0x1f)) as usize
}

/// Looks up one code and drops its bits, but not its extra bits. Refuses invalid codes and codes that are cut off.
fn decode_code(table: &[u32], bits: u32, input: &mut BitReader<'_>) -> Result<u32, InflateFault> {
    let mut entry = table[(input.bits & ((1 << bits) - 1)) as usize];
    if entry & LINK != 0 {
        if input.count < bits {
            return Err(InflateFault::Truncated);
        }
        input.drop_bits(bits);
        entry = table[(entry >> 16 & 0x7fff) as usize + (input.bits & ((1 << (entry >> 8 & 0x1f)) - 1)) as usize];
    }
    if entry & INVALID != 0 {
        // At the end of the input missing bits are read as zeros, so the code may be cut off rather than invalid.
        let cut = input.last && input.at == input.bytes.len() && input.count < 15;
        return Err(if cut { InflateFault::Truncated } else { InflateFault::Damaged("an invalid code") });
    }
    let code = if entry & (LITERAL | END) != 0 { entry & 0xff } else { entry >> 8 & 0x1f };
    if code > input.count {
        return Err(InflateFault::Truncated);
    }
    input.drop_bits(code);
    Ok(entry)
}

/// Copies `len` bytes from `back` bytes before `pos`. It may write up to 15 bytes more, which later output overwrites.
#[inline(always)]
fn copy_match<const WINDOW: usize>(window: &mut [u8; WINDOW], pos: usize, back: usize, len: usize) {
    let (mut from, mut to, end) = (pos - back, pos, pos + len);
    if back >= 16 {
        while to < end {
            let mut step = [0u8; 16];
            step.copy_from_slice(&window[from..from + 16]);
            window[to..to + 16].copy_from_slice(&step);
            from += 16;
            to += 16;
        }
    } else if back >= 8 {
        while to < end {
            let mut step = [0u8; 8];
            step.copy_from_slice(&window[from..from + 8]);
            window[to..to + 8].copy_from_slice(&step);
            from += 8;
            to += 8;
        }
    } else if back == 1 {
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
