//! Bombs, lies about size, truncation and damage: refused at the right place, in bounded memory, without a panic.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::verdict::{PAGE, as_tar, every_kind, judge, judge_within, laid_down, refused};
use docwharf::model::limits::BundleLimits;
use support::zip::{LAST_BLOCK, Raw, archive, deflate_piece, extra, stored};
use support::{docwharf, tar};

const MIB: usize = 1 << 20;

/// A MiB that does not compress, the same each time.
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

/// A MiB that DEFLATE and zstd shrink about fifty times, evenly.
fn fiftieth() -> Vec<u8> {
    let noise = noise(MIB);
    let mut bytes = vec![0; MIB];
    for start in (0..MIB - 1024).step_by(54 * 1024) {
        bytes[start..start + 1024].copy_from_slice(&noise[start..start + 1024]);
    }
    bytes
}

/// Content made of one piece again and again, coded without coding it more than once.
struct Repeated {
    piece: Vec<u8>,
    times: usize,
}

impl Repeated {
    fn zeros(mib: usize) -> Repeated {
        Repeated { piece: vec![0; MIB], times: mib }
    }

    fn len(&self) -> usize {
        self.piece.len() * self.times
    }

    fn deflated(&self) -> Vec<u8> {
        deflate_piece(&self.piece).repeat(self.times)
    }

    fn crc(&self, before: &[u8], behind: &[u8]) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        crc.update(before);
        (0..self.times).for_each(|_| crc.update(&self.piece));
        crc.update(behind);
        crc.finalize()
    }

    fn member(&self, name: &str) -> Raw {
        let data = [&self.deflated()[..], &LAST_BLOCK].concat();
        Raw::coded(name.as_bytes(), 8, data, self.crc(b"", b""), self.len() as u32)
    }

    /// The blocks of a tar before and behind the content.
    fn around(&self) -> (Vec<u8>, Vec<u8>) {
        let before = tar::blocks(&[tar::file("index.html", "x"), tar::file("large.bin", "").sized(self.len() as u64)]);
        (before, vec![0; 1024])
    }

    fn tar_gz(&self) -> Vec<u8> {
        let (before, behind) = self.around();
        let coded = [&deflate_piece(&before)[..], &self.deflated(), &deflate_piece(&behind), &LAST_BLOCK].concat();
        tar::gzip_frame(&coded, self.crc(&before, &behind), (before.len() + self.len() + behind.len()) as u32)
    }

    fn tar_zst(&self) -> Vec<u8> {
        let (before, behind) = self.around();
        [tar::zstd(&before), tar::zstd(&self.piece).repeat(self.times), tar::zstd(&behind)].concat()
    }

    fn zip(&self) -> Vec<u8> {
        archive(&[stored("index.html", "x")]).with(self.member("large.bin")).bytes()
    }

    fn every_kind(&self) -> [(&'static str, Vec<u8>); 3] {
        [("zip", self.zip()), ("tar.gz", self.tar_gz()), ("tar.zst", self.tar_zst())]
    }
}

#[test]
fn output_is_a_bomb_only_above_64_mib_and_200_to_1() {
    let file = support::folder();
    let file = file.path().join("bundle");
    for (kind, archive) in Repeated::zeros(20).every_kind() {
        assert!(archive.len() * 800 < 20 * MIB, "{kind}: {} bytes", archive.len());
        assert!(judge(kind, &file, &archive).is_ok(), "20 MiB at 1000:1 in {kind}");
    }
    let even = Repeated { piece: fiftieth(), times: 96 };
    for (kind, archive) in even.every_kind() {
        let ratio = even.len() / archive.len();
        assert!((40..60).contains(&ratio), "{kind}: {ratio}");
        assert!(judge(kind, &file, &archive).is_ok(), "96 MiB at 50:1 in {kind}");
    }
    for (kind, archive) in Repeated::zeros(70).every_kind() {
        let said = judge(kind, &file, &archive).expect_err("70 MiB of zeros");
        assert!(said.contains("bomb"), "{kind}: {said}");
    }
    // Exactly at the limit it is none yet.
    let alone = archive(&[]).with(Repeated::zeros(64).member("index.html"));
    assert!(judge("zip", &file, &alone.bytes()).is_ok(), "64 MiB are not over 64 MiB");
    let said = judge("zip", &file, &Repeated::zeros(64).zip()).expect_err("64 MiB and another page");
    assert!(said.contains("the archive expands to") && said.contains("a bomb"), "{said}");
}

