//! The search of an origin's previews: each has an index of its own, which is built at the first search in it.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use crate::config::search::SearchConfig;
use docwharf_base::child_network::ChildNetwork;
use docwharf_base::model::version::VersionId;
use docwharf_origin::previews::{PreviewSearch, PreviewSiteSearch};
use docwharf_serve::Site;
use docwharf_site::lookup::AddressSettings;

use super::index_settings::IndexSettings;
use super::search_on_demand::{IndexPool, OnDemandIndex};

/// The indexes of all previews of an origin, which have bounds together.
#[derive(Debug)]
pub struct PreviewIndexes {
    /// The network of the processes that build them.
    network: ChildNetwork,
    pool: Arc<IndexPool>,
}

impl PreviewIndexes {
    /// Creates the indexes, of which none is built yet. `network` is that of the processes that build them.
    pub fn new(network: ChildNetwork) -> PreviewIndexes {
        PreviewIndexes { network, pool: Arc::default() }
    }
}

impl PreviewSearch for PreviewIndexes {
    fn attach(&self, site: &Arc<Site>, base_path: &str, work_folder: &Path) -> Box<dyn PreviewSiteSearch> {
        site.set_search_settings(Arc::new(SearchConfig::default().to_site_settings()));
        // A preview is served with the rules of its bundle only.
        let addresses = AddressSettings { base_path: base_path.to_owned(), ..AddressSettings::default() };
        let settings = IndexSettings::new(addresses, Vec::new());
        let (folder, pool) = (work_folder.to_owned(), Arc::clone(&self.pool));
        let search = OnDemandIndex::in_pool(site, settings, self.network, folder, pool);
        Box::new(PreviewSiteIndex(search))
    }
}

/// The index of one preview.
#[derive(Debug)]
struct PreviewSiteIndex(OnDemandIndex);

impl PreviewSiteSearch for PreviewSiteIndex {
    fn update_version(&self, id: VersionId, image: File) {
        self.0.update_version(id, image);
    }
}
