//! `docwharf serve PATH`: no store, no configuration, one site.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::config::checked::{DEFAULT_LISTEN, parse_base_path, parse_listen, parse_slashes};
use crate::daemon;
use crate::model::limits::Limits;
use crate::model::units::{count, show_size, unix_seconds};
use crate::seal::{self, Effort, Sealing, Space};
use crate::serve::{Settings, Site};
use crate::site::index::Index;
use crate::site::mapping;
use crate::site::sealed::Sealed;

use super::{Context, Failure, progress};

#[derive(Debug, Args)]
pub(super) struct Serve {
    /// A zip, tar, tar.gz or tar.zst, or a folder
    path: PathBuf,
    /// Where to listen; may be given several times, port 0 is any free one
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_LISTEN)]
    listen: Vec<String>,
    /// Where the site begins
    #[arg(long, value_name = "PATH", default_value = "/")]
    base_path: String,
    /// What to do about the several addresses of a page: auto, serve or redirect
    #[arg(long, value_name = "HOW", default_value = "auto")]
    slashes: String,
}

impl Serve {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let addresses = self.listen.iter().map(|text| parse_listen(text)).collect::<Result<Vec<_>, _>>();
        let addresses = addresses.map_err(|why| Failure::Usage(format!("--listen: {why}")))?;
        let settings = Settings {
            base_path: parse_base_path(&self.base_path).map_err(|why| Failure::Usage(format!("--base-path: {why}")))?,
            slashes: parse_slashes(&self.slashes).map_err(|why| Failure::Usage(format!("--slashes: {why}")))?,
            ..Settings::default()
        };
        // Refused: nothing listens. So the bundle comes first, and the sockets after it.
        let version = sealed(context, &self.path)?;
        let listeners = daemon::bind(&addresses)?;
        let site = Site::new(settings);
        site.show(version);
        Ok(daemon::serve(site, listeners)?)
    }
}

fn sealed(context: &Context, path: &Path) -> Result<Sealed, Failure> {
    let effort = Effort::new(Limits::default());
    let space = Space::Unlinked(std::env::temp_dir());
    let sealing = progress::with_meter(context, "proving", |meter| seal::seal(path, &space, &effort, meter))
        .map_err(Failure::Seal)?;
    let Sealing { mut proven, image, image_len, .. } = sealing;
    context.warn(&path.display().to_string(), &proven.warnings);
    if proven.archive.is_some() {
        let modified = std::fs::metadata(path).and_then(|m| m.modified());
        let modified = unix_seconds(modified.map_err(Failure::local(format!("cannot read {}", path.display())))?);
        for (_, entry) in &mut proven.files {
            entry.modified = modified;
        }
    }
    let broken = || Failure::local("cannot map the sealed site");
    let index = Index::decode(proven.index(image_len), image_len, proven.id);
    let index = index.map_err(|error| broken()(std::io::Error::other(error)))?;
    let image = mapping::map(image, proven.id).map_err(broken())?;
    tracing::debug!(
        "version {}: {}, {}",
        proven.id.short(),
        count(proven.flavor.pages, "page"),
        show_size(proven.content_len())
    );
    Ok(Sealed::new(proven.id, image, index))
}
