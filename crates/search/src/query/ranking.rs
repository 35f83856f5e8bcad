//! The order of the results: tiers, the order within a tier, and one result for each page.
//!
//! 1. The query is a name of the section ([`NameMatches`]).
//! 2. All groups of the query match.
//! 3. All groups match after unknown words were replaced.
//! 4. Some groups match: the larger the sum of their inverse document frequencies, the better.
//!
//! A long question is in the second tier also if a section matches most of it: its words are the reader's and not those
//! of the page. The share that matches is a factor of the score.
//!
//! Within a tier, pages that list or repeat what others explain (the index of a book, a page for printing) come last,
//! and only their own titles are names. Of pages with nearly the same score, the one nearer to the root is first.
//!
//! Sections of all tiers have the phrases in quotes. A section of one tier is before all sections of the next. Within a
//! tier, the score decides, multiplied with the factor of the page. The last two tiers are only looked at if the first
//! two have few pages.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use crate::index::{MAX_SECONDARY_PERCENT, PageTable, SearchIndex};

use super::evaluate::SectionScores;
use super::name_matches::NameMatches;
use super::page_filter::PageFilter;
use super::plan::QueryPlan;

/// The number of pages from which on later tiers are not looked at.
pub(super) const ENOUGH_PAGES: usize = 10;
/// The score of a section for each unit of the strength of its name.
pub(super) const STRENGTH_SCORE: f32 = 10.0;
/// The share of the best coverage that a section of the last tier must have.
const MIN_COVERAGE_SHARE: f32 = 0.5;
/// How much the other sections of a page count for the coverage of one.
const PAGE_COVERAGE_SHARE: f32 = 0.3;
/// The score that [`bound_score`] maps to half of its bound.
const HALF_BOUND_SCORE: f32 = 20.0;
/// The share of a page's score that it loses for each folder that it is in: old editions and details are deep.
const DEPTH_SHARE: f32 = 0.03;
/// The number of folders that count.
const MAX_DEPTH: usize = 4;
/// The number of sections that are passed over together if they have no match.
const BLOCK_SECTIONS: u32 = 32;
/// The maximum of a score within its tier, so that the scores of all tiers are in order.
const MAX_TIER_SCORE: f32 = 1000.0;

/// The tier of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ResultTier {
    Name,
    AllWords,
    ReplacedWords,
    SomeWords,
}

/// A section that is found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Hit {
    pub(super) section: u32,
    pub(super) page: u32,
    pub(super) tier: ResultTier,
    /// Whether its page lists or repeats what other pages explain. It is behind these pages in its tier.
    pub(super) is_secondary: bool,
    pub(super) score: f32,
}

impl Hit {
    /// Returns the score over all tiers.
    pub(super) fn total_score(&self) -> f32 {
        let tier = match self.tier {
            ResultTier::Name => 6.0,
            ResultTier::AllWords => 4.0,
            ResultTier::ReplacedWords => 2.0,
            ResultTier::SomeWords => 0.0,
        };
        let rank = if self.is_secondary { tier } else { tier + 1.0 };
        rank * MAX_TIER_SCORE + self.score.clamp(0.0, MAX_TIER_SCORE - 1.0)
    }
}

/// The share of a query that sections match, by the inverse document frequencies of its groups.
struct Coverage {
    /// Each group as a bit, and its share.
    shares: Vec<(u32, f32)>,
}

impl Coverage {
    /// Creates the shares of the groups in `groups`, as bits.
    fn new(plan: &QueryPlan, groups: u32) -> Coverage {
        let groups = plan
            .groups
            .iter()
            .filter_map(|group| Some((1 << group.required?, group.idf)))
            .filter(|(bit, _)| groups & bit != 0);
        let mut shares: Vec<(u32, f32)> = groups.collect();
        let all: f32 = shares.iter().map(|(_, idf)| idf).sum();
        for (_, share) in &mut shares {
            *share /= all.max(f32::MIN_POSITIVE);
        }
        Coverage { shares }
    }

    /// Returns the share of the groups in `mask`, from 0 to 1.
    fn of(&self, mask: u32) -> f32 {
        self.shares.iter().filter(|(bit, _)| mask & bit != 0).map(|(_, share)| share).sum()
    }
}

/// Compares hits; the better one is less.
pub(super) fn compare_hits(a: &Hit, b: &Hit) -> Ordering {
    let by_score = || b.score.total_cmp(&a.score);
    let by_tier = a.tier.cmp(&b.tier).then(a.is_secondary.cmp(&b.is_secondary));
    by_tier.then_with(by_score).then(a.page.cmp(&b.page)).then(a.section.cmp(&b.section))
}

