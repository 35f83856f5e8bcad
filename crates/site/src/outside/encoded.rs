//! Policies as a file beside their version. A cache: anything but a perfect match and they are computed again.
//!
//! Little-endian: magic, format, version id, five lengths, digests, the set of each file, sets, origins, SHA-256 of all
//! before.

use docwharf_base::model::digest::Digest;
use docwharf_base::model::version::VersionId;

use super::KINDS;
use super::address::Origin;
use super::csp::{NONE, Policies, Set, Site};

const MAGIC: &[u8; 8] = b"DWHARFCP";
/// Raised whenever the layout, or what is read out of pages, changes.
const FORMAT: u32 = 3;
/// The first bit of a site's flags that says of which kind there are too many origins.
const MANY: u32 = 8;

/// What is wrong with a file; the remedy is always to compute it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the policies do not match their version ({0})")]
pub struct Fault(&'static str);

/// Writes the policies of a version.
pub fn encode(policies: &Policies, id: VersionId) -> Vec<u8> {
    let Policies { files, sets, digests, site } = policies;
    let mut out = MAGIC.to_vec();
    let word = |out: &mut Vec<u8>, n: u32| out.extend_from_slice(&n.to_le_bytes());
    word(&mut out, FORMAT);
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
        word(&mut out, KINDS.iter().position(|one| one == kind).unwrap_or(0) as u32);
        word(&mut out, text.len() as u32);
        out.extend_from_slice(text);
    }
    let check = Digest::of(&out);
    out.extend_from_slice(&check.0);
    out
}

fn site_flags(site: &Site) -> u32 {
    let many = KINDS.map(|kind| site.many.contains(&kind));
    flags([site.evaluates, site.wasm, site.data_scripts, site.data_styles]) | flags(many) << MANY
}

fn set_flags(set: &Set) -> u32 {
    flags([set.runs, set.has_handlers, set.has_style_attributes, set.loose_script, set.loose_style])
}

fn flags<const N: usize>(all: [bool; N]) -> u32 {
    all.iter().enumerate().map(|(bit, &is)| u32::from(is) << bit).sum()
}

/// Reads the policies of version `id`, which has so many files.
pub fn decode(bytes: &[u8], id: VersionId, files: usize) -> Result<Policies, Fault> {
    let body = bytes.len().checked_sub(32).ok_or(Fault("length"))?;
    if Digest::of(&bytes[..body]).0 != bytes[body..] {
        return Err(Fault("checksum"));
    }
    let mut rest = Rest(&bytes[..body]);
    if rest.bytes(8)? != MAGIC || rest.word()? != FORMAT {
        return Err(Fault("another format"));
    }
    if rest.bytes(32)? != id.0.0 {
        return Err(Fault("another version"));
    }
    let of_site = rest.word()?;
    let [digest_count, file_count, set_count, origin_count] =
        [rest.word()?, rest.word()?, rest.word()?, rest.word()?].map(|n| n as usize);
    if file_count != files {
        return Err(Fault("another number of files"));
    }
    let bit = |flags: u32, n: u32| flags >> n & 1 == 1;
    let digests: Vec<Digest> =
        rest.bytes(digest_count.saturating_mul(32))?.as_chunks().0.iter().map(|&d| Digest(d)).collect();
    let files = rest.words(file_count)?;
    if files.iter().any(|&set| set != NONE && set as usize >= set_count) {
        return Err(Fault("a set out of bounds"));
    }
    let mut sets = Vec::new();
    for _ in 0..set_count {
        let (flags, scripts, styles) = (rest.word()?, rest.word()? as usize, rest.word()? as usize);
        let (scripts, styles) = (rest.words(scripts)?, rest.words(styles)?);
        if scripts.iter().chain(&styles).any(|&number| number as usize >= digests.len()) {
            return Err(Fault("a digest out of bounds"));
        }
        sets.push(Set {
            scripts: scripts.into(),
            styles: styles.into(),
            runs: bit(flags, 0),
            has_handlers: bit(flags, 1),
            has_style_attributes: bit(flags, 2),
            loose_script: bit(flags, 3),
            loose_style: bit(flags, 4),
        });
    }
    let mut site = Site {
        many: KINDS.iter().zip(MANY..).filter(|&(_, n)| bit(of_site, n)).map(|(&kind, _)| kind).collect(),
        evaluates: bit(of_site, 0),
        wasm: bit(of_site, 1),
        data_scripts: bit(of_site, 2),
        data_styles: bit(of_site, 3),
        ..Site::default()
    };
    for _ in 0..origin_count {
        let kind = KINDS.get(rest.word()? as usize).ok_or(Fault("a kind out of bounds"))?;
        let len = rest.word()? as usize;
        let text = std::str::from_utf8(rest.bytes(len)?).map_err(|_| Fault("an origin"))?;
        site.origins.insert((*kind, Origin::known(text)));
    }
    if rest.0.is_empty() { Ok(Policies { files, sets, digests, site }) } else { Err(Fault("length")) }
}

