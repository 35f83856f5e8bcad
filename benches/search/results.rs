//! The results that are stored, so that corpora can be measured one after the other.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::score::QueryScore;

/// The results of all corpora, by name.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct StoredResults(pub BTreeMap<String, CorpusResults>);

/// The results of one corpus.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CorpusResults {
    /// The number of pages and their size.
    pub description: String,
    pub date: String,
    /// The processor, the cores, the memory and the kernel.
    pub machine: String,
    pub rounds: usize,
    /// The results of each engine, by name.
    pub engines: BTreeMap<String, EngineResults>,
}

/// The results of an engine in one corpus.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct EngineResults {
    pub version: String,
    pub scores: Vec<QueryScore>,
    /// The duration of queries in milliseconds.
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub index: IndexFigures,
    /// The own (anonymous) memory that an open index adds to the process that serves, in bytes.
    pub added_bytes: Option<u64>,
}

/// The cost of an index, by rounds.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct IndexFigures {
    pub seconds: Vec<f64>,
    /// The duration if the bundle has to be verified and sealed first (docwharf only).
    pub seconds_from_folder: Vec<f64>,
    pub peak_bytes: Vec<f64>,
    /// The size of the index.
    pub bytes: u64,
    pub pages: Option<u64>,
    pub sections: Option<u64>,
}

impl StoredResults {
    /// Reads stored results; none if there is no such file, or if it is of an earlier benchmark.
    pub(crate) fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    pub(crate) fn write(&self, path: &Path) -> Result<(), String> {
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
    }
}
