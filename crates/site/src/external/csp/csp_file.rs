//! The file in which the facts for the policies of a version are stored beside it. The file is a cache: if it does not
//! match the version in every respect, the facts are collected again.
//!
//! Layout, little-endian: magic, format version, version id, flags of the site, numbers of digests, files, sets and
//! origins, digests, the set of each file, sets, origins, SHA-256 of all bytes before.

use docwharf_base::model::digest::Digest;
use docwharf_base::model::version::VersionId;

use super::super::address::ExternalOrigin;
use super::super::content_fact::RESOURCE_KINDS;
use super::csp_facts::{CspFacts, InlineCodeSet, NO_SET, SiteFacts};

const MAGIC: &[u8; 8] = b"DWHARFCP";
/// The format version. It is increased whenever the layout changes, or the facts that are read from pages.
const FORMAT_VERSION: u32 = 4;
/// The position of the first of the site's flags for the kinds with too many origins.
const UNLISTED_KINDS_SHIFT: u32 = 8;

/// The reason why a file cannot be used. The facts are then collected again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stored facts for the content security policies do not match their version ({0})")]
pub struct CspFileFault(&'static str);

/// Encodes the facts about version `id` as a file.
pub fn encode_facts(facts: &CspFacts, id: VersionId) -> Vec<u8> {
    let CspFacts { set_numbers, sets, digests, site_facts } = facts;
    let mut output = MAGIC.to_vec();
    let write_word = |output: &mut Vec<u8>, n: u32| output.extend_from_slice(&n.to_le_bytes());
    write_word(&mut output, FORMAT_VERSION);
    output.extend_from_slice(&id.0.0);
    for n in [
        encode_site_flags(site_facts),
        digests.len() as u32,
        set_numbers.len() as u32,
        sets.len() as u32,
        site_facts.origins.len() as u32,
    ] {
        write_word(&mut output, n);
    }
    for digest in digests {
        output.extend_from_slice(&digest.0);
    }
    for &set in set_numbers {
        write_word(&mut output, set);
    }
    for set in sets {
        let counts = [encode_set_flags(set), set.scripts.len() as u32, set.styles.len() as u32];
        for n in counts.into_iter().chain(set.scripts.iter().copied()).chain(set.styles.iter().copied()) {
            write_word(&mut output, n);
        }
    }
    for (kind, origin) in &site_facts.origins {
        let text = origin.as_str().as_bytes();
        write_word(&mut output, RESOURCE_KINDS.iter().position(|candidate| candidate == kind).unwrap_or(0) as u32);
        write_word(&mut output, text.len() as u32);
        output.extend_from_slice(text);
    }
    let checksum = Digest::compute(&output);
    output.extend_from_slice(&checksum.0);
    output
}

fn encode_site_flags(site_facts: &SiteFacts) -> u32 {
    let many = RESOURCE_KINDS.map(|kind| site_facts.unlisted_kinds.contains(&kind));
    pack_flags([site_facts.uses_eval, site_facts.uses_wasm, site_facts.data_scripts, site_facts.data_styles])
        | pack_flags(many) << UNLISTED_KINDS_SHIFT
}

fn encode_set_flags(set: &InlineCodeSet) -> u32 {
    pack_flags([
        set.runs_scripts,
        set.has_handlers,
        set.has_style_attributes,
        set.script_hashes_unknown,
        set.style_hashes_unknown,
    ])
}

fn pack_flags<const N: usize>(flags: [bool; N]) -> u32 {
    flags.iter().enumerate().map(|(bit, &is_set)| u32::from(is_set) << bit).sum()
}

/// Decodes the facts about version `id`, which has `files` files.
pub fn decode_facts(bytes: &[u8], id: VersionId, files: usize) -> Result<CspFacts, CspFileFault> {
    let body = bytes.len().checked_sub(32).ok_or(CspFileFault("length"))?;
    if Digest::compute(&bytes[..body]).0 != bytes[body..] {
        return Err(CspFileFault("checksum"));
    }
    let mut reader = CspFileReader(&bytes[..body]);
    if reader.read_bytes(8)? != MAGIC || reader.read_word()? != FORMAT_VERSION {
        return Err(CspFileFault("another format"));
    }
    if reader.read_bytes(32)? != id.0.0 {
        return Err(CspFileFault("another version"));
    }
    let site_bits = reader.read_word()?;
    let [digest_count, file_count, set_count, origin_count] =
        [reader.read_word()?, reader.read_word()?, reader.read_word()?, reader.read_word()?].map(|n| n as usize);
    if file_count != files {
        return Err(CspFileFault("another number of files"));
    }
    let bit = |bits: u32, n: u32| bits >> n & 1 == 1;
    let digests: Vec<Digest> =
        reader.read_bytes(digest_count.saturating_mul(32))?.as_chunks().0.iter().map(|&d| Digest(d)).collect();
    let set_numbers = reader.read_words(file_count)?;
    if set_numbers.iter().any(|&set| set != NO_SET && set as usize >= set_count) {
        return Err(CspFileFault("a set out of bounds"));
    }
    let mut sets = Vec::new();
    for _ in 0..set_count {
        let (set_bits, scripts, styles) =
            (reader.read_word()?, reader.read_word()? as usize, reader.read_word()? as usize);
        let (scripts, styles) = (reader.read_words(scripts)?, reader.read_words(styles)?);
        if scripts.iter().chain(&styles).any(|&number| number as usize >= digests.len()) {
            return Err(CspFileFault("a digest out of bounds"));
        }
        sets.push(InlineCodeSet {
            scripts: scripts.into(),
            styles: styles.into(),
            runs_scripts: bit(set_bits, 0),
            has_handlers: bit(set_bits, 1),
            has_style_attributes: bit(set_bits, 2),
            script_hashes_unknown: bit(set_bits, 3),
            style_hashes_unknown: bit(set_bits, 4),
        });
    }
    let mut site_facts = SiteFacts {
        unlisted_kinds: RESOURCE_KINDS
            .iter()
            .zip(UNLISTED_KINDS_SHIFT..)
            .filter(|&(_, n)| bit(site_bits, n))
            .map(|(&kind, _)| kind)
            .collect(),
        uses_eval: bit(site_bits, 0),
        uses_wasm: bit(site_bits, 1),
        data_scripts: bit(site_bits, 2),
        data_styles: bit(site_bits, 3),
        ..SiteFacts::default()
    };
    for _ in 0..origin_count {
        let kind = RESOURCE_KINDS.get(reader.read_word()? as usize).ok_or(CspFileFault("a kind out of bounds"))?;
        let len = reader.read_word()? as usize;
        let text = std::str::from_utf8(reader.read_bytes(len)?).map_err(|_| CspFileFault("an origin"))?;
        site_facts.origins.insert((*kind, ExternalOrigin::from_trusted(text)));
    }
    if reader.0.is_empty() {
        Ok(CspFacts { set_numbers, sets, digests, site_facts })
    } else {
        Err(CspFileFault("length"))
    }
}

/// The reader of such a file: the bytes that have not been read yet.
struct CspFileReader<'a>(&'a [u8]);

