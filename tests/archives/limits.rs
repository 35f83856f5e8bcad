//! Decompression bombs, wrong sizes, truncation and damage: refused with the right message, in bounded memory, without
//! a panic.

use crate::archive_checks::{
    PAGE, as_tar, assert_refused, every_kind, verify_archive, verify_with_limits, write_bundle,
};
use docwharf::model::limits::BundleLimits;
use support::host::run_and_measure;
use support::zip::{LAST_BLOCK, RawMember, archive, deflate_piece, extra, stored};
use support::{docwharf, tar};

const MIB: usize = 1 << 20;

/// Returns bytes that do not compress, the same in each run.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Returns a MiB that DEFLATE and zstd compress evenly to about a fiftieth.
fn compressible_50_to_1() -> Vec<u8> {
    let noise = noise(MIB);
    let mut bytes = vec![0; MIB];
    for start in (0..MIB - 1024).step_by(54 * 1024) {
        bytes[start..start + 1024].copy_from_slice(&noise[start..start + 1024]);
    }
    bytes
}

/// Content that repeats one piece, which is compressed only once.
struct RepeatedContent {
    piece: Vec<u8>,
    times: usize,
}

impl RepeatedContent {
    fn zeros(mib: usize) -> RepeatedContent {
        RepeatedContent { piece: vec![0; MIB], times: mib }
    }

    fn len(&self) -> usize {
        self.piece.len() * self.times
    }

    fn deflated(&self) -> Vec<u8> {
        deflate_piece(&self.piece).repeat(self.times)
    }

    fn crc(&self, before: &[u8], after: &[u8]) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        crc.update(before);
        (0..self.times).for_each(|_| crc.update(&self.piece));
        crc.update(after);
        crc.finalize()
    }

    fn member(&self, name: &str) -> RawMember {
        let data = [&self.deflated()[..], &LAST_BLOCK].concat();
        RawMember::coded(name.as_bytes(), 8, data, self.crc(b"", b""), self.len() as u32)
    }

    /// Returns the blocks of a tar before and after the content.
    fn tar_blocks_around(&self) -> (Vec<u8>, Vec<u8>) {
        let before = tar::blocks(&[tar::file("index.html", "x"), tar::file("large.bin", "").sized(self.len() as u64)]);
        (before, vec![0; 1024])
    }

    fn tar_gz(&self) -> Vec<u8> {
        let (before, after) = self.tar_blocks_around();
        let compressed = [&deflate_piece(&before)[..], &self.deflated(), &deflate_piece(&after), &LAST_BLOCK].concat();
        tar::gzip_frame(&compressed, self.crc(&before, &after), (before.len() + self.len() + after.len()) as u32)
    }

    fn tar_zst(&self) -> Vec<u8> {
        let (before, after) = self.tar_blocks_around();
        [tar::zstd(&before), tar::zstd(&self.piece).repeat(self.times), tar::zstd(&after)].concat()
    }

    fn zip(&self) -> Vec<u8> {
        archive(&[stored("index.html", "x")]).with(self.member("large.bin")).bytes()
    }

    fn every_kind(&self) -> [(&'static str, Vec<u8>); 3] {
        [("zip", self.zip()), ("tar.gz", self.tar_gz()), ("tar.zst", self.tar_zst())]
    }
}

