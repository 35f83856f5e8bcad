//! Suggestions for unknown commands, for example for the names that other programs use. A command that changes the
//! served site is never suggested only because its name is similar: `docwharf validate` must not lead to `activate`.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Names of commands that users try, each with the command that does the same.
const SUGGESTED_COMMANDS: &[(&str, &str)] = &[
    ("check", "docwharf config check"),
    ("disable", "systemctl disable --now docwharf"),
    ("init", "docwharf config init"),
    ("lint", "docwharf config check"),
    ("list", "docwharf versions"),
    ("log", "journalctl -u docwharf, or docwharf history"),
    ("logs", "journalctl -u docwharf, or docwharf history"),
    ("ls", "docwharf versions"),
    ("prune", "docwharf gc --dry-run"),
    ("reload", "systemctl reload docwharf, or send SIGHUP to the daemon"),
    ("restart", "systemctl restart docwharf"),
    ("start", "systemctl start docwharf, or docwharf run"),
    ("stop", "systemctl stop docwharf, or send SIGTERM to the daemon"),
    ("test", "docwharf config check, or docwharf doctor"),
    ("unpack", "docwharf bundle unpack"),
    ("validate", "docwharf config check"),
    ("verify", "docwharf bundle verify FILE, or docwharf store verify"),
];

/// Commands that change which version is active, or which versions are stored. `run` does so by its first sync.
const CHANGING_COMMANDS: &[&str] = &["activate", "gc", "hold", "import", "release", "rollback", "run", "sync"];

/// Returns the message for an unknown command, with a suggestion; `None` if the error is another one or does not
/// contain the command's name.
pub(super) fn explain_unknown_command(error: &clap::Error) -> Option<String> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let similar = match error.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(names)) => names.iter().map(String::as_str).collect(),
        Some(ContextValue::String(name)) => vec![name.as_str()],
        _ => Vec::new(),
    };
    let parent = parent_command(error);
    let is_top = parent == PROGRAM_NAME;
    let known =
        SUGGESTED_COMMANDS.iter().find(|(name, _)| is_top && name == unknown).map(|(_, command)| (*command).to_owned());
    // clap lists the most similar name last.
    let similar = similar.into_iter().rev().find(|name| !is_top || !CHANGING_COMMANDS.contains(name));
    let advice = match known.or_else(|| similar.map(|name| format!("{parent} {name}"))) {
        Some(command) => format!("did you mean {command}?"),
        None => format!("{parent} --help lists the commands"),
    };
    Some(format!("there is no command '{unknown}'; {advice}"))
}

/// The name of the program, with which usage lines begin.
const PROGRAM_NAME: &str = "docwharf";

/// Returns the command whose subcommand is unknown: `docwharf origin key` for `docwharf origin key revke`. The usage
/// line of the error names it before its first placeholder.
fn parent_command(error: &clap::Error) -> String {
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else { return PROGRAM_NAME.to_owned() };
    let usage = usage.to_string();
    let words = usage.split_whitespace().skip_while(|&word| word != PROGRAM_NAME);
    let names: Vec<&str> = words.take_while(|word| !word.starts_with(['[', '<', '-'])).collect();
    if names.is_empty() { PROGRAM_NAME.to_owned() } else { names.join(" ") }
}
