//! Commands under GNU time.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct TimedRun {
    pub seconds: f64,
    /// The greatest resident memory of one of its processes, with the parts of files that it had mapped.
    pub peak_bytes: u64,
    pub output: String,
}

/// Runs a command in `folder`, on all cores.
pub(crate) fn run_timed(words: &[&str], folder: &Path) -> Result<TimedRun, String> {
    let failure = |error: std::io::Error| format!("cannot run {}: {error}", words.join(" "));
    let report = folder.join("time");
    let started = Instant::now();
    let output = Command::new("time")
        .args(["-q", "-f", "%M", "-o"])
        .arg(&report)
        .args(words)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .map_err(failure)?;
    let seconds = started.elapsed().as_secs_f64();
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} failed: {}", words.join(" "), errors.trim()));
    }
    let text = fs::read_to_string(&report).map_err(failure)?;
    let kib: u64 = text.trim().parse().map_err(|_| format!("GNU time reports {text:?}"))?;
    Ok(TimedRun { seconds, peak_bytes: kib * 1024, output: String::from_utf8_lossy(&output.stdout).into_owned() })
}

/// The size of all files in a folder, without those that `is_left_out` names by their path below it.
pub(crate) fn folder_bytes(folder: &Path, is_left_out: impl Fn(&Path) -> bool) -> Result<u64, String> {
    let mut bytes = 0;
    let mut folders = vec![folder.to_path_buf()];
    while let Some(current) = folders.pop() {
        let failure = |error: std::io::Error| format!("cannot list {}: {error}", current.display());
        for entry in fs::read_dir(&current).map_err(failure)? {
            let entry = entry.map_err(failure)?;
            let (path, metadata) = (entry.path(), entry.metadata().map_err(failure)?);
            if metadata.is_dir() {
                folders.push(path);
            } else if !is_left_out(path.strip_prefix(folder).unwrap_or(&path)) {
                bytes += metadata.len();
            }
        }
    }
    Ok(bytes)
}

/// A path as text, for command lines.
pub(crate) fn path_text(path: &Path) -> Result<&str, String> {
    path.to_str().ok_or_else(|| format!("{} is not UTF-8", path.display()))
}

/// Makes an empty folder.
pub(crate) fn make_empty_folder(folder: &Path) -> Result<(), String> {
    let failure = |error: std::io::Error| format!("cannot make {}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(failure)?;
    }
    fs::create_dir_all(folder).map_err(failure)
}
