//! The part of a section's text that a result shows, with the matches in it.
//!
//! The stored text is split into tokens again, by the function that has split it for the index. A token is a match if
//! it is one of the words that were searched, or has one of their stems. The excerpt is the window with the most
//! different groups of the query.
//!
//! Splitting the texts of all results takes longer than finding them. So [`CandidateFinder`] passes over the parts of a
//! text that cannot have a match, and only the others are split.

use std::ops::Range;

use crate::analyze::{Stemmer, Token, TokenKind, tokenize};
use crate::index::MAX_STORED_TEXT_BYTES;
use crate::page::ExcerptMark;

use super::excerpt_candidates::CandidateFinder;
use super::plan::{Highlights, QueryPlan};

/// The length of an excerpt in characters, without the signs for what is left out.
const EXCERPT_CHARS: usize = 160;
/// The number of characters before the first match.
const CONTEXT_CHARS: usize = 50;
/// The maximum number of characters by which an excerpt is shortened so that it ends between words.
const MAX_BORDER_CHARS: usize = 20;
/// The length of the text of a page's best section in which matches are looked for, in bytes.
const MAX_SCANNED_BYTES: usize = MAX_STORED_TEXT_BYTES;
/// The length that counts of the text of a further section. There are three for each page, and few are longer.
const MAX_SCANNED_FURTHER_BYTES: usize = 4096;
/// The maximum number of matches that are compared.
const MAX_MATCHES: usize = 500;
/// The length of the beginning that a word has in common with its stem, in bytes.
const STEM_PREFIX_BYTES: usize = 3;
/// The number of the last bit in a set of groups. All further groups share it.
const MAX_GROUP_BIT: usize = 63;
/// The factor of the weight of a group for each further match of this group.
const REPEATED_MATCH_FACTOR: f32 = 0.05;

/// A match in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TextMatch {
    range: Range<usize>,
    /// The groups that are matched, as bits.
    groups: u64,
}

/// An excerpt with its marks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Excerpt {
    pub(super) text: String,
    pub(super) marks: Vec<ExcerptMark>,
}

/// Makes the excerpts of the results of one query.
pub(super) struct ExcerptMaker<'p> {
    highlights: &'p Highlights,
    candidates: CandidateFinder<'p>,
    /// The weights of the groups.
    weights: Vec<f32>,
}

impl<'p> ExcerptMaker<'p> {
    pub(super) fn new(plan: &'p QueryPlan) -> ExcerptMaker<'p> {
        let Highlights { words, stems } = &plan.highlights;
        let beginnings = stems.keys().map(|stem| stem_prefix(stem));
        let candidates = CandidateFinder::new(words.keys().map(String::as_str).chain(beginnings));
        let weights = plan.groups.iter().map(|group| group.idf * group.weight).collect();
        ExcerptMaker { highlights: &plan.highlights, candidates, weights }
    }

    /// Makes the excerpt of the text of a page's best section. `stemmer` is that of the page's language.
    pub(super) fn make(&self, text: &str, stemmer: Option<&Stemmer>) -> Excerpt {
        self.make_of_beginning(text, MAX_SCANNED_BYTES, stemmer)
    }

    /// Makes the excerpt of the text of a further section.
    pub(super) fn make_further(&self, text: &str, stemmer: Option<&Stemmer>) -> Excerpt {
        self.make_of_beginning(text, MAX_SCANNED_FURTHER_BYTES, stemmer)
    }

    /// Makes the excerpt of a text with matches in its first `max_bytes`.
    fn make_of_beginning(&self, text: &str, max_bytes: usize, stemmer: Option<&Stemmer>) -> Excerpt {
        let matches = self.find_matches(&text[..text.floor_char_boundary(max_bytes)], stemmer);
        let window = choose_window(text, &matches, &self.weights);
        cut_excerpt(text, window, &matches)
    }

    /// Finds the matches in a text, in order. They do not overlap.
    fn find_matches(&self, text: &str, stemmer: Option<&Stemmer>) -> Vec<TextMatch> {
        let (mut matches, mut start) = (Vec::new(), 0);
        while let Some(chunk) = self.candidates.find(text, start) {
            if matches.len() >= MAX_MATCHES {
                break;
            }
            self.add_matches(text, chunk.clone(), stemmer, &mut matches);
            start = chunk.end;
        }
        matches.truncate(MAX_MATCHES);
        matches
    }

    /// Adds the matches of a chunk of a text.
    fn add_matches(&self, text: &str, chunk: Range<usize>, stemmer: Option<&Stemmer>, matches: &mut Vec<TextMatch>) {
        let (offset, chunk) = (chunk.start, &text[chunk]);
        tokenize(chunk, &mut |token: Token<'_>| {
            let Some(group) = self.find_group(&token, chunk, stemmer) else { return };
            let range = offset + token.start as usize..offset + token.end as usize;
            let groups = 1 << group.min(MAX_GROUP_BIT);
            match matches.last_mut() {
                // A piece of a word that matches as a whole, or the next pair of characters.
                Some(last) if range.start < last.range.end => {
                    last.range.end = last.range.end.max(range.end);
                    last.groups |= groups;
                }
                _ => matches.push(TextMatch { range, groups }),
            }
        });
    }