/// Collects the hits of each tier from the scores of all sections.
#[derive(Clone, Copy)]
pub(super) struct HitCollector<'a> {
    pub(super) index: &'a SearchIndex,
    pub(super) page_of_section: &'a [u32],
    pub(super) names: &'a NameMatches,
    pub(super) filter: &'a PageFilter,
}

impl HitCollector<'_> {
    /// Returns the sections that have the query as a name or match all groups. `tier` is that of the latter. Of a plan
    /// that was not evaluated to its end, the groups that were looked for count.
    pub(super) fn collect_full(&self, plan: &QueryPlan, scores: &SectionScores, tier: ResultTier) -> Vec<Hit> {
        let (required, phrases) = (plan.required_mask() & scores.evaluated, plan.phrase_mask());
        let coverage = Coverage::new(plan, required);
        let mut prefix_scores = self.names.prefix_scores().peekable();
        let mut hits = Vec::new();
        for (section, page) in self.sections_with_matches(scores) {
            let (total, mask) = self.scores_of(scores, section);
            let has_names = self.has_names(section, page);
            let strength = if has_names { self.names.strength(section) } else { 0 };
            let prefix_score = prefix_scores.next_if(|(named, _)| *named == section).map(|(_, score)| score);
            let prefix_score = prefix_score.filter(|_| has_names);
            let is_full = required != 0 && mask & required == required;
            let coverage = if is_full { 1.0 } else { coverage.of(mask & required) };
            let is_full = is_full || coverage >= plan.min_coverage;
            if mask & phrases != phrases {
                continue;
            }
            let (tier, score) = if strength > 0 {
                (ResultTier::Name, strength as f32 * STRENGTH_SCORE + bound_score(total))
            } else if is_full || prefix_score.is_some() {
                (tier, total * coverage + prefix_score.unwrap_or_default())
            } else {
                continue;
            };
            self.push(&mut hits, section, page, tier, score);
        }
        hits
    }

    /// Returns the sections that match a group or have a name, in order, and their pages. Most sections of a site have
    /// nothing of a query, and are passed over in blocks.
    fn sections_with_matches(&self, scores: &SectionScores) -> Vec<(u32, u32)> {
        let mut named = self.names.sections().into_iter().peekable();
        let mut found = Vec::new();
        for (block, masks) in (0u32..).zip(scores.masks.chunks(BLOCK_SECTIONS as usize)) {
            let first = block * BLOCK_SECTIONS;
            let is_named = named.peek().is_some_and(|section| *section < first + BLOCK_SECTIONS);
            if !is_named && masks.iter().all(|mask| *mask == 0) {
                continue;
            }
            for (section, mask) in (first..).zip(masks) {
                let is_named = named.next_if(|named| *named == section).is_some();
                let page = self.page_of_section.get(section as usize).filter(|_| *mask != 0 || is_named);
                found.extend(page.map(|page| (section, *page)));
            }
        }
        found
    }

    /// Returns the sections that match some groups and are not in `known`.
    pub(super) fn collect_partial(&self, plan: &QueryPlan, scores: &SectionScores, known: &HashSet<u32>) -> Vec<Hit> {
        let (required, phrases) = (plan.required_mask(), plan.phrase_mask());
        let mut page_masks = vec![0; self.index.page_table.len() as usize];
        for (section, &page) in (0u32..).zip(self.page_of_section) {
            if let Some(mask) = page_masks.get_mut(page as usize) {
                *mask |= self.scores_of(scores, section).1;
            }
        }
        let coverage = Coverage::new(plan, required);
        let mut found = Vec::new();
        for (section, &page) in (0u32..).zip(self.page_of_section) {
            let (total, mask) = self.scores_of(scores, section);
            let is_hit = mask & required != 0 && mask & phrases == phrases;
            if !is_hit || known.contains(&section) || !self.filter.allows(page) {
                continue;
            }
            let page_mask = page_masks.get(page as usize).copied().unwrap_or_default();
            let coverage =
                coverage.of(mask) * (1.0 - PAGE_COVERAGE_SHARE) + coverage.of(page_mask) * PAGE_COVERAGE_SHARE;
            found.push((section, page, coverage, total));
        }
        let best = found.iter().map(|(_, _, coverage, _)| *coverage).fold(0.0, f32::max);
        let mut hits = Vec::new();
        for (section, page, coverage, total) in found {
            if coverage >= best * MIN_COVERAGE_SHARE {
                self.push(&mut hits, section, page, ResultTier::SomeWords, coverage * 100.0 + bound_score(total));
            }
        }
        hits
    }

    /// Whether the names of a section count. An index names what other pages explain: only its first section, which
    /// has the title of the page, is about its own name. The same is true of a page that repeats others.
    fn has_names(&self, section: u32, page: u32) -> bool {
        let before = section.checked_sub(1).and_then(|before| self.page_of_section.get(before as usize));
        before != Some(&page) || !self.is_secondary(page)
    }

    fn is_secondary(&self, page: u32) -> bool {
        self.index.page_table.score_percent(page) <= MAX_SECONDARY_PERCENT
    }

    fn scores_of(&self, scores: &SectionScores, section: u32) -> (f32, u32) {
        let section = section as usize;
        (
            scores.totals.get(section).copied().unwrap_or_default(),
            scores.masks.get(section).copied().unwrap_or_default(),
        )
    }

    fn push(&self, hits: &mut Vec<Hit>, section: u32, page: u32, tier: ResultTier, score: f32) {
        if page < self.index.page_table.len() && self.filter.allows(page) {
            let factor = f32::from(self.index.page_table.score_percent(page)) / 100.0;
            let is_secondary = self.is_secondary(page);
            hits.push(Hit { section, page, tier, is_secondary, score: score * factor });
        }
    }
}

