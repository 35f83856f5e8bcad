//! The report of `bundle audit`: the external origins that the files of a site need, and the consequence if they cannot
//! be reached.

use std::collections::{BTreeMap, HashMap};

use docwharf_base::locks::Mutex;

use crate::sealed_version::SealedVersion;

use super::address::{AddressTarget, ExternalOrigin, classify_address};
use super::base_address::BaseAddress;
use super::content_fact::{ContentFact, FactSink, ResourceKind};
use super::site_reader::read_site_files;
use super::source_format::{SourceFormat, detect_source_format};

/// The number of pairs of origin and kind that are stored. Further ones are dropped, and
/// [`ExternalAudit::is_incomplete`] is set.
const MAX_NEEDS: usize = 8192;
/// The number of needs of one file that are stored, and of origins that it mentions.
const MAX_NEEDS_PER_FILE: usize = 512;
/// The number of 4-byte words that are stored for the needs of all files together.
const MAX_NEED_WORDS: usize = 8 << 20;
/// The number of origins mentioned in scripts that are stored.
const MAX_MENTIONS: usize = 4096;
/// The longest example in bytes.
const MAX_EXAMPLE_BYTES: usize = 200;

/// The report on a site.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExternalAudit {
    /// The number of HTML pages that were read.
    pub pages: u64,
    /// The number of all files that were read.
    pub files_read: u64,
    /// The external resources that are needed, ordered by origin and kind.
    pub needs: Vec<ExternalNeed>,
    /// The files with needs, in order of their paths, each with the indices of its needs in `needs`.
    pub files: Vec<(usize, Vec<u32>)>,
    /// The origins that scripts mention for an unknown purpose, each with the number of files that mention it.
    pub mentions: BTreeMap<ExternalOrigin, u64>,
    /// The files that install a service worker.
    pub service_workers: Vec<usize>,
    /// Whether the report is incomplete because a limit was reached.
    pub is_incomplete: bool,
}

/// The need for one kind of resource from one origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalNeed {
    /// The origin of the resources.
    pub origin: ExternalOrigin,
    /// The kind of the resources.
    pub kind: ResourceKind,
    /// The number of files that need them.
    pub files: u64,
    /// The first of these files, and the address as written in it.
    pub example: (usize, String),
}

impl ExternalAudit {
    /// Returns the needs without which the site does not work as intended.
    pub fn required_needs(&self) -> impl Iterator<Item = &ExternalNeed> {
        self.needs.iter().filter(|need| need.kind != ResourceKind::Hint)
    }

    /// Returns the needs on which nothing depends.
    pub fn hints(&self) -> impl Iterator<Item = &ExternalNeed> {
        self.needs.iter().filter(|need| need.kind == ResourceKind::Hint)
    }

    /// Whether the site needs no external resource, as far as this report can tell.
    pub fn is_clean(&self) -> bool {
        self.required_needs().next().is_none()
    }
}

impl ResourceKind {
    /// Describes the consequence for a reader if the resource cannot be loaded.
    pub fn describe_loss(self) -> &'static str {
        match self {
            ResourceKind::Script => "does not run, and neither does code that depends on it",
            ResourceKind::Style => "the page is not styled as it should be",
            ResourceKind::Font => "another font is shown",
            ResourceKind::Image => "the picture is missing",
            ResourceKind::Media => "does not play",
            ResourceKind::Frame => "the frame stays empty",
            ResourceKind::Object => "the object is missing",
            ResourceKind::Connect => "the request of the script fails",
            ResourceKind::Worker => "the worker does not start",
            ResourceKind::Manifest => "cannot be installed as an application",
            ResourceKind::Form => "the form cannot be sent",
            ResourceKind::Base => "relative addresses lead to that origin",
            ResourceKind::Refresh => "readers are redirected to a page that does not load",
            ResourceKind::Hint => "nothing",
        }
    }
}

