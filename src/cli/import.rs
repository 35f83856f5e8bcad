//! `docwharf import FILE|DIR`

use std::path::PathBuf;

use clap::Args;

use crate::model::version::Label;
use crate::store::writer::Writer;
use crate::sync::settle::import;

use super::publish::published;
use super::{Context, Failure, PATIENCE, progress, sync, who};

#[derive(Debug, Args)]
pub(super) struct Import {
    /// A zip, tar, tar.gz or tar.zst, or a folder
    path: PathBuf,
    /// Give the version this label
    #[arg(long)]
    label: Option<String>,
}

impl Import {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let label = self.label.as_deref().map(Label::new).transpose();
        let label = label.map_err(|why| Failure::Usage(format!("--label: {why}")))?;
        let config = context.config()?;
        let intent = sync::unhurried(&config);
        let writer = Writer::open(&config.store, PATIENCE)?;
        let report = progress::with_meter(context, "proving", |meter| {
            import(&writer, &intent, &self.path, label.as_ref(), &who(), meter)
        })?;
        let published = published(&context.sources(), &writer);
        sync::tell(context, &report).and(published)
    }
}
