//! `docwharf bundle verify|inspect|unpack|pack|audit`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use docwharf_base::model::site_path::is_page;
use docwharf_base::model::units::{format_count, format_size};
use docwharf_site::seal::pack::{PackError, pack};
use docwharf_site::seal::unpack::{UnpackError, unpack};
use docwharf_site::seal::{SealOptions, VerifiedBundle, verify};

use super::audit::AuditCommand;
use super::context::CommandContext;
use super::failure::CommandFailure;
use super::progress;
use super::serve::summarize;

#[derive(Debug, Subcommand)]
pub(super) enum BundleCommand {
    /// Verify a bundle: read it completely and report why it is refused
    Verify(BundlePathArgs),
    /// Show what a bundle contains
    Inspect(BundlePathArgs),
    /// Write the files that `serve` would serve to a folder
    Unpack(UnpackCommand),
    /// Make a bundle of a folder; the same content makes the same bytes
    Pack(PackCommand),
    /// List what a site needs from other origins; exit code 1 if anything
    Audit(AuditCommand),
}

#[derive(Debug, Args)]
pub(super) struct BundlePathArgs {
    /// A zip, tar, tar.gz or tar.zst, or a folder
    path: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct UnpackCommand {
    /// A zip, tar, tar.gz or tar.zst, or a folder
    archive: PathBuf,
    /// An empty or absent folder
    dir: PathBuf,
    /// Write every accepted entry: hidden files, launchers and junk too
    #[arg(long)]
    raw: bool,
}

#[derive(Debug, Args)]
pub(super) struct PackCommand {
    /// The site's folder
    dir: PathBuf,
    /// The bundle: a name that ends with .zip, .tar, .tar.gz or .tar.zst
    bundle: PathBuf,
}

impl BundleCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let seal_options = SealOptions::new(context.limits()?);
        match self {
            BundleCommand::Verify(arguments) => {
                let verified = progress::run_with_progress(context, "verifying", |progress| {
                    verify(&arguments.path, &seal_options, progress)
                })?;
                context.print_warnings(&arguments.path.display().to_string(), &verified.warnings);
                let text = format!("ok {} ({})\n", verified.id, summarize(&verified));
                let json = json!({
                    "schemaVersion": 1, "result": "ok", "version": verified.id, "pages": verified.site_layout.pages,
                    "files": verified.files.len(), "contentBytes": verified.content_len(), "warnings": verified.warnings,
                });
                context.print_outcome(&json, &text)
            }
            BundleCommand::Inspect(arguments) => {
                let verified = progress::run_with_progress(context, "verifying", |progress| {
                    verify(&arguments.path, &seal_options, progress)
                })?;
                if !context.global.json {
                    context.print_warnings(&arguments.path.display().to_string(), &verified.warnings);
                }
                context.print_result(&inspection_json(&verified), &inspection_text(&verified))
            }
            BundleCommand::Unpack(arguments) => {
                let verified = progress::run_with_progress(context, "verifying", |progress| {
                    unpack(&arguments.archive, &arguments.dir, arguments.raw, &seal_options, progress)
                })?;
                context.print_warnings(&arguments.archive.display().to_string(), &verified.warnings);
                let text = format!("unpacked {} into {}\n", summarize(&verified), arguments.dir.display());
                context
                    .print_outcome(&json!({ "schemaVersion": 1, "result": "unpacked", "version": verified.id }), &text)
            }
            BundleCommand::Audit(audit) => audit.run(context),
            BundleCommand::Pack(arguments) => {
                let verified = progress::run_with_progress(context, "packing", |progress| {
                    pack(&arguments.dir, &arguments.bundle, &seal_options, progress)
                })?;
                context.print_warnings(&arguments.dir.display().to_string(), &verified.warnings);
                let archive = verified.archive;
                let text = format!(
                    "packed {} into {} ({})\n",
                    summarize(&verified),
                    arguments.bundle.display(),
                    format_size(archive.map_or(0, |(_, len)| len))
                );
                let json = json!({
                    "schemaVersion": 1, "result": "packed", "version": verified.id,
                    "archiveSha256": archive.map(|(digest, _)| digest.to_hex()), "archiveBytes": archive.map(|(_, len)| len),
                });
                context.print_outcome(&json, &text)
            }
        }
    }
}

fn inspection_json(verified: &VerifiedBundle) -> Value {
    let site_layout = &verified.site_layout;
    let pages = verified.files.iter().filter(|(path, _)| is_page(path.as_bytes()));
    json!({
        "schemaVersion": 1,
        "kind": verified.kind.name(),
        "version": verified.id,
        "layout": site_layout.page_layout.name(),
        "wrapper": site_layout.wrapper().map(String::from_utf8_lossy),
        "pages": site_layout.pages,
        "files": verified.files.len(),
        "contentBytes": verified.content_len(),
        "pageBytes": pages.map(|(_, entry)| entry.len).sum::<u64>(),
        "archiveBytes": verified.archive.map(|(_, len)| len),
        "archiveSha256": verified.archive.map(|(digest, _)| digest.to_hex()),
        "leftOut": { "launchers": site_layout.launchers, "junk": site_layout.junk, "hidden": site_layout.hidden },
        "warnings": verified.warnings,
    })
}

fn inspection_text(verified: &VerifiedBundle) -> String {
    let site_layout = &verified.site_layout;
    let mut lines = vec![
        format!("kind      {}", verified.kind.name()),
        format!("version   {}", verified.id),
        format!("layout    {}", site_layout.page_layout.name()),
        format!("content   {}", summarize(verified)),
    ];
    if let Some(wrapper) = site_layout.wrapper() {
        lines.push(format!("wrapper   {}", docwharf_base::error_chain::QuotedName(wrapper)));
    }
    if let Some((digest, len)) = verified.archive {
        lines.push(format!("archive   {}, SHA-256 {digest}", format_size(len)));
    }
    lines.push(format!(
        "left out  {}, {}, {}",
        format_count(site_layout.launchers, "launcher"),
        format_count(site_layout.junk, "junk file"),
        format_count(site_layout.hidden, "hidden file")
    ));
    lines.join("\n") + "\n"
}

impl From<UnpackError> for CommandFailure {
    fn from(error: UnpackError) -> CommandFailure {
        match error {
            UnpackError::Seal(error) => CommandFailure::Seal(error),
            UnpackError::NotEmpty(_) => CommandFailure::Usage(error.to_string()),
            UnpackError::Write { path, source } => {
                CommandFailure::Local { doing: format!("cannot write {}", path.display()), source }
            }
        }
    }
}

impl From<PackError> for CommandFailure {
    fn from(error: PackError) -> CommandFailure {
        match error {
            PackError::Seal(error) => CommandFailure::Seal(error),
            PackError::UnknownExtension(_) | PackError::NotUtf8(_) => CommandFailure::Usage(error.to_string()),
            PackError::Write { path, source } => {
                CommandFailure::Local { doing: format!("cannot write {}", path.display()), source }
            }
            PackError::Changed(_) => CommandFailure::InputChanged(error.to_string()),
        }
    }
}
