//! Totals of keys, and their ranking by hits, in bounded memory: entries beyond the limit are written to a temporary
//! file.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

use hashbrown::HashTable;

use super::sorted_runs::{SortedRuns, TermCounts, TermEntry};

/// The approximate memory of an entry without its key, in bytes.
const ENTRY_OVERHEAD_BYTES: usize = 96;

/// The memory of a query, and the folder for its temporary files.
#[derive(Debug, Clone)]
pub(super) struct SpillSettings {
    /// The approximate memory, in bytes.
    pub(super) memory: usize,
    /// The folder for temporary files.
    pub(super) folder: PathBuf,
}

impl SpillSettings {
    pub(super) fn new(memory: usize, folder: &Path) -> SpillSettings {
        SpillSettings { memory, folder: folder.to_owned() }
    }
}

/// The number of counts that are collected before they are added. Their entries are then looked up directly after each
/// other, and a processor overlaps the accesses to memory.
const PENDING_COUNTS: usize = 256;

/// Adds up the counts of keys.
#[derive(Debug)]
pub(super) struct TermTotals {
    spill_settings: SpillSettings,
    hash_state: RandomState,
    in_memory: HashTable<(String, TermCounts)>,
    bytes: usize,
    pending: PendingCounts,
    spilled: Option<SortedRuns>,
}

/// Counts that were not added yet.
#[derive(Debug, Default)]
struct PendingCounts {
    /// Each with the hash of its key, and the end of the key in `keys`.
    counts: Vec<(u64, usize, TermCounts)>,
    /// The keys, one after the other.
    keys: String,
}

impl TermTotals {
    pub(super) fn new(spill_settings: &SpillSettings) -> TermTotals {
        TermTotals {
            spill_settings: spill_settings.clone(),
            hash_state: RandomState::new(),
            in_memory: HashTable::new(),
            bytes: 0,
            pending: PendingCounts::default(),
            spilled: None,
        }
    }

    pub(super) fn add(&mut self, key: &str, counts: TermCounts) -> io::Result<()> {
        let pending = &mut self.pending;
        pending.keys.push_str(key);
        pending.counts.push((self.hash_state.hash_one(key), pending.keys.len(), counts));
        if pending.counts.len() < PENDING_COUNTS { Ok(()) } else { self.add_pending() }
    }

    /// Adds the pending counts to the totals.
    fn add_pending(&mut self) -> io::Result<()> {
        let mut pending = std::mem::take(&mut self.pending);
        let mut start = 0;
        for (hash, end, counts) in pending.counts.drain(..) {
            let key = &pending.keys[start..end];
            start = end;
            if let Some((_, total)) = self.in_memory.find_mut(hash, |(known, _)| known == key) {
                total.add(counts);
                continue;
            }
            let hash_state = &self.hash_state;
            self.in_memory.insert_unique(hash, (key.to_owned(), counts), |(known, _)| hash_state.hash_one(known));
            self.bytes += key.len() + ENTRY_OVERHEAD_BYTES;
            if self.bytes > self.spill_settings.memory {
                self.spill()?;
            }
        }
        pending.keys.clear();
        self.pending = pending;
        Ok(())
    }

    fn spill(&mut self) -> io::Result<()> {
        let in_memory =
            std::mem::take(&mut self.in_memory).into_iter().map(|(key, counts)| (key.into_bytes(), counts)).collect();
        self.bytes = 0;
        let spilled = match &mut self.spilled {
            Some(spilled) => spilled,
            None => self.spilled.insert(SortedRuns::new(&self.spill_settings.folder)?),
        };
        spilled.push(in_memory)
    }

    /// Calls `visit` once with each key, in any order.
    pub(super) fn for_each(mut self, mut visit: impl FnMut(TermEntry) -> io::Result<()>) -> io::Result<()> {
        self.add_pending()?;
        if self.spilled.is_some() {
            self.spill()?;
        }
        let Some(spilled) = self.spilled else {
            return self.in_memory.into_iter().try_for_each(|(key, counts)| visit((key.into_bytes(), counts)));
        };
        let mut current: Option<TermEntry> = None;
        spilled.merge(self.spill_settings.memory, |(key, counts)| {
            match &mut current {
                Some((current_key, total)) if *current_key == key => total.add(counts),
                _ => {
                    if let Some(finished) = current.replace((key, counts)) {
                        visit(finished)?;
                    }
                }
            }
            Ok(true)
        })?;
        current.map_or(Ok(()), visit)
    }
}

/// Sorts keys by hits, descending; keys with equal hits by their bytes.
#[derive(Debug)]
pub(super) struct Ranking {
    spill_settings: SpillSettings,
    /// The keys, each after its rank.
    in_memory: Vec<TermEntry>,
    bytes: usize,
    spilled: Option<SortedRuns>,
}