#[test]
fn all_entries_of_a_zip_together_are_a_bomb_too() {
    let file = support::folder();
    let file = file.path().join("bundle");
    let forty = Repeated::zeros(40);
    let page = archive(&[stored("index.html", "x")]);
    let two = page.clone().with(forty.member("a.bin")).with(forty.member("b.bin"));
    let said = judge("two of 40 MiB", &file, &two.bytes()).expect_err("80 MiB of zeros in two entries");
    assert!(said.contains("bomb"), "{said}");
    // The same beside 1 MiB that does not compress is 80:1.
    let mut honest = archive(&[stored("index.html", "x")]);
    honest.members.push(Raw::coded(b"noise.bin", 0, noise(MIB), crc32fast::hash(&noise(MIB)), MIB as u32));
    let honest = honest.with(forty.member("a.bin")).with(forty.member("b.bin"));
    assert!(judge("with noise", &file, &honest.bytes()).is_ok());
    // Within one entry the rest of the archive does not count.
    let mut lonely = archive(&[stored("index.html", "x")]);
    lonely.members.push(Raw::coded(b"noise.bin", 0, noise(MIB), crc32fast::hash(&noise(MIB)), MIB as u32));
    let said = judge("one of 70 MiB", &file, &lonely.with(Repeated::zeros(70).member("a.bin")).bytes())
        .expect_err("one entry is a bomb");
    assert!(said.contains("bomb") && said.contains("a.bin"), "{said}");
}

#[test]
fn a_bomb_that_declares_little_or_hides_behind_many_members_is_refused() {
    let file = support::folder();
    let file = file.path().join("bundle");
    let bomb = Repeated::zeros(100);
    let modest = archive(&[stored("index.html", "x")]).with(bomb.member("a.bin").both(|h| h.size = 1000));
    let said = judge("modest zip", &file, &modest.bytes()).expect_err("100 MiB where 1000 bytes are declared");
    assert!(said.contains("entry \"a.bin\" has another size than it declares"), "{said}");
    // Behind the end marker and in a long name the stream counts all the same.
    let page = as_tar(&[PAGE]);
    let coded = [&deflate_piece(&page)[..], &bomb.deflated(), &LAST_BLOCK].concat();
    let behind = tar::gzip_frame(&coded, bomb.crc(&page, b""), (page.len() + bomb.len()) as u32);
    assert!(judge("zeros behind the end", &file, &behind).expect_err("a bomb").contains("bomb"));
    let member = tar::gzip(&[0; 10]);
    let many = [tar::gzip(&page), tar::gzip(&vec![0; MIB]).repeat(100)].concat();
    assert!(judge("many members", &file, &many).expect_err("a bomb").contains("bomb"));
    assert!(judge("many small members", &file, &[tar::gzip(&page), member.repeat(5000)].concat()).is_ok());
}

#[test]
fn configured_limits_hold_for_every_kind() {
    let dir = support::folder();
    let file = dir.path().join("bundle");
    let text = noise(5000);
    let files: &crate::verdict::Files<'_> = &[PAGE, (b"a", &text), (b"b", &text)];
    let total = (10_000 + PAGE.1.len()) as u64;
    for (kind, archive) in every_kind(files) {
        let fits = BundleLimits { entries: 3, unpacked: total, archive: archive.len() as u64, entry: 5000 };
        assert!(judge_within(kind, &file, &archive, fits).is_ok(), "{kind}");
        for (word, limits) in [
            ("limits.entries", BundleLimits { entries: 2, ..fits }),
            ("limits.unpacked", BundleLimits { unpacked: total - 1, ..fits }),
            ("limits.archive", BundleLimits { archive: fits.archive - 1, ..fits }),
            ("limits.entry", BundleLimits { entry: 4999, ..fits }),
        ] {
            let said = judge_within(kind, &file, &archive, limits).expect_err(word);
            assert!(said.contains(word), "{kind}: {said}");
        }
    }
}

#[test]
fn more_than_100_000_entries_are_legal() {
    let dir = support::folder();
    let file = dir.path().join("bundle");
    let names: Vec<String> = (0..100_001).map(|n| format!("{}/{n}", n % 100)).collect();
    let mut files: Vec<(&[u8], &[u8])> = names.iter().map(|name| (name.as_bytes(), &b""[..])).collect();
    files.push(PAGE);
    let members: Vec<_> = files
        .iter()
        .map(|(n, c)| support::zip::Member { name: n.to_vec(), content: c.to_vec(), deflate: false })
        .collect();
    let zip = support::zip::Archive { wide: true, ..archive(&members) };
    let id = judge("zip", &file, &zip.bytes()).expect("a zip of 100,002 entries");
    let tar = as_tar(&files);
    assert_eq!(judge("tar", &file, &tar), Ok(id.clone()));
    assert_eq!(judge("tar.gz", &file, &tar::gzip(&tar)), Ok(id));
}

