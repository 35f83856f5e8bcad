//! Files that hold one key. A key is read each time it is needed, because its file may have been replaced.

use std::io;
use std::path::Path;

use zeroize::Zeroizing;

use crate::accounts::describe_user;
use crate::regular_file;
use crate::secret::Secret;

/// Upper bound of a key file's size in bytes, including white space.
pub const MAX_KEY_FILE_BYTES: u64 = 64 << 10;

/// Reads a file that has one key and nothing else, and trims it. `name` is that of the file and its key of the
/// configuration; the error begins with it.
pub fn read_key_file(path: &Path, name: &str) -> Result<Secret, String> {
    // Overwritten with zeros when it is dropped, as the key itself.
    let text = regular_file::read_text(path, MAX_KEY_FILE_BYTES)
        .map(Zeroizing::new)
        .map_err(|error| format!("{name} cannot be read: {error}"))?;
    let key = text.trim();
    if key.is_empty() {
        return Err(format!("{name} is empty"));
    }
    check_key_characters(key).map_err(|fault| format!("{name} {fault}"))?;
    Ok(Secret::new(key.to_owned()))
}

/// Returns advice for a file with a secret that cannot be read. It begins with "; ". `content` is the secret with its
/// article: "the key".
pub fn secret_file_advice(error: &io::Error, content: &str) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!("; put {content} there, or correct the path"),
        io::ErrorKind::PermissionDenied => {
            let user = describe_user(rustix::process::geteuid().as_raw());
            format!("; give {user} the right to read it, for example by its group and mode 0640")
        }
        _ => format!("; write {content}, and nothing else, into it"),
    }
}

/// Checks that a key can be sent in a header field. The error never quotes it.
pub fn check_key_characters(key: &str) -> Result<(), &'static str> {
    if key.chars().any(|c| c.is_control() || !c.is_ascii()) {
        return Err("has control characters or non-ASCII characters; the value must be the key only");
    }
    Ok(())
}
