//! The files that enter and leave the cache of inflated files, and the requests that count.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use http_body::Body as _;

use super::*;
use crate::body::ResponseBody;
use crate::inflating_body::BodySegment;

/// Creates a cache with a capacity of `bytes`.
fn new_cache(bytes: u64) -> InflatedFileCache {
    InflatedFileCache::new(bytes, Arc::default())
}

#[test]
fn files_of_every_length_stay_cached_while_they_fit_in_the_capacity() {
    let cache = new_cache(4 << 20);
    let lengths = (0..60).map(|n: usize| 1000 + n * n * 36).chain([1_200_000]);
    let contents: Vec<_> = lengths.map(|len| Bytes::from(vec![len as u8; len])).collect();
    assert!(contents.iter().map(Bytes::len).sum::<usize>() > 3_600_000);
    for file in &contents {
        assert_eq!(cache.insert(Digest::compute(file), file.clone()).bytes, file);
    }
    for file in &contents {
        assert!(cache.get(&Digest::compute(file)).is_some_and(|cached| cached.bytes == file), "{} bytes", file.len());
    }
}

#[test]
fn an_evicted_file_stays_intact_while_in_use() {
    let cache = new_cache(2 << 20);
    let files_in_use: Vec<_> =
        (0..20u8).map(|n| cache.insert(Digest::compute(&[n]), vec![n; 600_000].into())).collect();
    assert!(files_in_use.iter().any(|file| file.memfd_range.is_some()));
    for (n, file) in files_in_use.iter().enumerate() {
        assert!(file.bytes.iter().all(|&byte| usize::from(byte) == n), "file {n}");
    }
}

#[test]
fn the_inflated_file_cache_never_exceeds_its_capacity() {
    let cache = new_cache(1 << 20);
    for n in 0..40u8 {
        cache.insert(Digest::compute(&[n]), vec![n; 100_000].into());
        assert!(cache.bytes() <= 1 << 20);
    }
    let empty_cache = new_cache(0);
    assert_eq!(empty_cache.insert(Digest::compute(b"x"), vec![1; 600_000].into()).bytes.len(), 600_000);
    assert!(empty_cache.get(&Digest::compute(b"x")).is_none());
}

#[test]
fn the_inflated_file_cache_accepts_larger_files_if_its_capacity_is_larger() {
    let max_len = |bytes: u64| {
        let cache = new_cache(bytes);
        (0..8).map(|power| 1 << (20 + power)).filter(|&len| cache.is_within_file_limit(len)).max()
    };
    assert_eq!(max_len(0), Some(1 << 20));
    assert_eq!(max_len(32 << 20), Some(2 << 20));
    assert_eq!(max_len(64 << 20), Some(4 << 20));
    assert_eq!(max_len(1 << 30), Some(4 << 20));
}

/// A file of 300,000 bytes, and its compressed bytes.
fn large_file(cache: &Arc<InflatedFileCache>) -> (InflatedFileSource, Bytes) {
    let content = vec![b'x'; 300_000];
    let mut coded = Vec::new();
    docwharf_base::codec::deflate::Deflater::new(1).encode_all(&content, &mut coded);
    let (digest, crc) = (Digest::compute(&content), crc32fast::hash(&content));
    let source = InflatedFileSource { cache: Arc::clone(cache), version: VersionId(digest), digest, len: 300_000, crc };
    (source, coded.into())
}

#[test]
fn a_large_file_is_inflated_into_the_cache_only_after_a_second_request() {
    let cache = Arc::new(new_cache(16 << 20));
    let (source, coded) = large_file(&cache);
    let digest = source.digest;
    assert!(
        !cache.mark_requested(&digest)
            && cache.mark_requested(&digest)
            && !cache.mark_requested(&Digest::compute(b"x"))
    );
    let other_content = vec![b'y'; 300_000];
    let mut other_coded = Vec::new();
    docwharf_base::codec::deflate::Deflater::new(1).encode_all(&other_content, &mut other_coded);
    let (digest, crc) = (Digest::compute(&other_content), crc32fast::hash(&other_content));
    let requested_once = InflatedFileSource { digest, crc, ..source.clone() };
    requested_once.request_caching(&Bytes::from(other_coded));
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while source.cached().is_none() {
        assert!(std::time::Instant::now() < deadline, "the file was not inflated");
        source.request_caching(&coded);
        thread::yield_now();
    }
    assert!(source.cached().is_some_and(|file| file.bytes == vec![b'x'; 300_000]));
    // Files are inflated in the order of their requests.
    assert!(requested_once.cached().is_none(), "a file that was requested once is not inflated as a whole");
    let damaged = InflatedFileSource { digest: Digest::compute(b"other"), crc: source.crc ^ 1, ..source };
    assert!(damaged.inflate(&coded).is_none());
    assert!(damaged.cached().is_none(), "a damaged file is not cached");
}

