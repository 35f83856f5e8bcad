//! The part of the status about the search of the site.

use serde::{Deserialize, Serialize};

use crate::admin::daemon_state::{SearchPhase, SearchState};
use docwharf_base::model::version::VersionId;

/// The search of the site.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SearchStatus {
    /// The version that the index belongs to.
    pub version: VersionId,
    /// Whether queries are answered from this index; if not, it is being built, unless there is an error.
    pub ready: bool,
    /// The number of pages in the index.
    pub pages: Option<u64>,
    /// The number of sections in the index.
    pub sections: Option<u64>,
    /// The size of the index in bytes.
    pub bytes: Option<u64>,
    /// The reason why the index cannot be built.
    pub error: Option<String>,
    /// Whether queries are answered from an older index, because this one is not ready.
    #[serde(default, rename = "olderIndex")]
    pub has_older_index: bool,
    /// Whether pages get the script of the search box; `None` before it is known.
    #[serde(rename = "box")]
    pub has_box: Option<bool>,
    /// The reason for that.
    pub box_why: Option<String>,
    /// The policy of the site that forbids the script, if there is one.
    pub box_forbidden: Option<String>,
}

impl From<SearchState> for SearchStatus {
    fn from(state: SearchState) -> SearchStatus {
        let (has_box, box_why) = state.insertion().unzip();
        let (statistics, error) = match state.phase {
            SearchPhase::Ready(statistics) => (Some(statistics), None),
            SearchPhase::Building => (None, None),
            SearchPhase::Failed(why) => (None, Some(why)),
        };
        SearchStatus {
            version: state.version,
            ready: statistics.is_some(),
            pages: statistics.map(|statistics| statistics.pages),
            sections: statistics.map(|statistics| statistics.sections),
            bytes: statistics.map(|statistics| statistics.bytes),
            error,
            has_older_index: state.has_older_index,
            has_box,
            box_why,
            box_forbidden: state.facts.and_then(|facts| facts.barrier).filter(|_| has_box != Some(false)),
        }
    }
}