impl<'a> CspFileReader<'a> {
    fn read_bytes(&mut self, len: usize) -> Result<&'a [u8], CspFileFault> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(CspFileFault("length"))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn read_word(&mut self) -> Result<u32, CspFileFault> {
        Ok(self.read_words(1)?[0])
    }

    fn read_words(&mut self, count: usize) -> Result<Vec<u32>, CspFileFault> {
        let bytes = self.read_bytes(count.saturating_mul(4))?;
        Ok(bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::external::ResourceKind;

    #[test]
    fn csp_file_round_trips_and_any_changed_byte_is_detected() {
        let id = VersionId(Digest::compute(b"version"));
        let set = InlineCodeSet {
            scripts: [0, 1].into(),
            styles: [1].into(),
            has_handlers: true,
            ..InlineCodeSet::default()
        };
        let (origins, many) = (
            [(ResourceKind::Hint, ExternalOrigin::from_trusted("//a.example"))].into(),
            [ResourceKind::Script, ResourceKind::Hint].into(),
        );
        let site_facts = SiteFacts { origins, unlisted_kinds: many, uses_wasm: true, ..SiteFacts::default() };
        let digests = vec![Digest::compute(b"a"), Digest::compute(b"b")];
        let facts = CspFacts {
            set_numbers: vec![0, NO_SET, 1],
            sets: vec![set, InlineCodeSet::default()],
            digests,
            site_facts,
        };
        let bytes = encode_facts(&facts, id);
        assert_eq!(decode_facts(&bytes, id, 3), Ok(facts.clone()));
        assert!(
            decode_facts(&bytes, id, 2).is_err() && decode_facts(&bytes, VersionId(Digest::compute(b"x")), 3).is_err()
        );
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(decode_facts(&damaged, id, 3).is_err(), "{at}");
            assert!(decode_facts(&bytes[..at], id, 3).is_err(), "{at}");
        }
        // Bounds are checked even if the checksum is correct.
        let wild = CspFacts { set_numbers: vec![7, NO_SET, 1], ..facts };
        assert!(decode_facts(&encode_facts(&wild, id), id, 3).is_err());
    }

    #[test]
    fn csp_file_preserves_each_fact_and_out_of_bounds_numbers_are_refused() {
        let id = VersionId(Digest::compute(b"version"));
        let set = InlineCodeSet::default();
        let sets = vec![
            InlineCodeSet { runs_scripts: true, ..set.clone() },
            InlineCodeSet { has_handlers: true, ..set.clone() },
            InlineCodeSet { has_style_attributes: true, ..set.clone() },
            InlineCodeSet { script_hashes_unknown: true, ..set.clone() },
            InlineCodeSet { style_hashes_unknown: true, ..set.clone() },
            InlineCodeSet { scripts: [1, 0].into(), ..set.clone() },
            InlineCodeSet { styles: [0].into(), ..set },
        ];
        let digests = vec![Digest::compute(b"a"), Digest::compute(b"b")];
        let facts_with = |site_facts: SiteFacts| CspFacts {
            set_numbers: vec![6, NO_SET, 0],
            sets: sets.clone(),
            digests: digests.clone(),
            site_facts,
        };
        let mut sites = vec![
            SiteFacts { uses_eval: true, ..SiteFacts::default() },
            SiteFacts { uses_wasm: true, ..SiteFacts::default() },
            SiteFacts { data_scripts: true, ..SiteFacts::default() },
            SiteFacts { data_styles: true, ..SiteFacts::default() },
        ];
        for kind in RESOURCE_KINDS {
            sites.push(SiteFacts { unlisted_kinds: [kind].into(), ..SiteFacts::default() });
            sites.push(SiteFacts {
                origins: [(kind, ExternalOrigin::from_trusted("https://x.example"))].into(),
                ..SiteFacts::default()
            });
        }
        for site_facts in sites {
            assert_eq!(
                decode_facts(&encode_facts(&facts_with(site_facts.clone()), id), id, 3),
                Ok(facts_with(site_facts))
            );
        }
        let good = facts_with(SiteFacts::default());
        let decode_with = |files: [u32; 3], last: InlineCodeSet| {
            let sets = sets[..6].iter().cloned().chain([last]).collect();
            decode_facts(&encode_facts(&CspFacts { set_numbers: files.to_vec(), sets, ..good.clone() }, id), id, 3)
                .map(drop)
        };
        let last = || sets[6].clone();
        assert_eq!(decode_with([6, 6, 6], last()), Ok(()));
        assert_eq!(decode_with([6, 7, 6], last()), Err(CspFileFault("a set out of bounds")));
        assert_eq!(
            decode_with([0; 3], InlineCodeSet { scripts: [2].into(), ..last() }),
            Err(CspFileFault("a digest out of bounds"))
        );
        assert_eq!(
            decode_with([0; 3], InlineCodeSet { styles: [2].into(), ..last() }),
            Err(CspFileFault("a digest out of bounds"))
        );
        // The checksum is computed for the changed bytes.
        let bytes = encode_facts(&good, id);
        let decode_changed = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut body = bytes[..bytes.len() - 32].to_vec();
            change(&mut body);
            let checksum = Digest::compute(&body);
            decode_facts(&[&body[..], &checksum.0].concat(), id, 3).map(drop)
        };
        assert_eq!(decode_changed(&|_| {}), Ok(()));
        assert_eq!(decode_changed(&|body| body[0] ^= 1), Err(CspFileFault("another format")));
        assert_eq!(decode_changed(&|body| body[8] ^= 1), Err(CspFileFault("another format")));
        assert_eq!(decode_changed(&|body| body[12] ^= 1), Err(CspFileFault("another version")));
        assert_eq!(decode_changed(&|body| body[52] ^= 1), Err(CspFileFault("another number of files")));
        assert_eq!(decode_changed(&|body| body.push(0)), Err(CspFileFault("length")));
        assert_eq!(decode_changed(&|body| body.truncate(body.len() - 1)), Err(CspFileFault("length")));
    }
}
