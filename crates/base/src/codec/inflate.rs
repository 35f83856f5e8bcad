//! A DEFLATE decoder (RFC 1951) for proving and for serving.
//!
//! It is resumable, needs one fixed window, never allocates after [`Decoder::new`], and tells what libraries do not:
//! the bit at which the last block's header begins and the bit at which the stream ends. It accepts exactly what zlib
//! accepts, so that a sealed file opens everywhere; the tests hold the two against each other.

// The decoding loop is one function only if these are inlined; measured at a third of its speed without.
#![allow(clippy::inline_always)]

use super::tables::{
    self, BAD, DIST_BITS, DIST_SIZE, END, LINK, LITERAL, LITLEN_BITS, LITLEN_SIZE, PRE_BITS, PRE_SIZE, SPECIAL,
};

/// How far back a match may reach.
const HISTORY: usize = 32 * 1024;
/// Room for fresh output between two drains: where one stream is gone through at a time.
const FRESH: usize = 224 * 1024;
/// The same where many streams are decoded beside each other, and none may keep its thread for long.
pub const SMALL_FRESH: usize = 32 * 1024;
/// A match is up to 258 bytes and is copied in steps of 16.
const SLACK: usize = 258 + 32;
/// A whole window. Its length is a constant so that the compiler can leave checks out.
const LARGE_WINDOW: usize = HISTORY + FRESH + SLACK;
const SMALL_WINDOW: usize = HISTORY + SMALL_FRESH + SLACK;

/// A decoder that gives up to 224 KiB at a time.
pub type Inflate = Decoder<LARGE_WINDOW>;
/// A decoder that gives up to 64 KiB at first and [`SMALL_FRESH`] bytes from then on, and takes [`SMALL_BYTES`].
pub type SmallInflate = Decoder<SMALL_WINDOW>;
/// Memory of a [`SmallInflate`], in bytes.
pub const SMALL_BYTES: usize = SMALL_WINDOW + 4 * (LITLEN_SIZE + DIST_SIZE);
/// No symbol and no block header is longer: a dynamic header has at most 17 + 19 * 3 + 316 * 14 bits.
const HEADER_BYTES: usize = 576;

/// What is wrong with a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InflateFault {
    /// The input ends before the stream does.
    #[error("the compressed data is cut short")]
    Truncated,
    /// The data breaks the format; the text says how.
    #[error("the compressed data is damaged ({0})")]
    Damaged(&'static str),
}

/// Why [`Decoder::run`] came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// All input that can be used has been used.
    NeedInput,
    /// The window is full: take [`Decoder::output`] and call again.
    WindowFull,
    /// The last block has ended.
    Done,
}

/// How far a call of [`Decoder::run`] came.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// Bytes of the input that need not be shown again.
    pub consumed: usize,
    /// Why it stopped.
    pub status: Status,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Header,
    Stored { left: usize },
    Coded,
    Done,
}

/// One stream being decoded.
pub struct Decoder<const WINDOW: usize> {
    mode: Mode,
    last_block: bool,
    bits: u64,
    count: u32,
    /// Bytes taken from the input so far, less the whole bytes still in `bits`.
    taken: u64,
    last_header: u64,
    window: Box<[u8; WINDOW]>,
    start: usize,
    pos: usize,
    litlen: Box<[u32; LITLEN_SIZE]>,
    dist: Box<[u32; DIST_SIZE]>,
    fixed: bool,
}

impl<const WINDOW: usize> std::fmt::Debug for Decoder<WINDOW> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").field("mode", &self.mode).field("taken", &self.taken).finish_non_exhaustive()
    }
}

impl<const WINDOW: usize> Default for Decoder<WINDOW> {
    fn default() -> Self {
        Self::new()
    }
}

/// Where reading stands within one call.
struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
    last: bool,
    bits: u64,
    count: u32,
}

