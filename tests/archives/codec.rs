//! Compares the DEFLATE decoder with zlib: both accept the same streams and decode the same bytes. Also checks the bit
//! offset of the last block.

use docwharf::codec::deflate::Deflater;
use docwharf::codec::inflate::{InflateStatus, Inflater, SMALL_OUTPUT_BYTES, SmallInflater, inflate_all};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};

/// A generator of pseudo-random numbers, equal in every run (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 16) as usize % end
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }

    /// Returns content with some structure: words, runs, copies of earlier bytes, noise.
    fn content(&mut self, length: usize) -> Vec<u8> {
        let mut output = Vec::new();
        while output.len() < length {
            match self.below(5) {
                0 => output.extend(std::iter::repeat_n(self.next() as u8, 1 + self.below(700))),
                1 => output.extend_from_slice(b"<p class=\"text\">of the same words</p>\n"),
                2 if !output.is_empty() => {
                    let back = 1 + self.below(output.len().min(40_000));
                    for _ in 0..3 + self.below(400) {
                        output.push(output[output.len() - back]);
                    }
                }
                3 => output.extend((0..self.below(60)).map(|n| b"etaoin shrdlu"[n * 7 % 13])),
                _ => {
                    let length = self.below(300);
                    output.extend(self.bytes(length));
                }
            }
        }
        output.truncate(length);
        output
    }
}

/// The result of decoding a stream.
#[derive(Debug, PartialEq, Eq)]
struct Decoded {
    content: Vec<u8>,
    bytes_consumed: u64,
}

/// Decodes with zlib.
fn decode_with_zlib(compressed: &[u8]) -> Option<Decoded> {
    let mut raw = Decompress::new(false);
    let mut content = Vec::with_capacity(1 << 16);
    loop {
        let (read, written) = (raw.total_in(), raw.total_out());
        let status = raw.decompress_vec(&compressed[read as usize..], &mut content, FlushDecompress::None).ok()?;
        if status == flate2::Status::StreamEnd {
            return Some(Decoded { content, bytes_consumed: raw.total_in() });
        }
        if content.len() == content.capacity() {
            content.reserve(1 << 16);
        } else if (raw.total_in(), raw.total_out()) == (read, written) {
            return None;
        }
    }
}

/// Decodes with docwharf's decoder, whose input grows by `next_len` bytes at a time. Also returns the bit offset of the
/// last block and the number of spare bits.
fn decode_in_pieces(
    inflate: &mut Inflater,
    compressed: &[u8],
    mut next_len: impl FnMut() -> usize,
) -> Option<(Decoded, u64, u8)> {
    inflate.reset();
    let (mut offset, mut available) = (0, 0);
    let mut content = Vec::new();
    loop {
        let step = inflate.run(&compressed[offset..available], available == compressed.len()).ok()?;
        offset += step.consumed;
        assert!(offset <= available);
        assert_eq!(inflate.bytes_consumed(), offset as u64);
        content.extend_from_slice(inflate.output());
        match step.status {
            InflateStatus::Done => {
                let bytes_consumed = inflate.bytes_consumed();
                return Some((Decoded { content, bytes_consumed }, inflate.last_block_bit(), inflate.spare_bits()));
            }
            InflateStatus::WindowFull => {}
            InflateStatus::NeedInput => {
                assert!(available < compressed.len(), "the whole input is available");
                assert!(available - offset < 1024, "1 KiB of input is always enough for a step");
                available = compressed.len().min(available + next_len());
            }
        }
    }
}

