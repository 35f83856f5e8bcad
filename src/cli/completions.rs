//! `docwharf completions SHELL`: prints a completion script, made from the same definitions as the command line.

use clap::Args;
use clap_complete::Shell;

use super::failure::CommandFailure;
use super::output::print;

#[derive(Debug, Args)]
pub(super) struct CompletionsCommand {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl CompletionsCommand {
    /// Prints the script for this command line.
    pub(super) fn run(self, mut command_line: clap::Command) -> Result<(), CommandFailure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command_line, "docwharf", &mut script);
        print(&String::from_utf8_lossy(&script))
    }
}
