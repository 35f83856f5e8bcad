//! `docwharf completions SHELL`: prints a completion script, made from the same definitions as the command line.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;
use super::failure::CommandFailure;
use super::output::print;

#[derive(Debug, Args)]
pub(super) struct CompletionsCommand {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl CompletionsCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "docwharf", &mut script);
        print(&String::from_utf8_lossy(&script))
    }
}