/// Asserts that both decoders have the same result for `compressed`, in pieces of any length. Returns the content.
#[track_caller]
fn assert_same_as_zlib(case: &str, compressed: &[u8], random: &mut Random, inflate: &mut Inflater) -> Option<Vec<u8>> {
    let expected = decode_with_zlib(compressed);
    let at_once = decode_in_pieces(inflate, compressed, || compressed.len());
    let longest = [1, 7, 600, 5000][random.below(4)];
    let pieces = decode_in_pieces(inflate, compressed, || 1 + random.below(longest));
    assert_eq!(at_once, pieces, "{case}: pieces of up to {longest} bytes change the result");
    assert_eq!(
        at_once.is_some(),
        expected.is_some(),
        "{case}: zlib says {}",
        if expected.is_some() { "good" } else { "bad" }
    );
    let expected = expected?;
    let (decoded, ..) = at_once?;
    assert!(decoded == expected, "{case}: {} bytes, not {}", decoded.content.len(), expected.content.len());
    Some(expected.content)
}

/// A writer of bits, least significant bit first, as in DEFLATE.
#[derive(Default, Clone)]
struct BitWriter {
    bytes: Vec<u8>,
    used: u64,
}

impl BitWriter {
    fn put(&mut self, value: u64, count: u32) -> &mut BitWriter {
        for bit in 0..count {
            if self.used.is_multiple_of(8) {
                self.bytes.push(0);
            }
            let last = self.bytes.len() - 1;
            self.bytes[last] |= ((value >> bit & 1) as u8) << (self.used % 8);
            self.used += 1;
        }
        self
    }

    /// Appends up to `words` words of noise.
    fn noise(&mut self, random: &mut Random, words: usize) {
        for _ in 0..random.below(words) {
            self.put(random.next(), 32);
        }
    }

    /// Appends a Huffman code, whose first bit is its highest.
    fn code(&mut self, code: u64, count: u32) -> &mut BitWriter {
        for bit in (0..count).rev() {
            self.put(code >> bit & 1, 1);
        }
        self
    }

    /// Appends a fixed block of these literals, all below 144.
    fn fixed(&mut self, last: bool, text: &[u8]) -> &mut BitWriter {
        self.put(u64::from(last), 1).put(1, 2);
        for &byte in text {
            self.code(0x30 + u64::from(byte), 8);
        }
        self.code(0, 7)
    }

    fn stored(&mut self, last: bool, bytes: &[u8]) -> &mut BitWriter {
        self.put(u64::from(last), 1).put(0, 2);
        let odd = (8 - self.used % 8) % 8;
        self.put(0, odd as u32).put(bytes.len() as u64, 16).put(!bytes.len() as u64 & 0xffff, 16);
        self.bytes.extend_from_slice(bytes);
        self.used += 8 * bytes.len() as u64;
        self
    }

    /// Appends the head of a dynamic block. The code length code has sixteen codes of four bits, so each length is its
    /// own code.
    fn dynamic(&mut self, last: bool, litlen: &[u8], dist: &[u8]) -> &mut BitWriter {
        self.counts(last, litlen.len() as u64 - 257, dist.len() as u64 - 1);
        for &length in litlen.iter().chain(dist) {
            self.code(u64::from(length), 4);
        }
        self
    }

    fn counts(&mut self, last: bool, litlens: u64, dists: u64) -> &mut BitWriter {
        self.put(u64::from(last), 1).put(2, 2).put(litlens, 5).put(dists, 5).put(15, 4);
        for symbol in [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15] {
            self.put(if symbol < 16 { 4 } else { 0 }, 3);
        }
        self
    }
}

/// Returns the code lengths of a complete code with `count` codes, in random order.
fn complete_code(random: &mut Random, count: usize, longest: u8) -> Vec<u8> {
    let mut lengths = vec![0u8];
    while lengths.len() < count {
        let offset = random.below(lengths.len());
        if lengths[offset] < longest {
            lengths[offset] += 1;
            lengths.push(lengths[offset]);
        }
    }
    lengths
}

/// Assigns code lengths to random symbols below `symbols`, one of which is `required`.
fn assign_lengths(random: &mut Random, lengths: &[u8], symbols: usize, required: Option<usize>) -> Vec<u8> {
    let mut output = vec![0; symbols];
    let mut free_symbols: Vec<usize> = (0..symbols).filter(|&symbol| Some(symbol) != required).collect();
    let mut lengths = lengths.iter();
    if let (Some(required), Some(&length)) = (required, lengths.next()) {
        output[required] = length;
    }
    for &length in lengths {
        output[free_symbols.swap_remove(random.below(free_symbols.len()))] = length;
    }
    output
}

