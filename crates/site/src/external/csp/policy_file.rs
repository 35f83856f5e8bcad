//! The file in which the policies of a version are stored beside it. The file is a cache: if it does not match the
//! version in every respect, the policies are computed again.
//!
//! Layout, little-endian: magic, format version, version id, flags of the site, numbers of digests, files, sets and
//! origins, digests, the set of each file, sets, origins, SHA-256 of all bytes before.

use docwharf_base::model::digest::Digest;
use docwharf_base::model::version::VersionId;

use super::super::address::ExternalOrigin;
use super::super::content_fact::RESOURCE_KINDS;
use super::site_policies::{InlineCodeSet, NO_SET, SiteFacts, SitePolicies};

const MAGIC: &[u8; 8] = b"DWHARFCP";
/// The format version. It is increased whenever the layout changes, or the facts that are read from pages.
const FORMAT_VERSION: u32 = 3;
/// The position of the first of the site's flags that say for which kinds there are too many origins.
const TOO_MANY_FLAGS_SHIFT: u32 = 8;

/// The reason why a file cannot be used. The policies are then computed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the policies do not match their version ({0})")]
pub struct PolicyFileFault(&'static str);

/// Encodes the policies of version `id` as a file.
pub fn encode_policies(policies: &SitePolicies, id: VersionId) -> Vec<u8> {
    let SitePolicies { files, sets, digests, site } = policies;
    let mut out = MAGIC.to_vec();
    let word = |out: &mut Vec<u8>, n: u32| out.extend_from_slice(&n.to_le_bytes());
    word(&mut out, FORMAT_VERSION);
    out.extend_from_slice(&id.0.0);
    for n in [site_flags(site), digests.len() as u32, files.len() as u32, sets.len() as u32, site.origins.len() as u32]
    {
        word(&mut out, n);
    }
    for digest in digests {
        out.extend_from_slice(&digest.0);
    }
    for &set in files {
        word(&mut out, set);
    }
    for set in sets {
        let counts = [set_flags(set), set.scripts.len() as u32, set.styles.len() as u32];
        for n in counts.into_iter().chain(set.scripts.iter().copied()).chain(set.styles.iter().copied()) {
            word(&mut out, n);
        }
    }
    for (kind, origin) in &site.origins {
        let text = origin.as_str().as_bytes();
        word(&mut out, RESOURCE_KINDS.iter().position(|one| one == kind).unwrap_or(0) as u32);
        word(&mut out, text.len() as u32);
        out.extend_from_slice(text);
    }
    let check = Digest::of(&out);
    out.extend_from_slice(&check.0);
    out
}

fn site_flags(site: &SiteFacts) -> u32 {
    let many = RESOURCE_KINDS.map(|kind| site.too_many.contains(&kind));
    flags([site.evaluates, site.wasm, site.data_scripts, site.data_styles]) | flags(many) << TOO_MANY_FLAGS_SHIFT
}

fn set_flags(set: &InlineCodeSet) -> u32 {
    flags([set.runs, set.has_handlers, set.has_style_attributes, set.script_hashes_unknown, set.style_hashes_unknown])
}

fn flags<const N: usize>(all: [bool; N]) -> u32 {
    all.iter().enumerate().map(|(bit, &is)| u32::from(is) << bit).sum()
}

/// Decodes the policies of version `id`, which has `files` files.
pub fn decode_policies(bytes: &[u8], id: VersionId, files: usize) -> Result<SitePolicies, PolicyFileFault> {
    let body = bytes.len().checked_sub(32).ok_or(PolicyFileFault("length"))?;
    if Digest::of(&bytes[..body]).0 != bytes[body..] {
        return Err(PolicyFileFault("checksum"));
    }
    let mut rest = PolicyFileReader(&bytes[..body]);
    if rest.bytes(8)? != MAGIC || rest.word()? != FORMAT_VERSION {
        return Err(PolicyFileFault("another format"));
    }
    if rest.bytes(32)? != id.0.0 {
        return Err(PolicyFileFault("another version"));
    }
    let of_site = rest.word()?;
    let [digest_count, file_count, set_count, origin_count] =
        [rest.word()?, rest.word()?, rest.word()?, rest.word()?].map(|n| n as usize);
    if file_count != files {
        return Err(PolicyFileFault("another number of files"));
    }
    let bit = |flags: u32, n: u32| flags >> n & 1 == 1;
    let digests: Vec<Digest> =
        rest.bytes(digest_count.saturating_mul(32))?.as_chunks().0.iter().map(|&d| Digest(d)).collect();
    let files = rest.words(file_count)?;
    if files.iter().any(|&set| set != NO_SET && set as usize >= set_count) {
        return Err(PolicyFileFault("a set out of bounds"));
    }
    let mut sets = Vec::new();
    for _ in 0..set_count {
        let (flags, scripts, styles) = (rest.word()?, rest.word()? as usize, rest.word()? as usize);
        let (scripts, styles) = (rest.words(scripts)?, rest.words(styles)?);
        if scripts.iter().chain(&styles).any(|&number| number as usize >= digests.len()) {
            return Err(PolicyFileFault("a digest out of bounds"));
        }
        sets.push(InlineCodeSet {
            scripts: scripts.into(),
            styles: styles.into(),
            runs: bit(flags, 0),
            has_handlers: bit(flags, 1),
            has_style_attributes: bit(flags, 2),
            script_hashes_unknown: bit(flags, 3),
            style_hashes_unknown: bit(flags, 4),
        });
    }
    let mut site = SiteFacts {
        too_many: RESOURCE_KINDS
            .iter()
            .zip(TOO_MANY_FLAGS_SHIFT..)
            .filter(|&(_, n)| bit(of_site, n))
            .map(|(&kind, _)| kind)
            .collect(),
        evaluates: bit(of_site, 0),
        wasm: bit(of_site, 1),
        data_scripts: bit(of_site, 2),
        data_styles: bit(of_site, 3),
        ..SiteFacts::default()
    };
    for _ in 0..origin_count {
        let kind = RESOURCE_KINDS.get(rest.word()? as usize).ok_or(PolicyFileFault("a kind out of bounds"))?;
        let len = rest.word()? as usize;
        let text = std::str::from_utf8(rest.bytes(len)?).map_err(|_| PolicyFileFault("an origin"))?;
        site.origins.insert((*kind, ExternalOrigin::from_trusted(text)));
    }
    if rest.0.is_empty() { Ok(SitePolicies { files, sets, digests, site }) } else { Err(PolicyFileFault("length")) }
}

/// The bytes that have not been read yet.
struct PolicyFileReader<'a>(&'a [u8]);

