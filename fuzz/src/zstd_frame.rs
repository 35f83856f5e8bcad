//! Frames of zstd (RFC 8878): within the limits they give the bytes that libzstd gives, or those that they were described by,
//! and where they break off that is said. A window that is too large is refused for what it is, and so is an archive.

use std::io::{BufRead, BufReader, Seek, Write};
use std::path::PathBuf;
use std::sync::Arc;

use docwharf::base::growing_file::WriteProgress;
use docwharf::bundle::BundleReadError;
use docwharf::bundle::archive_stream::{ArchiveFile, ArchiveStream, ZstdStream};
use docwharf::bundle::refusal::BundleFault;
use docwharf::model::digest::Digest;
use docwharf::model::limits::BundleLimits;

use super::make_tar as make;
use super::recipe::Recipe;

/// More output than this is not compared.
const MOST: usize = 4 << 20;
/// A window of more is refused (rules A6).
const WINDOW: u64 = 128 << 20;
/// libzstd needs no window for a frame of which all is there and that has no more content than there is room for: its
/// window may say anything.
const ROOM: usize = 256 << 10;
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// What is said of frames that break off, and of windows.
const CUT: BundleFault = BundleFault::Truncated("the zstd data");
const TOO_WIDE: BundleFault = BundleFault::Damaged("its zstd window is over 128 MiB");

/// What came of decoding.
#[derive(Debug, PartialEq, Eq)]
enum Decoded {
    Whole(Vec<u8>),
    /// More than is compared.
    Much,
    Refused(BundleFault),
}

/// Decodes with ours, which takes so many bytes at a time.
fn ours(data: &[u8], archive: u64, step: usize) -> Decoded {
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(data).and_then(|()| file.rewind()).expect("files can be written");
    let limits = BundleLimits { archive, ..BundleLimits::default() };
    let file = ArchiveFile::new(file, PathBuf::from("bundle"), &limits, Arc::new(WriteProgress::complete()));
    let mut source = ZstdStream::new(file).expect("a decoder");
    let mut out = Vec::new();
    loop {
        let bytes = match source.fill() {
            Ok(bytes) => bytes,
            Err(BundleReadError::Refused(refusal)) => return Decoded::Refused(refusal.fault),
            Err(other) => panic!("not refused, but failed: {other}"),
        };
        if bytes.is_empty() {
            break;
        }
        if out.len() > MOST {
            return Decoded::Much;
        }
        let taken = bytes.len().min(step);
        out.extend_from_slice(&bytes[..taken]);
        source.consume(taken);
    }
    assert!(source.fill().expect("an end stays one").is_empty());
    assert_eq!(source.digest_and_len(), (Digest::of(data), data.len() as u64), "it is read to its end");
    Decoded::Whole(out)
}

/// Decodes with libzstd alone; none if it refuses.
fn theirs(data: &[u8]) -> Option<Decoded> {
    let decoder = zstd::stream::read::Decoder::with_buffer(data).expect("a decoder");
    let mut decoder = BufReader::with_capacity(ROOM, decoder);
    let mut out = Vec::new();
    loop {
        let bytes = decoder.fill_buf().ok()?;
        if bytes.is_empty() {
            return Some(Decoded::Whole(out));
        }
        if out.len() > MOST {
            return Some(Decoded::Much);
        }
        out.extend_from_slice(bytes);
        let taken = bytes.len();
        decoder.consume(taken);
    }
}

/// A number of so many bytes, the last of them the highest.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// What the header of a frame asks for.
struct Header {
    len: usize,
    window: u64,
    content: Option<u64>,
    dictionary: u64,
    has_checksum: bool,
}

/// Reads the header of a frame (RFC 8878, 3.1.1.1); none if it is none, or not whole.
fn header(frame: &[u8]) -> Option<Header> {
    let rest = frame.strip_prefix(&MAGIC)?;
    let (&descriptor, rest) = rest.split_first()?;
    let is_single = descriptor & 0x20 != 0;
    if descriptor & 0x08 != 0 {
        return None;
    }
    let (window, rest) = if is_single {
        (0, rest)
    } else {
        let (&window, rest) = rest.split_first()?;
        let base = 1u64 << (10 + (window >> 3));
        (base + base / 8 * u64::from(window & 7), rest)
    };
    let (dictionary, rest) = rest.split_at_checked([0, 1, 2, 4][usize::from(descriptor & 3)])?;
    let content_len = [usize::from(is_single), 2, 4, 8][usize::from(descriptor >> 6)];
    let (content, rest) = rest.split_at_checked(content_len)?;
    let content = match content.len() {
        0 => None,
        2 => Some(number(content) + 256),
        _ => Some(number(content)),
    };
    let window = if is_single { content.unwrap_or(0) } else { window };
    let len = frame.len() - rest.len();
    Some(Header { len, window, content, dictionary: number(dictionary), has_checksum: descriptor & 4 != 0 })
}