/// Reads all of `version` with `threads` threads and reports its needs. After `stop` has returned `true`, the result is
/// `None`.
pub fn audit(version: &SealedVersion, threads: usize, stop: &(dyn Fn() -> bool + Sync)) -> Option<ExternalAudit> {
    let builder = Mutex::new(AuditBuilder::default());
    read_site_files(version, threads, stop, || AuditSink {
        builder: &builder,
        base: BaseAddress::default(),
        needs: Vec::new(),
        other_facts: OtherFacts::default(),
    })?;
    let mut audit = builder.into_inner().audit;
    audit.files.sort_unstable_by_key(|(file, _)| *file);
    audit.service_workers.sort_unstable();
    audit.pages = (0..version.index().len())
        .filter(|&file| detect_source_format(version.index().path(file)) == Some(SourceFormat::Html))
        .count() as u64;
    sort_needs(&mut audit);
    Some(audit)
}

/// Orders the needs by origin and kind, so that the report does not depend on the timing of threads.
fn sort_needs(audit: &mut ExternalAudit) {
    let mut order: Vec<u32> = (0..audit.needs.len() as u32).collect();
    order.sort_by(|&a, &b| {
        let key = |n: u32| (&audit.needs[n as usize].origin, audit.needs[n as usize].kind);
        key(a).cmp(&key(b))
    });
    let mut new_number = vec![0; order.len()];
    for (new, &old) in order.iter().enumerate() {
        new_number[old as usize] = new as u32;
    }
    audit.needs = order.iter().map(|&old| audit.needs[old as usize].clone()).collect();
    for (_, needs) in &mut audit.files {
        for need in needs.iter_mut() {
            *need = new_number[*need as usize];
        }
        needs.sort_unstable();
    }
}

/// The report in progress, shared by all threads.
#[derive(Debug, Default)]
struct AuditBuilder {
    audit: ExternalAudit,
    need_numbers: HashMap<(ExternalOrigin, ResourceKind), u32>,
    stored_words: usize,
}