#[test]
fn an_archive_is_a_bomb_only_above_64_mib_and_a_ratio_of_200_to_1() {
    let file = support::temporary_folder();
    let file = file.path().join("bundle");
    for (kind, archive) in RepeatedContent::zeros(20).every_kind() {
        assert!(archive.len() * 800 < 20 * MIB, "{kind}: {} bytes", archive.len());
        assert!(verify_archive(kind, &file, &archive).is_ok(), "20 MiB at 1000:1 in {kind}");
    }
    let even = RepeatedContent { piece: compressible_50_to_1(), times: 96 };
    for (kind, archive) in even.every_kind() {
        let ratio = even.len() / archive.len();
        assert!((40..60).contains(&ratio), "{kind}: {ratio}");
        assert!(verify_archive(kind, &file, &archive).is_ok(), "96 MiB at 50:1 in {kind}");
    }
    for (kind, archive) in RepeatedContent::zeros(70).every_kind() {
        let error = verify_archive(kind, &file, &archive).expect_err("70 MiB of zeros");
        assert!(error.contains("bomb"), "{kind}: {error}");
    }
    // Content at the limit is not a bomb.
    let alone = archive(&[]).with(RepeatedContent::zeros(64).member("index.html"));
    assert!(verify_archive("zip", &file, &alone.bytes()).is_ok(), "64 MiB are not over 64 MiB");
    let error = verify_archive("zip", &file, &RepeatedContent::zeros(64).zip()).expect_err("64 MiB and another page");
    assert!(error.contains("the bundle expands to") && error.contains("a bomb"), "{error}");
}

#[test]
fn the_bomb_check_counts_all_entries_of_a_zip_together() {
    let file = support::temporary_folder();
    let file = file.path().join("bundle");
    let forty = RepeatedContent::zeros(40);
    let page = archive(&[stored("index.html", "x")]);
    let two = page.clone().with(forty.member("a.bin")).with(forty.member("b.bin"));
    let error = verify_archive("two of 40 MiB", &file, &two.bytes()).expect_err("80 MiB of zeros in two entries");
    assert!(error.contains("bomb"), "{error}");
    // Together with 1 MiB that does not compress, the ratio is 80:1.
    let mut honest = archive(&[stored("index.html", "x")]);
    honest.members.push(RawMember::coded(b"noise.bin", 0, noise(MIB), crc32fast::hash(&noise(MIB)), MIB as u32));
    let honest = honest.with(forty.member("a.bin")).with(forty.member("b.bin"));
    assert!(verify_archive("with noise", &file, &honest.bytes()).is_ok());
    // The ratio of one entry does not include the rest of the archive.
    let mut lonely = archive(&[stored("index.html", "x")]);
    lonely.members.push(RawMember::coded(b"noise.bin", 0, noise(MIB), crc32fast::hash(&noise(MIB)), MIB as u32));
    let error =
        verify_archive("one of 70 MiB", &file, &lonely.with(RepeatedContent::zeros(70).member("a.bin")).bytes())
            .expect_err("one entry is a bomb");
    assert!(error.contains("bomb") && error.contains("a.bin"), "{error}");
}

#[test]
fn a_bomb_with_a_small_declared_size_or_many_gzip_members_is_refused() {
    let file = support::temporary_folder();
    let file = file.path().join("bundle");
    let bomb = RepeatedContent::zeros(100);
    let modest =
        archive(&[stored("index.html", "x")]).with(bomb.member("a.bin").change_both_headers(|h| h.size = 1000));
    let error =
        verify_archive("modest zip", &file, &modest.bytes()).expect_err("100 MiB where 1000 bytes are declared");
    assert!(error.contains("entry \"a.bin\" has another size than it declares"), "{error}");
    // Bytes after the end marker and further gzip members count, too.
    let page = as_tar(&[PAGE]);
    let compressed = [&deflate_piece(&page)[..], &bomb.deflated(), &LAST_BLOCK].concat();
    let after = tar::gzip_frame(&compressed, bomb.crc(&page, b""), (page.len() + bomb.len()) as u32);
    assert!(verify_archive("zeros behind the end", &file, &after).expect_err("a bomb").contains("bomb"));
    let member = tar::gzip(&[0; 10]);
    let many = [tar::gzip(&page), tar::gzip(&vec![0; MIB]).repeat(100)].concat();
    assert!(verify_archive("many members", &file, &many).expect_err("a bomb").contains("bomb"));
    assert!(verify_archive("many small members", &file, &[tar::gzip(&page), member.repeat(5000)].concat()).is_ok());
}