fn has_report(damage_reports: &DamageReports) -> bool {
    pin!(damage_reports.wait_for_report()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[test]
fn a_file_is_cached_only_if_it_matches_its_checksum_and_fits_the_held_bytes_limit() {
    let damage_reports = Arc::<DamageReports>::default();
    let cache = Arc::new(InflatedFileCache::new(1 << 20, Arc::clone(&damage_reports)));
    let content: Vec<u8> = (0..60_000u32).map(|n| (n >> 3) as u8).collect();
    let mut coded = Vec::new();
    docwharf_base::codec::deflate::Deflater::new(1).encode_all(&content, &mut coded);
    let (digest, crc) = (Digest::compute(&content), crc32fast::hash(&content));
    let version = VersionId(digest);
    let source = InflatedFileSource { cache: Arc::clone(&cache), version, digest, len: 60_000, crc };
    // A file larger than `server.heldBytes` is no damage; it is sent piece by piece.
    let huge = InflatedFileSource { len: (64 << 20) + 1, ..source.clone() };
    assert!(huge.inflate(&coded).is_none() && !has_report(&damage_reports));
    for (len, crc, available) in [
        (60_000, crc ^ 1, coded.len()),
        (60_001, crc, coded.len()),
        (59_999, crc, coded.len()),
        (60_000, crc, coded.len() / 2),
        (60_000, crc, 0),
    ] {
        let damaged = InflatedFileSource { len, crc, ..source.clone() };
        assert!(damaged.inflate(&coded[..available]).is_none(), "{len} {crc} {available}");
        assert!(has_report(&damage_reports), "{len} {crc} {available}");
        assert!(source.cached().is_none(), "{len} {crc} {available}");
    }
    assert!(source.inflate(&coded).is_some_and(|file| file.bytes == content) && !has_report(&damage_reports));
    assert!(source.cached().is_some_and(|file| file.bytes == content));
}

#[test]
fn files_up_to_a_maximum_length_are_cached_and_large_ones_are_in_the_memfd() {
    for (capacity, max_len) in [
        (0, MAX_FILE_BYTES),
        (1 << 20, MAX_FILE_BYTES),
        (64 << 20, MAX_FILE_BYTES_IN_LARGE_CACHE),
        (1 << 30, MAX_FILE_BYTES_IN_LARGE_CACHE),
    ] {
        let cache = new_cache(capacity);
        assert!(
            cache.is_within_file_limit(max_len) && !cache.is_within_file_limit(max_len + 1),
            "capacity of {capacity}"
        );
        assert_eq!(cache.can_cache(max_len), capacity > max_len, "capacity of {capacity}");
        assert!(!cache.can_cache(max_len + 1), "capacity of {capacity}");
    }
    let cache = new_cache(500_000);
    let max_len = cache.cache.capacity() - FILE_OVERHEAD_BYTES;
    assert!(
        cache.can_cache(max_len) && !cache.can_cache(max_len + 1),
        "a file that does not fit is not inflated as a whole"
    );
    let cache = new_cache(4 << 20);
    for (len, is_in_memfd) in
        [(1, false), (MIN_MEMFD_FILE_BYTES - 1, false), (MIN_MEMFD_FILE_BYTES, true), (MIN_MEMFD_FILE_BYTES + 1, true)]
    {
        assert_eq!(
            cache.insert(Digest::compute(&len.to_le_bytes()), vec![7; len].into()).memfd_range.is_some(),
            is_in_memfd,
            "{len}"
        );
    }
    let kept = cache.insert(Digest::compute(b"counted"), Bytes::from_static(b"counted"));
    let before = cache.bytes();
    cache.insert(Digest::compute(b"another"), Bytes::from_static(b"another"));
    assert_eq!((cache.bytes() - before, kept.memfd_range.is_none()), (7 + FILE_OVERHEAD_BYTES, true));
}

#[test]
fn a_range_request_does_not_count_as_a_request_of_the_whole_large_file() {
    let cache = Arc::new(new_cache(16 << 20));
    let (source, coded) = large_file(&cache);
    let digest = source.digest;
    for (start, end, is_marked) in [(0, 299_999, false), (1, 300_000, false), (0, 300_000, true)] {
        let segment = BodySegment::Inflated(start, end);
        let mut body = pin!(ResponseBody::from_file(source.clone(), coded.clone(), [segment]));
        while !matches!(body.as_mut().poll_frame(&mut Context::from_waker(Waker::noop())), Poll::Ready(None)) {}
        assert_eq!(cache.mark_requested(&digest), is_marked, "{start}-{end}");
        // Removes the mark.
        cache.request_marks.iter().for_each(|mark| mark.store(0, Ordering::Relaxed));
    }
}

#[test]
fn two_files_with_the_same_request_mark_slot_overwrite_each_other() {
    let cache = new_cache(1 << 20);
    let digest = |slot: u32, mark: u8| {
        let mut digest = Digest::compute(b"x");
        digest.0[..4].copy_from_slice(&slot.to_le_bytes());
        digest.0[4..8].copy_from_slice(&[mark; 4]);
        digest
    };
    let (one, two, elsewhere) = (digest(5, 1), digest(5 + REQUEST_MARKS as u32, 2), digest(6, 1));
    let marked = [&one, &one, &elsewhere, &one, &two, &two, &one, &elsewhere].map(|file| cache.mark_requested(file));
    assert_eq!(marked, [false, true, false, true, false, true, false, true]);
}
