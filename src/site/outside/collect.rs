//! Takes what all files of a site say and keeps what policies are made of, in bounded memory.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use crate::model::digest::Digest;

use super::address::{Leads, Origin, leads};
use super::csp::{NONE, Set, Site};
use super::{Fact, Kind, Sink, Sort};

/// More digests on one page make a header that nobody takes.
const MOST_OF_PAGE: usize = 1200;
/// Different digests of a whole site, of 32 bytes each and as much again while they are collected.
const MOST_DIGESTS: usize = 1 << 20;
/// Places in the lists of all pages, of 4 bytes each.
const MOST_WORDS: usize = 8 << 20;
/// Origins of a whole site.
const MOST_ORIGINS: usize = 256;

/// Where relative addresses lead, for one file.
#[derive(Debug, Default)]
pub(super) struct Base {
    is_said: bool,
    origin: Option<Origin>,
}

impl Base {
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
    pub(super) digests: Vec<Digest>,
    sets: HashMap<Set, u32>,
    pub(super) files: Vec<u32>,
    words: usize,
    pub(super) site: Site,
}

impl Builder {
    pub(super) fn new(files: usize) -> Builder {
        let (known, digests, sets) = (HashMap::new(), Vec::new(), HashMap::new());
        Builder { known, digests, sets, files: vec![NONE; files], words: 0, site: Site::default() }
    }

    /// The different sets, by their numbers.
    pub(super) fn take_sets(&mut self) -> Vec<Set> {
        let mut sets: Vec<(Set, u32)> = self.sets.drain().collect();
        sets.sort_by_key(|(_, number)| *number);
        sets.into_iter().map(|(set, _)| set).collect()
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
        site.many |= many;
        site.evaluates |= evaluates;
        site.wasm |= wasm;
        site.data_scripts |= data_scripts;
        site.data_styles |= data_styles;
        for (kind, origin) in origins {
            note(&mut site.origins, &mut site.many, kind, origin);
        }
    }

    fn address(&mut self, kind: Kind, text: &str) {
        match self.base.leads(kind, text) {
            Leads::Outside(origin) if kind != Kind::Hint && kind != Kind::Refresh => {
                note(&mut self.site.origins, &mut self.site.many, kind, origin);
            }
            Leads::Data if kind == Kind::Script => self.site.data_scripts = true,
            Leads::Data if kind == Kind::Style => self.site.data_styles = true,
            _ => {}
        }
    }
}

fn note(origins: &mut BTreeSet<(Kind, Origin)>, many: &mut bool, kind: Kind, origin: Origin) {
    if origin.source().is_none() {
        return;
    }
    if origins.len() < MOST_ORIGINS {
        origins.insert((kind, origin));
    } else {
        *many |= !origins.contains(&(kind, origin));
    }
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
