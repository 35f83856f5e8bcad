//! Which files of a site need which other origins, and what dies without them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use crate::sealed::Sealed;

use super::address::{Leads, Origin, leads};
use super::collect::Base;
use super::{Fact, Kind, Sink, Sort, read_all};

/// Origins and kinds that are told apart; more are counted only.
const MOST_NEEDS: usize = 8192;
/// Needs of one file that are kept.
const MOST_OF_FILE: usize = 512;
/// Needs of all files that are kept, of 4 bytes each.
const MOST_WORDS: usize = 8 << 20;
/// Origins named in scripts that are kept.
const MOST_MENTIONS: usize = 4096;
/// Bytes of an example.
const EXAMPLE: usize = 200;

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audit {
    /// HTML pages that were read.
    pub pages: u64,
    /// All files that were read.
    pub read: u64,
    /// What is needed from elsewhere, by origin and kind.
    pub needs: Vec<Need>,
    /// Files in order of their paths, each with the numbers of its needs.
    pub files: Vec<(usize, Vec<u32>)>,
    /// Origins that scripts name, where it cannot be told what for, and how many files name them.
    pub mentions: BTreeMap<Origin, u64>,
    /// Files that install a service worker.
    pub service_workers: Vec<usize>,
    /// Whether there was more than is kept.
    pub more: bool,
}

/// One kind of thing from one origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// From where.
    pub origin: Origin,
    /// What.
    pub kind: Kind,
    /// How many files need it.
    pub files: u64,
    /// The first of them, and the address as it stands there.
    pub example: (usize, String),
}

impl Audit {
    /// The needs without which something is missing.
    pub fn losses(&self) -> impl Iterator<Item = &Need> {
        self.needs.iter().filter(|need| need.kind != Kind::Hint)
    }

    /// Those that nothing depends on.
    pub fn hints(&self) -> impl Iterator<Item = &Need> {
        self.needs.iter().filter(|need| need.kind == Kind::Hint)
    }

    /// Whether the site has everything inside, as far as can be told.
    pub fn is_clean(&self) -> bool {
        self.losses().next().is_none()
    }
}

impl Kind {
    /// What a reader misses when it is refused.
    pub fn loss(self) -> &'static str {
        match self {
            Kind::Script => "does not run, nor what depends on it",
            Kind::Style => "the page is not styled as it should be",
            Kind::Font => "another font is shown",
            Kind::Image => "the picture is missing",
            Kind::Media => "does not play",
            Kind::Frame => "the frame stays empty",
            Kind::Object => "the object is missing",
            Kind::Connect => "the script gets no answer",
            Kind::Worker => "the worker does not start",
            Kind::Manifest => "cannot be installed as an application",
            Kind::Form => "the form cannot be sent",
            Kind::Base => "every relative address leads there",
            Kind::Refresh => "readers are sent away to an error",
            Kind::Hint => "nothing",
        }
    }
}

/// Reads the whole of `site`, with so many threads; `stop` as for policies.
pub fn audit(site: &Sealed, threads: usize, stop: &(dyn Fn() -> bool + Sync)) -> Option<Audit> {
    let all = Mutex::new(All::default());
    read_all(site, threads, stop, || Listener {
        all: &all,
        base: Base::default(),
        found: Vec::new(),
        said: Said::default(),
    })?;
    let mut audit = all.into_inner().unwrap_or_else(PoisonError::into_inner).audit;
    audit.files.sort_unstable_by_key(|(file, _)| *file);
    audit.service_workers.sort_unstable();
    audit.pages =
        (0..site.index().len()).filter(|&file| super::sort(site.index().path(file)) == Some(Sort::Page)).count() as u64;
    order(&mut audit);
    Some(audit)
}

/// By origin and kind, whichever thread found them first.
fn order(audit: &mut Audit) {
    let mut by: Vec<u32> = (0..audit.needs.len() as u32).collect();
    by.sort_by(|&a, &b| {
        let key = |n: u32| (&audit.needs[n as usize].origin, audit.needs[n as usize].kind);
        key(a).cmp(&key(b))
    });
    let mut place = vec![0; by.len()];
    for (new, &old) in by.iter().enumerate() {
        place[old as usize] = new as u32;
    }
    audit.needs = by.iter().map(|&old| audit.needs[old as usize].clone()).collect();
    for (_, needs) in &mut audit.files {
        for need in needs.iter_mut() {
            *need = place[*need as usize];
        }
        needs.sort_unstable();
    }
}

#[derive(Debug, Default)]
struct All {
    audit: Audit,
    known: HashMap<(Origin, Kind), u32>,
    words: usize,
}

