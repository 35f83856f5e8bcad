//! Queries: the sections of an index that match what a reader has typed, best first, one result for each page.
//!
//! 1. The text is split into words, phrases and symbols ([`parse_query`](crate::analyze::parse_query)).
//! 2. `name_matches` looks for sections of which the text is a name.
//! 3. `planner` finds the words of the index that the words of the query stand for, `evaluate` reads where they occur,
//!    and `ranking` puts the sections in order. `proximity` corrects the order of the best ones.
//! 4. If few pages are found, this is done again with words that differ by typing errors. Sections of which the
//!    corrected query is a name come first among these.
//! 5. `excerpt` makes the excerpts of the results that are asked for.
//!
//! A query is a plain function without side effects. All its loops over occurrences, terms and texts check the time now
//! and then, so that it ends in time with what it has; those over the numbers of sections and pages, which take
//! milliseconds for the largest index, do not. Memory is about 16 bytes for each section of the index while the query
//! runs.

mod clock;
mod edit_distance;
mod evaluate;
mod excerpt;
mod excerpt_candidates;
mod expand;
mod group_builder;
mod name_matches;
mod outcome;
mod page_filter;
mod phrase;
mod plan;
mod planner;
mod proximity;
mod ranking;
#[cfg(test)]
mod test_indexes;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::io;
use std::time::Instant;

use tantivy::schema::Value;
use tantivy::{TantivyDocument, TantivyError};

use crate::analyze::{StemLanguage, Stemmer, SynonymTable, parse_query};
use crate::index::{IndexSegment, SearchIndex, stem_language};
use crate::page::DEFAULT_LIMIT;

use clock::QueryClock;
use evaluate::{Evaluator, SectionScores};
use excerpt::{Excerpt, ExcerptMaker};
use name_matches::NameMatches;
use page_filter::PageFilter;
use plan::QueryPlan;
use planner::Planner;
use proximity::rate_nearness;
use ranking::{
    ENOUGH_PAGES, Hit, HitCollector, ResultTier, STRENGTH_SCORE, collect_further, compare_hits, group_by_page,
};

pub use outcome::{PageMatch, SearchOutcome, SectionMatch};

/// The maximum number of further sections of a page.
const MAX_FURTHER_SECTIONS: usize = 3;
/// The maximum number of sections of which these are chosen: sections with the same anchor are one.
const MAX_FURTHER_CANDIDATES: usize = 8;
/// The number of sections whose order the nearness of words can change.
const NEAR_SECTIONS: usize = 64;
/// The maximum number of languages in which the words of a query are stemmed.
const MAX_STEM_LANGUAGES: usize = 3;

/// A question to an index.
#[derive(Debug, Clone, Copy)]
pub struct SearchRequest<'a> {
    /// The text that the reader has typed. The caller limits its length.
    pub text: &'a str,
    /// The maximum number of results.
    pub limit: u32,
    /// The number of results that are left out at the beginning.
    pub offset: u32,
    /// The path below which pages are searched, below the base path.
    pub section: Option<&'a str>,
    /// The language tag of the pages that are searched. Pages in other languages are results if there is none in this.
    pub lang: Option<&'a str>,
    /// The words that mean the same.
    pub synonyms: &'a SynonymTable,
    /// The time at which the search ends with what it has.
    pub deadline: Option<Instant>,
}

impl<'a> SearchRequest<'a> {
    /// Creates a request for the first ten results without any restriction.
    pub fn new(text: &'a str, synonyms: &'a SynonymTable) -> SearchRequest<'a> {
        SearchRequest { text, limit: DEFAULT_LIMIT, offset: 0, section: None, lang: None, synonyms, deadline: None }
    }
}