/// What is still to be read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], Fault> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Fault("length"))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn word(&mut self) -> Result<u32, Fault> {
        Ok(self.words(1)?[0])
    }

    fn words(&mut self, count: usize) -> Result<Vec<u32>, Fault> {
        let bytes = self.bytes(count.saturating_mul(4))?;
        Ok(bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outside::Kind;

    #[test]
    fn what_is_written_is_read_and_any_other_byte_is_noticed() {
        let id = VersionId(Digest::of(b"version"));
        let set = Set { scripts: [0, 1].into(), styles: [1].into(), has_handlers: true, ..Set::default() };
        let (origins, many) = ([(Kind::Hint, Origin::known("//a.example"))].into(), [Kind::Script, Kind::Hint].into());
        let site = Site { origins, many, wasm: true, ..Site::default() };
        let digests = vec![Digest::of(b"a"), Digest::of(b"b")];
        let policies = Policies { files: vec![0, NONE, 1], sets: vec![set, Set::default()], digests, site };
        let bytes = encode(&policies, id);
        assert_eq!(decode(&bytes, id, 3), Ok(policies.clone()));
        assert!(decode(&bytes, id, 2).is_err() && decode(&bytes, VersionId(Digest::of(b"x")), 3).is_err());
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(decode(&other, id, 3).is_err(), "{at}");
            assert!(decode(&bytes[..at], id, 3).is_err(), "{at}");
        }
        // Bounds hold even where the checksum does.
        let wild = Policies { files: vec![7, NONE, 1], ..policies };
        assert!(decode(&encode(&wild, id), id, 3).is_err());
    }

    #[test]
    fn each_fact_is_read_as_it_was_written_and_nothing_beyond_the_bounds() {
        let id = VersionId(Digest::of(b"version"));
        let set = Set::default();
        let sets = vec![
            Set { runs: true, ..set.clone() },
            Set { has_handlers: true, ..set.clone() },
            Set { has_style_attributes: true, ..set.clone() },
            Set { loose_script: true, ..set.clone() },
            Set { loose_style: true, ..set.clone() },
            Set { scripts: [1, 0].into(), ..set.clone() },
            Set { styles: [0].into(), ..set },
        ];
        let digests = vec![Digest::of(b"a"), Digest::of(b"b")];
        let of = |site: Site| Policies { files: vec![6, NONE, 0], sets: sets.clone(), digests: digests.clone(), site };
        let mut sites = vec![
            Site { evaluates: true, ..Site::default() },
            Site { wasm: true, ..Site::default() },
            Site { data_scripts: true, ..Site::default() },
            Site { data_styles: true, ..Site::default() },
        ];
        for kind in KINDS {
            sites.push(Site { many: [kind].into(), ..Site::default() });
            sites.push(Site { origins: [(kind, Origin::known("https://x.example"))].into(), ..Site::default() });
        }
        for site in sites {
            assert_eq!(decode(&encode(&of(site.clone()), id), id, 3), Ok(of(site)));
        }
        let good = of(Site::default());
        let with = |files: [u32; 3], last: Set| {
            let sets = sets[..6].iter().cloned().chain([last]).collect();
            decode(&encode(&Policies { files: files.to_vec(), sets, ..good.clone() }, id), id, 3).map(drop)
        };
        let last = || sets[6].clone();
        assert_eq!(with([6, 6, 6], last()), Ok(()));
        assert_eq!(with([6, 7, 6], last()), Err(Fault("a set out of bounds")));
        assert_eq!(with([0; 3], Set { scripts: [2].into(), ..last() }), Err(Fault("a digest out of bounds")));
        assert_eq!(with([0; 3], Set { styles: [2].into(), ..last() }), Err(Fault("a digest out of bounds")));
        // With a checksum that is right for what was changed.
        let bytes = encode(&good, id);
        let changed = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut body = bytes[..bytes.len() - 32].to_vec();
            change(&mut body);
            let check = Digest::of(&body);
            decode(&[&body[..], &check.0].concat(), id, 3).map(drop)
        };
        assert_eq!(changed(&|_| {}), Ok(()));
        assert_eq!(changed(&|body| body[0] ^= 1), Err(Fault("another format")));
        assert_eq!(changed(&|body| body[8] ^= 1), Err(Fault("another format")));
        assert_eq!(changed(&|body| body[12] ^= 1), Err(Fault("another version")));
        assert_eq!(changed(&|body| body[52] ^= 1), Err(Fault("another number of files")));
        assert_eq!(changed(&|body| body.push(0)), Err(Fault("length")));
        assert_eq!(changed(&|body| body.truncate(body.len() - 1)), Err(Fault("length")));
    }
}