/// The largest resident size of `docwharf bundle VERB` in KiB, and its exit code. The kernel keeps the peak until the
/// process ends, so what is missed is at most what it takes up in its last instant; 0 if it was gone too soon.
fn peak(file: &Path, verb: &str, more: &[&Path]) -> (u64, Option<i32>) {
    let mut child = docwharf()
        .args(["bundle", verb])
        .arg(file)
        .args(more)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("docwharf starts");
    let status = PathBuf::from(format!("/proc/{}/status", child.id()));
    let mut largest = 0;
    let code = loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let now = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok()).unwrap_or(0);
        largest = now.max(largest);
        if let Some(status) = child.try_wait().expect("the child can be waited for") {
            break status.code();
        }
        std::thread::yield_now();
    };
    (largest, code)
}

#[test]
fn memory_stays_bounded_whatever_an_archive_claims() {
    let page = tar::file("index.html", "x");
    let huge = |size: u64| format!("{size:011o}\0");
    let records = |n: usize| tar::pax_bytes(&tar::pax_record("comment", &vec![b'x'; n]));
    let bomb = Repeated::zeros(1024);
    let table: Vec<(&str, Vec<u8>, i32)> = vec![
        ("1 GiB of zeros in a zip", bomb.zip(), 5),
        ("1 GiB of zeros in a tar.gz", bomb.tar_gz(), 5),
        ("1 GiB of zeros in a tar.zst", bomb.tar_zst(), 5),
        (
            "1 GiB of zeros in a zip that declares 60 MiB",
            archive(&[stored("index.html", "x")]).with(bomb.member("a").both(|h| h.size = 60 << 20)).bytes(),
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
                .with(Raw::of(&stored("a", "x")).both(|h| (h.size, h.coded) = (2 << 30, 2 << 30)))
                .bytes(),
            5,
        ),
        ("a gzip name without end", [&[0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 3][..], &vec![b'n'; 8 * MIB]].concat(), 5),
        (
            "extra fields of 64 KiB",
            archive(&[stored("index.html", "x")])
                .with(Raw::of(&stored("a", "x")).both(|h| h.extra = extra(0xbeef, &[0; 65_000])))
                .bytes(),
            0,
        ),
        ("a zstd window of 128 MiB", tar::zstd_raw((27 - 10) << 3, &as_tar(&[PAGE])), 0),
    ];
    for (what, bytes, expected) in table {
        let (dir, file) = laid_down(&bytes);
        for (verb, more) in [("verify", vec![]), ("unpack", vec![dir.path().join("target")])] {
            let more: Vec<&Path> = more.iter().map(PathBuf::as_path).collect();
            let (largest, code) = peak(&file, verb, &more);
            assert_eq!(code, Some(expected), "{what}: {verb}");
            assert!(largest < 256 * 1024, "{what}: {verb} took {largest} KiB");
            assert!(largest > 0 || !what.starts_with("1 GiB of zeros in a tar"), "{what}: {verb} was not seen");
        }
    }
}

#[test]
fn an_ordinary_bundle_is_proved_in_64_mib() {
    let even = Repeated { piece: fiftieth(), times: 60 };
    for (kind, bytes) in even.every_kind() {
        let (_dir, file) = laid_down(&bytes);
        let (largest, code) = peak(&file, "verify", &[]);
        assert_eq!(code, Some(0), "{kind}");
        assert!((1..64 * 1024).contains(&largest), "{kind}: {largest} KiB");
    }
}

