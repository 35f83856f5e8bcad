//! Bounded reads of regular files that a user or the configuration has named. No read waits: a named pipe without a
//! writer would delay a start for ever, and a device without an end would use up the memory.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Opens a regular file for reading; a link to one is followed. Anything else is an error that names the kind of file.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        // open(2) reports ENXIO (no such device or address) for a socket.
        Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
            return Err(std::fs::metadata(path).map_or(error, |metadata| not_regular_error(metadata.file_type())));
        }
        opened => opened?,
    };
    let kind = file.metadata()?.file_type();
    if kind.is_file() { Ok(file) } else { Err(not_regular_error(kind)) }
}

/// Creates the error for a file of this kind where a regular file is needed.
pub fn not_regular_error(kind: FileType) -> io::Error {
    let kind_name = match () {
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a named pipe",
        () if kind.is_socket() => "a socket",
        () if kind.is_symlink() => "a symbolic link",
        () => "a device",
    };
    io::Error::other(format!("expected a regular file, found {kind_name}"))
}

/// Reads a regular file of at most `max_bytes` bytes.
pub fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(io::Error::other(format!("the file is larger than {max_bytes} bytes")));
    }
    Ok(bytes)
}

/// Reads a regular file of at most `max_bytes` bytes as UTF-8 text.
pub fn read_text(path: &Path, max_bytes: u64) -> io::Result<String> {
    String::from_utf8(read(path, max_bytes)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the file is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn regular_file_is_read_up_to_its_size_limit_even_through_a_symlink() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "12345").unwrap();
        symlink(&file, &link).unwrap();
        for path in [&file, &link] {
            assert_eq!(read(path, 5).unwrap(), b"12345");
            assert_eq!(read_text(path, 6).unwrap(), "12345");
            assert!(read(path, 4).unwrap_err().to_string().contains("larger than 4 bytes"));
            assert!(read_text(path, 4).is_err());
        }
        std::fs::write(&file, [0xff]).unwrap();
        assert_eq!(read(&file, 1).unwrap(), [0xff]);
        assert_eq!(read_text(&file, 1).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(read(&dir.path().join("none"), 1).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    // Regression: the program waited for ever when it opened a named pipe in the place of a regular file.
    #[test]
    fn opening_a_special_file_names_its_type_without_blocking() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .unwrap();
        let _socket = UnixListener::bind(path("socket")).unwrap();
        symlink("pipe", path("link")).unwrap();
        for (path, kind_name) in [
            (path("pipe"), "a named pipe"),
            (path("link"), "a named pipe"),
            (path("socket"), "a socket"),
            (dir.path().to_owned(), "a folder"),
            ("/dev/zero".into(), "a device"),
        ] {
            for error in [open(&path).unwrap_err(), read(&path, 9).unwrap_err(), read_text(&path, 9).unwrap_err()] {
                assert_eq!(error.to_string(), format!("expected a regular file, found {kind_name}"));
            }
        }
        let link = std::fs::symlink_metadata(path("link")).unwrap().file_type();
        assert!(not_regular_error(link).to_string().contains("a symbolic link"));
    }
}
