//! Standard output and standard error: results, failures, and whether they are coloured.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::failure::CommandFailure;

/// The value of `--color`; unset until the command line has been parsed.
pub(super) static COLOR_OPTION: OnceLock<String> = OnceLock::new();

/// Whether `--json` was given. It is set even if the rest of the command line is invalid.
pub(super) static IS_JSON_WANTED: AtomicBool = AtomicBool::new(false);
/// Whether anything was printed to standard output. A program that reads one JSON document must not find two.
static HAS_PRINTED: AtomicBool = AtomicBool::new(false);

/// Reports a failure on standard error and, with `--json`, as JSON on standard output.
pub fn report(failure: &CommandFailure) {
    let line = colour_failure(failure);
    if line.is_empty() {
        return;
    }
    eprintln!("{line}");
    if IS_JSON_WANTED.load(Ordering::Relaxed) && !HAS_PRINTED.load(Ordering::Relaxed) {
        // If standard output is closed, the exit code still reports the failure.
        let _ = print(&format!("{:#}\n", failure.json()));
    }
}

/// Formats a failure for standard error, with the program's name in red where colour is wanted.
fn colour_failure(failure: &CommandFailure) -> String {
    let text = failure.to_string();
    if !wants_colour(io::stderr().is_terminal()) {
        return text;
    }
    let paint = |line: &str| match line.strip_prefix("docwharf:") {
        Some(rest) => format!("\x1b[1;31mdocwharf:\x1b[0m{rest}"),
        None => line.to_owned(),
    };
    text.lines().map(paint).collect::<Vec<_>>().join("\n")
}

/// Returns whether colour is wanted, by `--color`, `NO_COLOR` and whether the output is a terminal.
pub(super) fn wants_colour(on_terminal: bool) -> bool {
    match COLOR_OPTION.get().map(String::as_str) {
        Some("always") => true,
        Some("never") => false,
        _ => on_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    }
}

/// Writes text to standard output. A closed pipe (`| head`) is not an error.
pub(super) fn print(text: &str) -> Result<(), CommandFailure> {
    HAS_PRINTED.fetch_or(!text.is_empty(), Ordering::Relaxed);
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CommandFailure::Output(error)),
        _ => Ok(()),
    }
}