/// The length of the frame that `data` begins with, by its header and those of its blocks; none if it is not all there.
fn frame_len(data: &[u8]) -> Option<usize> {
    let magic = data.first_chunk::<4>()?;
    if magic[0] & 0xf0 == 0x50 && magic[1..] == [0x2a, 0x4d, 0x18] {
        let len = usize::try_from(number(data.get(4..8)?)).ok()?;
        return Some(8 + len).filter(|len| *len <= data.len());
    }
    let header = header(data)?;
    let mut at = header.len;
    loop {
        let block = number(data.get(at..at + 3)?);
        let (is_last, kind, size) = (block & 1 == 1, block >> 1 & 3, (block >> 3) as usize);
        at += 3 + if kind == 1 { 1 } else { size };
        if kind == 3 || at > data.len() {
            return None;
        }
        if is_last {
            return Some(at + if header.has_checksum { 4 } else { 0 }).filter(|len| *len <= data.len());
        }
    }
}

/// Any bytes: as libzstd has it, but for windows.
fn compare(data: &[u8], step: usize) -> Decoded {
    let decoded = ours(data, u64::MAX, usize::MAX);
    // The first frame whose window is too large, behind frames that are all there.
    let (mut at, mut wide) = (0, None);
    while wide.is_none() && at < data.len() {
        wide = header(&data[at..]).filter(|header| header.window > WINDOW);
        let Some(len) = frame_len(&data[at..]).filter(|_| wide.is_none()) else { break };
        at += len;
    }
    if let Some(header) = wide {
        if header.content.is_none_or(|content| content > ROOM as u64) {
            assert!(!matches!(decoded, Decoded::Whole(_)), "a window of {} bytes is accepted", header.window);
            let is_good_before = at == 0 || matches!(theirs(&data[..at]), Some(Decoded::Whole(_)));
            if is_good_before && header.dictionary == 0 {
                assert_eq!(decoded, Decoded::Refused(TOO_WIDE), "a window of {} bytes", header.window);
            }
        }
    } else {
        assert!(decoded != Decoded::Refused(TOO_WIDE), "no window is too large");
        match (&decoded, theirs(data)) {
            (Decoded::Whole(_) | Decoded::Much, Some(other)) => assert!(decoded == other, "other bytes"),
            (Decoded::Refused(_), None) => {}
            (decoded, other) => panic!("ours {}, libzstd {}", told(Some(decoded)), told(other.as_ref())),
        }
    }
    // In pieces of any size.
    if let Decoded::Whole(bytes) = &decoded
        && bytes.len() <= 64 << 10
    {
        assert!(ours(data, u64::MAX, step) == decoded, "in pieces of {step}");
    }
    decoded
}

fn told(decoded: Option<&Decoded>) -> String {
    match decoded {
        Some(Decoded::Whole(bytes)) => format!("{} bytes", bytes.len()),
        other => format!("{other:?}"),
    }
}

/// Frames in the making, and what they hold.
#[derive(Default)]
struct Made {
    bytes: Vec<u8>,
    content: Vec<u8>,
    /// Where each frame ends, and what content does there.
    ends: Vec<(usize, usize)>,
    lies: bool,
}

impl Made {
    fn frame(&mut self, recipe: &mut Recipe<'_>) {
        let kind = recipe.below(7);
        let frame = match kind {
            0 => {
                let mut frame = make::zstd_skippable(recipe.bytes(9));
                frame[0] |= recipe.byte() & 0x0f;
                frame
            }
            1 | 2 => {
                let most = recipe.below(200);
                let text = recipe.bytes(most).repeat(1 + recipe.below(9));
                self.content.extend_from_slice(&text);
                if kind == 1 { make::zstd(&text) } else { make::zstd_checked(&text) }
            }
            _ => self.by_hand(recipe),
        };
        self.bytes.extend_from_slice(&frame);
        self.ends.push((self.bytes.len(), self.content.len()));
    }