#[test]
fn the_inflater_decodes_zlib_output_of_every_level_in_pieces_of_any_size() {
    let (mut random, mut inflate) = (Random(1), Inflater::new());
    for length in [0, 1, 2, 3, 100, 5_000, 70_000, 300_000, 900_000] {
        for level in 0..=9 {
            let content = if random.below(4) == 0 { random.bytes(length) } else { random.content(length) };
            let mut raw = Compress::new(Compression::new(level), false);
            let mut compressed = Vec::with_capacity(length * 2 + 1000);
            // Flushes create blocks of every kind, also empty stored blocks.
            let cut = random.below(length + 1);
            let flush = [FlushCompress::None, FlushCompress::Sync, FlushCompress::Full, FlushCompress::Partial]
                [random.below(4)];
            raw.compress_vec(&content[..cut], &mut compressed, flush).expect("memory");
            let read = raw.total_in() as usize;
            let status = raw.compress_vec(&content[read..], &mut compressed, FlushCompress::Finish).expect("memory");
            assert_eq!(status, flate2::Status::StreamEnd);
            let case = format!("{length} bytes at level {level}");
            assert_eq!(
                assert_same_as_zlib(&case, &compressed, &mut random, &mut inflate),
                Some(content.clone()),
                "{case}"
            );
            assert_eq!(inflate_all(&compressed, content.len()).ok().as_ref(), Some(&content), "{case}");
            // Bytes after the stream are not read.
            compressed.extend_from_slice(b"trailing");
            assert_eq!(assert_same_as_zlib(&case, &compressed, &mut random, &mut inflate), Some(content), "{case}");
        }
    }
}

#[test]
fn the_inflater_decodes_input_one_byte_at_a_time() {
    let (mut random, mut inflate) = (Random(2), Inflater::new());
    for length in [0, 1, 500, 20_000] {
        let content = random.content(length);
        let mut encoder = Compress::new(Compression::new(6), false);
        let mut compressed = Vec::with_capacity(length * 2 + 1000);
        encoder.compress_vec(&content, &mut compressed, FlushCompress::Finish).expect("memory");
        let (decoded, ..) = decode_in_pieces(&mut inflate, &compressed, || 1).expect("good");
        assert!(decoded.content == content, "{length}");
        for cut in 0..compressed.len().min(2000) {
            assert_eq!(decode_in_pieces(&mut inflate, &compressed[..cut], || 1), None, "cut at {cut}");
        }
    }
}

#[test]
fn the_inflater_decodes_stored_and_fixed_blocks_of_every_size() {
    let (mut random, mut inflate) = (Random(3), Inflater::new());
    let large = random.bytes(65_535);
    for length in [0, 1, 255, 256, 32_768, 65_535] {
        for before in 0..9 {
            let mut bits = BitWriter::default();
            bits.fixed(false, &b"abcdefgh"[..before.min(8)]);
            for _ in 0..before {
                bits.stored(false, &large[..length]);
                bits.fixed(false, b"");
            }
            bits.stored(true, &large[..length]);
            let content =
                assert_same_as_zlib(&format!("{before} blocks of {length}"), &bits.bytes, &mut random, &mut inflate)
                    .expect("good");
            assert_eq!(content.len(), before.min(8) + (before + 1) * length);
        }
    }
    let mut wrong = BitWriter::default();
    wrong.stored(true, b"abc");
    for byte in 1..5 {
        for bit in 0..8 {
            let mut damaged = wrong.bytes.clone();
            damaged[byte] ^= 1 << bit;
            assert_eq!(assert_same_as_zlib("a stored block's length", &damaged, &mut random, &mut inflate), None);
        }
    }
}