#[test]
fn configured_limits_apply_to_every_archive_format() {
    let dir = support::temporary_folder();
    let file = dir.path().join("bundle");
    let text = noise(5000);
    let files: &crate::archive_checks::Files<'_> = &[PAGE, (b"a", &text), (b"b", &text)];
    let total = (10_000 + PAGE.1.len()) as u64;
    for (kind, archive) in every_kind(files) {
        let fits = BundleLimits { entries: 3, unpacked: total, archive: archive.len() as u64, entry: 5000 };
        assert!(verify_with_limits(kind, &file, &archive, fits).is_ok(), "{kind}");
        for (word, limits) in [
            ("limits.entries", BundleLimits { entries: 2, ..fits }),
            ("limits.unpacked", BundleLimits { unpacked: total - 1, ..fits }),
            ("limits.archive", BundleLimits { archive: fits.archive - 1, ..fits }),
            ("limits.entry", BundleLimits { entry: 4999, ..fits }),
        ] {
            let error = verify_with_limits(kind, &file, &archive, limits).expect_err(word);
            assert!(error.contains(word), "{kind}: {error}");
        }
    }
}

#[test]
fn more_than_100_000_entries_are_legal() {
    let dir = support::temporary_folder();
    let file = dir.path().join("bundle");
    let names: Vec<String> = (0..100_001).map(|n| format!("{}/{n}", n % 100)).collect();
    let mut files: Vec<(&[u8], &[u8])> = names.iter().map(|name| (name.as_bytes(), &b""[..])).collect();
    files.push(PAGE);
    let members: Vec<_> = files
        .iter()
        .map(|(n, c)| support::zip::Member { name: n.to_vec(), content: c.to_vec(), deflate: false })
        .collect();
    let zip = support::zip::RawArchive { zip64: true, ..archive(&members) };
    let id = verify_archive("zip", &file, &zip.bytes()).expect("a zip of 100,002 entries");
    let tar = as_tar(&files);
    assert_eq!(verify_archive("tar", &file, &tar), Ok(id.clone()));
    assert_eq!(verify_archive("tar.gz", &file, &tar::gzip(&tar)), Ok(id));
}

#[test]
fn hostile_archives_are_read_in_bounded_memory() {
    let page = tar::file("index.html", "x");
    let huge = |size: u64| format!("{size:011o}\0");
    let records = |n: usize| tar::pax_bytes(&tar::pax_record("comment", &vec![b'x'; n]));
    let bomb = RepeatedContent::zeros(1024);
    let table: Vec<(&str, Vec<u8>, i32)> = vec![
        ("1 GiB of zeros in a zip", bomb.zip(), 5),
        ("1 GiB of zeros in a tar.gz", bomb.tar_gz(), 5),
        ("1 GiB of zeros in a tar.zst", bomb.tar_zst(), 5),
        (
            "1 GiB of zeros in a zip that declares 60 MiB",
            archive(&[stored("index.html", "x")])
                .with(bomb.member("a").change_both_headers(|h| h.size = 60 << 20))
                .bytes(),
            5,
        ),
        (
            "a tar entry of 2 GiB",
            tar::blocks(&[page.clone(), tar::file("a", "").with(124, huge(2 << 30).as_bytes())]),
            5,
        ),
        (
            "a tar entry of nearly 2 MiB",
            tar::blocks(&[page.clone(), tar::file("a", "").with(124, huge(2_000_000).as_bytes())]),
            5,
        ),
        (
            "a PAX header of 8 GiB",
            tar::blocks(&[page.clone(), records(9).with(124, huge(8_000_000_000).as_bytes())]),
            5,
        ),
        (
            "a zip that declares 2 GiB of stored bytes",
            archive(&[stored("index.html", "x")])
                .with(
                    RawMember::from_member(&stored("a", "x"))
                        .change_both_headers(|h| (h.size, h.coded) = (2 << 30, 2 << 30)),
                )
                .bytes(),
            5,
        ),
        ("a gzip name without end", [&[0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 3][..], &vec![b'n'; 8 * MIB]].concat(), 5),
        (
            "extra fields of 64 KiB",
            archive(&[stored("index.html", "x")])
                .with(
                    RawMember::from_member(&stored("a", "x"))
                        .change_both_headers(|h| h.extra = extra(0xbeef, &[0; 65_000])),
                )
                .bytes(),
            0,
        ),
        ("a zstd window of 128 MiB", tar::zstd_raw((27 - 10) << 3, &as_tar(&[PAGE])), 0),
    ];
    for (case, bytes, expected) in table {
        let (dir, file) = write_bundle(&bytes);
        let target = dir.path().join("target");
        for verb in ["verify", "unpack"] {
            let (peak_memory, output) = run_and_measure(|| {
                // A process whose memory was not measured may have made the folder.
                let _ = std::fs::remove_dir_all(&target);
                let mut command = docwharf();
                command.args(["bundle", verb]).arg(&file).args((verb == "unpack").then_some(&target));
                command
            });
            assert_eq!(output.code, Some(expected), "{case}: {verb}: {output:?}");
            assert!(peak_memory < 256 * 1024, "{case}: {verb} took {peak_memory} KiB");
        }
    }
}

