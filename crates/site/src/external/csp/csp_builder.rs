//! Collects the facts about all files of a site from which the policies are computed, in bounded memory.

use std::collections::HashMap;

use docwharf_base::locks::Mutex;
use docwharf_base::model::digest::Digest;

use super::super::address::{AddressTarget, ExternalOrigin};
use super::super::base_address::BaseAddress;
use super::super::content_fact::{ContentFact, FactSink, ResourceKind};
use super::super::source_format::SourceFormat;
use super::csp_facts::{CspFacts, InlineCodeSet, NO_SET, SiteFacts};

/// The number of digests that are stored of one page. A header with more would be too long for clients.
const MAX_DIGESTS_PER_PAGE: usize = 1200;
/// The number of different digests that are stored of a whole site. Each takes 32 bytes, and as much again while they
/// are collected.
const MAX_SITE_DIGESTS: usize = 1 << 20;
/// The number of 4-byte words that are stored for the lists of all pages together.
const MAX_SET_WORDS: usize = 8 << 20;
/// The number of origins that are stored of a whole site for one kind. If there are more, only that fact is stored.
const MAX_ORIGINS_PER_KIND: usize = 256;

/// The facts collected so far, shared by all threads.
#[derive(Debug)]
pub(super) struct CspBuilder {
    digest_numbers: HashMap<Digest, u32>,
    digests: Vec<Digest>,
    sets: HashMap<InlineCodeSet, u32>,
    set_numbers: Vec<u32>,
    stored_words: usize,
    site_facts: SiteFacts,
}

impl CspBuilder {
    pub(super) fn new(files: usize) -> CspBuilder {
        let (digest_numbers, digests, sets) = (HashMap::new(), Vec::new(), HashMap::new());
        CspBuilder {
            digest_numbers,
            digests,
            sets,
            set_numbers: vec![NO_SET; files],
            stored_words: 0,
            site_facts: SiteFacts::default(),
        }
    }

    /// Returns the collected facts of the version. Sets and digests are renumbered by their first occurrence, so
    /// that the result does not depend on the timing of threads.
    pub(super) fn build(self) -> CspFacts {
        let CspBuilder {
            digest_numbers,
            digests: unordered_digests,
            sets: numbers_by_set,
            mut set_numbers,
            site_facts,
            ..
        } = self;
        let mut by_number: Vec<Option<InlineCodeSet>> = numbers_by_set.iter().map(|_| None).collect();
        drop(digest_numbers);
        for (set, number) in numbers_by_set {
            by_number[number as usize] = Some(set);
        }
        let (mut sets, mut digests) =
            (Vec::with_capacity(by_number.len()), Vec::with_capacity(unordered_digests.len()));
        let (mut set_places, mut digest_places) =
            (vec![NO_SET; by_number.len()], vec![NO_SET; unordered_digests.len()]);
        for file in set_numbers.iter_mut().filter(|file| **file != NO_SET) {
            if let Some(mut set) = by_number[*file as usize].take() {
                for number in set.scripts.iter_mut().chain(&mut set.styles) {
                    let place = &mut digest_places[*number as usize];
                    if *place == NO_SET {
                        *place = digests.len() as u32;
                        digests.push(unordered_digests[*number as usize]);
                    }
                    *number = *place;
                }
                set_places[*file as usize] = sets.len() as u32;
                sets.push(set);
            }
            *file = set_places[*file as usize];
        }
        CspFacts { set_numbers, sets, digests, site_facts }
    }

    /// Returns the numbers of `digests`; `None` if there are too many.
    fn number_digests(&mut self, digests: &[Digest]) -> Option<Box<[u32]>> {
        if self.stored_words + digests.len() > MAX_SET_WORDS {
            return None;
        }
        let mut numbers = Vec::with_capacity(digests.len());
        for digest in digests {
            let next = self.digests.len();
            let number = *self.digest_numbers.entry(*digest).or_insert(next as u32);
            if number as usize == next {
                if next >= MAX_SITE_DIGESTS {
                    self.digest_numbers.remove(digest);
                    return None;
                }
                self.digests.push(*digest);
            }
            if !numbers.contains(&number) {
                numbers.push(number);
            }
        }
        Some(numbers.into())
    }

