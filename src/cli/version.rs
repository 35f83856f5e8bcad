//! `docwharf version`: shows how this program was built, for bug reports and inventories.
//!
//! `docwharf --version` stays one line.

use clap::Args;
use serde_json::{Value, json};

use super::context::CommandContext;
use super::failure::CommandFailure;

#[derive(Debug, Args)]
pub(super) struct VersionCommand {}

impl VersionCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let version = env!("CARGO_PKG_VERSION");
        let target = env!("DOCWHARF_TARGET");
        let compiler = env!("DOCWHARF_COMPILER");
        // Empty in development builds, and in builds without a repository.
        let commit = Some(env!("DOCWHARF_COMMIT")).filter(|commit| !commit.is_empty());
        let features: Vec<&str> = env!("DOCWHARF_FEATURES").split(',').filter(|name| !name.is_empty()).collect();
        let json = json!({
            "schemaVersion": 1,
            "version": version,
            "commit": commit.map_or(Value::Null, Value::from),
            "target": target,
            "compiler": compiler,
            "features": features,
        });
        let commit = commit.unwrap_or("unknown (a development build, or a build without the repository)");
        let features = if features.is_empty() { "none".to_owned() } else { features.join(", ") };
        let text = format!(
            "docwharf {version}\ncommit   {commit}\ntarget   {target}\ncompiler {compiler}\nfeatures {features}\n"
        );
        context.print_result(&json, &text)
    }
}
