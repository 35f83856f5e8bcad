//! Checks the search of the site: whether browsers run the script of the search box on the active version. The
//! permissions of the file of synonyms are checked with those of the other files.

use crate::config::checked::Config;
use docwharf_agent::store::VersionStore;
use docwharf_agent::sync::open;
use docwharf_base::model::units::format_size;
use docwharf_serve::search::InjectMode;
use docwharf_site::own_policy::find_script_barrier;
use docwharf_site::own_search::find_own_search;

use super::check::DoctorCheck;

const CHECK_NAME: &str = "search";

pub(super) fn check(config: &Config) -> Option<DoctorCheck> {
    if !config.search.enabled {
        return Some(DoctorCheck::ok(CHECK_NAME, "off: search.enabled is false"));
    }
    let store = VersionStore::at(&config.store);
    let id = store.record().ok().and_then(|record| record.active)?;
    // A version that cannot be opened is reported by the check of the store.
    let version = open::open_read_only(&store, id).ok()?;
    let has_box = match config.search.inject {
        InjectMode::Always => true,
        InjectMode::Never => false,
        InjectMode::Auto => find_own_search(&version).is_none(),
    };
    let barrier = find_script_barrier(&version, &config.rules).filter(|_| has_box);
    if let Some(barrier) = barrier {
        let found = format!("browsers refuse the script of the search box on version {}: {barrier}", id.short());
        let advice = "allow scripts of the site in that policy, or set search.inject to \"never\"; the page \
                      /_docwharf/search needs no script";
        return Some(DoctorCheck::warning(CHECK_NAME, found, advice));
    }
    let pages = if has_box { "pages get the search box" } else { "pages get no search box" };
    let index = store.open_search_index(id).and_then(|directory| {
        let entries = directory.entries().ok()?.flatten();
        Some(entries.filter_map(|entry| directory.metadata_of(&entry.name).ok()).map(|file| file.len()).sum::<u64>())
    });
    let index = index.map_or_else(
        || "no index yet: docwharf run builds it".to_owned(),
        |bytes| format!("an index of {}", format_size(bytes)),
    );
    Some(DoctorCheck::ok(CHECK_NAME, format!("version {}: {index}; {pages}", id.short())))
}
