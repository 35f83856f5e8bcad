//! Exchange files.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::super::{
    CheckedBatch, DayCount, DayCountKind, ExchangeFileError, ExchangeFileReader, ExchangeFileWriter, SearchBatch,
    SearchEvent, ViewBatch,
};
use super::{INSTALLATION, NOW};
use docwharf_base::model::digest::encode_hex;

fn search_batch() -> SearchBatch {
    let event = SearchEvent::new("a\u{2028}\n", "2026-11-20T08:00:00Z");
    SearchBatch { batch_id: "b1".to_owned(), events: vec![event], clicks: vec![] }
}

fn view_batch() -> ViewBatch {
    let counts = vec![DayCount::of_key(20_777, DayCountKind::Agent, "curl".to_owned(), 1)];
    ViewBatch { batch_id: "b2".to_owned(), installation: INSTALLATION.to_owned(), counts }
}

fn exchange_file() -> Vec<u8> {
    let mut writer = ExchangeFileWriter::new(Vec::new(), INSTALLATION, "2026-11-21T00:00:00Z").unwrap();
    writer.write_searches(&search_batch()).unwrap();
    writer.write_views(&view_batch()).unwrap();
    writer.finish().unwrap()
}

/// Replaces the last line by one that fits the lines before it.
fn with_checksum(lines: &str, batches: u64) -> Vec<u8> {
    let sha256 = encode_hex(&Sha256::digest(lines.as_bytes()));
    format!("{lines}{{\"batches\":{batches},\"sha256\":\"{sha256}\"}}\n").into_bytes()
}

fn open(folder: &Path, content: &[u8]) -> Result<ExchangeFileReader, ExchangeFileError> {
    ExchangeFileReader::copy(content, folder, NOW)
}

#[test]
fn a_written_file_is_read_back_from_a_path_or_a_stream() {
    let folder = tempfile::tempdir().unwrap();
    let content = exchange_file();
    let header = "{\"format\":\"docwharf-analytics\",\"version\":1,\"installation\":\"00112233445566ff\",\
                  \"created\":\"2026-11-21T00:00:00Z\"}\n";
    assert!(content.starts_with(header.as_bytes()));
    let path = folder.path().join("analytics.jsonl");
    fs::write(&path, &content).unwrap();
    let files = [ExchangeFileReader::open(&path, NOW), open(folder.path(), &content)];
    for file in files {
        let mut file = file.unwrap();
        assert_eq!(file.header().installation, INSTALLATION);
        let searches = CheckedBatch::Searches(search_batch().check(NOW).unwrap());
        assert_eq!(file.next_batch().unwrap(), Some(searches));
        assert_eq!(file.next_batch().unwrap(), Some(CheckedBatch::Views(view_batch().check(NOW).unwrap())));
        assert_eq!((file.next_batch().unwrap(), file.next_batch().unwrap()), (None, None));
    }
    let mut file = ExchangeFileReader::open(&path, NOW).unwrap();
    assert_eq!((file.next_batches().unwrap().len(), file.next_batches().unwrap().len()), (2, 0));
    let empty = ExchangeFileWriter::new(Vec::new(), INSTALLATION, "").unwrap().finish().unwrap();
    assert_eq!(open(folder.path(), &empty).unwrap().next_batch().unwrap(), None);
    // Only the file that was written is in the folder.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_file_in_which_any_byte_is_changed_missing_or_added_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let content = exchange_file();
    for position in 0..content.len() {
        let mut changed = content.clone();
        changed[position] ^= 1;
        assert!(open(folder.path(), &changed).is_err(), "byte {position} was changed");
        let cut = open(folder.path(), &content[..position]);
        assert!(matches!(cut, Err(ExchangeFileError::Damaged { .. })), "cut at byte {position}: {cut:?}");
    }
    for more in ["\n", "x", "{}\n", "{\"batches\":2"] {
        let longer = [&content, more.as_bytes()].concat();
        let result = open(folder.path(), &longer);
        assert!(matches!(result, Err(ExchangeFileError::Damaged { line: 5, .. })), "{more:?}: {result:?}");
    }
}

