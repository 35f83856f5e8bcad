//! docwharf: `run` on a store that has the version already, with all limits and with metrics.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::http::get_once;
use crate::common::server_setup::{
    ServerSetup, free_port, local, section_without_assistants, section_without_recording, section_without_search,
};
use crate::peers::LaunchCommand;
use crate::site::run;

pub(crate) const NAME: &str = "docwharf";
/// An earlier docwharf, which is measured as a peer (`--before`).
pub(crate) const EARLIER: &str = "docwharf-before";

/// docwharf with the tag of the search box behind each page (`--tag`).
pub(crate) const WITH_TAG: &str = "docwharf-tag";
/// The bytes that it appends to each page.
pub(crate) const TAG: &[u8] = b"<script src=\"/_docwharf/search.js\" defer></script>";

/// docwharf that records what readers do (`--recording`).
pub(crate) const WITH_RECORDING: &str = "docwharf-recording";

/// docwharf with the MCP server, Markdown, `llms.txt`, ask and the playground (`--assistants`).
pub(crate) const WITH_ASSISTANTS: &str = "docwharf-assistants";

/// The parts of docwharf that a measurement adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddedPart {
    /// Neither the search nor the recording nor the assistants.
    None,
    /// The tag of the search box behind each page.
    Tag,
    /// The recording of what readers do.
    Recording,
    /// The assistants, and the search that they use, without its tag.
    Assistants,
}

/// The configuration of all assistants. No request of the measurement reaches the model or the API.
const ALL_ASSISTANTS: &str = "[assistant]\nbaseUrl = \"http://127.0.0.1:9/v1\"\nmodel = \"m\"\n\
    [playground]\nenabled = true\n[[playground.allow]]\norigin = \"https://api.example.com\"\n";

impl AddedPart {
    /// The part that the contender of this name has.
    pub(crate) fn of(name: &str) -> AddedPart {
        match name {
            WITH_TAG => AddedPart::Tag,
            WITH_RECORDING => AddedPart::Recording,
            WITH_ASSISTANTS => AddedPart::Assistants,
            _ => AddedPart::None,
        }
    }

    /// The sections of the configuration that turn on this part, and the others off.
    fn sections(self, program: &Path) -> String {
        let search = match self {
            AddedPart::Tag => "[search]\ninject = \"always\"\n",
            AddedPart::Assistants => "[search]\ninject = \"never\"\n",
            AddedPart::None | AddedPart::Recording => section_without_search(program),
        };
        let recording = if self == AddedPart::Recording { "" } else { section_without_recording(program) };
        let assistants =
            if self == AddedPart::Assistants { ALL_ASSISTANTS } else { section_without_assistants(program) };
        format!("{search}{recording}{assistants}")
    }
}

/// A docwharf program with its configuration and store.
#[derive(Debug, Clone)]
pub(crate) struct DocwharfSetup {
    pub program: PathBuf,
    config: PathBuf,
    admin: u16,
}

impl DocwharfSetup {
    /// Makes a store in the folder, and a configuration without a source.
    pub(crate) fn set_up(program: &Path, setup: &ServerSetup, part: AddedPart) -> Result<Self, String> {
        let (store, inbox) = (setup.folder.join("store"), setup.folder.join("inbox"));
        std::fs::create_dir_all(&inbox).map_err(|error| format!("cannot make {}: {error}", inbox.display()))?;
        let admin = free_port()?;
        let text = format!(
            "[store]\npath = '{}'\n[sync]\ninbox = '{}'\n[server]\nlisten = \"127.0.0.1:{}\"\n\
             [admin]\nlisten = \"127.0.0.1:{admin}\"\n[access]\nlog = \"off\"\n{}",
            store.display(),
            inbox.display(),
            setup.port,
            part.sections(program),
        );
        let config = PathBuf::from(setup.write("docwharf.toml", &text)?);
        Ok(Self { program: program.to_path_buf(), config, admin })
    }

    /// The size of the running server's cache of inflated files, from its metrics.
    pub(crate) fn identity_cache(&self) -> Option<u64> {
        let response = get_once(local(self.admin), "/metrics", &[]).ok()?;
        let text = String::from_utf8(response.body).ok()?;
        text.lines().find_map(|line| line.strip_prefix("docwharf_identity_cache_bytes ")?.parse().ok())
    }

    /// Runs a command to its end.
    pub(crate) fn run_command(&self, arguments: &[&str]) -> Result<String, String> {
        run(&mut self.command(arguments))
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["--config"]).arg(&self.config).args(arguments);
        command
    }

    pub(crate) fn launch(&self, setup: &ServerSetup) -> LaunchCommand {
        let words = [&self.program.display().to_string(), "--config", &self.config.display().to_string(), "run"];
        let command = words.iter().map(|word| (*word).to_owned()).collect();
        LaunchCommand { command, variables: Vec::new(), h2_port: setup.port, missing_rows: &[] }
    }
}
