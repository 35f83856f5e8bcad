//! The part of a section's text that a result shows, with the matches in it.
//!
//! The stored text is split into tokens again, by the function that has split it for the index. A token is a match if
//! it is one of the words that were searched, or has one of their stems. The excerpt is the window with the most
//! different groups of the query.

use std::ops::Range;

use crate::analyze::{Stemmer, Token, TokenKind, tokenize};
use crate::index::MAX_STORED_TEXT_BYTES;
use crate::page::ExcerptMark;

use super::plan::{Highlights, QueryPlan};

/// The length of an excerpt in characters, without the signs for what is left out.
const EXCERPT_CHARS: usize = 160;
/// The number of characters before the first match.
const CONTEXT_CHARS: usize = 50;
/// The maximum number of characters by which an excerpt is shortened so that it ends between words.
const MAX_BORDER_CHARS: usize = 20;
/// The length of the text in which matches are looked for, in bytes.
const MAX_SCANNED_BYTES: usize = MAX_STORED_TEXT_BYTES;
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

/// Makes the excerpt of a text for a plan. `stemmer` is that of the page's language.
pub(super) fn make_excerpt(text: &str, plan: &QueryPlan, stemmer: Option<&Stemmer>) -> Excerpt {
    let matches = find_matches(text, &plan.highlights, stemmer);
    let weights: Vec<f32> = plan.groups.iter().map(|group| group.idf * group.weight).collect();
    let window = choose_window(text, &matches, &weights);
    cut_excerpt(text, window, &matches)
}

/// Finds the matches at the beginning of a text, in order. They do not overlap.
fn find_matches(text: &str, highlights: &Highlights, stemmer: Option<&Stemmer>) -> Vec<TextMatch> {
    let text = &text[..text.floor_char_boundary(MAX_SCANNED_BYTES)];
    let mut matches: Vec<TextMatch> = Vec::new();
    tokenize(text, &mut |token: Token<'_>| {
        if matches.len() >= MAX_MATCHES {
            return;
        }
        let Some(group) = find_group(&token, text, highlights, stemmer) else { return };
        let (range, groups) = (token.start as usize..token.end as usize, 1 << group.min(MAX_GROUP_BIT));
        match matches.last_mut() {
            // A piece of a word that matches as a whole, or the next pair of characters.
            Some(last) if range.start < last.range.end => {
                last.range.end = last.range.end.max(range.end);
                last.groups |= groups;
            }
            _ => matches.push(TextMatch { range, groups }),
        }
    });
    matches
}

/// Returns the group that a token matches.
fn find_group(token: &Token<'_>, text: &str, highlights: &Highlights, stemmer: Option<&Stemmer>) -> Option<usize> {
    if let Some(group) = highlights.words.get(token.text) {
        return Some(*group);
    }
    if !matches!(token.kind, TokenKind::Word | TokenKind::Piece) || highlights.stems.is_empty() {
        return None;
    }
    // Most words have not even the beginning of a stem, and making stems is slow.
    let start = |text: &str| text.floor_char_boundary(STEM_PREFIX_BYTES);
    let is_near = |stem: &String| token.text.starts_with(&stem[..start(stem)]);
    if !highlights.stems.keys().any(is_near) {
        return None;
    }
    let stemmer = stemmer?;
    let stem = stemmer.stem(token.text);
    let group = highlights.stems.get(&*stem).or_else(|| {
        let written = text.get(token.start as usize..token.end as usize)?;
        highlights.stems.get(&stemmer.stem_as_written(written)?)
    });
    group.copied()
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
        let Excerpt { text, marks } = make_excerpt(text, &plan(words, stems), Some(&stemmer));
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
    fn marks_are_counted_in_utf16_units() {
        let found = make_excerpt("😀 é cache", &plan(&["cache"], &[]), None);
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
        let many = "cache ".repeat(MAX_MATCHES * 2);
        assert!(excerpt(&many, &["cache"], &[]).contains("[cache] [cache]"));
    }
}
