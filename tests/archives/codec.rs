//! The DEFLATE decoder against zlib: the same verdict and the same bytes, and the place of the last block to the bit.

use docwharf::codec::deflate::Deflater;
use docwharf::codec::inflate::{Inflate, InflateStatus, SMALL_OUTPUT_BYTES, SmallInflate, inflate_all};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};

/// Numbers at random, the same in every run (xorshift64*).
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

    /// Content of some structure: words, runs, copies from before, noise.
    fn content(&mut self, length: usize) -> Vec<u8> {
        let mut out = Vec::new();
        while out.len() < length {
            match self.below(5) {
                0 => out.extend(std::iter::repeat_n(self.next() as u8, 1 + self.below(700))),
                1 => out.extend_from_slice(b"<p class=\"text\">of the same words</p>\n"),
                2 if !out.is_empty() => {
                    let back = 1 + self.below(out.len().min(40_000));
                    for _ in 0..3 + self.below(400) {
                        out.push(out[out.len() - back]);
                    }
                }
                3 => out.extend((0..self.below(60)).map(|n| b"etaoin shrdlu"[n * 7 % 13])),
                _ => {
                    let length = self.below(300);
                    out.extend(self.bytes(length));
                }
            }
        }
        out.truncate(length);
        out
    }
}

/// What a decoder made of a stream.
#[derive(Debug, PartialEq, Eq)]
struct Decoded {
    content: Vec<u8>,
    taken: u64,
}

/// zlib's verdict.
fn zlib(coded: &[u8]) -> Option<Decoded> {
    let mut raw = Decompress::new(false);
    let mut content = Vec::with_capacity(1 << 16);
    loop {
        let (read, written) = (raw.total_in(), raw.total_out());
        let status = raw.decompress_vec(&coded[read as usize..], &mut content, FlushDecompress::None).ok()?;
        if status == flate2::Status::StreamEnd {
            return Some(Decoded { content, taken: raw.total_in() });
        }
        if content.len() == content.capacity() {
            content.reserve(1 << 16);
        } else if (raw.total_in(), raw.total_out()) == (read, written) {
            return None;
        }
    }
}

/// Our verdict, the input shown in growing pieces; behind it the place of the last block and the spare bits.
fn ours(inflate: &mut Inflate, coded: &[u8], mut more: impl FnMut() -> usize) -> Option<(Decoded, u64, u8)> {
    inflate.reset();
    let (mut at, mut shown) = (0, 0);
    let mut content = Vec::new();
    loop {
        let step = inflate.run(&coded[at..shown], shown == coded.len()).ok()?;
        at += step.consumed;
        assert!(at <= shown);
        assert_eq!(inflate.bytes_taken(), at as u64);
        content.extend_from_slice(inflate.output());
        match step.status {
            InflateStatus::Done => {
                let taken = inflate.bytes_taken();
                return Some((Decoded { content, taken }, inflate.last_header_bit(), inflate.spare_bits()));
            }
            InflateStatus::WindowFull => {}
            InflateStatus::NeedInput => {
                assert!(shown < coded.len(), "nothing more can come");
                assert!(shown - at < 1024, "with 1 KiB it always gets on");
                shown = coded.len().min(shown + more());
            }
        }
    }
}

/// Both say the same of `coded`, however it is cut up; gives what both decoded.
#[track_caller]
fn same(what: &str, coded: &[u8], random: &mut Random, inflate: &mut Inflate) -> Option<Vec<u8>> {
    let expected = zlib(coded);
    let whole = ours(inflate, coded, || coded.len());
    let longest = [1, 7, 600, 5000][random.below(4)];
    let pieces = ours(inflate, coded, || 1 + random.below(longest));
    assert_eq!(whole, pieces, "{what}: pieces of up to {longest} bytes matter");
    assert_eq!(
        whole.is_some(),
        expected.is_some(),
        "{what}: zlib says {}",
        if expected.is_some() { "good" } else { "bad" }
    );
    let expected = expected?;
    let (decoded, ..) = whole?;
    assert!(decoded == expected, "{what}: {} bytes, not {}", decoded.content.len(), expected.content.len());
    Some(expected.content)
}

