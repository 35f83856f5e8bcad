//! A cache of the classes of recent User-Agents, for one thread: a reader sends the same one with each request.

use std::fmt;

use super::{AgentClassifier, AgentMatch};

/// The number of entries.
const ENTRIES: usize = 256;
/// The maximum length of a User-Agent in the cache, in bytes. Those of browsers have fewer than 300, so an entry is far
/// smaller.
const MAX_CACHED_BYTES: usize = 512;

/// The classes of recent User-Agents. The hash of a User-Agent selects its entry; another User-Agent with that entry
/// replaces it.
pub(crate) struct ClassCache {
    /// `None` is a free entry.
    entries: Vec<Option<CacheEntry>>,
}

struct CacheEntry {
    /// The generation of the classifier, which a reload of the configuration replaces.
    generation: u64,
    user_agent: Box<[u8]>,
    found: AgentMatch,
}

impl ClassCache {
    /// Returns the same as [`AgentClassifier::classify`]. A User-Agent that is in the cache is only compared.
    pub(crate) fn classify(&mut self, classifier: &AgentClassifier, user_agent: &[u8]) -> AgentMatch {
        if user_agent.len() > MAX_CACHED_BYTES {
            return classifier.classify(user_agent);
        }
        let entry = &mut self.entries[hash_bytes(user_agent) as usize % ENTRIES];
        match entry {
            Some(entry) if entry.generation == classifier.generation && *entry.user_agent == *user_agent => entry.found,
            _ => {
                let found = classifier.classify(user_agent);
                let generation = classifier.generation;
                *entry = Some(CacheEntry { generation, user_agent: user_agent.into(), found });
                found
            }
        }
    }
}

impl Default for ClassCache {
    fn default() -> ClassCache {
        ClassCache { entries: std::iter::repeat_with(|| None).take(ENTRIES).collect() }
    }
}

impl fmt::Debug for ClassCache {
    /// Writes no User-Agent.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClassCache").finish_non_exhaustive()
    }
}

/// Returns the hash of a User-Agent. A client that sends many User-Agents with the same entry causes each to be
/// classified again, and nothing worse.
fn hash_bytes(bytes: &[u8]) -> u64 {
    let (words, end) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..end.len()].copy_from_slice(end);
    let hash = words.iter().fold(bytes.len() as u64, |hash, word| mix_bits(hash ^ u64::from_le_bytes(*word)));
    mix_bits(hash ^ u64::from_le_bytes(last))
}

/// Combines both halves of a product, so that each bit of the input affects each bit of the output.
fn mix_bits(word: u64) -> u64 {
    let product = u128::from(word ^ 0x2d35_8dcc_aa6c_78a5) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use docwharf_base::model::reader_activity::VisitorClass;

    use super::super::AgentPattern;
    use super::*;

    #[test]
    fn the_cache_returns_what_the_classifier_returns() {
        let classifier = AgentClassifier::built_in();
        let mut cache = ClassCache::default();
        let long = [b"x".repeat(MAX_CACHED_BYTES).as_slice(), b" GPTBot/1.2".as_slice()].concat();
        // More of them than there are entries.
        let numbered = (0..2 * ENTRIES).map(|number| match number % 3 {
            0 => format!("GPTBot/{number}"),
            1 => format!("curl/{number}"),
            _ => format!("Mozilla/5.0 (X11; Linux x86_64; rv:{number}.0) Gecko/20100101 Firefox/{number}.0"),
        });
        let mut user_agents: Vec<Vec<u8>> = numbered.map(String::into_bytes).collect();
        user_agents.extend([Vec::new(), long, b"\xff\xfe bot".to_vec()]);
        for _ in 0..2 {
            for user_agent in &user_agents {
                let expected = classifier.classify(user_agent);
                assert_eq!(cache.classify(&classifier, user_agent), expected, "{}", user_agent.escape_ascii());
                assert_eq!(cache.classify(&classifier, user_agent), expected, "{}", user_agent.escape_ascii());
            }
        }
        assert_eq!(cache.entries.len(), ENTRIES);
    }

    #[test]
    fn an_entry_counts_for_its_classifier_only() {
        let user_agent = b"Mozilla/5.0 (X11; Linux x86_64) Intranet/7";
        let text = "Intranet/".to_owned();
        let built_in = AgentClassifier::built_in();
        let own = AgentClassifier::with_patterns(&[AgentPattern { class: VisitorClass::Bot, text }]);
        let mut cache = ClassCache::default();
        for _ in 0..2 {
            assert_eq!(cache.classify(&built_in, user_agent).class, VisitorClass::Human);
            assert_eq!(cache.classify(&own, user_agent).class, VisitorClass::Bot);
        }
    }

    #[test]
    fn long_user_agents_are_not_stored() {
        let classifier = AgentClassifier::built_in();
        let mut cache = ClassCache::default();
        cache.classify(&classifier, &b"a".repeat(MAX_CACHED_BYTES + 1));
        assert!(cache.entries.iter().all(Option::is_none));
        cache.classify(&classifier, &b"a".repeat(MAX_CACHED_BYTES));
        assert_eq!(cache.entries.iter().flatten().count(), 1);
    }

    #[test]
    fn similar_user_agents_have_different_hashes() {
        let texts = (0..4_096).map(|number| format!("Mozilla/5.0 (X11; Linux x86_64; rv:{number}.0) Gecko/20100101"));
        let hashes: std::collections::HashSet<u64> = texts.map(|text| hash_bytes(text.as_bytes())).collect();
        assert_eq!(hashes.len(), 4_096);
        assert_ne!(hash_bytes(b""), hash_bytes(b"\0"));
    }

    #[test]
    fn debug_output_has_no_user_agent() {
        let mut cache = ClassCache::default();
        cache.classify(&AgentClassifier::built_in(), b"SecretBrowser/1.0");
        assert!(!format!("{cache:?}").contains("Secret"), "{cache:?}");
    }
}