/// A small site whose archive has something of everything.
fn small() -> [(&'static str, Vec<u8>); 4] {
    every_kind(&[(b"index.html", b"<!doctype html><title>x</title>"), (b"a.css", b"a{b:c}a{b:c}a{b:c}")])
}

#[test]
fn an_archive_cut_at_any_byte_is_refused() {
    let dir = support::folder();
    let file = dir.path().join("bundle");
    for (kind, archive) in small() {
        let whole = judge(kind, &file, &archive).expect("the whole archive");
        for cut in 0..archive.len() {
            let what = format!("{kind} cut at {cut}");
            let judged = judge(&what, &file, &archive[..cut]);
            // A plain tar has no length of its own: behind an entry, and in the zeros behind the last, nothing is missing.
            match (kind, cut) {
                ("tar", 1024) => assert!(judged.is_ok_and(|id| id != whole), "{what}"),
                ("tar", 2048 | 2560..) => assert_eq!(judged, Ok(whole.clone()), "{what}"),
                // A block of zeros that is cut may have been a header.
                ("tar", 2049..) => {
                    let said = judged.expect_err(&what);
                    assert!(said.contains("the archive is cut short: a tar header"), "{what}: {said}");
                }
                _ => assert!(judged.is_err(), "{what}"),
            }
        }
    }
    let tar = as_tar(&[PAGE]);
    let checked = tar::zstd_checked(&tar);
    let members: Vec<u8> = tar.chunks(700).flat_map(tar::gzip).collect();
    let wide = support::zip::Archive { wide: true, comment: b"comment".to_vec(), ..archive(&[]) };
    let wide = wide.with(Raw { wide: true, ..Raw::of(&stored("index.html", "x")).descriptor(true, true) }).bytes();
    for (kind, bytes) in
        [("zstd with a checksum", checked), ("gzip members", members), ("zip64 with descriptors", wide)]
    {
        assert!(judge(kind, &file, &bytes).is_ok(), "{kind}");
        let mut boundary = 0;
        for cut in 0..bytes.len() {
            if let Ok(id) = judge(kind, &file, &bytes[..cut]) {
                // Between two members of which only zeros follow, nothing can tell.
                assert!(
                    kind == "gzip members" && id == judge(kind, &file, &bytes).expect("whole"),
                    "{kind} cut at {cut}"
                );
                boundary += 1;
            }
        }
        assert!(boundary <= 1, "{kind}: accepted at {boundary} places");
    }
}

#[test]
fn an_archive_with_any_bit_flipped_is_refused_or_the_same_version() {
    let dir = support::folder();
    let file = dir.path().join("bundle");
    let zip = archive(&[stored("index.html", "<!doctype html>")]).with(Raw {
        comment: b"note".to_vec(),
        ..Raw::of(&support::zip::deflated("a.css", "a{b:c}a{b:c}a{b:c}")).descriptor(true, false)
    });
    let zip = support::zip::Archive { comment: b"made by hand".to_vec(), ..zip }.bytes();
    let [_, (_, gz), (_, zst), _] = small();
    let checked = tar::zstd_checked(&as_tar(&[PAGE]));
    for (kind, archive, limit) in
        [("zip", zip, 45), ("tar.gz", gz, 10), ("tar.zst", zst, 100), ("tar.zst with a checksum", checked, 10)]
    {
        let whole = judge(kind, &file, &archive).expect("the whole archive");
        let mut same = 0;
        for bit in 0..archive.len() * 8 {
            let mut damaged = archive.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let what = format!("{kind} with bit {} of byte {}", bit % 8, bit / 8);
            match judge(&what, &file, &damaged) {
                Err(_) => {}
                // Without a checksum zstd cannot notice; that is its writer's choice.
                Ok(_) if kind == "tar.zst" => same += 1,
                Ok(id) => {
                    assert_eq!(id, whole, "{what}");
                    same += 1;
                }
            }
        }
        assert!(same * 100 <= archive.len() * 8 * limit, "{kind}: {same} of {} bits do not matter", archive.len() * 8);
    }
}

#[test]
fn bytes_at_random_are_never_a_panic() {
    let dir = support::folder();
    let file = dir.path().join("bundle");
    let noise = noise(40_000);
    for (kind, archive) in small() {
        for round in 0..300 {
            let mut damaged = archive.clone();
            for hit in 0..=round % 5 {
                let at = usize::from(noise[round * 20 + hit * 3]) * 256 + usize::from(noise[round * 20 + hit * 3 + 1]);
                let at = at % damaged.len();
                damaged[at] = noise[round * 20 + hit * 3 + 2];
            }
            let _ = judge(kind, &file, &damaged);
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
            assert!(judge("noise", &file, &bytes).is_err());
        }
    }
}

#[test]
fn a_tar_whose_entry_is_longer_or_shorter_than_it_says_is_refused() {
    let content = "x".repeat(1500);
    // The rest of what is too long is read as a header.
    let header = "the archive is damaged: a tar header's checksum";
    for (what, size, word) in [
        ("longer", 1 << 20, "entry \"victim\" is cut short: an entry's content"),
        ("shorter", 400, header),
        ("none", 0, header),
    ] {
        let bytes = tar::tar(&[tar::file("index.html", "x"), tar::file("victim", &content).sized(size)]);
        refused(what, &bytes, &[word]);
        refused(what, &tar::gzip(&bytes), &[word]);
    }
}