impl All {
    fn put(&mut self, file: usize, found: Vec<(Origin, Kind, String)>, said: Said) {
        self.audit.read += 1;
        let mut numbers = Vec::new();
        for (origin, kind, address) in found {
            let next = self.audit.needs.len();
            let number = match self.known.get(&(origin.clone(), kind)) {
                Some(&number) => number,
                None if next >= MOST_NEEDS => {
                    self.audit.more = true;
                    continue;
                }
                None => {
                    self.known.insert((origin.clone(), kind), next as u32);
                    self.audit.needs.push(Need { origin, kind, files: 0, example: (file, address.clone()) });
                    next as u32
                }
            };
            let need = &mut self.audit.needs[number as usize];
            need.files += 1;
            if file < need.example.0 {
                need.example = (file, address);
            }
            numbers.push(number);
        }
        for origin in said.mentions {
            if self.audit.mentions.len() < MOST_MENTIONS || self.audit.mentions.contains_key(&origin) {
                *self.audit.mentions.entry(origin).or_default() += 1;
            } else {
                self.audit.more = true;
            }
        }
        if said.service_worker {
            self.audit.service_workers.push(file);
        }
        self.audit.more |= said.more;
        if self.words + numbers.len() > MOST_WORDS {
            self.audit.more = true;
        } else if !numbers.is_empty() {
            self.words += numbers.len() + 8;
            self.audit.files.push((file, numbers));
        }
    }
}

/// What the file at hand says besides.
#[derive(Debug, Default)]
struct Said {
    mentions: Vec<Origin>,
    service_worker: bool,
    more: bool,
}

/// One thread's part.
struct Listener<'a> {
    all: &'a Mutex<All>,
    base: Base,
    found: Vec<(Origin, Kind, String)>,
    said: Said,
}

impl Sink for Listener<'_> {
    fn tell(&mut self, fact: Fact<'_>) {
        match fact {
            Fact::Address(kind, text) => {
                let Leads::Outside(origin) = self.base.leads(kind, text) else { return };
                if self.found.iter().any(|(known, of, _)| *of == kind && *known == origin) {
                    return;
                }
                if self.found.len() >= MOST_OF_FILE {
                    self.said.more = true;
                    return;
                }
                let text = text.trim();
                self.found.push((origin, kind, text[..text.floor_char_boundary(EXAMPLE)].to_owned()));
            }
            Fact::Mention(text) => {
                if let Leads::Outside(origin) = leads(text)
                    && self.said.mentions.len() < MOST_OF_FILE
                    && !self.said.mentions.contains(&origin)
                {
                    self.said.mentions.push(origin);
                }
            }
            Fact::Enters => self.base.enter(),
            Fact::Leaves => self.base.leave(),
            Fact::ServiceWorker => self.said.service_worker = true,
            _ => {}
        }
    }

    fn end(&mut self, file: usize, _sort: Sort) {
        self.base = Base::default();
        let (found, said) = (std::mem::take(&mut self.found), std::mem::take(&mut self.said));
        self.all.lock().unwrap_or_else(PoisonError::into_inner).put(file, found, said);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sealed::made::sealed;

    #[test]
    fn needs_are_told_by_origin_and_kind_with_the_first_file_that_has_them() {
        let site = sealed(&[
            ("a.html", "<img src='//b.example/1'><img src='//b.example/2'><script src='//b.example/3'></script>"),
            ("b.css", "a { x: url(//b.example/4), url(//a.example/5) }"),
            ("c.html", "<base href='//c.example/'><img src=x><link rel=preconnect href='//b.example'>"),
            ("d.html", "<img src=x>"),
            ("e.js", "x = 'https://m.example/'; y = 'https://m.example/2'; navigator.serviceWorker.register('/e.js')"),
            ("f.js", "x = 'https://m.example/'"),
            ("g.txt", "x"),
        ]);
        for threads in [1, 3] {
            let found = audit(&site, threads, &|| false).unwrap();
            let told: Vec<String> = found
                .needs
                .iter()
                .map(|need| {
                    let (file, address) = &need.example;
                    format!("{} {} {} {file} {address}", need.origin.as_str(), need.kind.name(), need.files)
                })
                .collect();
            assert_eq!(
                told,
                [
                    "//a.example image 1 1 //a.example/5",
                    "//b.example script 1 0 //b.example/3",
                    "//b.example image 2 0 //b.example/1",
                    "//b.example hint 1 2 //b.example",
                    "//c.example image 1 2 x",
                    "//c.example base 1 2 //c.example/",
                ]
            );
            assert_eq!(found.files, [(0, vec![1, 2]), (1, vec![0, 2]), (2, vec![3, 4, 5])]);
            assert_eq!((found.pages, found.read, found.more, &found.service_workers[..]), (3, 6, false, &[4][..]));
            assert_eq!(found.mentions.values().copied().collect::<Vec<_>>(), [2]);
            assert_eq!((found.losses().count(), found.hints().count(), found.is_clean()), (5, 1, false));
        }
        assert!(
            audit(&sealed(&[("a.html", "<link rel=preconnect href='//b.example'>")]), 1, &|| false).unwrap().is_clean()
        );
        assert_eq!(audit(&site, 1, &|| true), None);
    }

    #[test]
    fn of_one_file_so_many_needs_are_kept() {
        for (number, more) in [(MOST_OF_FILE, false), (MOST_OF_FILE + 1, true)] {
            let page: Vec<String> = (0..number).map(|n| format!("<img src='//h{n}.example/'>")).collect();
            let found = audit(&sealed(&[("a.html", page.concat())]), 1, &|| false).unwrap();
            assert_eq!((found.needs.len(), found.more), (MOST_OF_FILE, more), "{number}");
        }
        let long = format!("<img src='//xy.example/{}'>", "é".repeat(EXAMPLE));
        let example = &audit(&sealed(&[("a.html", long)]), 1, &|| false).unwrap().needs[0].example.1;
        assert_eq!(example.len(), EXAMPLE - 1, "not within a character");
    }
}
