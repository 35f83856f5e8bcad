//! DEFLATE compared with zlib-rs: both accept the same streams with the same bytes. Reading in pieces returns the same
//! as reading at once.

use docwharf::codec::gzip;
use docwharf::codec::inflate::{InflateStatus, Inflater};

/// The most bytes of output that are compared.
const MAX_OUTPUT_BYTES: usize = 4 << 20;

pub fn inflate(data: &[u8]) {
    let Some((&piece_len, encoded)) = data.split_first() else { return };
    let result = run(encoded, encoded.len().max(1));
    let zlib_result = run_zlib(encoded);
    match (&result, &zlib_result) {
        (Some((bytes, consumed)), Some((zlib_bytes, zlib_consumed))) => {
            assert_eq!(bytes.len(), zlib_bytes.len());
            assert!(bytes == zlib_bytes, "the bytes differ");
            assert_eq!(consumed, zlib_consumed, "the end of the stream");
        }
        (None, None) => {}
        _ => {
            let lengths = |result: Option<(Vec<u8>, u64)>| result.map(|(bytes, consumed)| (bytes.len(), consumed));
            panic!("docwharf {:?}, zlib {:?}", lengths(result), lengths(zlib_result));
        }
    }
    // In pieces of any size.
    assert!(run(encoded, usize::from(piece_len).max(1)) == result, "in pieces of {piece_len}");
    // Any bytes as a gzip header: the header is within the input.
    if let Ok(len) = gzip::parse_header_len(data) {
        assert!(len <= data.len() && len >= 10);
    }
}

/// Decodes with docwharf, in pieces of `piece_len` bytes. Returns the output and the number of consumed bytes; `None`
/// for an error or too much output.
fn run(encoded: &[u8], piece_len: usize) -> Option<(Vec<u8>, u64)> {
    let mut inflater = Inflater::new();
    let (mut output, mut consumed, mut available) = (Vec::new(), 0, piece_len.min(encoded.len()));
    loop {
        let step = inflater.run(&encoded[consumed..available], available == encoded.len()).ok()?;
        consumed += step.consumed;
        output.extend_from_slice(inflater.output());
        if output.len() > MAX_OUTPUT_BYTES {
            return None;
        }
        match step.status {
            InflateStatus::Done => return Some((output, inflater.bytes_consumed())),
            InflateStatus::WindowFull => {}
            InflateStatus::NeedInput if available == encoded.len() => return None,
            InflateStatus::NeedInput => available = (available + piece_len).min(encoded.len()),
        }
    }
}

/// Decodes with zlib-rs.
fn run_zlib(encoded: &[u8]) -> Option<(Vec<u8>, u64)> {
    let mut decoder = flate2::Decompress::new(false);
    let mut output = Vec::with_capacity(64 << 10);
    loop {
        let (previous_in, previous_out) = (decoder.total_in() as usize, output.len());
        let status =
            decoder.decompress_vec(&encoded[previous_in..], &mut output, flate2::FlushDecompress::None).ok()?;
        if status == flate2::Status::StreamEnd {
            return (output.len() <= MAX_OUTPUT_BYTES).then_some((output, decoder.total_in()));
        }
        if output.len() > MAX_OUTPUT_BYTES {
            return None;
        }
        if output.len() == output.capacity() {
            output.reserve(output.len().max(4096));
        } else if decoder.total_in() as usize == previous_in && output.len() == previous_out {
            return None;
        }
    }
}