impl Input<'_> {
    /// At least 56 bits, if 8 bytes are left.
    #[inline(always)]
    fn refill_fast(&mut self) -> bool {
        let Some(word) = self.bytes.get(self.at..self.at + 8) else {
            return false;
        };
        // The slice has 8 bytes by the line above.
        self.bits |= u64::from_le_bytes(word.try_into().unwrap_or_default()) << self.count;
        self.at += ((63 - self.count) >> 3) as usize;
        self.count |= 56;
        true
    }

    fn refill_slow(&mut self) {
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
    fn drop_bits(&mut self, n: u32) {
        self.bits >>= n;
        self.count -= n;
    }

    /// `n` bits (at most 16) in a header.
    fn take(&mut self, n: u32) -> Result<u32, InflateFault> {
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

    /// Gives whole unused bytes back, so that fewer than 8 bits stay.
    fn give_back(&mut self) {
        self.at -= (self.count / 8) as usize;
        self.count &= 7;
        self.bits &= (1 << self.count) - 1;
    }
}

impl<const WINDOW: usize> Decoder<WINDOW> {
    /// Where the window is full. The last match may go beyond it by its length.
    const LIMIT: usize = WINDOW - SLACK;

    /// A decoder at the start of a stream.
    pub fn new() -> Self {
        Decoder {
            mode: Mode::Header,
            last_block: false,
            bits: 0,
            count: 0,
            taken: 0,
            last_header: 0,
            // By way of the heap: a large array on the stack may not fit a small thread.
            window: vec![0; WINDOW].try_into().unwrap_or_else(|_| unreachable!("the length is the same constant")),
            start: 0,
            pos: 0,
            litlen: Box::new([0; LITLEN_SIZE]),
            dist: Box::new([0; DIST_SIZE]),
            fixed: false,
        }
    }

    /// Back to the start of a stream, keeping the memory.
    pub fn reset(&mut self) {
        self.mode = Mode::Header;
        self.last_block = false;
        (self.bits, self.count, self.taken, self.last_header) = (0, 0, 0, 0);
        (self.start, self.pos) = (0, 0);
    }

    /// What the last call of [`Decoder::run`] decoded.
    pub fn output(&self) -> &[u8] {
        &self.window[self.start..self.pos]
    }

    /// Bytes of input used so far; after [`Status::Done`] the last of them may be used in part.
    pub fn bytes_taken(&self) -> u64 {
        self.taken
    }

    /// The bit, counted from the start of the stream, at which the header of the last block begun so far stands.
    pub fn last_header_bit(&self) -> u64 {
        self.last_header
    }

    /// After [`Status::Done`]: bits of the last byte that do not belong to the stream (0 to 7).
    pub fn spare_bits(&self) -> u8 {
        self.count as u8
    }

    /// Decodes until the input is used up, the window is full or the stream ends. Show bytes that were not consumed
    /// again, with more behind them; `last` says that nothing follows. With 1 KiB of input it always gets on.
    pub fn run(&mut self, input: &[u8], last: bool) -> Result<Step, InflateFault> {
        self.make_room();
        let mut input = Input { bytes: input, at: 0, last, bits: self.bits, count: self.count };
        let result = self.decode(&mut input);
        input.give_back();
        (self.bits, self.count) = (input.bits, input.count);
        self.taken += input.at as u64;
        Ok(Step { consumed: input.at, status: result? })
    }

    /// Forgets drained output but the history that matches may reach.
    fn make_room(&mut self) {
        if self.pos >= Self::LIMIT {
            self.window.copy_within(self.pos - HISTORY..self.pos, 0);
            self.pos = HISTORY;
        }
        self.start = self.pos;
    }

    fn decode(&mut self, input: &mut Input<'_>) -> Result<Status, InflateFault> {
        loop {
            let status = match self.mode {
                Mode::Done => return Ok(Status::Done),
                Mode::Header => {
                    if !input.last && input.bytes.len() - input.at < HEADER_BYTES {
                        return Ok(Status::NeedInput);
                    }
                    self.header(input)?;
                    None
                }
                Mode::Stored { left } => self.stored(input, left)?,
                Mode::Coded => self.coded(input)?,
            };
            if let Some(status) = status {
                return Ok(status);
            }
        }
    }

    fn end_of_block(&mut self) {
        self.mode = if self.last_block { Mode::Done } else { Mode::Header };
    }

    fn header(&mut self, input: &mut Input<'_>) -> Result<(), InflateFault> {
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
                self.mode = Mode::Stored { left: len as usize };
            }
            1 => {
                if !self.fixed {
                    self.build_fixed()?;
                }
                self.mode = Mode::Coded;
            }
            2 => {
                self.dynamic(input)?;
                self.mode = Mode::Coded;
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
        tables::build(&mut self.litlen[..], LITLEN_BITS, litlen, tables::litlen_entry, true)
            .map_err(|_| InflateFault::Damaged("the literal and length code"))?;
        tables::build(&mut self.dist[..], DIST_BITS, dist, tables::dist_entry, true)
            .map_err(|_| InflateFault::Damaged("the distance code"))
    }

    fn dynamic(&mut self, input: &mut Input<'_>) -> Result<(), InflateFault> {
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
        let mut pre = [0u32; PRE_SIZE];
        tables::build(&mut pre, PRE_BITS, &pre_lengths, tables::pre_entry, false)
            .map_err(|_| InflateFault::Damaged("the code length code"))?;

        let mut lengths = [0u8; 286 + 30];
        let total = litlens + dists;
        let mut at = 0;
        while at < total {
            input.refill_slow();
            let entry = pre[(input.bits & ((1 << PRE_BITS) - 1)) as usize];
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

    fn stored(&mut self, input: &mut Input<'_>, left: usize) -> Result<Option<Status>, InflateFault> {
        // The last match may have written past the limit by its length.
        let room = Self::LIMIT.saturating_sub(self.pos);
        let n = left.min(room).min(input.bytes.len() - input.at);
        self.window[self.pos..self.pos + n].copy_from_slice(&input.bytes[input.at..input.at + n]);
        self.pos += n;
        input.at += n;
        if n == left {
            self.end_of_block();
            return Ok(None);
        }
        self.mode = Mode::Stored { left: left - n };
        if self.pos >= Self::LIMIT {
            Ok(Some(Status::WindowFull))
        } else if input.last {
            Err(InflateFault::Truncated)
        } else {
            Ok(Some(Status::NeedInput))
        }
    }

    fn coded(&mut self, input: &mut Input<'_>) -> Result<Option<Status>, InflateFault> {
        loop {
            if self.coded_fast(input)? {
                self.end_of_block();
                return Ok(None);
            }
            if self.pos >= Self::LIMIT {
                return Ok(Some(Status::WindowFull));
            }
            // Near the end of the input: one symbol at a time.
            input.refill_slow();
            if !input.last && input.count < 48 {
                return Ok(Some(Status::NeedInput));
            }
            if self.one_symbol(input)? {
                self.end_of_block();
                return Ok(None);
            }
        }
    }

    /// Symbols while 8 bytes of input and room for the longest match are left; `true` at the end of the block.
    fn coded_fast(&mut self, input: &mut Input<'_>) -> Result<bool, InflateFault> {
        const LIT_MASK: u64 = (1 << LITLEN_BITS) - 1;
        const DIST_MASK: u64 = (1 << DIST_BITS) - 1;
        let (litlen, dist) = (&*self.litlen, &*self.dist);
        let window = &mut *self.window;
        let mut pos = self.pos;
        let outcome = loop {
            if pos >= Self::LIMIT || !input.refill_fast() {
                break Ok(false);
            }
            let mut entry = litlen[(input.bits & LIT_MASK) as usize];
            if entry & LITERAL != 0 {
                // Up to three literals on one refill: 3 * 11 bits leave 23 of 56, enough to look the next one up.
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
                if entry & BAD != 0 {
                    break Err(InflateFault::Damaged("a code that stands for nothing"));
                }
            }
            let before = input.bits;
            input.drop_bits(entry & 0xff);
            let len = (entry >> 16) as usize + extra(before, entry);

            let mut entry = dist[(input.bits & DIST_MASK) as usize];
            if entry & (LINK | BAD) != 0 {
                if entry & BAD != 0 {
                    break Err(InflateFault::Damaged("a distance that stands for nothing"));
                }
                input.drop_bits(entry & 0xff);
                entry = dist[(entry >> 16) as usize + (input.bits & ((1 << (entry >> 8 & 0x1f)) - 1)) as usize];
                if entry & BAD != 0 {
                    break Err(InflateFault::Damaged("a distance that stands for nothing"));
                }
            }
            let before = input.bits;
            input.drop_bits(entry & 0xff);
            let back = (entry >> 16) as usize + extra(before, entry);
            if back > pos {
                break Err(InflateFault::Damaged("a match from before the start"));
            }
            copy_match(window, pos, back, len);
            pos += len;
        };
        self.pos = pos;
        outcome
    }

    /// One literal, match or end of block, with every bit accounted for; `true` at the end of the block.
    fn one_symbol(&mut self, input: &mut Input<'_>) -> Result<bool, InflateFault> {
        let entry = lookup(&self.litlen[..], LITLEN_BITS, input)?;
        if entry & LITERAL != 0 {
            self.window[self.pos] = (entry >> 16) as u8;
            self.pos += 1;
            return Ok(false);
        }
        if entry & END != 0 {
            return Ok(true);
        }
        let len = (entry >> 16) as usize + input.take((entry & 0xff) - (entry >> 8 & 0x1f))? as usize;
        let entry = lookup(&self.dist[..], DIST_BITS, input)?;
        let back = (entry >> 16) as usize + input.take((entry & 0xff) - (entry >> 8 & 0x1f))? as usize;
        if back > self.pos {
            return Err(InflateFault::Damaged("a match from before the start"));
        }
        copy_match(&mut self.window, self.pos, back, len);
        self.pos += len;
        Ok(false)
    }
}

/// Decodes a whole stream that is known to hold `len` bytes.
pub fn all(coded: &[u8], len: usize) -> Result<Vec<u8>, InflateFault> {
    let mut inflate = Inflate::new();
    let mut out = Vec::with_capacity(len);
    let mut at = 0;
    loop {
        let step = inflate.run(&coded[at..], true)?;
        at += step.consumed;
        out.extend_from_slice(inflate.output());
        if step.status == Status::Done {
            return Ok(out);
        }
        if out.len() > len {
            return Err(InflateFault::Damaged("it holds more than it should"));
        }
    }
}

/// The value of the extra bits behind a code, from the bits as they were before the code was dropped.
#[inline(always)]
fn extra(before: u64, entry: u32) -> usize {
    ((before & ((1u64 << (entry & 0xff)) - 1)) >> (entry >> 8 & 0x1f)) as usize
}

/// Looks one code up, drops it (not its extra bits), and refuses codes that stand for nothing or lack bits.
fn lookup(table: &[u32], bits: u32, input: &mut Input<'_>) -> Result<u32, InflateFault> {
    let mut entry = table[(input.bits & ((1 << bits) - 1)) as usize];
    if entry & LINK != 0 {
        if input.count < bits {
            return Err(InflateFault::Truncated);
        }
        input.drop_bits(bits);
        entry = table[(entry >> 16 & 0x7fff) as usize + (input.bits & ((1 << (entry >> 8 & 0x1f)) - 1)) as usize];
    }
    if entry & BAD != 0 {
        // With the input at its end the missing bits were read as zeros.
        let cut = input.last && input.at == input.bytes.len() && input.count < 15;
        return Err(if cut {
            InflateFault::Truncated
        } else {
            InflateFault::Damaged("a code that stands for nothing")
        });
    }
    let code = if entry & (LITERAL | END) != 0 { entry & 0xff } else { entry >> 8 & 0x1f };
    if code > input.count {
        return Err(InflateFault::Truncated);
    }
    input.drop_bits(code);
    Ok(entry)
}

/// Copies `len` bytes from `back` bytes before `pos`; may write up to 15 bytes more, which later output overwrites.
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
