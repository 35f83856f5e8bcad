//! `docwharf man`: writes manual pages, made from the same definitions as the command line.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_mangen::roff::{Roff, bold, roman};

use super::failure::CommandFailure;
use super::output::print;

#[derive(Debug, Args)]
pub(super) struct ManCommand {
    /// Write a page for every command into this folder, which is created if it is missing
    #[arg(long, value_name = "DIR")]
    all: Option<PathBuf>,
}

/// The meaning of each exit code. README.md has the same table; a test compares them.
const EXIT_CODES: &[(&str, &str)] = &[
    ("0", "done, already current, staged as configured, or disabled"),
    (
        "1",
        "other; diff: something differs; doctor: there is an error; redirects check: something is wrong; bundle audit: something is needed from elsewhere; search: nothing was found",
    ),
    (
        "2",
        "usage or configuration; also 400 and 422 from the API, and 404 for preview create and analytics (wrong api.projectId)",
    ),
    ("3", "refused by the upstream: 401 to 403"),
    (
        "4",
        "upstream unavailable: no connection, TLS, 404, 409, 429, 5xx, time-out, an expired link that cannot be renewed, a rate limit that is used up",
    ),
    (
        "5",
        "bundle rejected, or its SHA-256 is not staticExport.sha256; an exchange file of analytics is damaged, incomplete, too large or of a later version",
    ),
    ("6", "the export job or the preview failed"),
    ("7", "sealed but not activated: held, pinned, or refused by the gate"),
    ("8", "local: disk, permission, lock, port"),
    ("130, 143", "ended by SIGINT, SIGTERM; run, serve, origin and demo end with 0"),
];

const DOCUMENTED_FILES: &[(&str, &str)] = &[
    (
        crate::config::default_file::DEFAULT_FILE,
        "the configuration, unless --config or $DOCWHARF_CONFIG names another; docwharf config init writes every key with its default and an explanation",
    ),
    ("/var/lib/docwharf", "the store, unless $STATE_DIRECTORY or store.path names another"),
    (
        "STORE/state.json",
        "the record: which version is active, holds, labels, how the last sync ended; docwharf status shows it",
    ),
    ("STORE/versions/ID/site.zip", "a version: a standard ZIP that any tool opens, never changed"),
    ("STORE/history.jsonl", "who did what, when; docwharf history shows it"),
    ("STORE/analytics.db", "what readers searched for and read; docwharf analytics shows and deletes it"),
    ("STORE/control.sock", "commands for the daemon that runs on this store, from its own user and root"),
];

const DOCUMENTED_VARIABLES: &[(&str, &str)] = &[
    ("DOCWHARF_CONFIG", "the configuration file"),
    (
        "DOCWHARF_SECTION__KEY",
        "any key of the configuration, overrides the file: staticExport.bundleUrl is DOCWHARF_STATIC_EXPORT__BUNDLE_URL",
    ),
    ("DOCWHARF_API_KEY", "the API key, if api.keyFile is not set"),
    ("DOCWHARF_LOG, RUST_LOG", "what is logged to standard error: error, warn, info, debug, trace"),
    (
        "CREDENTIALS_DIRECTORY",
        "set by systemd: contains the key as api-key, which is used if neither of the two above is set",
    ),
    ("STATE_DIRECTORY", "set by systemd: the store, if store.path is not set"),
    (
        "HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY",
        "proxies for outbound connections, and hosts that are reached without them",
    ),
    ("SSL_CERT_FILE, SSL_CERT_DIR", "root certificates instead of the system's; api.caFile adds to either"),
    ("NO_COLOR", "if not empty: no colour, unless --color requests it"),
];

impl ManCommand {
    pub(super) fn run(self, command_line: Command) -> Result<(), CommandFailure> {
        let mut command = command_line.disable_help_subcommand(true);
        command.build();
        let Some(dir) = self.all else {
            let page = render_page(&command, None).map_err(CommandFailure::Output)?;
            return print(&page);
        };
        let write = || {
            fs::create_dir_all(&dir)?;
            write_all(&command, None, &dir)
        };
        write().map_err(CommandFailure::local(format!("cannot write manual pages into {}", dir.display())))
    }
}

/// Writes the page of `command` and those of its subcommands.
fn write_all(command: &Command, parent: Option<&str>, dir: &Path) -> io::Result<()> {
    let name = page_name(command);
    fs::write(dir.join(format!("{name}.1")), render_page(command, parent)?)?;
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        write_all(subcommand, Some(&name), dir)?;
    }
    Ok(())
}

/// Returns the name of a command's page, such as `docwharf-bundle-verify`.
fn page_name(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

fn render_page(command: &Command, parent: Option<&str>) -> io::Result<String> {
    let man = clap_mangen::Man::new(command.clone());
    let mut out = Vec::new();
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut out)?;
    }
    let mut sections = Roff::new();
    if let Some(parent) = parent {
        sections.control("SH", ["SEE ALSO"]);
        let pages: &[&str] = if parent == "docwharf" { &["docwharf"] } else { &["docwharf", parent] };
        for (i, page) in pages.iter().enumerate() {
            let end = if i + 1 < pages.len() { "(1)," } else { "(1)" };
            sections.text([bold(*page), roman(end)]);
        }
    } else {
        for (title, entries) in
            [("EXIT STATUS", EXIT_CODES), ("FILES", DOCUMENTED_FILES), ("ENVIRONMENT", DOCUMENTED_VARIABLES)]
        {
            sections.control("SH", [title]);
            for (term, meaning) in entries {
                sections.control("TP", []);
                sections.text([bold(*term)]);
                sections.text([roman(*meaning)]);
            }
        }
    }
    sections.to_writer(&mut out)?;
    let title = page_name(command).to_uppercase();
    let version = env!("CARGO_PKG_VERSION");
    // The library omits an empty date, which shifts the fields behind it. So the header is written here.
    let head =
        format!("{APOSTROPHE_DEFINITION}.TH \"{title}\" \"1\" \"\" \"docwharf {version}\" \"docwharf manual\"\n");
    Ok(head + &bold_backticks(&String::from_utf8_lossy(&out).replace(APOSTROPHE_DEFINITION, "")))
}

/// The definition that the library writes before each section; a page needs it once.
const APOSTROPHE_DEFINITION: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";

/// Sets names in backticks in bold type, and removes blank lines: roff separates paragraphs by requests.
fn bold_backticks(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n').filter(|line| *line != "\n") {
        let pieces: Vec<&str> = line.split('`').collect();
        for (i, piece) in pieces.iter().enumerate() {
            out.push_str(piece);
            if i + 1 < pieces.len() {
                out.push_str(if i % 2 == 0 { "\\fB" } else { "\\fR" });
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::bold_backticks;

    #[test]
    fn man_page_text_in_backticks_is_bold() {
        assert_eq!(bold_backticks("a `b` c `d`\n\ne\n"), "a \\fBb\\fR c \\fBd\\fR\ne\n");
    }
}
