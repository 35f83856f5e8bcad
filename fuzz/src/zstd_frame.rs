//! Zstandard frames (RFC 8878): within the limits they decode to the bytes that libzstd returns, or to the bytes that
//! they were made from. Truncated frames, too large windows and too large archives are refused with the right reason.

use std::io::{BufRead, BufReader, Seek, Write};
use std::path::PathBuf;
use std::sync::Arc;

use docwharf::base::growing_file::WriteProgress;
use docwharf::bundle::BundleReadError;
use docwharf::bundle::archive_stream::{ArchiveFile, ArchiveStream, ZstdStream};
use docwharf::bundle::refusal::BundleFault;
use docwharf::model::digest::Digest;
use docwharf::model::limits::BundleLimits;

use super::fuzz_input::FuzzInput;
use super::make_tar as make;

/// The most bytes of output that are compared.
const MAX_OUTPUT_BYTES: usize = 4 << 20;
/// The largest allowed window (rules A6).
const MAX_WINDOW_BYTES: u64 = 128 << 20;
/// The output buffer for libzstd. It uses no window for a complete frame whose content fits the buffer, and then
/// accepts any window size.
const BUFFER_BYTES: usize = 256 << 10;
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The faults of truncated frames and of too large windows.
const TRUNCATED: BundleFault = BundleFault::Truncated("the zstd data");
const WINDOW_TOO_LARGE: BundleFault = BundleFault::Damaged("its zstd window is over 128 MiB");

/// The result of decoding.
#[derive(Debug, PartialEq, Eq)]
enum DecodeResult {
    Complete(Vec<u8>),
    /// More output than is compared.
    TooLong,
    Refused(BundleFault),
}

/// Decodes with docwharf, at most `step` bytes at a time. `max_archive_bytes` is the limit for the archive.
fn decode(data: &[u8], max_archive_bytes: u64, step: usize) -> DecodeResult {
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(data).and_then(|()| file.rewind()).expect("files can be written");
    let limits = BundleLimits { archive: max_archive_bytes, ..BundleLimits::default() };
    let file = ArchiveFile::new(file, PathBuf::from("bundle"), &limits, Arc::new(WriteProgress::complete()));
    let mut source = ZstdStream::new(file).expect("a decoder");
    let mut output = Vec::new();
    loop {
        let bytes = match source.fill() {
            Ok(bytes) => bytes,
            Err(BundleReadError::Refused(refusal)) => return DecodeResult::Refused(refusal.fault),
            Err(error) => panic!("failed instead of a refusal: {error}"),
        };
        if bytes.is_empty() {
            break;
        }
        if output.len() > MAX_OUTPUT_BYTES {
            return DecodeResult::TooLong;
        }
        let len = bytes.len().min(step);
        output.extend_from_slice(&bytes[..len]);
        source.consume(len);
    }
    assert!(source.fill().expect("reading after the end succeeds").is_empty());
    assert_eq!(source.digest_and_len(), (Digest::compute(data), data.len() as u64), "all bytes are read");
    DecodeResult::Complete(output)
}

/// Decodes with libzstd. `None` if it refuses the data.
fn decode_with_libzstd(data: &[u8]) -> Option<DecodeResult> {
    let decoder = zstd::stream::read::Decoder::with_buffer(data).expect("a decoder");
    let mut decoder = BufReader::with_capacity(BUFFER_BYTES, decoder);
    let mut output = Vec::new();
    loop {
        let bytes = decoder.fill_buf().ok()?;
        if bytes.is_empty() {
            return Some(DecodeResult::Complete(output));
        }
        if output.len() > MAX_OUTPUT_BYTES {
            return Some(DecodeResult::TooLong);
        }
        output.extend_from_slice(bytes);
        let len = bytes.len();
        decoder.consume(len);
    }
}

/// A little-endian number.
fn read_number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// The header of a frame.
struct FrameHeader {
    /// The length of the header.
    len: usize,
    window: u64,
    content: Option<u64>,
    dictionary: u64,
    has_checksum: bool,
}

/// Parses the header of a frame (RFC 8878, 3.1.1.1). `None` if it is invalid or incomplete.
fn parse_header(frame: &[u8]) -> Option<FrameHeader> {
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
        2 => Some(read_number(content) + 256),
        _ => Some(read_number(content)),
    };
    let window = if is_single { content.unwrap_or(0) } else { window };
    let len = frame.len() - rest.len();
    Some(FrameHeader { len, window, content, dictionary: read_number(dictionary), has_checksum: descriptor & 4 != 0 })
}