/// Maps a score of any size to less than [`STRENGTH_SCORE`] and keeps the order.
fn bound_score(score: f32) -> f32 {
    STRENGTH_SCORE * score / (score + HALF_BOUND_SCORE)
}

/// Returns the best hit of each page, the best page first.
pub(super) fn group_by_page(pages: &PageTable, hits: &[Hit]) -> Vec<Hit> {
    let mut slots = vec![u32::MAX; pages.len() as usize];
    let mut best: Vec<Hit> = Vec::new();
    for hit in hits {
        let Some(slot) = slots.get_mut(hit.page as usize) else { continue };
        if let Some(known) = best.get_mut(*slot as usize) {
            if compare_hits(hit, known) == Ordering::Less {
                *known = *hit;
            }
        } else {
            *slot = best.len() as u32;
            best.push(*hit);
        }
    }
    for hit in &mut best {
        let depth = pages.record(hit.page).path.matches('/').count().min(MAX_DEPTH);
        hit.score *= 1.0 - DEPTH_SHARE * depth as f32;
    }
    best.sort_unstable_by(compare_hits);
    best
}

/// Returns the other hits of the pages in `shown`, the best first, at most `max` for each page.
pub(super) fn collect_further(hits: &[Hit], shown: &[Hit], max: usize) -> HashMap<u32, Vec<Hit>> {
    let best: HashMap<u32, &Hit> = shown.iter().map(|hit| (hit.page, hit)).collect();
    let mut further: HashMap<u32, Vec<Hit>> = HashMap::new();
    for hit in hits {
        if best.get(&hit.page).is_some_and(|best| best.section != hit.section) {
            further.entry(hit.page).or_default().push(*hit);
        }
    }
    for hits in further.values_mut() {
        hits.sort_unstable_by(compare_hits);
        hits.truncate(max);
    }
    further
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(section: u32, tier: ResultTier, score: f32) -> Hit {
        Hit { section, page: section / 10, tier, is_secondary: false, score }
    }

    #[test]
    fn tiers_come_before_scores_and_ties_are_in_the_order_of_the_site() {
        let mut hits = [
            hit(4, ResultTier::SomeWords, 900.0),
            hit(3, ResultTier::AllWords, 1.0),
            hit(2, ResultTier::AllWords, 1.0),
            hit(1, ResultTier::AllWords, 2.0),
            hit(0, ResultTier::Name, 0.5),
        ];
        hits.sort_by(compare_hits);
        assert_eq!(hits.map(|hit| hit.section), [0, 1, 2, 3, 4]);
        assert!(hits.is_sorted_by(|a, b| a.total_score() >= b.total_score()));
        assert!(hit(0, ResultTier::AllWords, 1e9).total_score() < hit(0, ResultTier::Name, 0.0).total_score());
    }

    #[test]
    fn further_sections_are_the_next_best_of_the_same_page() {
        let hits = [
            hit(0, ResultTier::AllWords, 1.0),
            hit(1, ResultTier::AllWords, 3.0),
            hit(2, ResultTier::AllWords, 2.0),
            hit(11, ResultTier::AllWords, 9.0),
        ];
        let further = collect_further(&hits, &[hits[1]], 1);
        assert_eq!(further.len(), 1);
        assert_eq!(further[&0], [hits[2]]);
    }

    #[test]
    fn bounded_scores_keep_their_order_below_a_step_of_strength() {
        assert!(
            bound_score(0.0) < bound_score(1.0)
                && bound_score(1.0) < bound_score(100.0)
                && bound_score(1e6) <= STRENGTH_SCORE
        );
    }
}