/// The bytes before a key that hold its rank. Such keys sort by hits, descending, and then by the key.
const RANK_BYTES: usize = 8;

impl Ranking {
    pub(super) fn new(spill_settings: &SpillSettings) -> Ranking {
        Ranking { spill_settings: spill_settings.clone(), in_memory: Vec::new(), bytes: 0, spilled: None }
    }

    pub(super) fn add(&mut self, (key, counts): TermEntry) -> io::Result<()> {
        let mut ranked = Vec::with_capacity(RANK_BYTES + key.len());
        ranked.extend_from_slice(&(!counts.hits).to_be_bytes());
        ranked.extend_from_slice(&key);
        self.bytes += ranked.len() + ENTRY_OVERHEAD_BYTES;
        self.in_memory.push((ranked, counts));
        // Ranked keys are 8 bytes longer than plain ones, so twice the memory is allowed here.
        if self.bytes <= self.spill_settings.memory.saturating_mul(2) { Ok(()) } else { self.spill() }
    }

    fn spill(&mut self) -> io::Result<()> {
        self.bytes = 0;
        let in_memory = std::mem::take(&mut self.in_memory);
        let spilled = match &mut self.spilled {
            Some(spilled) => spilled,
            None => self.spilled.insert(SortedRuns::new(&self.spill_settings.folder)?),
        };
        spilled.push(in_memory)
    }

    /// Returns `limit` keys from `offset` on, and whether they are the last.
    pub(super) fn page(mut self, offset: u64, limit: usize) -> io::Result<(Vec<TermEntry>, bool)> {
        if self.spilled.is_some() {
            self.spill()?;
        }
        let Some(spilled) = self.spilled else {
            let offset = usize::try_from(offset).unwrap_or(usize::MAX);
            return Ok(select_page(self.in_memory, offset, limit));
        };
        let (mut position, mut page, mut is_last) = (0, Vec::new(), true);
        spilled.merge(self.spill_settings.memory, |entry| {
            position += 1;
            if position > offset && page.len() < limit {
                page.push(without_rank(entry));
            } else if position > offset {
                is_last = false;
            }
            Ok(is_last)
        })?;
        Ok((page, is_last))
    }
}

fn without_rank((mut key, counts): TermEntry) -> TermEntry {
    key.drain(..RANK_BYTES.min(key.len()));
    (key, counts)
}

fn select_page(mut entries: Vec<TermEntry>, offset: usize, limit: usize) -> (Vec<TermEntry>, bool) {
    if offset >= entries.len() {
        return (Vec::new(), true);
    }
    // Selecting the keys of one result page costs less than sorting all of them.
    if offset > 0 {
        entries.select_nth_unstable(offset);
        entries.drain(..offset);
    }
    let is_last = entries.len() <= limit;
    if !is_last {
        entries.select_nth_unstable(limit);
        entries.truncate(limit);
    }
    entries.sort_unstable();
    (entries.into_iter().map(without_rank).collect(), is_last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_and_ranks_are_the_same_with_and_without_spilling_to_disk() {
        let folder = tempfile::tempdir().unwrap();
        let rank = |memory: usize| {
            let spill_settings = SpillSettings::new(memory, folder.path());
            let mut totals = TermTotals::new(&spill_settings);
            for n in 0..20_000_u64 {
                let key = format!("{:x}{}", n * n % 3001, "ä".repeat((n % 3) as usize));
                let counts =
                    TermCounts { hits: 1, clicks: n % 2, last_searched: (n % 700).cast_signed(), has_page: n % 5 == 0 };
                totals.add(&key, counts).unwrap();
                assert!(totals.bytes <= memory, "{}", totals.bytes);
            }
            let mut ranking = Ranking::new(&spill_settings);
            totals.for_each(|entry| ranking.add(entry)).unwrap();
            assert!(ranking.bytes <= 2 * memory);
            ranking
        };
        let (mut offset, limit, mut hits) = (0, 173, u64::MAX);
        loop {
            let [with_much_memory, with_little_memory] =
                [8 << 20, 5000].map(|memory| rank(memory).page(offset, limit).unwrap());
            assert_eq!(with_much_memory, with_little_memory, "{offset}");
            for (_, counts) in &with_much_memory.0 {
                assert!(counts.hits <= hits);
                hits = counts.hits;
            }
            offset += with_much_memory.0.len() as u64 * 7;
            if with_much_memory.1 || with_much_memory.0.is_empty() {
                break;
            }
        }
        assert!(offset > 1000, "{offset}");
    }
}
