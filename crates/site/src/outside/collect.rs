//! Takes what all files of a site say and keeps what policies are made of, in bounded memory.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use docwharf_base::model::digest::Digest;

use super::address::{Leads, Origin, leads};
use super::csp::{NONE, Policies, Set, Site};
use super::{Fact, Kind, Sink, Sort};

/// More digests on one page make a header that nobody takes.
const MOST_OF_PAGE: usize = 1200;
/// Different digests of a whole site, of 32 bytes each and as much again while they are collected.
const MOST_DIGESTS: usize = 1 << 20;
/// Places in the lists of all pages, of 4 bytes each.
const MOST_WORDS: usize = 8 << 20;
/// Origins of a whole site for one kind of thing; of more it is known only that they are many.
const MOST_ORIGINS: usize = 256;

/// Where relative addresses lead, for one file.
#[derive(Debug, Default)]
pub(super) struct Base {
    is_said: bool,
    origin: Option<Origin>,
    /// The same for the page in which this one stands in an attribute.
    outer: Option<Box<Base>>,
}

impl Base {
    /// A page within begins. Until it says something else, it is relative to what the page around it is relative to.
    pub(super) fn enter(&mut self) {
        let inner = Base { is_said: false, origin: self.origin.clone(), outer: None };
        let outer = std::mem::replace(self, inner);
        self.outer = Some(Box::new(outer));
    }

    /// It has ended.
    pub(super) fn leave(&mut self) {
        if let Some(outer) = self.outer.take() {
            *self = *outer;
        }
    }

    /// Where an address of the file leads; the first `base` counts from where it stands.
    pub(super) fn leads(&mut self, kind: Kind, text: &str) -> Leads {
        let mut to = leads(text);
        if kind == Kind::Base {
            if let (false, Leads::Outside(origin)) = (self.is_said, &to) {
                self.origin = Some(origin.clone());
            }
            self.is_said = true;
        } else if let (Leads::Here, Some(origin)) = (&to, &self.origin) {
            to = Leads::Outside(origin.clone());
        }
        to
    }
}

/// What is known so far; shared by the threads that read.
#[derive(Debug)]
pub(super) struct Builder {
    known: HashMap<Digest, u32>,
    digests: Vec<Digest>,
    sets: HashMap<Set, u32>,
    files: Vec<u32>,
    words: usize,
    site: Site,
}

impl Builder {
    pub(super) fn new(files: usize) -> Builder {
        let (known, digests, sets) = (HashMap::new(), Vec::new(), HashMap::new());
        Builder { known, digests, sets, files: vec![NONE; files], words: 0, site: Site::default() }
    }

    /// What was collected. Sets and digests are numbered by where they occur first, whichever thread was faster.
    pub(super) fn policies(self) -> Policies {
        let Builder { known, digests: found, sets: numbered, mut files, site, .. } = self;
        let mut by_number: Vec<Option<Set>> = numbered.iter().map(|_| None).collect();
        drop(known);
        for (set, number) in numbered {
            by_number[number as usize] = Some(set);
        }
        let (mut sets, mut digests) = (Vec::with_capacity(by_number.len()), Vec::with_capacity(found.len()));
        let (mut set_places, mut digest_places) = (vec![NONE; by_number.len()], vec![NONE; found.len()]);
        for file in files.iter_mut().filter(|file| **file != NONE) {
            if let Some(mut set) = by_number[*file as usize].take() {
                for number in set.scripts.iter_mut().chain(&mut set.styles) {
                    let place = &mut digest_places[*number as usize];
                    if *place == NONE {
                        *place = digests.len() as u32;
                        digests.push(found[*number as usize]);
                    }
                    *number = *place;
                }
                set_places[*file as usize] = sets.len() as u32;
                sets.push(set);
            }
            *file = set_places[*file as usize];
        }
        Policies { files, sets, digests, site }
    }