    /// Returns the group that a token of `chunk` matches.
    fn find_group(&self, token: &Token<'_>, chunk: &str, stemmer: Option<&Stemmer>) -> Option<usize> {
        let Highlights { words, stems } = self.highlights;
        if let Some(group) = words.get(token.text) {
            return Some(*group);
        }
        // Most words have not even the beginning of a stem, and making stems is slow.
        let is_word = matches!(token.kind, TokenKind::Word | TokenKind::Piece);
        if !is_word || !stems.keys().any(|stem| token.text.starts_with(stem_prefix(stem))) {
            return None;
        }
        let stemmer = stemmer?;
        let stem = stemmer.stem(token.text);
        let group = stems.get(&*stem).or_else(|| {
            let written = chunk.get(token.start as usize..token.end as usize)?;
            stems.get(&stemmer.stem_as_written(written)?)
        });
        group.copied()
    }
}

/// Returns the beginning that a stem has in common with its words.
fn stem_prefix(stem: &str) -> &str {
    &stem[..stem.floor_char_boundary(STEM_PREFIX_BYTES)]
}

/// Returns the range of a text whose matches are rated highest. Without a match, it is the beginning.
fn choose_window(text: &str, matches: &[TextMatch], weights: &[f32]) -> Range<usize> {
    let chars = count_chars_before(text, matches);
    let mut best: Option<(f32, usize, usize)> = None;
    let mut last = 0;
    for first in 0..matches.len() {
        last = last.max(first);
        while last + 1 < matches.len() && chars[last + 1].1 - chars[first].0 <= EXCERPT_CHARS {
            last += 1;
        }
        let score = rate_matches(&matches[first..=last], weights);
        if best.is_none_or(|(known, _, _)| score > known + f32::EPSILON) {
            best = Some((score, first, last));
        }
    }
    let Some((_, first, last)) = best else { return 0..end_after(text, 0, EXCERPT_CHARS) };
    let (start, end) = (matches[first].range.start, matches[last].range.end);
    let free = EXCERPT_CHARS.saturating_sub(chars[last].1 - chars[first].0);
    let start = start_before(text, start, free.min(CONTEXT_CHARS));
    let end = end.max(end_after(text, start, EXCERPT_CHARS));
    start..end
}

/// Returns the number of characters before and up to the end of each match.
fn count_chars_before(text: &str, matches: &[TextMatch]) -> Vec<(usize, usize)> {
    let (mut counts, mut position, mut chars) = (Vec::with_capacity(matches.len()), 0, 0);
    for found in matches {
        chars += text[position..found.range.start].chars().count();
        let start = chars;
        chars += text[found.range.clone()].chars().count();
        position = found.range.end;
        counts.push((start, chars));
    }
    counts
}

/// Rates the matches in a window: the first match of a group by the weight of the group, further ones a little.
fn rate_matches(matches: &[TextMatch], weights: &[f32]) -> f32 {
    let (mut seen, mut score) = (0u64, 0.0);
    for found in matches {
        let mut groups = found.groups;
        while groups != 0 {
            let group = groups.trailing_zeros();
            let weight = weights.get(group as usize).copied().unwrap_or_default();
            score += if (seen >> group) & 1 == 0 { weight } else { weight * REPEATED_MATCH_FACTOR };
            groups &= groups - 1;
        }
        seen |= found.groups;
    }
    score
}

