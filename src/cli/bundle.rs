//! `docwharf bundle verify|inspect|unpack|pack|audit`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use docwharf_base::model::site_path::is_page;
use docwharf_base::model::units::{count_noun, show_size};
use docwharf_site::seal::pack::{PackError, pack};
use docwharf_site::seal::unpack::{UnpackError, unpack};
use docwharf_site::seal::{SealOptions, VerifiedBundle, verify};

use super::audit::AuditCommand;
use super::context::CommandContext;
use super::failure::CommandFailure;
use super::progress;

#[derive(Debug, Subcommand)]
pub(super) enum BundleCommand {
    /// Verify a bundle: read it to its end and say why it is refused
    Verify(BundlePathArgs),
    /// Show what a bundle contains
    Inspect(BundlePathArgs),
    /// Write the files that `serve` would serve to a folder
    Unpack(UnpackCommand),
    /// Make a bundle of a folder; the same content gives the same bytes
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
        let effort = SealOptions::new(context.limits()?);
        match self {
            BundleCommand::Verify(one) => {
                let verified = progress::with_meter(context, "verifying", |meter| verify(&one.path, &effort, meter))?;
                context.print_warnings(&one.path.display().to_string(), &verified.warnings);
                let text = format!("ok {} ({})\n", verified.id, summary(&verified));
                let json = json!({
                    "schemaVersion": 1, "result": "ok", "version": verified.id, "pages": verified.flavor.pages,
                    "files": verified.files.len(), "contentBytes": verified.content_len(), "warnings": verified.warnings,
                });
                context.print_outcome(&json, &text)
            }
            BundleCommand::Inspect(one) => {
                let verified = progress::with_meter(context, "verifying", |meter| verify(&one.path, &effort, meter))?;
                if !context.global.json {
                    context.print_warnings(&one.path.display().to_string(), &verified.warnings);
                }
                context.print_result(&inspection_json(&verified), &inspection_text(&verified))
            }
            BundleCommand::Unpack(one) => {
                let verified = progress::with_meter(context, "verifying", |meter| {
                    unpack(&one.archive, &one.dir, one.raw, &effort, meter)
                })?;
                context.print_warnings(&one.archive.display().to_string(), &verified.warnings);
                let text = format!("unpacked {} into {}\n", summary(&verified), one.dir.display());
                context
                    .print_outcome(&json!({ "schemaVersion": 1, "result": "unpacked", "version": verified.id }), &text)
            }
            BundleCommand::Audit(audit) => audit.run(context),
            BundleCommand::Pack(one) => {
                let verified =
                    progress::with_meter(context, "packing", |meter| pack(&one.dir, &one.bundle, &effort, meter))?;
                context.print_warnings(&one.dir.display().to_string(), &verified.warnings);
                let archive = verified.archive;
                let text = format!(
                    "packed {} into {} ({})\n",
                    summary(&verified),
                    one.bundle.display(),
                    show_size(archive.map_or(0, |(_, len)| len))
                );
                let json = json!({
                    "schemaVersion": 1, "result": "packed", "version": verified.id,
                    "archiveSha256": archive.map(|(digest, _)| digest.hex()), "archiveBytes": archive.map(|(_, len)| len),
                });
                context.print_outcome(&json, &text)
            }
        }
    }
}

fn summary(verified: &VerifiedBundle) -> String {
    format!(
        "{}, {}, {}",
        count_noun(verified.flavor.pages, "page"),
        count_noun(verified.files.len() as u64, "file"),
        show_size(verified.content_len())
    )
}

fn inspection_json(verified: &VerifiedBundle) -> Value {
    let flavor = &verified.flavor;
    let pages = verified.files.iter().filter(|(path, _)| is_page(path.as_bytes()));
    json!({
        "schemaVersion": 1,
        "kind": verified.kind.name(),
        "version": verified.id,
        "layout": flavor.layout.name(),
        "wrapper": flavor.wrapper().map(String::from_utf8_lossy),
        "pages": flavor.pages,
        "files": verified.files.len(),
        "contentBytes": verified.content_len(),
        "pageBytes": pages.map(|(_, entry)| entry.len).sum::<u64>(),
        "archiveBytes": verified.archive.map(|(_, len)| len),
        "archiveSha256": verified.archive.map(|(digest, _)| digest.hex()),
        "leftOut": { "launchers": flavor.launchers, "junk": flavor.junk, "hidden": flavor.hidden },
        "warnings": verified.warnings,
    })
}

fn inspection_text(verified: &VerifiedBundle) -> String {
    let flavor = &verified.flavor;
    let mut lines = vec![
        format!("kind      {}", verified.kind.name()),
        format!("version   {}", verified.id),
        format!("layout    {}", flavor.layout.name()),
        format!("content   {}", summary(verified)),
    ];
    if let Some(wrapper) = flavor.wrapper() {
        lines.push(format!("wrapper   {}", docwharf_base::error_chain::QuotedName(wrapper)));
    }
    if let Some((digest, len)) = verified.archive {
        lines.push(format!("archive   {}, SHA-256 {digest}", show_size(len)));
    }
    lines.push(format!(
        "left out  {}, {}, {}",
        count_noun(flavor.launchers, "launcher"),
        count_noun(flavor.junk, "junk file"),
        count_noun(flavor.hidden, "hidden file")
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
            PackError::NoKind(_) => CommandFailure::Usage(error.to_string()),
            PackError::Write { path, source } => {
                CommandFailure::Local { doing: format!("cannot write {}", path.display()), source }
            }
            PackError::Changed(_) => CommandFailure::InputChanged(error.to_string()),
        }
    }
}