    /// A frame of raw blocks and of blocks that repeat one byte.
    fn by_hand(&mut self, recipe: &mut Recipe<'_>) -> Vec<u8> {
        let (mut blocks, mut content) = (Vec::new(), Vec::new());
        let count = 1 + recipe.below(4);
        for at in 1..=count {
            let is_last = u32::from(at == count);
            let (kind, payload, text) = if recipe.once_in(2) {
                let byte = recipe.byte();
                let size = recipe.one_of(&[1, 2, 100, 1000, 100_000, 131_072]);
                (1, vec![byte], vec![byte; size])
            } else {
                let most = recipe.below(40);
                let raw = recipe.bytes(most).to_vec();
                (0, raw.clone(), raw)
            };
            let head = is_last | kind << 1 | (text.len() as u32) << 3;
            blocks.extend_from_slice(&head.to_le_bytes()[..3]);
            blocks.extend_from_slice(&payload);
            content.extend_from_slice(&text);
        }
        let mut frame = self.header(recipe, content.len() as u64);
        if recipe.once_in(24) {
            // A kind of block that there is not. No other block of ours has these two bits.
            self.lies = true;
            blocks[0] |= 6;
        }
        frame.extend_from_slice(&blocks);
        self.content.extend_from_slice(&content);
        frame
    }

    fn header(&mut self, recipe: &mut Recipe<'_>, content: u64) -> Vec<u8> {
        let is_single = recipe.once_in(2);
        // In how many bytes the length of the content is told.
        let code: u8 = match recipe.below(4) {
            0 if content < 256 || !is_single => 0,
            1 if (256..65_792).contains(&content) => 1,
            3 => 3,
            _ => 2,
        };
        let dictionary = if recipe.once_in(4) { recipe.below(4) as u8 } else { 0 };
        let mut frame = MAGIC.to_vec();
        frame.push(code << 6 | u8::from(is_single) << 5 | dictionary);
        if !is_single {
            // From 128 KiB, which the largest block has, to what is just allowed.
            let mut window = recipe.one_of(&[0x38, 0x3f, 0x40, 0x58, 0x88]);
            if code == 0 && recipe.once_in(8) {
                self.lies = true;
                window = recipe.one_of(&[0x89, 0x90, 0xa0, 0xf8, 0xff]);
            }
            frame.push(window);
        }
        let mut named = [0; 4];
        if dictionary > 0 && recipe.once_in(8) {
            self.lies = true;
            named[0] = 1;
        }
        frame.extend_from_slice(&named[..[0, 1, 2, 4][usize::from(dictionary)]]);
        let mut content = content;
        let len = [usize::from(is_single), 2, 4, 8][usize::from(code)];
        if len > 2 && recipe.once_in(16) {
            self.lies = true;
            content += recipe.one_of(&[1, 1000, 1 << 20]);
        }
        let told = if code == 1 { content - 256 } else { content };
        frame.extend_from_slice(&told.to_le_bytes()[..len]);
        if recipe.once_in(32) {
            self.lies = true;
            frame[4] |= 8;
        }
        frame
    }
}

/// See the head of this file: any bytes, or frames by a recipe.
pub fn zstd_frame(data: &[u8]) {
    let mut recipe = Recipe::new(data);
    let step = 1 + usize::from(recipe.short()) % 3000;
    if recipe.once_in(3) {
        compare(recipe.rest(), step);
        return;
    }
    let mut made = Made::default();
    for _ in 0..=recipe.below(5) {
        made.frame(&mut recipe);
    }
    let all = &made.bytes;
    let decoded = compare(all, step);
    if made.lies {
        assert!(!matches!(decoded, Decoded::Whole(_)), "a lie is believed");
        return;
    }
    let is_much = made.content.len() > MOST;
    if !is_much {
        assert!(decoded == Decoded::Whole(made.content.clone()), "described with {} bytes", made.content.len());
    }
    // Between two frames it may end, and nowhere else.
    let len = recipe.short();
    let at = usize::from(len) * all.len() / usize::from(u16::MAX);
    let known = made.ends.iter().find(|(end, _)| *end == at);
    let expected =
        known.map_or(Decoded::Refused(CUT), |(_, content)| Decoded::Whole(made.content[..*content].to_vec()));
    if !is_much {
        assert!(
            ours(&all[..at], u64::MAX, step) == expected,
            "cut at {at} of {}: {}",
            all.len(),
            told(Some(&expected))
        );
    }
    let limit = all.len() as u64 - 1;
    assert_eq!(ours(all, limit, step), Decoded::Refused(BundleFault::ArchiveTooLarge(limit)));
    if !is_much {
        assert!(ours(all, limit + 1, step) == decoded, "at the limit");
    }
}