/// Returns where an excerpt starts that begins at most `max_chars` before a match: at the beginning of a line, or of a
/// word.
fn start_before(text: &str, position: usize, max_chars: usize) -> usize {
    let before = &text[..position];
    let earliest = before.char_indices().rev().take(max_chars).last().map_or(position, |(index, _)| index);
    if let Some(line) = before[earliest..].rfind('\n') {
        return earliest + line + 1;
    }
    if earliest == 0 {
        return 0;
    }
    // In text without spaces, the excerpt starts between any two characters.
    let is_border = before[..earliest].ends_with(char::is_whitespace);
    let space = before[earliest..].char_indices().take(MAX_BORDER_CHARS).find(|(_, c)| c.is_whitespace());
    match space {
        Some((index, c)) if !is_border => earliest + index + c.len_utf8(),
        _ => earliest,
    }
}

/// Returns where an excerpt ends that starts at `start` and has at most `max_chars` characters: at the end of a word.
fn end_after(text: &str, start: usize, max_chars: usize) -> usize {
    let rest = &text[start..];
    let Some((end, next)) = rest.char_indices().nth(max_chars) else { return text.len() };
    if next.is_whitespace() {
        return start + end;
    }
    let space = rest[..end].char_indices().rev().take(MAX_BORDER_CHARS).find(|(_, c)| c.is_whitespace());
    start + space.map_or(end, |(index, _)| index)
}

/// Cuts the excerpt out of the text: line feeds become spaces, and `…` stands for what is left out.
fn cut_excerpt(text: &str, window: Range<usize>, matches: &[TextMatch]) -> Excerpt {
    let mut excerpt = Excerpt::default();
    let trimmed = text[window.clone()].trim_start();
    let start = window.end - trimmed.len();
    let end = start + trimmed.trim_end().len();
    if !text[..start].trim().is_empty() {
        excerpt.text.push('…');
    }
    let mut units = excerpt.text.encode_utf16().count();
    let mut matches = matches.iter().filter(|found| found.range.start >= start && found.range.end <= end).peekable();
    for (index, c) in text[start..end].char_indices() {
        let position = start + index;
        while let Some(found) = matches.next_if(|found| found.range.start <= position) {
            let length = text[found.range.clone()].encode_utf16().count();
            excerpt.marks.push(ExcerptMark { start: units as u32, length: length as u32 });
        }
        excerpt.text.push(if c == '\n' { ' ' } else { c });
        units += c.len_utf16();
    }
    if !text[end..].trim().is_empty() {
        excerpt.text.push('…');
    }
    excerpt
}

#[cfg(test)]
mod tests {
    use super::super::plan::TermGroup;
    use super::*;
    use crate::analyze::StemLanguage;

    fn plan(words: &[&str], stems: &[&str]) -> QueryPlan {
        let mut plan = QueryPlan::default();
        for (number, word) in words.iter().chain(stems).enumerate() {
            let target = if number < words.len() { &mut plan.highlights.words } else { &mut plan.highlights.stems };
            target.insert((*word).to_owned(), number);
            let (idf, variants, words) = (1.0 + number as f32, Vec::new(), Vec::new());
            plan.groups.push(TermGroup { required: None, is_phrase: false, weight: 1.0, idf, variants, words });
        }
        plan
    }

    /// The excerpt with its marks in brackets.
    fn excerpt(text: &str, words: &[&str], stems: &[&str]) -> String {
        let stemmer = Stemmer::new(StemLanguage::ENGLISH);
        let Excerpt { text, marks } = ExcerptMaker::new(&plan(words, stems)).make(text, Some(&stemmer));
        let units: Vec<u16> = text.encode_utf16().collect();
        let (mut shown, mut position) = (String::new(), 0);
        for ExcerptMark { start, length } in marks {
            let (start, end) = (start as usize, (start + length) as usize);
            shown += &String::from_utf16(&units[position..start]).unwrap();
            shown.push('[');
            shown += &String::from_utf16(&units[start..end]).unwrap();
            shown.push(']');
            position = end;
        }
        shown + &String::from_utf16(&units[position..]).unwrap()
    }

