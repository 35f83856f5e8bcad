//! DEFLATE against zlib-rs: the same streams are accepted, with the same bytes, and a resumed reading gives what one in
//! one go gives.

use docwharf::codec::gzip;
use docwharf::codec::inflate::{Inflate, InflateStatus};

/// More output than this is not compared.
const MOST: usize = 4 << 20;

pub fn inflate(data: &[u8]) {
    let Some((&step, coded)) = data.split_first() else { return };
    let ours = run(coded, coded.len().max(1));
    let theirs = zlib(coded);
    match (&ours, &theirs) {
        (Some((bytes, taken)), Some((others, used))) => {
            assert_eq!(bytes.len(), others.len());
            assert!(bytes == others, "other bytes");
            assert_eq!(taken, used, "where the stream ends");
        }
        (None, None) => {}
        _ => panic!("ours {:?}, zlib {:?}", ours.map(|(b, t)| (b.len(), t)), theirs.map(|(b, t)| (b.len(), t))),
    }
    // In pieces of any size.
    assert!(run(coded, usize::from(step).max(1)) == ours, "in pieces of {step}");
    // A frame is read as far as it is one.
    if let Ok(len) = gzip::header_len(data) {
        assert!(len <= data.len() && len >= 10);
    }
}

/// All output, and the bytes of input that it took.
fn run(coded: &[u8], piece: usize) -> Option<(Vec<u8>, u64)> {
    let mut inflate = Inflate::new();
    let (mut out, mut at, mut shown) = (Vec::new(), 0, piece.min(coded.len()));
    loop {
        let step = inflate.run(&coded[at..shown], shown == coded.len()).ok()?;
        at += step.consumed;
        out.extend_from_slice(inflate.output());
        if out.len() > MOST {
            return None;
        }
        match step.status {
            InflateStatus::Done => return Some((out, inflate.bytes_taken())),
            InflateStatus::WindowFull => {}
            InflateStatus::NeedInput if shown == coded.len() => return None,
            InflateStatus::NeedInput => shown = (shown + piece).min(coded.len()),
        }
    }
}

fn zlib(coded: &[u8]) -> Option<(Vec<u8>, u64)> {
    let mut raw = flate2::Decompress::new(false);
    let mut out = Vec::with_capacity(64 << 10);
    loop {
        let (used, made) = (raw.total_in() as usize, out.len());
        let status = raw.decompress_vec(&coded[used..], &mut out, flate2::FlushDecompress::None).ok()?;
        if status == flate2::Status::StreamEnd {
            return (out.len() <= MOST).then_some((out, raw.total_in()));
        }
        if out.len() > MOST {
            return None;
        }
        if out.len() == out.capacity() {
            out.reserve(out.len().max(4096));
        } else if raw.total_in() as usize == used && out.len() == made {
            return None;
        }
    }
}