#[test]
fn invalid_symbols_and_distances_of_fixed_codes_are_refused() {
    let (mut random, mut inflate) = (Random(4), Inflater::new());
    for symbol in 0..288u64 {
        for distance in 0..32 {
            if symbol < 257 && distance > 0 {
                continue;
            }
            let mut bits = BitWriter::default();
            bits.stored(false, &vec![7; 33_000]).put(1, 1).put(1, 2);
            match symbol {
                0..=143 => bits.code(0x30 + symbol, 8),
                144..=255 => bits.code(0x190 + symbol - 144, 9),
                256..=279 => bits.code(symbol - 256, 7),
                _ => bits.code(0xc0 + symbol - 280, 8),
            };
            if symbol > 256 {
                let extra = if (265..285).contains(&symbol) { (symbol as u32 - 261) / 4 } else { 0 };
                bits.put(random.next(), extra)
                    .code(distance, 5)
                    .put(random.next(), (distance as u32).saturating_sub(2) / 2);
            }
            bits.code(0, 7);
            // Symbol 256 ends the block, and the bytes after it are never read.
            let is_valid = symbol <= 285 && distance < 30;
            let content = assert_same_as_zlib(
                &format!("symbol {symbol}, distance {distance}"),
                &bits.bytes,
                &mut random,
                &mut inflate,
            );
            assert_eq!(content.is_some(), is_valid, "symbol {symbol}, distance {distance}");
        }
    }
    // A match may reach to the first byte and not before it.
    for (distance, extra_bits, extra, is_valid) in
        [(3u64, 0, 0, true), (4, 1, 0, false), (5, 1, 1, false), (29, 13, 8191, false)]
    {
        let mut bits = BitWriter::default();
        bits.put(1, 1).put(1, 2);
        for _ in 0..4 {
            bits.code(0x30 + u64::from(b'x'), 8);
        }
        bits.code(1, 7).code(distance, 5).put(extra, extra_bits).code(0, 7);
        assert_eq!(
            assert_same_as_zlib("reach", &bits.bytes, &mut random, &mut inflate).is_some(),
            is_valid,
            "distance code {distance}"
        );
    }
}

#[test]
fn the_inflater_accepts_and_refuses_the_same_dynamic_blocks_as_zlib() {
    let (mut random, mut inflate) = (Random(5), Inflater::new());
    let code_lengths = |pairs: &[(usize, u8)], symbols: usize| {
        let mut lengths = vec![0u8; symbols];
        for &(symbol, length) in pairs {
            lengths[symbol] = length;
        }
        lengths
    };
    let balanced = code_lengths(&[(97, 2), (98, 2), (256, 2), (257, 2)], 258);
    let fifteen: Vec<(usize, u8)> = (0..14).map(|n| (n * 3, n as u8 + 1)).chain([(256, 15), (257, 15)]).collect();
    let table: [(&str, Vec<u8>, Vec<u8>); 20] = [
        ("only an end of block", code_lengths(&[(256, 1)], 257), vec![0]),
        ("only an end of block of two bits", code_lengths(&[(256, 2)], 257), vec![0]),
        ("no end of block", code_lengths(&[(97, 1), (98, 1)], 257), vec![1]),
        ("no code at all", code_lengths(&[], 257), vec![0]),
        ("no distance code", balanced.clone(), vec![0]),
        ("no distance code in many", balanced.clone(), vec![0; 30]),
        ("single distance code of one bit", balanced.clone(), vec![1]),
        ("single distance code elsewhere", balanced.clone(), vec![0, 0, 0, 1]),
        ("single distance code of two bits", balanced.clone(), vec![2]),
        ("single distance code of 15 bits", balanced.clone(), vec![15]),
        ("two distance codes", balanced.clone(), vec![1, 1]),
        ("incomplete distance code", balanced.clone(), vec![1, 2]),
        ("over-subscribed distance code", balanced.clone(), vec![1, 1, 1]),
        ("over-subscribed deep down", balanced.clone(), vec![1, 2, 3, 3, 15]),
        ("incomplete literals", code_lengths(&[(97, 2), (98, 2), (256, 2)], 257), vec![1, 1]),
        ("over-subscribed literals", code_lengths(&[(97, 1), (98, 1), (256, 1)], 257), vec![1, 1]),
        ("codes of up to 15 bits", code_lengths(&fifteen, 258), vec![1, 1]),
        ("codes of 15 bits for distances too", code_lengths(&fifteen, 286), complete_ladder(16)),
        (
            "every symbol",
            vec![9; 286].into_iter().enumerate().map(|(n, l)| if n < 226 { 8 } else { l }).collect(),
            vec![5; 30],
        ),
        ("thirty distances and a fill", code_lengths(&[(256, 1), (257, 1)], 286), [vec![5; 28], vec![4; 2]].concat()),
    ];
    for (case, litlen, dist) in &table {
        let mut head = BitWriter::default();
        head.stored(false, b"some bytes to look back at").dynamic(true, litlen, dist);
        // After the head: nothing, all zeros, all ones, mostly zeros, or noise.
        assert_same_as_zlib(case, &head.bytes, &mut random, &mut inflate);
        for _ in 0..200 {
            let mut bits = head.clone();
            let kind = random.below(4);
            for _ in 0..random.below(400) {
                bits.put([0, 1, u64::from(random.below(8) == 0), random.next() & 1][kind], 1);
            }
            assert_same_as_zlib(case, &bits.bytes, &mut random, &mut inflate);
        }
    }
}

