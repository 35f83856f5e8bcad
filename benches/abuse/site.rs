//! The attacked site, which this program makes: a ZIP for docwharf, a folder with `.gz` files for the other servers.
//!
//! All large pages together exceed docwharf's `server.identityCache`, so that requests for all of them miss the cache.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use zip::write::SimpleFileOptions;

/// The page that a bystander requests.
pub(crate) const SMALL: &str = "/small.html";
const SMALL_BYTES: usize = 2 * 1024;
/// Pages of ordinary size.
pub(crate) const PAGES: usize = 200;
const PAGE_BYTES: usize = 60 * 1024;
/// Pages of nearly 4 MiB, 90 MiB together.
pub(crate) const BIG_PAGES: usize = 24;
const BIG_PAGE_BYTES: usize = 3_950_000;
/// A file that cannot be compressed and is larger than the buffers of a socket.
pub(crate) const LARGE: &str = "/files/large.png";
const LARGE_BYTES: usize = 24 * 1024 * 1024;

pub(crate) fn page(n: usize) -> String {
    format!("/pages/p{:03}.html", n % PAGES)
}

pub(crate) fn big_page(n: usize) -> String {
    format!("/big/p{:02}.html", n % BIG_PAGES)
}

/// The site as a ZIP and as a folder.
#[derive(Debug)]
pub(crate) struct Site {
    pub zip: PathBuf,
    pub folder: PathBuf,
    pub small: Vec<u8>,
}

/// Pseudo-random numbers from a fixed seed (xorshift).
struct RandomNumbers(u64);

impl RandomNumbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// One of the 4,096 words of the pages, which have two to nine letters.
pub(crate) fn word(number: u64) -> String {
    let mut rest = (number & 0xfff).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let letters = 2 + (rest >> 60) % 8;
    let next_letter = |_| {
        let letter = char::from(b'a' + (rest % 26) as u8);
        rest /= 26;
        letter
    };
    (0..letters).map(next_letter).collect()
}

/// A page of random words, which compresses about as well as prose.
fn random_words(length: usize, seed: u64) -> Vec<u8> {
    let mut numbers = RandomNumbers(seed * 2 + 1);
    let mut text = format!("<!doctype html><title>Page {seed}</title><p>").into_bytes();
    while text.len() < length {
        text.extend_from_slice(word(numbers.next()).as_bytes());
        text.push(b' ');
    }
    text.truncate(length);
    text
}

fn random_bytes(length: usize) -> Vec<u8> {
    let mut numbers = RandomNumbers(7);
    let mut bytes_out = b"\x89PNG\r\n\x1a\n".to_vec();
    while bytes_out.len() < length {
        bytes_out.extend_from_slice(&numbers.next().to_le_bytes());
    }
    bytes_out.truncate(length);
    bytes_out
}

fn site_files() -> Vec<(String, Vec<u8>)> {
    let mut files = vec![
        ("/index.html".to_owned(), random_words(SMALL_BYTES, 1)),
        (SMALL.to_owned(), random_words(SMALL_BYTES, 2)),
        (LARGE.to_owned(), random_bytes(LARGE_BYTES)),
    ];
    files.extend((0..PAGES).map(|n| (page(n), random_words(PAGE_BYTES, 100 + n as u64))));
    files.extend((0..BIG_PAGES).map(|n| (big_page(n), random_words(BIG_PAGE_BYTES, 1000 + n as u64))));
    files
}

impl Site {
    pub(crate) fn make(scratch: &Path) -> Result<Self, String> {
        let (zip, folder) = (scratch.join("site.zip"), scratch.join("site"));
        let files = site_files();
        let small = files[1].1.clone();
        let write = || -> Result<(), Box<dyn std::error::Error>> {
            let mut archive = zip::ZipWriter::new(fs::File::create(&zip)?);
            for (path, body) in &files {
                archive.start_file(path.trim_start_matches('/'), SimpleFileOptions::default())?;
                archive.write_all(body)?;
                let file = folder.join(path.trim_start_matches('/'));
                fs::create_dir_all(file.parent().unwrap_or(&folder))?;
                fs::write(&file, body)?;
                if path != LARGE {
                    let compressed = fs::File::create(format!("{}.gz", file.display()))?;
                    let mut encoder = GzEncoder::new(compressed, Compression::fast());
                    encoder.write_all(body)?;
                    encoder.finish()?;
                }
            }
            archive.finish()?;
            Ok(())
        };
        write().map_err(|error| format!("cannot make a site in {}: {error}", scratch.display()))?;
        Ok(Self { zip, folder, small })
    }

    /// Writes the site with one more file, so that it is a new version.
    pub(crate) fn write_version(&self, to: &Path, number: usize) -> Result<(), String> {
        let write = || -> Result<(), Box<dyn std::error::Error>> {
            let part = to.with_extension("part");
            fs::copy(&self.zip, &part)?;
            let file = fs::OpenOptions::new().read(true).write(true).open(&part)?;
            let mut archive = zip::ZipWriter::new_append(file)?;
            archive.start_file("version.txt", SimpleFileOptions::default())?;
            write!(archive, "version {number}")?;
            archive.finish()?;
            fs::rename(&part, to)?;
            Ok(())
        };
        write().map_err(|error| format!("cannot make {}: {error}", to.display()))
    }
}