/// The reason why a search has failed: the index cannot be read any more.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// A list of sections cannot be read.
    #[error("cannot read the search index")]
    Read(#[from] io::Error),
    /// The text of a section cannot be read.
    #[error("cannot read a text of the search index")]
    Text(#[from] TantivyError),
}

impl SearchIndex {
    /// Answers a request. Nothing that a reader types is an error.
    ///
    /// `is_served` is called with the address of each page that would be a result, without a leading slash; a page for
    /// which it returns false is left out. It is for an index that is older than the site that is served.
    pub fn search(
        &self,
        request: &SearchRequest<'_>,
        is_served: &dyn Fn(&str) -> bool,
    ) -> Result<SearchOutcome, SearchError> {
        // A question without a language is taken for one in that of the site.
        let lang = request.lang.or(self.main_language.as_deref());
        let query = parse_query(request.text, lang);
        let Some(segment) = self.segment.as_ref().filter(|_| !query.is_empty()) else {
            return Ok(SearchOutcome::default());
        };
        let mut clock = QueryClock::new(request.deadline);
        let mut planner =
            Planner::new(segment, request.text, &query, request.synonyms, self.stemmers_for(request.lang));
        let names = NameMatches::find(segment, request.text, &query, &planner.sources.stemmers, &mut clock)?;
        let search = SearchRun { index: self, segment, text: request.text, lang, names: &names };
        let filter = PageFilter::new(&self.page_table, request.section, request.lang);
        let mut found = search.find(&mut planner, &filter, &mut clock)?;
        if found.hits.is_empty() && request.lang.is_some() && !clock.is_over() {
            planner.allows_errors = false;
            planner.sources.stemmers = self.stemmers_for(None);
            let filter = PageFilter::new(&self.page_table, request.section, None);
            found = search.find(&mut planner, &filter, &mut clock)?;
        }
        let mut outcome = search.create_outcome(&found, request, is_served, &mut clock)?;
        outcome.corrected = found.corrected_text(request.text);
        outcome.partial = clock.is_over();
        Ok(outcome)
    }

    /// Returns the stemmers for the words of a query: that of the language that is asked for, or those of the site.
    ///
    /// In pages of one language, the stems of another one are accidents: `starts` must not be found for the German
    /// `startet`.
    fn stemmers_for(&self, lang: Option<&str>) -> Vec<Stemmer> {
        let asked = lang.and_then(StemLanguage::from_tag).filter(|language| self.stem_languages.contains(language));
        let languages = match asked {
            Some(asked) => vec![asked],
            None => self.stem_languages.iter().copied().take(MAX_STEM_LANGUAGES).collect(),
        };
        languages.into_iter().map(Stemmer::new).collect()
    }
}

/// The sections that were found for a plan.
struct FoundSections {
    plan: QueryPlan,
    hits: Vec<Hit>,
}

impl FoundSections {
    /// Returns the query with its unknown words replaced, if all results come from that.
    fn corrected_text(&self, text: &str) -> Option<String> {
        let is_corrected = self.hits.iter().all(|hit| hit.tier >= ResultTier::ReplacedWords);
        if self.hits.is_empty() || !is_corrected { None } else { self.plan.correct(text) }
    }
}

/// One search on an index.
struct SearchRun<'a> {
    index: &'a SearchIndex,
    segment: &'a IndexSegment,
    /// The query as it was typed, and its language.
    text: &'a str,
    lang: Option<&'a str>,
    names: &'a NameMatches,
}