impl<'a> PolicyFileReader<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], PolicyFileFault> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(PolicyFileFault("length"))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn word(&mut self) -> Result<u32, PolicyFileFault> {
        Ok(self.words(1)?[0])
    }

    fn words(&mut self, count: usize) -> Result<Vec<u32>, PolicyFileFault> {
        let bytes = self.bytes(count.saturating_mul(4))?;
        Ok(bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::external::content_fact::ResourceKind;

    #[test]
    fn what_is_written_is_read_and_any_other_byte_is_noticed() {
        let id = VersionId(Digest::of(b"version"));
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
        let site = SiteFacts { origins, too_many: many, wasm: true, ..SiteFacts::default() };
        let digests = vec![Digest::of(b"a"), Digest::of(b"b")];
        let policies =
            SitePolicies { files: vec![0, NO_SET, 1], sets: vec![set, InlineCodeSet::default()], digests, site };
        let bytes = encode_policies(&policies, id);
        assert_eq!(decode_policies(&bytes, id, 3), Ok(policies.clone()));
        assert!(
            decode_policies(&bytes, id, 2).is_err() && decode_policies(&bytes, VersionId(Digest::of(b"x")), 3).is_err()
        );
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(decode_policies(&other, id, 3).is_err(), "{at}");
            assert!(decode_policies(&bytes[..at], id, 3).is_err(), "{at}");
        }
        // Bounds are checked even if the checksum is correct.
        let wild = SitePolicies { files: vec![7, NO_SET, 1], ..policies };
        assert!(decode_policies(&encode_policies(&wild, id), id, 3).is_err());
    }

    #[test]
    fn each_fact_is_read_as_it_was_written_and_nothing_beyond_the_bounds() {
        let id = VersionId(Digest::of(b"version"));
        let set = InlineCodeSet::default();
        let sets = vec![
            InlineCodeSet { runs: true, ..set.clone() },
            InlineCodeSet { has_handlers: true, ..set.clone() },
            InlineCodeSet { has_style_attributes: true, ..set.clone() },
            InlineCodeSet { script_hashes_unknown: true, ..set.clone() },
            InlineCodeSet { style_hashes_unknown: true, ..set.clone() },
            InlineCodeSet { scripts: [1, 0].into(), ..set.clone() },
            InlineCodeSet { styles: [0].into(), ..set },
        ];
        let digests = vec![Digest::of(b"a"), Digest::of(b"b")];
        let of = |site: SiteFacts| SitePolicies {
            files: vec![6, NO_SET, 0],
            sets: sets.clone(),
            digests: digests.clone(),
            site,
        };
        let mut sites = vec![
            SiteFacts { evaluates: true, ..SiteFacts::default() },
            SiteFacts { wasm: true, ..SiteFacts::default() },
            SiteFacts { data_scripts: true, ..SiteFacts::default() },
            SiteFacts { data_styles: true, ..SiteFacts::default() },
        ];
        for kind in RESOURCE_KINDS {
            sites.push(SiteFacts { too_many: [kind].into(), ..SiteFacts::default() });
            sites.push(SiteFacts {
                origins: [(kind, ExternalOrigin::from_trusted("https://x.example"))].into(),
                ..SiteFacts::default()
            });
        }
        for site in sites {
            assert_eq!(decode_policies(&encode_policies(&of(site.clone()), id), id, 3), Ok(of(site)));
        }
        let good = of(SiteFacts::default());
        let with = |files: [u32; 3], last: InlineCodeSet| {
            let sets = sets[..6].iter().cloned().chain([last]).collect();
            decode_policies(&encode_policies(&SitePolicies { files: files.to_vec(), sets, ..good.clone() }, id), id, 3)
                .map(drop)
        };
        let last = || sets[6].clone();
        assert_eq!(with([6, 6, 6], last()), Ok(()));
        assert_eq!(with([6, 7, 6], last()), Err(PolicyFileFault("a set out of bounds")));
        assert_eq!(
            with([0; 3], InlineCodeSet { scripts: [2].into(), ..last() }),
            Err(PolicyFileFault("a digest out of bounds"))
        );
        assert_eq!(
            with([0; 3], InlineCodeSet { styles: [2].into(), ..last() }),
            Err(PolicyFileFault("a digest out of bounds"))
        );
        // The checksum is computed for the changed bytes.
        let bytes = encode_policies(&good, id);
        let changed = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut body = bytes[..bytes.len() - 32].to_vec();
            change(&mut body);
            let check = Digest::of(&body);
            decode_policies(&[&body[..], &check.0].concat(), id, 3).map(drop)
        };
        assert_eq!(changed(&|_| {}), Ok(()));
        assert_eq!(changed(&|body| body[0] ^= 1), Err(PolicyFileFault("another format")));
        assert_eq!(changed(&|body| body[8] ^= 1), Err(PolicyFileFault("another format")));
        assert_eq!(changed(&|body| body[12] ^= 1), Err(PolicyFileFault("another version")));
        assert_eq!(changed(&|body| body[52] ^= 1), Err(PolicyFileFault("another number of files")));
        assert_eq!(changed(&|body| body.push(0)), Err(PolicyFileFault("length")));
        assert_eq!(changed(&|body| body.truncate(body.len() - 1)), Err(PolicyFileFault("length")));
    }
}