/// Returns the lengths 1, 2, … and the last length twice: the deepest complete code of `count` codes.
fn complete_ladder(count: u8) -> Vec<u8> {
    (1..count).chain([count - 1]).collect()
}

#[test]
fn invalid_headers_of_dynamic_blocks_are_refused() {
    let (mut random, mut inflate) = (Random(6), Inflater::new());
    for litlens in 28..32 {
        for dists in 28..32 {
            let mut bits = BitWriter::default();
            bits.counts(true, litlens, dists);
            for offset in 0..=litlens + 257 + dists {
                bits.code(u64::from(offset == 256 || offset == 0 || offset == litlens + 257), 4);
            }
            bits.put(1, 30);
            let is_valid = assert_same_as_zlib("counts", &bits.bytes, &mut random, &mut inflate).is_some();
            assert_eq!(is_valid, litlens <= 29 && dists <= 29, "{litlens} and {dists}");
        }
    }
    // Any code length code, then noise: mostly invalid, and both decoders must agree.
    for round in 0..30_000 {
        let mut bits = BitWriter::default();
        bits.put(1, 1).put(2, 2).put(random.next(), 5).put(random.next(), 5).put(15, 4);
        let lengths = match random.below(6) {
            0 => (0..19).map(|_| random.below(8) as u8).collect(),
            1 => vec![0; 19],
            2 => assign_lengths(&mut random, &[1], 19, None),
            _ => {
                let count = 2 + random.below(18);
                let lengths = complete_code(&mut random, count, 7);
                assign_lengths(&mut random, &lengths, 19, None)
            }
        };
        for &length in &lengths {
            bits.put(u64::from(length), 3);
        }
        bits.noise(&mut random, 60);
        assert_same_as_zlib(&format!("head {round}"), &bits.bytes, &mut random, &mut inflate);
    }
}

#[test]
fn the_inflater_decodes_any_complete_huffman_code_like_zlib() {
    let (mut random, mut inflate) = (Random(7), Inflater::new());
    let history = random.bytes(40_000);
    let mut valid_count = 0;
    for round in 0..4_000 {
        let longest = [7, 9, 11, 12, 15][random.below(5)];
        let symbols = 257 + random.below(30);
        let count = 2 + random.below((symbols - 1).min((1 << longest) - 1));
        let litlen = complete_code(&mut random, count, longest);
        let litlen = assign_lengths(&mut random, &litlen, symbols, Some(256));
        let dists = 2 + random.below(29);
        let count = 2 + random.below(dists - 1);
        let dist = complete_code(&mut random, count, 15);
        let dist = assign_lengths(&mut random, &dist, dists, None);
        let mut bits = BitWriter::default();
        bits.stored(false, &history).dynamic(true, &litlen, &dist);
        bits.noise(&mut random, 200);
        let decoded = assert_same_as_zlib(&format!("code {round}"), &bits.bytes, &mut random, &mut inflate);
        valid_count += usize::from(decoded.is_some_and(|content| content.len() > history.len()));
    }
    assert!(valid_count > 200, "only {valid_count} streams were valid and not empty");
}