    /// The numbers of digests; none once there are too many.
    fn numbers(&mut self, digests: &[Digest]) -> Option<Box<[u32]>> {
        if self.words + digests.len() > MOST_WORDS {
            return None;
        }
        let mut numbers = Vec::with_capacity(digests.len());
        for digest in digests {
            let next = self.digests.len();
            let number = *self.known.entry(*digest).or_insert(next as u32);
            if number as usize == next {
                if next >= MOST_DIGESTS {
                    self.known.remove(digest);
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

    fn put(&mut self, file: usize, page: &Page) {
        let runs = page.runs || !page.scripts.is_empty() || page.has_handlers || page.loose_script;
        // What a script puts into a page is not known here, and scripts put styles there all the time.
        let (loose_script, loose_style) = (page.loose_script, page.loose_style || runs);
        let mut set = Set { runs, loose_script, loose_style, ..Set::default() };
        if !set.loose_script {
            match self.numbers(&page.scripts) {
                Some(numbers) => (set.scripts, set.has_handlers) = (numbers, page.has_handlers),
                None => set.loose_script = true,
            }
        }
        if !set.loose_style {
            match self.numbers(&page.styles) {
                Some(numbers) => (set.styles, set.has_style_attributes) = (numbers, page.has_style_attributes),
                None => set.loose_style = true,
            }
        }
        let next = self.sets.len() as u32;
        let size = set.scripts.len() + set.styles.len() + 4;
        let number = *self.sets.entry(set).or_insert(next);
        if number == next {
            self.words += size;
        }
        self.files[file] = number;
    }
}

/// What the page at hand has said.
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
#[derive(Debug, Default)]
struct Page {
    scripts: Vec<Digest>,
    styles: Vec<Digest>,
    runs: bool,
    has_handlers: bool,
    has_style_attributes: bool,
    loose_script: bool,
    loose_style: bool,
}

/// One thread's part.
#[derive(Debug)]
pub(super) struct Collector<'a> {
    builder: &'a Mutex<Builder>,
    page: Page,
    base: Base,
    site: Site,
}

impl<'a> Collector<'a> {
    pub(super) fn new(builder: &'a Mutex<Builder>) -> Collector<'a> {
        Collector { builder, page: Page::default(), base: Base::default(), site: Site::default() }
    }

    /// Adds what this thread knows of the site to what all know.
    pub(super) fn finish(self) {
        let mut all = self.builder.lock().unwrap_or_else(PoisonError::into_inner);
        let Site { origins, many, evaluates, wasm, data_scripts, data_styles } = self.site;
        let site = &mut all.site;
        site.evaluates |= evaluates;
        site.wasm |= wasm;
        site.data_scripts |= data_scripts;
        site.data_styles |= data_styles;
        for kind in many {
            collapse(site, kind);
        }
        for (kind, origin) in origins {
            note(site, kind, origin);
        }
    }

    fn address(&mut self, kind: Kind, text: &str) {
        match self.base.leads(kind, text) {
            Leads::Outside(origin) if kind != Kind::Hint && kind != Kind::Refresh => {
                note(&mut self.site, kind, origin);
            }
            Leads::Data if kind == Kind::Script => self.site.data_scripts = true,
            Leads::Data if kind == Kind::Style => self.site.data_styles = true,
            _ => {}
        }
    }
}

/// Whatever order origins come in, and however many threads they come from, what is known in the end is the same.
fn note(site: &mut Site, kind: Kind, origin: Origin) {
    if origin.source().is_none() || site.many.contains(&kind) {
        return;
    }
    if site.origins.insert((kind, origin)) && site.origins.iter().filter(|(one, _)| *one == kind).count() > MOST_ORIGINS
    {
        collapse(site, kind);
    }
}

fn collapse(site: &mut Site, kind: Kind) {
    site.many.insert(kind);
    site.origins.retain(|(one, _)| *one != kind);
}

impl Sink for Collector<'_> {
    fn tell(&mut self, fact: Fact<'_>) {
        let page = &mut self.page;
        match fact {
            Fact::Address(kind, text) => self.address(kind, text),
            Fact::Script(digest) => add(&mut page.scripts, digest, &mut page.loose_script),
            Fact::Handler(digest) => {
                page.has_handlers = true;
                add(&mut page.scripts, digest, &mut page.loose_script);
            }
            Fact::Style(digest) => add(&mut page.styles, digest, &mut page.loose_style),
            Fact::StyleAttribute(digest) => {
                page.has_style_attributes = true;
                add(&mut page.styles, digest, &mut page.loose_style);
            }
            Fact::Runs => page.runs = true,
            Fact::CodeInAddress | Fact::Unsure => page.loose_script = true,
            Fact::UnsureStyle => page.loose_style = true,
            Fact::Evaluates => self.site.evaluates = true,
            Fact::Wasm => self.site.wasm = true,
            Fact::Enters => self.base.enter(),
            Fact::Leaves => self.base.leave(),
            Fact::ServiceWorker | Fact::Mention(_) => {}
        }
    }

    fn end(&mut self, file: usize, sort: Sort) {
        let page = std::mem::take(&mut self.page);
        self.base = Base::default();
        if sort == Sort::Page {
            self.builder.lock().unwrap_or_else(PoisonError::into_inner).put(file, &page);
        }
    }
}

fn add(digests: &mut Vec<Digest>, digest: Digest, too_many: &mut bool) {
    if *too_many || digests.contains(&digest) {
        return;
    }
    if digests.len() < MOST_OF_PAGE {
        digests.push(digest);
    } else {
        *too_many = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_whatever_order_threads_end_the_policies_are_the_same() {
        const FILES: usize = 600;
        let collected = |threads: usize, is_backwards: bool| {
            let builder = Mutex::new(Builder::new(FILES));
            let mut collectors: Vec<Collector<'_>> = (0..threads).map(|_| Collector::new(&builder)).collect();
            for n in 0..FILES {
                let file = if is_backwards { FILES - 1 - n } else { n };
                let collector = &mut collectors[n % threads];
                collector.tell(Fact::Script(Digest::of(b"of all")));
                collector.tell(Fact::Script(Digest::of(&[(file / 2) as u8])));
                collector.tell(Fact::Address(Kind::Image, &format!("https://i{file}.example/")));
                collector.tell(Fact::Address(Kind::Media, &format!("https://m{}.example/", file % MOST_ORIGINS)));
                if file % 100 == 0 {
                    collector.tell(Fact::Address(Kind::Script, &format!("https://s{file}.example/")));
                }
                collector.end(file, Sort::Page);
            }
            if is_backwards {
                collectors.reverse();
            }
            collectors.into_iter().for_each(Collector::finish);
            builder.into_inner().unwrap().policies()
        };
        let one = collected(1, false);
        assert_eq!(one.site.many, [Kind::Image].into());
        assert_eq!(one.site.origins.iter().filter(|(kind, _)| *kind == Kind::Script).count(), 6);
        assert_eq!(one.site.origins.len(), 6 + MOST_ORIGINS);
        assert_eq!((one.files[0], one.files[599], one.digests[0]), (0, 43, Digest::of(b"of all")));
        for (threads, is_backwards) in [(1, true), (3, false), (7, true)] {
            assert_eq!(collected(threads, is_backwards), one, "{threads} {is_backwards}");
        }
    }

    fn page_of(facts: Vec<Fact<'_>>) -> (Set, Site) {
        let builder = Mutex::new(Builder::new(1));
        let mut collector = Collector::new(&builder);
        for fact in facts {
            collector.tell(fact);
        }
        collector.end(0, Sort::Page);
        collector.finish();
        let policies = builder.into_inner().unwrap().policies();
        (policies.sets[0].clone(), policies.site)
    }

    #[test]
    fn each_thing_that_a_page_says_decides_what_its_policy_names() {
        let digest = || Digest::of(b"x");
        let nothing = Set::default();
        let runs = Set { runs: true, loose_style: true, ..Set::default() };
        let one: Box<[u32]> = [0].into();
        for (facts, expected) in [
            (vec![], nothing.clone()),
            (vec![Fact::Address(Kind::Script, "a.js")], nothing.clone()),
            (vec![Fact::Runs], runs.clone()),
            (vec![Fact::Script(digest())], Set { scripts: one.clone(), ..runs.clone() }),
            (vec![Fact::Script(digest()), Fact::Script(digest())], Set { scripts: one.clone(), ..runs.clone() }),
            (vec![Fact::Handler(digest())], Set { scripts: one.clone(), has_handlers: true, ..runs.clone() }),
            (vec![Fact::Script(digest()), Fact::CodeInAddress], Set { loose_script: true, ..runs.clone() }),
            (vec![Fact::Unsure, Fact::Handler(digest())], Set { loose_script: true, ..runs.clone() }),
            (vec![Fact::Style(digest())], Set { styles: one.clone(), ..nothing.clone() }),
            (
                vec![Fact::StyleAttribute(digest())],
                Set { styles: one.clone(), has_style_attributes: true, ..nothing.clone() },
            ),
            (vec![Fact::Style(digest()), Fact::UnsureStyle], Set { loose_style: true, ..nothing.clone() }),
            (vec![Fact::Style(digest()), Fact::Runs], runs.clone()),
            (vec![Fact::Evaluates, Fact::Wasm, Fact::ServiceWorker, Fact::Mention("//x.example")], nothing.clone()),
        ] {
            let told = format!("{facts:?}");
            assert_eq!(page_of(facts).0, expected, "{told}");
        }
        let many = |number: u32| (0..number).map(|n| Fact::Script(Digest::of(&n.to_le_bytes()))).collect::<Vec<_>>();
        let most = MOST_OF_PAGE as u32;
        assert_eq!((page_of(many(most)).0.scripts.len(), page_of(many(most)).0.loose_script), (MOST_OF_PAGE, false));
        assert_eq!((page_of(many(most + 1)).0.scripts.len(), page_of(many(most + 1)).0.loose_script), (0, true));
    }

    #[test]
    fn origins_are_those_that_are_fetched_from_each_page_by_its_own_base() {
        let of = |facts: Vec<Fact<'_>>| {
            let origins = page_of(facts).1.origins.into_iter();
            origins.map(|(kind, origin)| format!("{} {}", kind.name(), origin.as_str())).collect::<Vec<_>>()
        };
        let image = |text| Fact::Address(Kind::Image, text);
        let base = |text| Fact::Address(Kind::Base, text);
        for (facts, expected) in [
            (vec![image("//a.example/x"), image("y")], &["image //a.example"][..]),
            (
                vec![image("x"), base("//b.example/"), base("//c.example/"), Fact::Address(Kind::Font, "y")],
                &["font //b.example", "base //b.example", "base //c.example"],
            ),
            (vec![base("/own/"), base("//b.example/"), image("x")], &["base //b.example"]),
            (vec![Fact::Address(Kind::Hint, "//a.example"), Fact::Address(Kind::Refresh, "//a.example")], &[]),
            (vec![image("//[::1]/")], &[]),
            (
                vec![base("//b.example/"), Fact::Enters, image("x"), Fact::Leaves],
                &["image //b.example", "base //b.example"],
            ),
            (
                vec![Fact::Enters, base("//b.example/"), image("x"), Fact::Leaves, Fact::Address(Kind::Font, "y")],
                &["image //b.example", "base //b.example"],
            ),
            (vec![Fact::Leaves, image("x")], &[]),
        ] {
            let told = format!("{facts:?}");
            assert_eq!(of(facts), expected, "{told}");
        }
        for (kind, scripts, styles) in
            [(Kind::Script, true, false), (Kind::Style, false, true), (Kind::Image, false, false)]
        {
            let site = page_of(vec![Fact::Address(kind, "data:,x")]).1;
            assert_eq!((site.data_scripts, site.data_styles), (scripts, styles), "{kind:?}");
        }
        let site = page_of(vec![Fact::Evaluates]).1;
        assert_eq!((site.evaluates, site.wasm, page_of(vec![Fact::Wasm]).1.wasm), (true, false, true));
        // The base of a page ends with it, and what is no page has no policy.
        let builder = Mutex::new(Builder::new(2));
        let mut collector = Collector::new(&builder);
        collector.tell(base("//b.example/"));
        collector.tell(Fact::Runs);
        collector.end(1, Sort::Script);
        collector.tell(image("x"));
        collector.end(0, Sort::Page);
        collector.finish();
        let policies = builder.into_inner().unwrap().policies();
        assert_eq!((policies.files, policies.sets), (vec![0, NONE], vec![Set::default()]));
        assert_eq!(policies.site.origins.len(), 1);
    }

    #[test]
    fn so_many_origins_of_a_kind_are_told_apart() {
        for (number, is_many) in [(MOST_ORIGINS, false), (MOST_ORIGINS + 1, true)] {
            let texts: Vec<String> = (0..number).map(|n| format!("//h{n}.example")).collect();
            let site = page_of(texts.iter().map(|text| Fact::Address(Kind::Image, text)).collect()).1;
            assert_eq!(
                (site.origins.len(), site.many.contains(&Kind::Image)),
                (if is_many { 0 } else { number }, is_many)
            );
        }
    }
}