/// The length of the frame at the start of `data`, from its header and those of its blocks. `None` if it is incomplete.
fn frame_len(data: &[u8]) -> Option<usize> {
    let magic = data.first_chunk::<4>()?;
    if magic[0] & 0xf0 == 0x50 && magic[1..] == [0x2a, 0x4d, 0x18] {
        let len = usize::try_from(read_number(data.get(4..8)?)).ok()?;
        return Some(8 + len).filter(|len| *len <= data.len());
    }
    let header = parse_header(data)?;
    let mut at = header.len;
    loop {
        let block = read_number(data.get(at..at + 3)?);
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

/// Compares any bytes with libzstd, except for too large windows.
fn compare(data: &[u8], step: usize) -> DecodeResult {
    let decoded = decode(data, u64::MAX, usize::MAX);
    // The first frame with a too large window, after complete frames.
    let (mut at, mut wide_header) = (0, None);
    while wide_header.is_none() && at < data.len() {
        wide_header = parse_header(&data[at..]).filter(|header| header.window > MAX_WINDOW_BYTES);
        let Some(len) = frame_len(&data[at..]).filter(|_| wide_header.is_none()) else { break };
        at += len;
    }
    if let Some(header) = wide_header {
        if header.content.is_none_or(|content| content > BUFFER_BYTES as u64) {
            assert!(!matches!(decoded, DecodeResult::Complete(_)), "a window of {} bytes is accepted", header.window);
            let is_valid_before =
                at == 0 || matches!(decode_with_libzstd(&data[..at]), Some(DecodeResult::Complete(_)));
            if is_valid_before && header.dictionary == 0 {
                assert_eq!(decoded, DecodeResult::Refused(WINDOW_TOO_LARGE), "a window of {} bytes", header.window);
            }
        }
    } else {
        assert!(decoded != DecodeResult::Refused(WINDOW_TOO_LARGE), "no window is too large");
        match (&decoded, decode_with_libzstd(data)) {
            (DecodeResult::Complete(_) | DecodeResult::TooLong, Some(expected)) => {
                assert!(decoded == expected, "the bytes differ");
            }
            (DecodeResult::Refused(_), None) => {}
            (decoded, expected) => {
                panic!("docwharf {}, libzstd {}", summary(Some(decoded)), summary(expected.as_ref()))
            }
        }
    }
    // In pieces of any size.
    if let DecodeResult::Complete(bytes) = &decoded
        && bytes.len() <= 64 << 10
    {
        assert!(decode(data, u64::MAX, step) == decoded, "in pieces of {step}");
    }
    decoded
}

fn summary(decoded: Option<&DecodeResult>) -> String {
    match decoded {
        Some(DecodeResult::Complete(bytes)) => format!("{} bytes", bytes.len()),
        result => format!("{result:?}"),
    }
}

/// Writes frames, and records their content.
#[derive(Default)]
struct FrameBuilder {
    bytes: Vec<u8>,
    content: Vec<u8>,
    /// The end of each frame, and the length of the content there.
    ends: Vec<(usize, usize)>,
    is_invalid: bool,
}

impl FrameBuilder {
    fn add_frame(&mut self, input: &mut FuzzInput<'_>) {
        let kind = input.below(7);
        let frame = match kind {
            0 => {
                let mut frame = make::zstd_skippable(input.bytes(9));
                frame[0] |= input.byte() & 0x0f;
                frame
            }
            1 | 2 => {
                let max_len = input.below(200);
                let text = input.bytes(max_len).repeat(1 + input.below(9));
                self.content.extend_from_slice(&text);
                if kind == 1 { make::zstd(&text) } else { make::zstd_with_checksum(&text) }
            }
            _ => self.make_frame(input),
        };
        self.bytes.extend_from_slice(&frame);
        self.ends.push((self.bytes.len(), self.content.len()));
    }

    /// Makes a frame of raw blocks and RLE blocks.
    fn make_frame(&mut self, input: &mut FuzzInput<'_>) -> Vec<u8> {
        let (mut blocks, mut content) = (Vec::new(), Vec::new());
        let count = 1 + input.below(4);
        for n in 1..=count {
            let is_last = u32::from(n == count);
            let (kind, payload, text) = if input.once_in(2) {
                let byte = input.byte();
                let size = input.one_of(&[1, 2, 100, 1000, 100_000, 131_072]);
                (1, vec![byte], vec![byte; size])
            } else {
                let max_len = input.below(40);
                let raw = input.bytes(max_len).to_vec();
                (0, raw.clone(), raw)
            };
            let block_header = is_last | kind << 1 | (text.len() as u32) << 3;
            blocks.extend_from_slice(&block_header.to_le_bytes()[..3]);
            blocks.extend_from_slice(&payload);
            content.extend_from_slice(&text);
        }
        let mut frame = self.make_header(input, content.len() as u64);
        if input.once_in(24) {
            // The reserved block type. No generated block sets both bits.
            self.is_invalid = true;
            blocks[0] |= 6;
        }
        frame.extend_from_slice(&blocks);
        self.content.extend_from_slice(&content);
        frame
    }

    fn make_header(&mut self, input: &mut FuzzInput<'_>, content: u64) -> Vec<u8> {
        let is_single = input.once_in(2);
        // The frame content size flag (RFC 8878, 3.1.1.1.1): the length of the content size field.
        let size_flag: u8 = match input.below(4) {
            0 if content < 256 || !is_single => 0,
            1 if (256..65_792).contains(&content) => 1,
            3 => 3,
            _ => 2,
        };
        let dictionary = if input.once_in(4) { input.below(4) as u8 } else { 0 };
        let mut frame = MAGIC.to_vec();
        frame.push(size_flag << 6 | u8::from(is_single) << 5 | dictionary);
        if !is_single {
            // From 128 KiB, the largest block size, to the largest allowed window.
            let mut window = input.one_of(&[0x38, 0x3f, 0x40, 0x58, 0x88]);
            if size_flag == 0 && input.once_in(8) {
                self.is_invalid = true;
                window = input.one_of(&[0x89, 0x90, 0xa0, 0xf8, 0xff]);
            }
            frame.push(window);
        }
        let mut dictionary_id = [0; 4];
        if dictionary > 0 && input.once_in(8) {
            self.is_invalid = true;
            dictionary_id[0] = 1;
        }
        frame.extend_from_slice(&dictionary_id[..[0, 1, 2, 4][usize::from(dictionary)]]);
        let mut content = content;
        let len = [usize::from(is_single), 2, 4, 8][usize::from(size_flag)];
        if len > 2 && input.once_in(16) {
            self.is_invalid = true;
            content += input.one_of(&[1, 1000, 1 << 20]);
        }
        let field = if size_flag == 1 { content - 256 } else { content };
        frame.extend_from_slice(&field.to_le_bytes()[..len]);
        if input.once_in(32) {
            self.is_invalid = true;
            frame[4] |= 8;
        }
        frame
    }
}

/// The fuzz target (see the module documentation): any bytes, or generated frames.
pub fn zstd_frame(data: &[u8]) {
    let mut input = FuzzInput::new(data);
    let step = 1 + usize::from(input.u16()) % 3000;
    if input.once_in(3) {
        compare(input.rest(), step);
        return;
    }
    let mut builder = FrameBuilder::default();
    for _ in 0..=input.below(5) {
        builder.add_frame(&mut input);
    }
    let frames = &builder.bytes;
    let decoded = compare(frames, step);
    if builder.is_invalid {
        assert!(!matches!(decoded, DecodeResult::Complete(_)), "an invalid frame is accepted");
        return;
    }
    let is_too_long = builder.content.len() > MAX_OUTPUT_BYTES;
    if !is_too_long {
        assert!(decoded == DecodeResult::Complete(builder.content.clone()), "expected {} bytes", builder.content.len());
    }
    // The data may end between two frames only.
    let fraction = input.u16();
    let cut = usize::from(fraction) * frames.len() / usize::from(u16::MAX);
    let frame_end = builder.ends.iter().find(|(end, _)| *end == cut);
    let expected = frame_end.map_or(DecodeResult::Refused(TRUNCATED), |(_, content)| {
        DecodeResult::Complete(builder.content[..*content].to_vec())
    });
    if !is_too_long {
        assert!(
            decode(&frames[..cut], u64::MAX, step) == expected,
            "cut at {cut} of {}: {}",
            frames.len(),
            summary(Some(&expected))
        );
    }
    let limit = frames.len() as u64 - 1;
    assert_eq!(decode(frames, limit, step), DecodeResult::Refused(BundleFault::ArchiveTooLarge(limit)));
    if !is_too_long {
        assert!(decode(frames, limit + 1, step) == decoded, "at the limit");
    }
}