    fn add_page(&mut self, file: usize, page: &PageFacts) {
        let runs_scripts =
            page.runs_scripts || !page.scripts.is_empty() || page.has_handlers || page.script_hashes_unknown;
        // The styles that a script adds to a page are not known here, and scripts often add styles.
        let (script_hashes_unknown, style_hashes_unknown) =
            (page.script_hashes_unknown, page.style_hashes_unknown || runs_scripts);
        let mut set =
            InlineCodeSet { runs_scripts, script_hashes_unknown, style_hashes_unknown, ..InlineCodeSet::default() };
        if !set.script_hashes_unknown {
            match self.number_digests(&page.scripts) {
                Some(numbers) => (set.scripts, set.has_handlers) = (numbers, page.has_handlers),
                None => set.script_hashes_unknown = true,
            }
        }
        if !set.style_hashes_unknown {
            match self.number_digests(&page.styles) {
                Some(numbers) => (set.styles, set.has_style_attributes) = (numbers, page.has_style_attributes),
                None => set.style_hashes_unknown = true,
            }
        }
        let next = self.sets.len() as u32;
        let size = set.scripts.len() + set.styles.len() + 4;
        let number = *self.sets.entry(set).or_insert(next);
        if number == next {
            self.stored_words += size;
        }
        self.set_numbers[file] = number;
    }
}

/// The facts about the current page.
#[allow(clippy::struct_excessive_bools)] // the facts are independent
#[derive(Debug, Default)]
struct PageFacts {
    scripts: Vec<Digest>,
    styles: Vec<Digest>,
    runs_scripts: bool,
    has_handlers: bool,
    has_style_attributes: bool,
    script_hashes_unknown: bool,
    style_hashes_unknown: bool,
}

/// The sink of one thread.
#[derive(Debug)]
pub(super) struct CspSink<'a> {
    builder: &'a Mutex<CspBuilder>,
    page: PageFacts,
    base: BaseAddress,
    site_facts: SiteFacts,
}

impl<'a> CspSink<'a> {
    pub(super) fn new(builder: &'a Mutex<CspBuilder>) -> CspSink<'a> {
        CspSink { builder, page: PageFacts::default(), base: BaseAddress::default(), site_facts: SiteFacts::default() }
    }

    /// Merges the facts that this thread has collected about the site into the shared ones.
    pub(super) fn finish(self) {
        let mut builder = self.builder.lock();
        let SiteFacts { origins, unlisted_kinds, uses_eval, uses_wasm, data_scripts, data_styles } = self.site_facts;
        let site_facts = &mut builder.site_facts;
        site_facts.uses_eval |= uses_eval;
        site_facts.uses_wasm |= uses_wasm;
        site_facts.data_scripts |= data_scripts;
        site_facts.data_styles |= data_styles;
        for kind in unlisted_kinds {
            mark_too_many(site_facts, kind);
        }
        for (kind, origin) in origins {
            add_origin(site_facts, kind, origin);
        }
    }

    fn record_address(&mut self, kind: ResourceKind, text: &str) {
        match self.base.classify(kind, text) {
            AddressTarget::External(origin) if kind != ResourceKind::Hint && kind != ResourceKind::Refresh => {
                add_origin(&mut self.site_facts, kind, origin);
            }
            AddressTarget::Data if kind == ResourceKind::Script => self.site_facts.data_scripts = true,
            AddressTarget::Data if kind == ResourceKind::Style => self.site_facts.data_styles = true,
            _ => {}
        }
    }
}

/// Adds an origin. The final set does not depend on the order of the calls or on the number of threads.
fn add_origin(site_facts: &mut SiteFacts, kind: ResourceKind, origin: ExternalOrigin) {
    if origin.as_csp_source().is_none() || site_facts.unlisted_kinds.contains(&kind) {
        return;
    }
    if site_facts.origins.insert((kind, origin))
        && site_facts.origins.iter().filter(|(origin_kind, _)| *origin_kind == kind).count() > MAX_ORIGINS_PER_KIND
    {
        mark_too_many(site_facts, kind);
    }
}

fn mark_too_many(site_facts: &mut SiteFacts, kind: ResourceKind) {
    site_facts.unlisted_kinds.insert(kind);
    site_facts.origins.retain(|(origin_kind, _)| *origin_kind != kind);
}

impl FactSink for CspSink<'_> {
    fn record(&mut self, fact: ContentFact<'_>) {
        let page = &mut self.page;
        match fact {
            ContentFact::Address(kind, text) => self.record_address(kind, text),
            ContentFact::InlineScript(digest) => add_digest(&mut page.scripts, digest, &mut page.script_hashes_unknown),
            ContentFact::EventHandler(digest) => {
                page.has_handlers = true;
                add_digest(&mut page.scripts, digest, &mut page.script_hashes_unknown);
            }
            ContentFact::InlineStyle(digest) => add_digest(&mut page.styles, digest, &mut page.style_hashes_unknown),
            ContentFact::StyleAttribute(digest) => {
                page.has_style_attributes = true;
                add_digest(&mut page.styles, digest, &mut page.style_hashes_unknown);
            }
            ContentFact::ScriptFile => page.runs_scripts = true,
            ContentFact::JavaScriptAddress | ContentFact::UncertainScript => page.script_hashes_unknown = true,
            ContentFact::UncertainStyle => page.style_hashes_unknown = true,
            ContentFact::UsesEval => self.site_facts.uses_eval = true,
            ContentFact::UsesWasm => self.site_facts.uses_wasm = true,
            ContentFact::NestedPageStart => self.base.enter_nested_page(),
            ContentFact::NestedPageEnd => self.base.leave_nested_page(),
            ContentFact::ServiceWorker | ContentFact::MentionedAddress(_) => {}
        }
    }