impl SearchRun<'_> {
    /// Finds the sections of all tiers that are needed.
    fn find(
        &self,
        planner: &mut Planner<'_>,
        filter: &PageFilter,
        clock: &mut QueryClock,
    ) -> io::Result<FoundSections> {
        let page_of_section = &self.segment.page_of_section;
        let collector = HitCollector { index: self.index, page_of_section, names: self.names, filter };
        let evaluator = Evaluator::new(self.segment);
        let mut plan = planner.plan(clock)?;
        let mut scores = evaluator.evaluate(&plan, clock)?;
        let mut hits = collector.collect_full(&plan, &scores, ResultTier::AllWords);
        self.rate_nearness(&plan, &mut hits, clock)?;
        if self.has_enough(&hits) || clock.is_over() {
            return Ok(FoundSections { plan, hits });
        }
        if plan.has_unknown_words {
            planner.allows_errors = true;
            plan = planner.plan(clock)?;
            scores = evaluator.evaluate(&plan, clock)?;
            let known = sections_of(&hits);
            let names = self.find_corrected_names(&plan, planner, clock)?;
            let corrected = HitCollector { names: &names, ..collector };
            let full = corrected.collect_full(&plan, &scores, ResultTier::ReplacedWords);
            let mut replaced: Vec<Hit> = full.into_iter().filter(|hit| !known.contains(&hit.section)).collect();
            self.rate_nearness(&plan, &mut replaced, clock)?;
            hits.extend(replaced);
        }
        if !self.has_enough(&hits) && !clock.is_over() {
            self.add_partial(&collector, &plan, &scores, &mut hits, clock)?;
        }
        Ok(FoundSections { plan, hits })
    }

    /// Returns the sections of which the query is a name after its unknown words were replaced.
    fn find_corrected_names(
        &self,
        plan: &QueryPlan,
        planner: &Planner<'_>,
        clock: &mut QueryClock,
    ) -> io::Result<NameMatches> {
        let Some(text) = plan.correct(self.text) else { return Ok(NameMatches::default()) };
        let query = parse_query(&text, self.lang);
        let names = NameMatches::find(self.segment, &text, &query, &planner.sources.stemmers, clock)?;
        Ok(names.into_prefix_scores(STRENGTH_SCORE))
    }

    fn add_partial(
        &self,
        collector: &HitCollector<'_>,
        plan: &QueryPlan,
        scores: &SectionScores,
        hits: &mut Vec<Hit>,
        clock: &mut QueryClock,
    ) -> io::Result<()> {
        let mut partial = collector.collect_partial(plan, scores, &sections_of(hits));
        self.rate_nearness(plan, &mut partial, clock)?;
        hits.extend(partial);
        Ok(())
    }

    fn has_enough(&self, hits: &[Hit]) -> bool {
        let mut pages = HashSet::new();
        hits.iter().any(|hit| pages.insert(hit.page) && pages.len() >= ENOUGH_PAGES)
    }

    /// Adds what the nearness of words is worth to the scores of the best hits.
    fn rate_nearness(&self, plan: &QueryPlan, hits: &mut [Hit], clock: &mut QueryClock) -> io::Result<()> {
        if hits.len() > NEAR_SECTIONS {
            let _ = hits.select_nth_unstable_by(NEAR_SECTIONS, compare_hits);
        }
        let count = hits.len().min(NEAR_SECTIONS);
        let best = &mut hits[..count];
        best.sort_unstable_by_key(|hit| hit.section);
        let sections: Vec<u32> = best.iter().map(|hit| hit.section).collect();
        let nearness = rate_nearness(self.segment, plan, &sections, clock)?;
        for (hit, nearness) in best.iter_mut().zip(nearness) {
            // The strength of a name decides before anything else.
            if hit.tier != ResultTier::Name {
                hit.score += nearness * f32::from(self.index.page_table.score_percent(hit.page)) / 100.0;
            }
        }
        Ok(())
    }

    /// Makes the results that are asked for. After the time is over, they have no further sections.
    fn create_outcome(
        &self,
        found: &FoundSections,
        request: &SearchRequest<'_>,
        is_served: &dyn Fn(&str) -> bool,
        clock: &mut QueryClock,
    ) -> Result<SearchOutcome, SearchError> {
        let pages = group_by_page(&self.index.page_table, &found.hits);
        let (offset, limit) = (request.offset as usize, request.limit as usize);
        let (mut shown, mut served, mut gone) = (Vec::new(), 0, 0);
        for hit in &pages {
            if shown.len() >= limit {
                break;
            }
            if !is_served(self.index.page_table.record(hit.page).address) {
                gone += 1;
                continue;
            }
            served += 1;
            if served > offset {
                shown.push(*hit);
            }
        }
        let further = collect_further(&found.hits, &shown, MAX_FURTHER_CANDIDATES);
        let excerpts = ExcerptMaker::new(&found.plan);
        let mut outcome = SearchOutcome { total: (pages.len() - gone) as u64, ..SearchOutcome::default() };
        for hit in &shown {
            let others = further.get(&hit.page).map_or(&[][..], Vec::as_slice);
            outcome.results.push(self.create_page_match(&excerpts, hit, others, clock)?);
        }
        Ok(outcome)
    }

    fn create_page_match(
        &self,
        excerpts: &ExcerptMaker<'_>,
        hit: &Hit,
        others: &[Hit],
        clock: &mut QueryClock,
    ) -> Result<PageMatch, SearchError> {
        let record = self.index.page_table.record(hit.page);
        let lang = (!record.lang.is_empty()).then(|| record.lang.to_owned());
        let stemmer = stem_language(lang.as_deref()).map(Stemmer::new);
        let best = self.read_section(hit.section)?;
        let best = best.into_match(|text| excerpts.make(text, stemmer.as_ref()));
        let mut sections: Vec<SectionMatch> = Vec::new();
        for other in others {
            if sections.len() >= MAX_FURTHER_SECTIONS || clock.check_time() {
                break;
            }
            let section = self.read_section(other.section)?;
            let is_shown = best.anchor == section.anchor || sections.iter().any(|shown| shown.anchor == section.anchor);
            if !is_shown {
                sections.push(section.into_match(|text| excerpts.make_further(text, stemmer.as_ref())));
            }
        }
        Ok(PageMatch {
            path: record.path.to_owned(),
            address: record.address.to_owned(),
            title: record.title.to_owned(),
            lang,
            score: hit.total_score(),
            best,
            sections,
        })
    }

    fn read_section(&self, section: u32) -> Result<StoredSection, SearchError> {
        let document: TantivyDocument = self.segment.store.get(section)?;
        let schema = &self.segment.schema;
        let text_of = |field| document.get_first(field).and_then(|value| value.as_str()).map(str::to_owned);
        let headings = document.get_all(schema.headings).filter_map(|value| value.as_str()).map(str::to_owned);
        let text = text_of(schema.text).unwrap_or_default();
        Ok(StoredSection { anchor: text_of(schema.anchor), headings: headings.collect(), text })
    }
}

/// A section as the index has stored it.
struct StoredSection {
    anchor: Option<String>,
    headings: Vec<String>,
    text: String,
}

impl StoredSection {
    fn into_match(self, make_excerpt: impl FnOnce(&str) -> Excerpt) -> SectionMatch {
        let Excerpt { text: excerpt, marks } = make_excerpt(&self.text);
        SectionMatch { anchor: self.anchor, headings: self.headings, excerpt, marks }
    }
}

fn sections_of(hits: &[Hit]) -> HashSet<u32> {
    hits.iter().map(|hit| hit.section).collect()
}