#[test]
fn an_ordinary_bundle_is_verified_in_64_mib_of_memory() {
    let even = RepeatedContent { piece: compressible_50_to_1(), times: 60 };
    for (kind, bytes) in even.every_kind() {
        let (_dir, file) = write_bundle(&bytes);
        let (peak_memory, output) = run_and_measure(|| {
            let mut command = docwharf();
            command.args(["bundle", "verify"]).arg(&file);
            command
        });
        assert_eq!(output.code, Some(0), "{kind}: {output:?}");
        assert!(peak_memory < 64 * 1024, "{kind}: {peak_memory} KiB");
    }
}

/// Returns a small site as an archive of each format.
fn small_archives() -> [(&'static str, Vec<u8>); 4] {
    every_kind(&[(b"index.html", b"<!doctype html><title>x</title>"), (b"a.css", b"a{b:c}a{b:c}a{b:c}")])
}

#[test]
fn an_archive_cut_at_any_byte_is_refused() {
    let dir = support::temporary_folder();
    let file = dir.path().join("bundle");
    for (kind, archive) in small_archives() {
        let complete = verify_archive(kind, &file, &archive).expect("the whole archive");
        for cut in 0..archive.len() {
            let case = format!("{kind} cut at {cut}");
            let result = verify_archive(&case, &file, &archive[..cut]);
            // A plain tar does not contain its length: a cut after an entry or in the zeros at the end is not visible.
            match (kind, cut) {
                ("tar", 1024) => assert!(result.is_ok_and(|id| id != complete), "{case}"),
                ("tar", 2048 | 2560..) => assert_eq!(result, Ok(complete.clone()), "{case}"),
                // A truncated block of zeros could be a header.
                ("tar", 2049..) => {
                    let error = result.expect_err(&case);
                    assert!(error.contains("the bundle is cut short: a tar header"), "{case}: {error}");
                }
                _ => assert!(result.is_err(), "{case}"),
            }
        }
    }
    let tar = as_tar(&[PAGE]);
    let checked = tar::zstd_with_checksum(&tar);
    let members: Vec<u8> = tar.chunks(700).flat_map(tar::gzip).collect();
    let wide = support::zip::RawArchive { zip64: true, comment: b"comment".to_vec(), ..archive(&[]) };
    let wide = wide
        .with(RawMember {
            zip64: true,
            ..RawMember::from_member(&stored("index.html", "x")).with_data_descriptor(true, true)
        })
        .bytes();
    for (kind, bytes) in
        [("zstd with a checksum", checked), ("gzip members", members), ("zip64 with descriptors", wide)]
    {
        assert!(verify_archive(kind, &file, &bytes).is_ok(), "{kind}");
        let mut boundary = 0;
        for cut in 0..bytes.len() {
            if let Ok(id) = verify_archive(kind, &file, &bytes[..cut]) {
                // A cut between two members is not visible if only zeros follow.
                assert!(
                    kind == "gzip members" && id == verify_archive(kind, &file, &bytes).expect("whole"),
                    "{kind} cut at {cut}"
                );
                boundary += 1;
            }
        }
        assert!(boundary <= 1, "{kind}: accepted at {boundary} cuts");
    }
}

#[test]
fn an_archive_with_any_bit_flipped_is_refused_or_the_same_version() {
    let dir = support::temporary_folder();
    let file = dir.path().join("bundle");
    let zip = archive(&[stored("index.html", "<!doctype html>")]).with(RawMember {
        comment: b"note".to_vec(),
        ..RawMember::from_member(&support::zip::deflated("a.css", "a{b:c}a{b:c}a{b:c}"))
            .with_data_descriptor(true, false)
    });
    let zip = support::zip::RawArchive { comment: b"made by hand".to_vec(), ..zip }.bytes();
    let [_, (_, gz), (_, zst), _] = small_archives();
    let checked = tar::zstd_with_checksum(&as_tar(&[PAGE]));
    for (kind, archive, limit) in
        [("zip", zip, 45), ("tar.gz", gz, 10), ("tar.zst", zst, 100), ("tar.zst with a checksum", checked, 10)]
    {
        let complete = verify_archive(kind, &file, &archive).expect("the whole archive");
        let mut same = 0;
        for bit in 0..archive.len() * 8 {
            let mut damaged = archive.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let case = format!("{kind} with bit {} of byte {}", bit % 8, bit / 8);
            match verify_archive(&case, &file, &damaged) {
                Err(_) => {}
                // Without a checksum zstd cannot detect the damage.
                Ok(_) if kind == "tar.zst" => same += 1,
                Ok(id) => {
                    assert_eq!(id, complete, "{case}");
                    same += 1;
                }
            }
        }
        assert!(same * 100 <= archive.len() * 8 * limit, "{kind}: {same} of {} bits have no effect", archive.len() * 8);
    }
}

#[test]
fn random_bytes_never_cause_a_panic() {
    let dir = support::temporary_folder();
    let file = dir.path().join("bundle");
    let noise = noise(40_000);
    for (kind, archive) in small_archives() {
        for round in 0..300 {
            let mut damaged = archive.clone();
            for change in 0..=round % 5 {
                let at =
                    usize::from(noise[round * 20 + change * 3]) * 256 + usize::from(noise[round * 20 + change * 3 + 1]);
                let at = at % damaged.len();
                damaged[at] = noise[round * 20 + change * 3 + 2];
            }
            let _ = verify_archive(kind, &file, &damaged);
        }
    }
    for magic in [
        &b"PK\x03\x04"[..],
        b"PK\x05\x06",
        b"\x1f\x8b\x08\x00",
        b"\x28\xb5\x2f\xfd",
        b"<Error><Code>",
        b"{",
        b"\x50\x2a\x4d\x18",
    ] {
        for length in [0, 1, 7, 22, 100, 512, 1024, 3000] {
            let bytes = [magic, &noise[length..2 * length]].concat();
            assert!(verify_archive("noise", &file, &bytes).is_err());
        }
    }
}

#[test]
fn a_tar_entry_longer_or_shorter_than_its_declared_size_is_refused() {
    let content = "x".repeat(1500);
    // The rest of the content is read as a header.
    let header = "the bundle is damaged: a tar header's checksum";
    for (case, size, word) in [
        ("longer", 1 << 20, "entry \"victim\" is cut short: an entry's content"),
        ("shorter", 400, header),
        ("none", 0, header),
    ] {
        let bytes = tar::tar(&[tar::file("index.html", "x"), tar::file("victim", &content).sized(size)]);
        assert_refused(case, &bytes, &[word]);
        assert_refused(case, &tar::gzip(&bytes), &[word]);
    }
}