impl AuditBuilder {
    fn add_file(&mut self, file: usize, needs: Vec<(ExternalOrigin, ResourceKind, String)>, other_facts: OtherFacts) {
        self.audit.files_read += 1;
        let mut numbers = Vec::new();
        for (origin, kind, address) in needs {
            let next = self.audit.needs.len();
            let number = match self.need_numbers.get(&(origin.clone(), kind)) {
                Some(&number) => number,
                None if next >= MAX_NEEDS => {
                    self.audit.is_incomplete = true;
                    continue;
                }
                None => {
                    self.need_numbers.insert((origin.clone(), kind), next as u32);
                    self.audit.needs.push(ExternalNeed { origin, kind, files: 0, example: (file, address.clone()) });
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
        for origin in other_facts.mentions {
            if self.audit.mentions.len() < MAX_MENTIONS || self.audit.mentions.contains_key(&origin) {
                *self.audit.mentions.entry(origin).or_default() += 1;
            } else {
                self.audit.is_incomplete = true;
            }
        }
        if other_facts.has_service_worker {
            self.audit.service_workers.push(file);
        }
        self.audit.is_incomplete |= other_facts.is_incomplete;
        if self.stored_words + numbers.len() > MAX_NEED_WORDS {
            self.audit.is_incomplete = true;
        } else if !numbers.is_empty() {
            self.stored_words += numbers.len() + 8;
            self.audit.files.push((file, numbers));
        }
    }
}

/// The facts about the current file other than its needs.
#[derive(Debug, Default)]
struct OtherFacts {
    mentions: Vec<ExternalOrigin>,
    has_service_worker: bool,
    is_incomplete: bool,
}

/// The sink of one thread.
struct AuditSink<'a> {
    builder: &'a Mutex<AuditBuilder>,
    base: BaseAddress,
    needs: Vec<(ExternalOrigin, ResourceKind, String)>,
    other_facts: OtherFacts,
}

impl FactSink for AuditSink<'_> {
    fn record(&mut self, fact: ContentFact<'_>) {
        match fact {
            ContentFact::Address(kind, text) => {
                let AddressTarget::External(origin) = self.base.classify(kind, text) else { return };
                if self.needs.iter().any(|(known_origin, known_kind, _)| *known_kind == kind && *known_origin == origin)
                {
                    return;
                }
                if self.needs.len() >= MAX_NEEDS_PER_FILE {
                    self.other_facts.is_incomplete = true;
                    return;
                }
                let text = text.trim();
                self.needs.push((origin, kind, text[..text.floor_char_boundary(MAX_EXAMPLE_BYTES)].to_owned()));
            }
            ContentFact::MentionedAddress(text) => {
                if let AddressTarget::External(origin) = classify_address(text)
                    && !self.other_facts.mentions.contains(&origin)
                {
                    if self.other_facts.mentions.len() < MAX_NEEDS_PER_FILE {
                        self.other_facts.mentions.push(origin);
                    } else {
                        self.other_facts.is_incomplete = true;
                    }
                }
            }
            ContentFact::NestedPageStart => self.base.enter_nested_page(),
            ContentFact::NestedPageEnd => self.base.leave_nested_page(),
            ContentFact::ServiceWorker => self.other_facts.has_service_worker = true,
            _ => {}
        }
    }

    fn end_file(&mut self, file: usize, _format: SourceFormat) {
        self.base = BaseAddress::default();
        let (needs, other_facts) = (std::mem::take(&mut self.needs), std::mem::take(&mut self.other_facts));
        self.builder.lock().add_file(file, needs, other_facts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sealed_version::test_versions::version_with_files;

    #[test]
    fn audit_lists_external_needs_by_origin_and_kind_with_the_first_file_of_each() {
        let site = version_with_files(&[
            ("a.html", "<img src='//b.example/1'><img src='//b.example/2'><script src='//b.example/3'></script>"),
            ("b.css", "a { x: url(//b.example/4), url(//a.example/5) }"),
            ("c.html", "<base href='//c.example/'><img src=x><link rel=preconnect href='//b.example'>"),
            ("d.html", "<img src=x>"),
            ("e.js", "x = 'https://m.example/'; y = 'https://m.example/2'; navigator.serviceWorker.register('/e.js')"),
            ("f.js", "x = 'https://m.example/'"),
            ("g.txt", "x"),
        ]);
        for threads in [1, 3] {
            let report = audit(&site, threads, &|| false).unwrap();
            let lines: Vec<String> = report
                .needs
                .iter()
                .map(|need| {
                    let (file, address) = &need.example;
                    format!("{} {} {} {file} {address}", need.origin.as_str(), need.kind.name(), need.files)
                })
                .collect();
            assert_eq!(
                lines,
                [
                    "//a.example image 1 1 //a.example/5",
                    "//b.example script 1 0 //b.example/3",
                    "//b.example image 2 0 //b.example/1",
                    "//b.example hint 1 2 //b.example",
                    "//c.example image 1 2 x",
                    "//c.example base 1 2 //c.example/",
                ]
            );
            assert_eq!(report.files, [(0, vec![1, 2]), (1, vec![0, 2]), (2, vec![3, 4, 5])]);
            assert_eq!(
                (report.pages, report.files_read, report.is_incomplete, &report.service_workers[..]),
                (3, 6, false, &[4][..])
            );
            assert_eq!(report.mentions.values().copied().collect::<Vec<_>>(), [2]);
            assert_eq!((report.required_needs().count(), report.hints().count(), report.is_clean()), (5, 1, false));
        }
        assert!(
            audit(&version_with_files(&[("a.html", "<link rel=preconnect href='//b.example'>")]), 1, &|| false)
                .unwrap()
                .is_clean()
        );
        assert_eq!(audit(&site, 1, &|| true), None);
    }

    fn image_need(n: usize) -> (ExternalOrigin, ResourceKind, String) {
        (ExternalOrigin::from_trusted(&format!("//h{n}.example")), ResourceKind::Image, format!("//h{n}.example/x"))
    }

    #[test]
    fn example_of_an_external_need_is_from_the_first_file_in_any_read_order() {
        for order in [[2, 5, 9], [9, 5, 2], [5, 2, 9]] {
            let mut builder = AuditBuilder::default();
            for file in order {
                let (origin, kind, _) = image_need(0);
                builder.add_file(file, vec![(origin, kind, format!("of {file}"))], OtherFacts::default());
            }
            let need = &builder.audit.needs[0];
            assert_eq!((need.files, need.example.clone()), (3, (2, "of 2".to_owned())), "{order:?}");
        }
    }

    #[test]
    fn audit_that_exceeds_a_limit_of_the_report_is_marked_incomplete() {
        let mut builder = AuditBuilder::default();
        builder.add_file(0, (0..MAX_NEEDS).map(image_need).collect(), OtherFacts::default());
        // A need that is in the report already takes no room.
        builder.add_file(1, vec![image_need(0)], OtherFacts::default());
        assert_eq!((builder.audit.needs.len(), builder.audit.is_incomplete), (MAX_NEEDS, false));
        builder.add_file(2, vec![image_need(MAX_NEEDS), image_need(0)], OtherFacts::default());
        assert_eq!((builder.audit.needs.len(), builder.audit.is_incomplete), (MAX_NEEDS, true));
        assert_eq!((builder.audit.needs[0].files, builder.audit.files.last()), (3, Some(&(2, vec![0]))));

        let mut builder = AuditBuilder::default();
        let mentions = |first: usize, count: usize| OtherFacts {
            mentions: (first..first + count).map(|n| image_need(n).0).collect(),
            ..OtherFacts::default()
        };
        builder.add_file(0, Vec::new(), mentions(0, MAX_MENTIONS));
        builder.add_file(1, Vec::new(), mentions(0, 1));
        assert_eq!((builder.audit.mentions.len(), builder.audit.is_incomplete), (MAX_MENTIONS, false));
        assert_eq!(builder.audit.mentions.values().sum::<u64>(), MAX_MENTIONS as u64 + 1);
        builder.add_file(2, Vec::new(), mentions(MAX_MENTIONS, 1));
        assert_eq!((builder.audit.mentions.len(), builder.audit.is_incomplete), (MAX_MENTIONS, true));
        assert_eq!((builder.audit.files_read, builder.audit.files.len()), (3, 0));

        let mut builder = AuditBuilder { stored_words: MAX_NEED_WORDS, ..AuditBuilder::default() };
        builder.add_file(0, Vec::new(), OtherFacts::default());
        assert!(!builder.audit.is_incomplete);
        builder.add_file(1, vec![image_need(0)], OtherFacts::default());
        assert_eq!((builder.audit.is_incomplete, builder.audit.needs.len(), builder.audit.files.len()), (true, 1, 0));
    }

    // Regression: a report lacked the further origins that one script mentions without saying so.
    #[test]
    fn needs_beyond_the_limit_per_file_are_dropped_and_the_audit_is_incomplete() {
        for (number, is_incomplete) in [(MAX_NEEDS_PER_FILE, false), (MAX_NEEDS_PER_FILE + 1, true)] {
            let page: Vec<String> = (0..number).map(|n| format!("<img src='//h{n}.example/'>")).collect();
            let report = audit(&version_with_files(&[("a.html", page.concat())]), 1, &|| false).unwrap();
            assert_eq!((report.needs.len(), report.is_incomplete), (MAX_NEEDS_PER_FILE, is_incomplete), "{number}");
            let script: Vec<String> = (0..number).map(|n| format!("x = 'https://h{n}.example/';\n")).collect();
            // An origin that is in the report already takes no room.
            let script = format!("{}{}", script.concat(), script[0]);
            let report = audit(&version_with_files(&[("a.js", script)]), 1, &|| false).unwrap();
            assert_eq!((report.mentions.len(), report.is_incomplete), (MAX_NEEDS_PER_FILE, is_incomplete), "{number}");
        }
        let long = format!("<img src='//xy.example/{}'>", "é".repeat(MAX_EXAMPLE_BYTES));
        let example = &audit(&version_with_files(&[("a.html", long)]), 1, &|| false).unwrap().needs[0].example.1;
        assert_eq!(example.len(), MAX_EXAMPLE_BYTES - 1, "not within a character");
    }
}