/// Bits from the least significant end, as DEFLATE has them.
#[derive(Default, Clone)]
struct Bits {
    bytes: Vec<u8>,
    used: u64,
}

impl Bits {
    fn put(&mut self, value: u64, count: u32) -> &mut Bits {
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

    /// Up to `words` words of noise.
    fn noise(&mut self, random: &mut Random, words: usize) {
        for _ in 0..random.below(words) {
            self.put(random.next(), 32);
        }
    }

    /// A Huffman code, whose first bit is its highest.
    fn code(&mut self, code: u64, count: u32) -> &mut Bits {
        for bit in (0..count).rev() {
            self.put(code >> bit & 1, 1);
        }
        self
    }

    /// A fixed block of these literals, all below 144.
    fn fixed(&mut self, last: bool, text: &[u8]) -> &mut Bits {
        self.put(u64::from(last), 1).put(1, 2);
        for &byte in text {
            self.code(0x30 + u64::from(byte), 8);
        }
        self.code(0, 7)
    }

    fn stored(&mut self, last: bool, bytes: &[u8]) -> &mut Bits {
        self.put(u64::from(last), 1).put(0, 2);
        let odd = (8 - self.used % 8) % 8;
        self.put(0, odd as u32).put(bytes.len() as u64, 16).put(!bytes.len() as u64 & 0xffff, 16);
        self.bytes.extend_from_slice(bytes);
        self.used += 8 * bytes.len() as u64;
        self
    }

    /// The head of a dynamic block. The code length code has sixteen codes of four bits, so each length is itself.
    fn dynamic(&mut self, last: bool, litlen: &[u8], dist: &[u8]) -> &mut Bits {
        self.counts(last, litlen.len() as u64 - 257, dist.len() as u64 - 1);
        for &length in litlen.iter().chain(dist) {
            self.code(u64::from(length), 4);
        }
        self
    }

    fn counts(&mut self, last: bool, litlens: u64, dists: u64) -> &mut Bits {
        self.put(u64::from(last), 1).put(2, 2).put(litlens, 5).put(dists, 5).put(15, 4);
        for symbol in [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15] {
            self.put(if symbol < 16 { 4 } else { 0 }, 3);
        }
        self
    }
}

/// Code lengths of a complete code with `count` codes, in no order.
fn complete(random: &mut Random, count: usize, longest: u8) -> Vec<u8> {
    let mut lengths = vec![0u8];
    while lengths.len() < count {
        let at = random.below(lengths.len());
        if lengths[at] < longest {
            lengths[at] += 1;
            lengths.push(lengths[at]);
        }
    }
    lengths
}

/// Spreads code lengths over `symbols` places, one of which is `must`.
fn spread(random: &mut Random, lengths: &[u8], symbols: usize, must: Option<usize>) -> Vec<u8> {
    let mut out = vec![0; symbols];
    let mut places: Vec<usize> = (0..symbols).filter(|&place| Some(place) != must).collect();
    let mut left = lengths.iter();
    if let (Some(must), Some(&length)) = (must, left.next()) {
        out[must] = length;
    }
    for &length in left {
        out[places.swap_remove(random.below(places.len()))] = length;
    }
    out
}

#[test]
fn everything_zlib_writes_is_read_back_at_every_level_and_in_any_pieces() {
    let (mut random, mut inflate) = (Random(1), Inflate::new());
    for length in [0, 1, 2, 3, 100, 5_000, 70_000, 300_000, 900_000] {
        for level in 0..=9 {
            let content = if random.below(4) == 0 { random.bytes(length) } else { random.content(length) };
            let mut raw = Compress::new(Compression::new(level), false);
            let mut coded = Vec::with_capacity(length * 2 + 1000);
            // Flushes in between make blocks of every kind, empty stored ones too.
            let cut = random.below(length + 1);
            let flush = [FlushCompress::None, FlushCompress::Sync, FlushCompress::Full, FlushCompress::Partial]
                [random.below(4)];
            raw.compress_vec(&content[..cut], &mut coded, flush).expect("memory");
            let read = raw.total_in() as usize;
            let status = raw.compress_vec(&content[read..], &mut coded, FlushCompress::Finish).expect("memory");
            assert_eq!(status, flate2::Status::StreamEnd);
            let what = format!("{length} bytes at level {level}");
            assert_eq!(same(&what, &coded, &mut random, &mut inflate), Some(content.clone()), "{what}");
            assert_eq!(inflate_all(&coded, content.len()).ok().as_ref(), Some(&content), "{what}");
            // What follows a stream is not touched.
            coded.extend_from_slice(b"trailing");
            assert_eq!(same(&what, &coded, &mut random, &mut inflate), Some(content), "{what}");
        }
    }
}

#[test]
fn one_byte_at_a_time_is_enough() {
    let (mut random, mut inflate) = (Random(2), Inflate::new());
    for length in [0, 1, 500, 20_000] {
        let content = random.content(length);
        let mut encoder = Compress::new(Compression::new(6), false);
        let mut coded = Vec::with_capacity(length * 2 + 1000);
        encoder.compress_vec(&content, &mut coded, FlushCompress::Finish).expect("memory");
        let (decoded, ..) = ours(&mut inflate, &coded, || 1).expect("good");
        assert!(decoded.content == content, "{length}");
        for cut in 0..coded.len().min(2000) {
            assert_eq!(ours(&mut inflate, &coded[..cut], || 1), None, "cut at {cut}");
        }
    }
}

#[test]
fn stored_and_fixed_blocks_of_every_size_are_read() {
    let (mut random, mut inflate) = (Random(3), Inflate::new());
    let large = random.bytes(65_535);
    for length in [0, 1, 255, 256, 32_768, 65_535] {
        for before in 0..9 {
            let mut bits = Bits::default();
            bits.fixed(false, &b"abcdefgh"[..before.min(8)]);
            for _ in 0..before {
                bits.stored(false, &large[..length]);
                bits.fixed(false, b"");
            }
            bits.stored(true, &large[..length]);
            let content =
                same(&format!("{before} blocks of {length}"), &bits.bytes, &mut random, &mut inflate).expect("good");
            assert_eq!(content.len(), before.min(8) + (before + 1) * length);
        }
    }
    let mut wrong = Bits::default();
    wrong.stored(true, b"abc");
    for byte in 1..5 {
        for bit in 0..8 {
            let mut damaged = wrong.bytes.clone();
            damaged[byte] ^= 1 << bit;
            assert_eq!(same("a stored block's length", &damaged, &mut random, &mut inflate), None);
        }
    }
}

#[test]
fn fixed_codes_that_stand_for_nothing_are_refused() {
    let (mut random, mut inflate) = (Random(4), Inflate::new());
    for symbol in 0..288u64 {
        for distance in 0..32 {
            if symbol < 257 && distance > 0 {
                continue;
            }
            let mut bits = Bits::default();
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
            // Symbol 256 ends the block, and what follows is never looked at.
            let good = symbol <= 285 && distance < 30;
            let content =
                same(&format!("symbol {symbol}, distance {distance}"), &bits.bytes, &mut random, &mut inflate);
            assert_eq!(content.is_some(), good, "symbol {symbol}, distance {distance}");
        }
    }
    // A match may reach to the first byte and not before it.
    for (distance, extra_bits, extra, good) in
        [(3u64, 0, 0, true), (4, 1, 0, false), (5, 1, 1, false), (29, 13, 8191, false)]
    {
        let mut bits = Bits::default();
        bits.put(1, 1).put(1, 2);
        for _ in 0..4 {
            bits.code(0x30 + u64::from(b'x'), 8);
        }
        bits.code(1, 7).code(distance, 5).put(extra, extra_bits).code(0, 7);
        assert_eq!(same("reach", &bits.bytes, &mut random, &mut inflate).is_some(), good, "distance code {distance}");
    }
}

#[test]
fn hand_made_dynamic_blocks_get_zlibs_verdict() {
    let (mut random, mut inflate) = (Random(5), Inflate::new());
    let lits = |pairs: &[(usize, u8)], symbols: usize| {
        let mut lengths = vec![0u8; symbols];
        for &(symbol, length) in pairs {
            lengths[symbol] = length;
        }
        lengths
    };
    let balanced = lits(&[(97, 2), (98, 2), (256, 2), (257, 2)], 258);
    let fifteen: Vec<(usize, u8)> = (0..14).map(|n| (n * 3, n as u8 + 1)).chain([(256, 15), (257, 15)]).collect();
    let table: [(&str, Vec<u8>, Vec<u8>); 20] = [
        ("only an end of block", lits(&[(256, 1)], 257), vec![0]),
        ("only an end of block of two bits", lits(&[(256, 2)], 257), vec![0]),
        ("no end of block", lits(&[(97, 1), (98, 1)], 257), vec![1]),
        ("no code at all", lits(&[], 257), vec![0]),
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
        ("incomplete literals", lits(&[(97, 2), (98, 2), (256, 2)], 257), vec![1, 1]),
        ("over-subscribed literals", lits(&[(97, 1), (98, 1), (256, 1)], 257), vec![1, 1]),
        ("codes of up to 15 bits", lits(&fifteen, 258), vec![1, 1]),
        ("codes of 15 bits for distances too", lits(&fifteen, 286), complete_ladder(16)),
        (
            "every symbol",
            vec![9; 286].into_iter().enumerate().map(|(n, l)| if n < 226 { 8 } else { l }).collect(),
            vec![5; 30],
        ),
        ("thirty distances and a fill", lits(&[(256, 1), (257, 1)], 286), [vec![5; 28], vec![4; 2]].concat()),
    ];
    for (what, litlen, dist) in &table {
        let mut head = Bits::default();
        head.stored(false, b"some bytes to look back at").dynamic(true, litlen, dist);
        // Nothing, all zeros, all ones, the shortest codes, and noise behind the head.
        same(what, &head.bytes, &mut random, &mut inflate);
        for _ in 0..200 {
            let mut bits = head.clone();
            let kind = random.below(4);
            for _ in 0..random.below(400) {
                bits.put([0, 1, u64::from(random.below(8) == 0), random.next() & 1][kind], 1);
            }
            same(what, &bits.bytes, &mut random, &mut inflate);
        }
    }
}

/// Lengths 1, 2, … and the last twice: the deepest complete code of `count` codes.
fn complete_ladder(count: u8) -> Vec<u8> {
    (1..count).chain([count - 1]).collect()
}

#[test]
fn heads_of_dynamic_blocks_that_break_the_format_are_refused() {
    let (mut random, mut inflate) = (Random(6), Inflate::new());
    for litlens in 28..32 {
        for dists in 28..32 {
            let mut bits = Bits::default();
            bits.counts(true, litlens, dists);
            for at in 0..=litlens + 257 + dists {
                bits.code(u64::from(at == 256 || at == 0 || at == litlens + 257), 4);
            }
            bits.put(1, 30);
            let good = same("counts", &bits.bytes, &mut random, &mut inflate).is_some();
            assert_eq!(good, litlens <= 29 && dists <= 29, "{litlens} and {dists}");
        }
    }
    // Any code length code, then noise: mostly wrong, and always judged alike.
    for round in 0..30_000 {
        let mut bits = Bits::default();
        bits.put(1, 1).put(2, 2).put(random.next(), 5).put(random.next(), 5).put(15, 4);
        let lengths = match random.below(6) {
            0 => (0..19).map(|_| random.below(8) as u8).collect(),
            1 => vec![0; 19],
            2 => spread(&mut random, &[1], 19, None),
            _ => {
                let count = 2 + random.below(18);
                let lengths = complete(&mut random, count, 7);
                spread(&mut random, &lengths, 19, None)
            }
        };
        for &length in &lengths {
            bits.put(u64::from(length), 3);
        }
        bits.noise(&mut random, 60);
        same(&format!("head {round}"), &bits.bytes, &mut random, &mut inflate);
    }
}

#[test]
fn any_complete_code_is_decoded_like_zlib_does() {
    let (mut random, mut inflate) = (Random(7), Inflate::new());
    let history = random.bytes(40_000);
    let mut good = 0;
    for round in 0..4_000 {
        let longest = [7, 9, 11, 12, 15][random.below(5)];
        let symbols = 257 + random.below(30);
        let count = 2 + random.below((symbols - 1).min((1 << longest) - 1));
        let litlen = complete(&mut random, count, longest);
        let litlen = spread(&mut random, &litlen, symbols, Some(256));
        let dists = 2 + random.below(29);
        let count = 2 + random.below(dists - 1);
        let dist = complete(&mut random, count, 15);
        let dist = spread(&mut random, &dist, dists, None);
        let mut bits = Bits::default();
        bits.stored(false, &history).dynamic(true, &litlen, &dist);
        bits.noise(&mut random, 200);
        let decoded = same(&format!("code {round}"), &bits.bytes, &mut random, &mut inflate);
        good += usize::from(decoded.is_some_and(|content| content.len() > history.len()));
    }
    assert!(good > 200, "{good} of the streams were good and not empty");
}

#[test]
fn damaged_streams_get_zlibs_verdict() {
    let (mut random, mut inflate) = (Random(8), Inflate::new());
    for round in 0..6_000 {
        let length = random.below(4_000);
        let content = random.content(length);
        let mut raw = Compress::new(Compression::new(round % 10), false);
        let mut coded = Vec::with_capacity(length * 2 + 1000);
        raw.compress_vec(&content, &mut coded, FlushCompress::Finish).expect("memory");
        for _ in 0..=random.below(3) {
            match random.below(5) {
                0 => coded.truncate(random.below(coded.len() + 1)),
                1 if !coded.is_empty() => drop(coded.remove(random.below(coded.len()))),
                2 => coded.insert(random.below(coded.len() + 1), random.next() as u8),
                _ if coded.is_empty() => {}
                // The head of the first block is the most delicate.
                3 => {
                    let at = random.below(coded.len().min(60));
                    coded[at] ^= 1 << random.below(8);
                }
                _ => {
                    let at = random.below(coded.len());
                    coded[at] ^= 1 << random.below(8);
                }
            }
        }
        same(&format!("round {round}"), &coded, &mut random, &mut inflate);
    }
}

/// The stream with its last block no longer last, and `tail` in one more block from its last bit on.
fn continued(coded: &[u8], last_header_bit: u64, spare_bits: u8, tail: &[u8], stored: bool) -> Vec<u8> {
    let mut bits = Bits { bytes: coded.to_vec(), used: coded.len() as u64 * 8 - u64::from(spare_bits) };
    let at = last_header_bit as usize;
    assert_eq!(bits.bytes[at / 8] >> (at % 8) & 1, 1, "the final bit stands there");
    bits.bytes[at / 8] &= !(1 << (at % 8));
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
fn a_stream_can_be_continued_where_its_last_block_is_said_to_be() {
    let (mut random, mut inflate) = (Random(9), Inflate::new());
    let tail = b"<script src=\"/x.js\"></script>";
    let mut seen = [false; 8];
    for round in 0..600 {
        let length = if round % 20 == 0 { 400_000 } else { random.below(6_000) };
        let content = random.content(length);
        let mut raw = Compress::new(Compression::new(round % 10), false);
        let mut coded = Vec::with_capacity(length * 2 + 1000);
        raw.compress_vec(&content, &mut coded, FlushCompress::Finish).expect("memory");
        let longest = [1, 50, 100_000][random.below(3)];
        let longest = if length > 10_000 { 100_000 } else { longest };
        let (decoded, last, spare) = ours(&mut inflate, &coded, || 1 + random.below(longest)).expect("good");
        assert!(decoded.content == content && spare < 8, "round {round}");
        seen[usize::from(spare)] = true;
        // The spare bits may hold anything: they are no part of the stream.
        let mut dirty = coded.clone();
        *dirty.last_mut().expect("no stream is empty") |= !(((1u16 << (8 - spare)) - 1) as u8);
        for stored in [false, true] {
            let longer = continued(&dirty, last, spare, tail, stored);
            let read = zlib(&longer).unwrap_or_else(|| panic!("round {round}: zlib refuses the continued stream"));
            assert!(read.content == [&content[..], tail].concat(), "round {round}");
            assert_eq!(read.taken, longer.len() as u64, "round {round}");
        }
    }
    assert_eq!(seen, [true; 8], "every number of spare bits occurred");
}

#[test]
fn what_the_encoder_writes_is_good_and_ends_where_it_says() {
    let (mut random, mut inflate) = (Random(10), Inflate::new());
    for level in 1..=9 {
        let mut deflater = Deflater::new(level);
        for length in [0, 1, 2, 63, 64, 65, 1000, 4095, 4096, 4097, 100_000, 1_000_000] {
            let content = if random.below(3) == 0 { random.bytes(length) } else { random.content(length) };
            let mut coded = Vec::new();
            let ending = if random.below(2) == 0 {
                deflater.encode_all(&content, &mut coded)
            } else {
                let mut left = &content[..];
                while !left.is_empty() {
                    let (piece, rest) = left.split_at(1 + random.below(left.len().min(50_000)));
                    deflater.write(piece, &mut coded);
                    left = rest;
                }
                deflater.finish(&mut coded)
            };
            let what = format!("{length} bytes at level {level}");
            assert_eq!(same(&what, &coded, &mut random, &mut inflate), Some(content.clone()), "{what}");
            let (decoded, last, spare) = ours(&mut inflate, &coded, || coded.len()).expect("good");
            assert_eq!((last, spare), (ending.last_header_bit, ending.spare_bits), "{what}");
            assert_eq!(decoded.taken, coded.len() as u64, "{what}: nothing stands behind the end");
            let longer = continued(&coded, ending.last_header_bit, ending.spare_bits, b"tail", false);
            let read = zlib(&longer).expect("zlib reads the continued stream");
            assert!(read.content == [&content[..], b"tail"].concat(), "{what}");
            // The same content is the same bytes, whatever went through this encoder before.
            let mut again = Vec::new();
            Deflater::new(level).encode_all(&content, &mut again);
            let mut reused = Vec::new();
            deflater.encode_all(&content, &mut reused);
            assert!(again == reused, "{what}: the bytes depend on what was written before");
        }
    }
}

#[test]
fn a_small_decoder_gives_the_same_in_smaller_pieces() {
    let (mut random, mut small) = (Random(11), SmallInflate::new());
    for length in [0, 1, 65_535, 65_536, 65_537, 300_000] {
        let content = random.content(length);
        let mut coded = Vec::new();
        Deflater::new(6).encode_all(&content, &mut coded);
        small.reset();
        let (mut at, mut out) = (0, Vec::new());
        loop {
            let step = small.run(&coded[at..], true).unwrap();
            at += step.consumed;
            // The last match may go beyond by its length.
            let most = if out.is_empty() { 2 * SMALL_OUTPUT_BYTES } else { SMALL_OUTPUT_BYTES } + 258;
            assert!(small.output().len() <= most, "{length}: {} bytes at once", small.output().len());
            out.extend_from_slice(small.output());
            match step.status {
                InflateStatus::Done => break,
                InflateStatus::WindowFull => {}
                InflateStatus::NeedInput => panic!("nothing more can come"),
            }
        }
        assert!(out == content && at == coded.len(), "{length}");
        assert!(small.run(&coded[..coded.len() - 1], true).is_ok(), "after the end nothing is read");
        small.reset();
        assert!(inflate_all(&coded[..coded.len() - 1], length).is_err(), "{length}: cut");
    }
    let mut coded = Vec::new();
    Deflater::new(6).encode_all(&vec![0; 600_000], &mut coded);
    assert!(inflate_all(&coded, 600_000).is_ok_and(|content| content.len() == 600_000));
    assert!(inflate_all(&coded, 100_000).is_err(), "it holds more than it should");
}