#[test]
fn the_inflater_accepts_and_refuses_the_same_damaged_streams_as_zlib() {
    let (mut random, mut inflate) = (Random(8), Inflater::new());
    for round in 0..6_000 {
        let length = random.below(4_000);
        let content = random.content(length);
        let mut raw = Compress::new(Compression::new(round % 10), false);
        let mut compressed = Vec::with_capacity(length * 2 + 1000);
        raw.compress_vec(&content, &mut compressed, FlushCompress::Finish).expect("memory");
        for _ in 0..=random.below(3) {
            match random.below(5) {
                0 => compressed.truncate(random.below(compressed.len() + 1)),
                1 if !compressed.is_empty() => drop(compressed.remove(random.below(compressed.len()))),
                2 => compressed.insert(random.below(compressed.len() + 1), random.next() as u8),
                _ if compressed.is_empty() => {}
                // Damage in the head of the first block affects most.
                3 => {
                    let offset = random.below(compressed.len().min(60));
                    compressed[offset] ^= 1 << random.below(8);
                }
                _ => {
                    let offset = random.below(compressed.len());
                    compressed[offset] ^= 1 << random.below(8);
                }
            }
        }
        assert_same_as_zlib(&format!("round {round}"), &compressed, &mut random, &mut inflate);
    }
}

/// Returns the stream with one more block that contains `tail`, which begins at the end of the last block.
fn append_block(compressed: &[u8], last_block_bit: u64, spare_bits: u8, tail: &[u8], stored: bool) -> Vec<u8> {
    let mut bits = BitWriter { bytes: compressed.to_vec(), used: compressed.len() as u64 * 8 - u64::from(spare_bits) };
    let offset = last_block_bit as usize;
    assert_eq!(bits.bytes[offset / 8] >> (offset % 8) & 1, 1, "the bit of a final block must be set");
    bits.bytes[offset / 8] &= !(1 << (offset % 8));
    if let Some(last) = bits.bytes.last_mut() {
        *last &= ((1u16 << (8 - spare_bits)) - 1) as u8;
    }
    if stored {
        bits.stored(true, tail)
    } else {
        bits.fixed(true, tail)
    };
    bits.bytes
}

#[test]
fn a_block_can_be_appended_at_the_end_that_the_inflater_reports() {
    let (mut random, mut inflate) = (Random(9), Inflater::new());
    let tail = b"<script src=\"/x.js\"></script>";
    let mut seen = [false; 8];
    for round in 0..600 {
        let length = if round % 20 == 0 { 400_000 } else { random.below(6_000) };
        let content = random.content(length);
        let mut raw = Compress::new(Compression::new(round % 10), false);
        let mut compressed = Vec::with_capacity(length * 2 + 1000);
        raw.compress_vec(&content, &mut compressed, FlushCompress::Finish).expect("memory");
        let longest = [1, 50, 100_000][random.below(3)];
        let longest = if length > 10_000 { 100_000 } else { longest };
        let (decoded, last, spare) =
            decode_in_pieces(&mut inflate, &compressed, || 1 + random.below(longest)).expect("good");
        assert!(decoded.content == content && spare < 8, "round {round}");
        seen[usize::from(spare)] = true;
        // The spare bits may have any value, because they are not part of the stream.
        let mut dirty = compressed.clone();
        *dirty.last_mut().expect("no stream is empty") |= !(((1u16 << (8 - spare)) - 1) as u8);
        for stored in [false, true] {
            let longer = append_block(&dirty, last, spare, tail, stored);
            let read =
                decode_with_zlib(&longer).unwrap_or_else(|| panic!("round {round}: zlib refuses the continued stream"));
            assert!(read.content == [&content[..], tail].concat(), "round {round}");
            assert_eq!(read.bytes_consumed, longer.len() as u64, "round {round}");
        }
    }
    assert_eq!(seen, [true; 8], "not every number of spare bits occurred");
}

