//! docwharf: `run` on a store that has the version already, with every limit and the metrics on.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::http::once;
use crate::common::place::{Place, free_port, local};
use crate::peers::Launch;
use crate::site::run;

pub(crate) const NAME: &str = "docwharf";
/// An earlier docwharf, which is measured as a peer (`--before`).
pub(crate) const BEFORE: &str = "docwharf-before";

/// A program, and the store and configuration it works with.
#[derive(Debug, Clone)]
pub(crate) struct Ours {
    pub program: PathBuf,
    config: PathBuf,
    admin: u16,
}

impl Ours {
    /// A store below the place's folder, and a configuration that brings nothing in by itself.
    pub(crate) fn set_up(program: &Path, place: &Place) -> Result<Self, String> {
        let (store, inbox) = (place.folder.join("store"), place.folder.join("inbox"));
        std::fs::create_dir_all(&inbox).map_err(|error| format!("cannot make {}: {error}", inbox.display()))?;
        let admin = free_port()?;
        let text = format!(
            "[store]\npath = '{}'\n[sync]\ninbox = '{}'\n[server]\nlisten = \"127.0.0.1:{}\"\n\
             [admin]\nlisten = \"127.0.0.1:{admin}\"\n[access]\nlog = \"off\"\n",
            store.display(),
            inbox.display(),
            place.port,
        );
        let config = PathBuf::from(place.write("docwharf.toml", &text)?);
        Ok(Self { program: program.to_path_buf(), config, admin })
    }

    /// Bytes of inflated pages that the running server keeps, which is one bounded setting.
    pub(crate) fn identity_cache(&self) -> Option<u64> {
        let answer = once(local(self.admin), "/metrics", &[]).ok()?;
        let text = String::from_utf8(answer.body).ok()?;
        text.lines().find_map(|line| line.strip_prefix("docwharf_identity_cache_bytes ")?.parse().ok())
    }

    /// A verb, to its end.
    pub(crate) fn verb(&self, arguments: &[&str]) -> Result<String, String> {
        run(&mut self.command(arguments))
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["--config"]).arg(&self.config).args(arguments);
        command
    }

    pub(crate) fn launch(&self, place: &Place) -> Launch {
        let words = [&self.program.display().to_string(), "--config", &self.config.display().to_string(), "run"];
        let command = words.iter().map(|word| (*word).to_owned()).collect();
        Launch { command, variables: Vec::new(), h2_port: place.port, lacks: &[] }
    }
}
