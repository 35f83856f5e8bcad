//! The search of previews, as the program provides it. This crate starts no process and builds no index.

use std::fmt::Debug;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use docwharf_base::model::version::VersionId;
use docwharf_serve::Site;

/// Makes the sites of previews searchable.
pub trait PreviewSearch: Debug + Send + Sync {
    /// Turns the search of a site on, which serves no version yet. `base_path` is that of the site; in `work_folder`,
    /// temporary folders can be made, which are removed at the next start if they are left over.
    fn attach(&self, site: &Arc<Site>, base_path: &str, work_folder: &Path) -> Box<dyn PreviewSiteSearch>;
}

/// The search of one site. It ends when it is dropped.
pub trait PreviewSiteSearch: Debug + Send + Sync {
    /// Is called after the site has begun to serve the version `id`, with its image. Must not block.
    fn update_version(&self, id: VersionId, image: File);
}