#[test]
fn the_deflater_writes_valid_streams_and_reports_their_end() {
    let (mut random, mut inflate) = (Random(10), Inflater::new());
    for level in 1..=9 {
        let mut deflater = Deflater::new(level);
        for length in [0, 1, 2, 63, 64, 65, 1000, 4095, 4096, 4097, 100_000, 1_000_000] {
            let content = if random.below(3) == 0 { random.bytes(length) } else { random.content(length) };
            let mut compressed = Vec::new();
            let ending = if random.below(2) == 0 {
                deflater.encode_all(&content, &mut compressed)
            } else {
                let mut left = &content[..];
                while !left.is_empty() {
                    let (piece, rest) = left.split_at(1 + random.below(left.len().min(50_000)));
                    deflater.write(piece, &mut compressed);
                    left = rest;
                }
                deflater.finish(&mut compressed)
            };
            let case = format!("{length} bytes at level {level}");
            assert_eq!(
                assert_same_as_zlib(&case, &compressed, &mut random, &mut inflate),
                Some(content.clone()),
                "{case}"
            );
            let (decoded, last, spare) =
                decode_in_pieces(&mut inflate, &compressed, || compressed.len()).expect("good");
            assert_eq!((last, spare), (ending.last_block_bit, ending.spare_bits), "{case}");
            assert_eq!(decoded.bytes_consumed, compressed.len() as u64, "{case}: no bytes follow the end");
            let longer = append_block(&compressed, ending.last_block_bit, ending.spare_bits, b"tail", false);
            let read = decode_with_zlib(&longer).expect("zlib reads the continued stream");
            assert!(read.content == [&content[..], b"tail"].concat(), "{case}");
            // The result does not depend on content that this encoder has compressed before.
            let mut again = Vec::new();
            Deflater::new(level).encode_all(&content, &mut again);
            let mut reused = Vec::new();
            deflater.encode_all(&content, &mut reused);
            assert!(again == reused, "{case}: the bytes depend on what was written before");
        }
    }
}

#[test]
fn the_small_inflater_returns_the_same_content_in_smaller_pieces() {
    let (mut random, mut small) = (Random(11), SmallInflater::new());
    for length in [0, 1, 65_535, 65_536, 65_537, 300_000] {
        let content = random.content(length);
        let mut compressed = Vec::new();
        Deflater::new(6).encode_all(&content, &mut compressed);
        small.reset();
        let (mut offset, mut output) = (0, Vec::new());
        loop {
            let step = small.run(&compressed[offset..], true).unwrap();
            offset += step.consumed;
            // The last match may exceed the limit by its length.
            let max_len = if output.is_empty() { 2 * SMALL_OUTPUT_BYTES } else { SMALL_OUTPUT_BYTES } + 258;
            assert!(small.output().len() <= max_len, "{length}: {} bytes at once", small.output().len());
            output.extend_from_slice(small.output());
            match step.status {
                InflateStatus::Done => break,
                InflateStatus::WindowFull => {}
                InflateStatus::NeedInput => panic!("the whole input is available"),
            }
        }
        assert!(output == content && offset == compressed.len(), "{length}");
        assert!(small.run(&compressed[..compressed.len() - 1], true).is_ok(), "after its end a stream is not read");
        small.reset();
        assert!(inflate_all(&compressed[..compressed.len() - 1], length).is_err(), "{length}: truncated");
    }
    let mut compressed = Vec::new();
    Deflater::new(6).encode_all(&vec![0; 600_000], &mut compressed);
    assert!(inflate_all(&compressed, 600_000).is_ok_and(|content| content.len() == 600_000));
    assert!(inflate_all(&compressed, 100_000).is_err(), "the content is longer than expected");
}