    #[test]
    fn all_kinds_of_matches_are_marked() {
        assert_eq!(
            excerpt("Caches and lru_cache in a cache.", &["cache"], &[]),
            "Caches and lru_[cache] in a [cache]."
        );
        assert_eq!(excerpt("Caches, caching", &[], &["cach"]), "[Caches], [caching]");
        assert_eq!(excerpt("Use lru_cache(maxsize)", &["lru_cache", "cache", "lru"], &[]), "Use [lru_cache](maxsize)");
        assert_eq!(excerpt("连接数据库时", &["数据", "据库"], &[]), "连接[数据库]时");
        assert_eq!(excerpt("Größe 😀 größe", &["grosse"], &[]), "[Größe] 😀 [größe]");
        assert_eq!(excerpt("Nothing here", &["cache"], &[]), "Nothing here");
        assert_eq!(excerpt("", &["cache"], &[]), "");
    }

    #[test]
    fn no_match_is_passed_over_because_its_part_of_the_text_seems_to_have_none() {
        let (plan, stemmer) =
            (plan(&["ab", "b", "2", "a.b", "é", "文書"], &["cach"]), Stemmer::new(StemLanguage::ENGLISH));
        let maker = ExcerptMaker::new(&plan);
        let pieces =
            ["a", "A", "b", "B", "_", "2", ".", "-", "’", "é", "文書", "ﬁ", " ", "\n", "caching", "Cached", "½"];
        let mut state = 1u64;
        for _ in 0..2000 {
            let mut text = String::new();
            for _ in 0..12 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text += pieces[(state >> 33) as usize % pieces.len()];
            }
            let mut expected = Vec::new();
            maker.add_matches(&text, 0..text.len(), Some(&stemmer), &mut expected);
            assert_eq!(maker.find_matches(&text, Some(&stemmer)), expected, "{text}");
        }
    }

    #[test]
    fn marks_are_counted_in_utf16_units() {
        let found = ExcerptMaker::new(&plan(&["cache"], &[])).make("😀 é cache", None);
        assert_eq!(found.marks, [ExcerptMark { start: 5, length: 5 }]);
    }

    #[test]
    fn the_window_with_most_different_words_is_shown_and_cut_between_words() {
        let filler = "filler words ".repeat(40);
        let text = format!("one {filler}\nStart one then two {filler}two two two");
        let shown = excerpt(&text, &["one", "two"], &[]);
        assert!(shown.starts_with("…Start [one] then [two] filler words "), "{shown}");
        assert!(shown.ends_with("filler…") || shown.ends_with("words…"), "{shown}");
        let length = shown.replace(['[', ']', '…'], "").chars().count();
        assert!((EXCERPT_CHARS - MAX_BORDER_CHARS..=EXCERPT_CHARS).contains(&length), "{length}");
        let middle = excerpt(&format!("{filler}two {filler}"), &["two"], &[]);
        assert!(middle.starts_with("…filler words ") || middle.starts_with("…words filler "), "{middle}");
    }

    #[test]
    fn text_without_spaces_and_long_words_are_cut_between_characters() {
        let text = format!("{}数据库{}", "中".repeat(500), "文".repeat(500));
        let shown = excerpt(&text, &["数据", "据库"], &[]);
        assert_eq!(shown.replace(['[', ']', '…'], "").chars().count(), EXCERPT_CHARS);
        assert!(shown.contains("[数据库]"), "{shown}");
        let long = "x".repeat(100_000);
        assert_eq!(excerpt(&long, &["cache"], &[]).chars().count(), EXCERPT_CHARS + 1);
    }

    #[test]
    fn matches_far_behind_the_beginning_are_not_looked_for() {
        let text = format!("{}cache", "filler ".repeat(MAX_SCANNED_BYTES));
        let shown = excerpt(&text, &["cache"], &[]);
        assert!(shown.starts_with("filler filler") && !shown.contains('['), "{shown}");
        let text = format!("{}cache", "filler ".repeat(MAX_SCANNED_FURTHER_BYTES / 4));
        let (plan, found) = (plan(&["cache"], &[]), |excerpt: Excerpt| excerpt.marks.len());
        let maker = ExcerptMaker::new(&plan);
        assert_eq!((found(maker.make(&text, None)), found(maker.make_further(&text, None))), (1, 0));
        let many = "cache ".repeat(MAX_MATCHES * 2);
        assert!(excerpt(&many, &["cache"], &[]).contains("[cache] [cache]"));
    }
}
