//! Versions that were replaced before this process began: their hashed assets go on being answered for the rest of
//! `server.assetGrace`. The site is served first; only who asks for what may be such an asset waits for them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use docwharf_base::chain::words;
use docwharf_base::model::units::unix_seconds;
use docwharf_serve::Site;
use docwharf_serve::retained::{self, Opening};
use docwharf_agent::store::Store;
use docwharf_agent::store::writer::Writer;
use docwharf_agent::sync::open;

/// How often those whose time has come are let go of: nobody is answered from them before that, they only take memory.
const SWEEP: Duration = Duration::from_mins(1);

/// Sees to it that a version which is to be removed is not kept by us, and that none is kept for too long. The task ends
/// with the runtime.
/// `opening` was begun before anybody could ask.
pub(super) fn keep(writer: &Writer, site: &Arc<Site>, opening: Opening) {
    let (holder, store) = (Arc::clone(site), writer.store().clone());
    writer.before_removing(move |id| holder.let_go(id));
    let site = Arc::clone(site);
    tokio::spawn(async move {
        let taken_up = Arc::clone(&site);
        let _ = tokio::task::spawn_blocking(move || {
            take_up(&store, &taken_up);
            drop(opening);
        })
        .await;
        loop {
            tokio::time::sleep(SWEEP).await;
            site.let_go_of_old();
        }
    });
}

/// Opens what was replaced not too long ago, the last first. What cannot be opened is left alone: nothing that is served
/// depends on it.
fn take_up(store: &Store, site: &Site) {
    let grace = site.asset_grace();
    if grace.is_zero() {
        return;
    }
    let now = unix_seconds(SystemTime::now());
    let mut replaced = store.replaced();
    replaced.retain(|&(id, _)| store.has_whole(id));
    replaced.sort_by_key(|&(_, until)| std::cmp::Reverse(until));
    for (id, until) in replaced.into_iter().take(retained::MOST) {
        // A clock that was set back since then must not make it older or younger than new.
        let age = Duration::from_secs(u64::try_from(now - until).unwrap_or(0));
        if age >= grace {
            break;
        }
        match open::read(store, id) {
            Ok(version) => site.retain(version, age),
            Err(error) => tracing::debug!("version {} is not kept for its assets: {}", id.short(), words(&error)),
        }
    }
}