    fn end_file(&mut self, file: usize, format: SourceFormat) {
        let page = std::mem::take(&mut self.page);
        self.base = BaseAddress::default();
        if format == SourceFormat::Html {
            self.builder.lock().add_page(file, &page);
        }
    }
}

fn add_digest(digests: &mut Vec<Digest>, digest: Digest, too_many: &mut bool) {
    if *too_many || digests.contains(&digest) {
        return;
    }
    if digests.len() < MAX_DIGESTS_PER_PAGE {
        digests.push(digest);
    } else {
        *too_many = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Regression: the order in which threads ended decided which origins were in the policy.
    #[test]
    fn csp_policies_do_not_depend_on_the_order_in_which_threads_end() {
        const FILES: usize = 600;
        let collect = |threads: usize, is_backwards: bool| {
            let builder = Mutex::new(CspBuilder::new(FILES));
            let mut collectors: Vec<CspSink<'_>> = (0..threads).map(|_| CspSink::new(&builder)).collect();
            for n in 0..FILES {
                let file = if is_backwards { FILES - 1 - n } else { n };
                let collector = &mut collectors[n % threads];
                collector.record(ContentFact::InlineScript(Digest::compute(b"of all")));
                collector.record(ContentFact::InlineScript(Digest::compute(&[(file / 2) as u8])));
                collector.record(ContentFact::Address(ResourceKind::Image, &format!("https://i{file}.example/")));
                collector.record(ContentFact::Address(
                    ResourceKind::Media,
                    &format!("https://m{}.example/", file % MAX_ORIGINS_PER_KIND),
                ));
                if file % 100 == 0 {
                    collector.record(ContentFact::Address(ResourceKind::Script, &format!("https://s{file}.example/")));
                }
                collector.end_file(file, SourceFormat::Html);
            }
            if is_backwards {
                collectors.reverse();
            }
            collectors.into_iter().for_each(CspSink::finish);
            builder.into_inner().build()
        };
        let reference = collect(1, false);
        assert_eq!(reference.site_facts.unlisted_kinds, [ResourceKind::Image].into());
        assert_eq!(reference.site_facts.origins.iter().filter(|(kind, _)| *kind == ResourceKind::Script).count(), 6);
        assert_eq!(reference.site_facts.origins.len(), 6 + MAX_ORIGINS_PER_KIND);
        assert_eq!(
            (reference.set_numbers[0], reference.set_numbers[599], reference.digests[0]),
            (0, 43, Digest::compute(b"of all"))
        );
        for (threads, is_backwards) in [(1, true), (3, false), (7, true)] {
            assert_eq!(collect(threads, is_backwards), reference, "{threads} {is_backwards}");
        }
    }

    fn page_of(facts: Vec<ContentFact<'_>>) -> (InlineCodeSet, SiteFacts) {
        let builder = Mutex::new(CspBuilder::new(1));
        let mut collector = CspSink::new(&builder);
        for fact in facts {
            collector.record(fact);
        }
        collector.end_file(0, SourceFormat::Html);
        collector.finish();
        let facts = builder.into_inner().build();
        (facts.sets[0].clone(), facts.site_facts)
    }

    #[test]
    fn each_content_fact_of_a_page_sets_its_fields_of_the_inline_code_set() {
        let digest = || Digest::compute(b"x");
        let nothing = InlineCodeSet::default();
        let runs = InlineCodeSet { runs_scripts: true, style_hashes_unknown: true, ..InlineCodeSet::default() };
        let first_digest: Box<[u32]> = [0].into();
        for (facts, expected) in [
            (vec![], nothing.clone()),
            (vec![ContentFact::Address(ResourceKind::Script, "a.js")], nothing.clone()),
            (vec![ContentFact::ScriptFile], runs.clone()),
            (
                vec![ContentFact::InlineScript(digest())],
                InlineCodeSet { scripts: first_digest.clone(), ..runs.clone() },
            ),
            (
                vec![ContentFact::InlineScript(digest()), ContentFact::InlineScript(digest())],
                InlineCodeSet { scripts: first_digest.clone(), ..runs.clone() },
            ),
            (
                vec![ContentFact::EventHandler(digest())],
                InlineCodeSet { scripts: first_digest.clone(), has_handlers: true, ..runs.clone() },
            ),
            (
                vec![ContentFact::InlineScript(digest()), ContentFact::JavaScriptAddress],
                InlineCodeSet { script_hashes_unknown: true, ..runs.clone() },
            ),
            (
                vec![ContentFact::UncertainScript, ContentFact::EventHandler(digest())],
                InlineCodeSet { script_hashes_unknown: true, ..runs.clone() },
            ),
            (
                vec![ContentFact::InlineStyle(digest())],
                InlineCodeSet { styles: first_digest.clone(), ..nothing.clone() },
            ),
            (
                vec![ContentFact::StyleAttribute(digest())],
                InlineCodeSet { styles: first_digest.clone(), has_style_attributes: true, ..nothing.clone() },
            ),
            (
                vec![ContentFact::InlineStyle(digest()), ContentFact::UncertainStyle],
                InlineCodeSet { style_hashes_unknown: true, ..nothing.clone() },
            ),
            (vec![ContentFact::InlineStyle(digest()), ContentFact::ScriptFile], runs.clone()),
            (
                vec![
                    ContentFact::UsesEval,
                    ContentFact::UsesWasm,
                    ContentFact::ServiceWorker,
                    ContentFact::MentionedAddress("//x.example"),
                ],
                nothing.clone(),
            ),
        ] {
            let description = format!("{facts:?}");
            assert_eq!(page_of(facts).0, expected, "{description}");
        }
        let many = |number: u32| {
            (0..number).map(|n| ContentFact::InlineScript(Digest::compute(&n.to_le_bytes()))).collect::<Vec<_>>()
        };
        let max_digests = MAX_DIGESTS_PER_PAGE as u32;
        assert_eq!(
            (page_of(many(max_digests)).0.scripts.len(), page_of(many(max_digests)).0.script_hashes_unknown),
            (MAX_DIGESTS_PER_PAGE, false)
        );
        assert_eq!(
            (page_of(many(max_digests + 1)).0.scripts.len(), page_of(many(max_digests + 1)).0.script_hashes_unknown),
            (0, true)
        );
    }

    #[test]
    fn page_beyond_the_hash_limits_allows_inline_code_without_hashes() {
        let page = || PageFacts { scripts: vec![Digest::compute(b"x")], ..PageFacts::default() };
        for (stored_words, stored_digests, is_unknown) in [
            (MAX_SET_WORDS - 1, 0, false),
            (MAX_SET_WORDS, 0, true),
            (0, MAX_SITE_DIGESTS - 1, false),
            (0, MAX_SITE_DIGESTS, true),
        ] {
            let mut builder = CspBuilder::new(1);
            builder.stored_words = stored_words;
            builder.digests = vec![Digest::compute(b"of another page"); stored_digests];
            builder.add_page(0, &page());
            let facts = builder.build();
            let set = &facts.sets[0];
            let hashes = (set.scripts.len(), set.script_hashes_unknown);
            assert_eq!(hashes, (usize::from(!is_unknown), is_unknown), "{stored_words} {stored_digests}");
        }
    }

    #[test]
    fn external_origins_of_a_page_are_resolved_against_its_own_base() {
        let list_origins = |facts: Vec<ContentFact<'_>>| {
            let origins = page_of(facts).1.origins.into_iter();
            origins.map(|(kind, origin)| format!("{} {}", kind.name(), origin.as_str())).collect::<Vec<_>>()
        };
        let image = |text| ContentFact::Address(ResourceKind::Image, text);
        let base = |text| ContentFact::Address(ResourceKind::Base, text);
        for (facts, expected) in [
            (vec![image("//a.example/x"), image("y")], &["image //a.example"][..]),
            (
                vec![
                    image("x"),
                    base("//b.example/"),
                    base("//c.example/"),
                    ContentFact::Address(ResourceKind::Font, "y"),
                ],
                &["font //b.example", "base //b.example", "base //c.example"],
            ),
            (vec![base("/own/"), base("//b.example/"), image("x")], &["base //b.example"]),
            (
                vec![
                    ContentFact::Address(ResourceKind::Hint, "//a.example"),
                    ContentFact::Address(ResourceKind::Refresh, "//a.example"),
                ],
                &[],
            ),
            (vec![image("//[::1]/")], &[]),
            (
                vec![base("//b.example/"), ContentFact::NestedPageStart, image("x"), ContentFact::NestedPageEnd],
                &["image //b.example", "base //b.example"],
            ),
            (
                vec![
                    ContentFact::NestedPageStart,
                    base("//b.example/"),
                    image("x"),
                    ContentFact::NestedPageEnd,
                    ContentFact::Address(ResourceKind::Font, "y"),
                ],
                &["image //b.example", "base //b.example"],
            ),
            (vec![ContentFact::NestedPageEnd, image("x")], &[]),
        ] {
            let description = format!("{facts:?}");
            assert_eq!(list_origins(facts), expected, "{description}");
        }
        for (kind, scripts, styles) in [
            (ResourceKind::Script, true, false),
            (ResourceKind::Style, false, true),
            (ResourceKind::Image, false, false),
        ] {
            let site_facts = page_of(vec![ContentFact::Address(kind, "data:,x")]).1;
            assert_eq!((site_facts.data_scripts, site_facts.data_styles), (scripts, styles), "{kind:?}");
        }
        let site_facts = page_of(vec![ContentFact::UsesEval]).1;
        assert_eq!(
            (site_facts.uses_eval, site_facts.uses_wasm, page_of(vec![ContentFact::UsesWasm]).1.uses_wasm),
            (true, false, true)
        );
        // A base address ends with its page, and a file that is not a page has no policy.
        let builder = Mutex::new(CspBuilder::new(2));
        let mut collector = CspSink::new(&builder);
        collector.record(base("//b.example/"));
        collector.record(ContentFact::ScriptFile);
        collector.end_file(1, SourceFormat::Script);
        collector.record(image("x"));
        collector.end_file(0, SourceFormat::Html);
        collector.finish();
        let facts = builder.into_inner().build();
        assert_eq!((facts.set_numbers, facts.sets), (vec![0, NO_SET], vec![InlineCodeSet::default()]));
        assert_eq!(facts.site_facts.origins.len(), 1);
    }

    #[test]
    fn resource_kind_with_more_origins_than_the_limit_lists_none_of_them() {
        for (number, is_many) in [(MAX_ORIGINS_PER_KIND, false), (MAX_ORIGINS_PER_KIND + 1, true)] {
            let texts: Vec<String> = (0..number).map(|n| format!("//h{n}.example")).collect();
            let site_facts =
                page_of(texts.iter().map(|text| ContentFact::Address(ResourceKind::Image, text)).collect()).1;
            assert_eq!(
                (site_facts.origins.len(), site_facts.unlisted_kinds.contains(&ResourceKind::Image)),
                (if is_many { 0 } else { number }, is_many)
            );
        }
    }
}