#[test]
fn a_file_with_a_correct_checksum_is_refused_if_its_lines_are_invalid() {
    let folder = tempfile::tempdir().unwrap();
    let content = String::from_utf8(exchange_file()).unwrap();
    let lines: Vec<&str> = content.split_inclusive('\n').collect();
    let valid = lines[..3].concat();
    assert_eq!(with_checksum(&valid, 2), content.as_bytes());
    let result = open(folder.path(), &with_checksum(&valid.replace("\"version\":1", "\"version\":2"), 2));
    assert!(matches!(result, Err(ExchangeFileError::LaterVersion { found: 2 })), "{result:?}");
    for (from, to, bad_line, problem) in [
        ("docwharf-analytics", "docwharf-searches", 1, "its format is not docwharf-analytics"),
        ("\"installation\":\"00112233445566ff\",\"cr", "\"installation\":\"x\",\"cr", 1, "hexadecimal digits"),
        ("\"version\":1,", "", 1, "it is not the header"),
        ("2026-11-20T08", "2027-11-20T08", 2, "events[0]: time: it is more than a day ahead"),
        ("\"events\"", "\"others\"", 2, "missing field `events`"),
        ("{\"searches\":", "{\"finds\":", 2, "unknown variant `finds`"),
        ("\"kind\":\"agent\"", "\"kind\":\"entry\"", 3, "counts[0]: key: a path begins with a slash"),
    ] {
        match open(folder.path(), &with_checksum(&valid.replacen(from, to, 1), 2)) {
            Err(error @ (ExchangeFileError::Damaged { .. } | ExchangeFileError::TooFarAhead { .. })) => {
                let found = error.to_string();
                let is_described = found.starts_with(&format!("line {bad_line}: ")) && found.contains(problem);
                let remedy =
                    if problem.contains("ahead") { "; check the clocks" } else { "; export the analytics again" };
                assert!(is_described && found.contains(remedy) && !found.contains(" column "), "{from}: {found}");
            }
            other => panic!("{from}: {other:?}"),
        }
    }
    let result = open(folder.path(), &with_checksum(&valid, 3));
    assert!(matches!(result, Err(ExchangeFileError::Damaged { line: 4, .. })), "{result:?}");
}

#[test]
fn a_file_with_an_endless_line_is_refused_and_a_failing_stream_is_an_error() {
    struct FailingReader;
    impl Read for FailingReader {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("unplugged"))
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let long = "x".repeat((4 << 20) + 65);
    let result = open(folder.path(), long.as_bytes());
    assert!(matches!(&result, Err(ExchangeFileError::Damaged { line: 1, problem }) if problem == "it is too long"));
    let failing = ExchangeFileReader::copy(FailingReader, folder.path(), NOW);
    assert!(matches!(failing, Err(ExchangeFileError::Read(_))), "{failing:?}");
    let absent = ExchangeFileReader::open(&folder.path().join("absent"), NOW);
    assert!(matches!(absent, Err(ExchangeFileError::Read(_))), "{absent:?}");
    let mut writer = ExchangeFileWriter::new(Vec::new(), INSTALLATION, "").unwrap();
    let too_large = SearchBatch { batch_id: long, ..search_batch() };
    assert_eq!(writer.write_searches(&too_large).unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn a_file_that_changes_after_it_was_verified_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("analytics.jsonl");
    // The file is larger than the buffer of the reader.
    let mut large = ExchangeFileWriter::new(Vec::new(), INSTALLATION, "").unwrap();
    (0..2_000).for_each(|_| large.write_searches(&search_batch()).unwrap());
    fs::write(&path, large.finish().unwrap()).unwrap();
    let mut file = ExchangeFileReader::open(&path, NOW).unwrap();
    fs::write(&path, exchange_file()).unwrap();
    let result = std::iter::from_fn(|| file.next_batch().transpose()).find(Result::is_err);
    assert!(matches!(result, Some(Err(ExchangeFileError::Changed))), "{result:?}");
}

#[test]
fn a_file_that_no_import_would_accept_is_not_written() {
    let mut sizes = Vec::new();
    let mut unlimited = ExchangeFileWriter::new(&mut sizes, INSTALLATION, "2026-11-20T08:00:00Z").unwrap();
    unlimited.write_searches(&search_batch()).unwrap();
    let max_bytes = sizes.len() as u64;

    let mut writer =
        ExchangeFileWriter::with_limit(Vec::new(), INSTALLATION, "2026-11-20T08:00:00Z", max_bytes).unwrap();
    writer.write_searches(&search_batch()).unwrap();
    let error = writer.write_searches(&search_batch()).unwrap_err();
    assert!(error.to_string().contains("larger than 4 GiB"), "{error}");
}
