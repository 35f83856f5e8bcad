//! Folding: the form in which words are compared. NFKC (Unicode Standard Annex #15), then lower case, then diacritics
//! removed.
//!
//! Diacritics are removed where readers leave them out: from Latin and Greek letters, and vowel points from Hebrew and
//! Arabic. In other scripts a mark is part of the letter (Cyrillic й, Japanese が, vowels of Indic scripts and Thai) and
//! stays. Letters that have no decomposition are replaced (`ß` by `ss`, `ø` by `o`, `ı` by `i`).
//!
//! The text is folded in clusters: a character and the marks that follow it. No cluster has an influence on the next
//! one, so a part of a text that starts and ends between clusters is folded as within the whole text.

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::{decompose_canonical, is_combining_mark};

/// Returns the text in the form in which words are compared: NFKC, lower case, without diacritics. Soft hyphens and
/// other invisible characters are left out; white space and punctuation stay.
pub fn fold(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    fold_chars(text, &mut |character: FoldedChar| folded.push(character.c));
    folded
}

/// A character of a folded text.
#[derive(Debug, Clone, Copy)]
pub(super) struct FoldedChar {
    /// The character itself.
    pub(super) c: char,
    /// The case that it had before.
    pub(super) case: LetterCase,
    /// The offset in bytes at which its cluster starts in the original text.
    pub(super) start: usize,
    /// The offset in bytes at which its cluster ends in the original text.
    pub(super) end: usize,
}

/// The case that a letter was written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LetterCase {
    Upper,
    Lower,
    /// A character without case, or one that belongs to the letter before it: the `e` that `Æ` is folded to.
    Uncased,
}

impl LetterCase {
    fn from_char(c: char) -> LetterCase {
        if c.is_uppercase() {
            LetterCase::Upper
        } else if c.is_lowercase() {
            LetterCase::Lower
        } else {
            LetterCase::Uncased
        }
    }
}

/// Calls `emit` for each character of the folded text.
pub(super) fn fold_chars(text: &str, emit: &mut impl FnMut(FoldedChar)) {
    let bytes = text.as_bytes();
    let mut start = 0;
    while start < bytes.len() {
        let byte = bytes[start];
        // A mark that belongs to this character is never ASCII.
        if byte.is_ascii() && bytes.get(start + 1).is_none_or(u8::is_ascii) {
            let c = char::from(byte.to_ascii_lowercase());
            emit(FoldedChar { c, case: LetterCase::from_char(char::from(byte)), start, end: start + 1 });
            start += 1;
        } else {
            start = fold_cluster(text, start, emit);
        }
    }
}

/// Folds the cluster at `start`. Returns where it ends.
fn fold_cluster(text: &str, start: usize, emit: &mut impl FnMut(FoldedChar)) -> usize {
    let mut chars = text[start..].chars();
    let Some(first) = chars.next() else { return text.len() };
    let first_end = start + first.len_utf8();
    let end = first_end + chars.take_while(|c| extends_cluster(*c)).map(char::len_utf8).sum::<usize>();
    let mut emit_char = |c: char, case: LetterCase| emit(FoldedChar { c, case, start, end });
    if end > first_end || !is_normalized(first) {
        let visible = text[start..end].chars().filter(|c| !is_ignorable(*c)).map(separate_trademark);
        for c in visible.nfkc() {
            fold_normalized(c, &mut emit_char);
        }
    } else if is_uncased_letter(first) {
        emit_char(first, LetterCase::Uncased);
    } else {
        fold_normalized(first, &mut emit_char);
    }
    end
}

/// Whether `c` belongs to the cluster of the character before it.
fn extends_cluster(c: char) -> bool {
    if c < '\u{300}' {
        return c == '\u{ad}';
    }
    if is_uncased_letter(c) {
        return false;
    }
    // Parts of Hangul syllables, conjoining and compatible, and the half-width marks of Katakana.
    let is_composed = matches!(c, '\u{1160}'..='\u{11ff}' | '\u{3131}'..='\u{318e}' | '\u{d7b0}'..='\u{d7ff}'
        | '\u{ff9e}' | '\u{ff9f}' | '\u{ffa0}'..='\u{ffdc}');
    is_composed || is_ignorable(c) || is_combining_mark(c)
}

/// Whether `c` is known to be its own NFKC form. The frequent ranges only: a wrong `false` only costs time.
fn is_normalized(c: char) -> bool {
    c.is_ascii() || is_uncased_letter(c) || matches!(c, '\u{400}'..='\u{482}' | '\u{48a}'..='\u{52f}')
}

/// Whether `c` is a letter of East Asian text that is its own NFKC form, has no case, and extends no cluster.
fn is_uncased_letter(c: char) -> bool {
    matches!(c, '\u{3041}'..='\u{3096}' | '\u{30a1}'..='\u{30fa}' | '\u{30fc}' | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}')
}

/// Whether `c` is invisible and has no meaning for a search: soft hyphen, zero-width characters, direction marks,
/// variation selectors, byte order mark.
fn is_ignorable(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}' | '\u{e0100}'..='\u{e01ef}')
}

/// Replaces `™` and `℠` by a space: their NFKC forms are letters, which would become part of the word before them.
fn separate_trademark(c: char) -> char {
    if matches!(c, '™' | '℠') { ' ' } else { c }
}

/// Folds a character of text that is in NFKC.
fn fold_normalized(c: char, emit: &mut impl FnMut(char, LetterCase)) {
    if c.is_ascii() {
        emit(c.to_ascii_lowercase(), LetterCase::from_char(c));
        return;
    }
    let mut case = LetterCase::from_char(c);
    let mut emit_next = |letter: char| {
        emit(letter, case);
        case = LetterCase::Uncased;
    };
    for lower in c.to_lowercase() {
        // Latin and Greek letters.
        if matches!(lower, '\u{c0}'..='\u{24f}' | '\u{370}'..='\u{3ff}' | '\u{1e00}'..='\u{1fff}') {
            decompose_canonical(lower, |part| emit_base(part, &mut emit_next));
        } else {
            emit_base(lower, &mut emit_next);
        }
    }
}

fn emit_base(c: char, emit: &mut impl FnMut(char)) {
    if is_diacritic(c) {
        return;
    }
    match find_replacement(c) {
        Some(letters) => letters.chars().for_each(emit),
        None => emit(c),
    }
}

/// Whether `c` is a mark that readers leave out. The Arabic tatweel only makes a word longer.
fn is_diacritic(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{591}'..='\u{5bd}' | '\u{5bf}' | '\u{5c1}' | '\u{5c2}' | '\u{5c4}'
        | '\u{5c5}' | '\u{5c7}' | '\u{640}' | '\u{64b}'..='\u{652}' | '\u{670}' | '\u{1ab0}'..='\u{1aff}'
        | '\u{1dc0}'..='\u{1dff}' | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}')
}

/// Returns the letters that readers type for a letter without decomposition.
fn find_replacement(c: char) -> Option<&'static str> {
    Some(match c {
        'ß' => "ss",
        'æ' => "ae",
        'œ' => "oe",
        'ø' => "o",
        'đ' | 'ð' => "d",
        'þ' => "th",
        'ł' => "l",
        'ħ' => "h",
        'ŧ' => "t",
        'ı' => "i",
        'ς' => "σ",
        'ё' => "е",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compatible_characters_case_and_diacritics_make_no_difference() {
        let cases = [
            ("", ""),
            ("Hello, World_1", "hello, world_1"),
            ("Crème BRÛLÉE", "creme brulee"),
            ("Cre\u{300}me", "creme"),
            ("Straße STRAẞE", "strasse strasse"),
            ("Ærø Þór Łódź đ", "aero thor lodz d"),
            ("İstanbul ISPARTA ılık", "istanbul isparta ilik"),
            ("Ὀδυσσεύς ΟΔΥΣΣΕΥΣ", "οδυσσευσ οδυσσευσ"),
            ("Việt Nam ươ", "viet nam uo"),
            ("Ёлка Край Кра\u{438}\u{306}", "елка край край"),
            ("ﬁle ｆｕｌｌ Ⅷ x² ½ ㎏", "file full viii x2 1⁄2 kg"),
            ("ｶﾞｷﾞ か\u{3099}", "ガギ が"),
            ("\u{1112}\u{1161}\u{11ab} ﾡￂ", "한 가"),
            ("Python™ A℠ ®", "python  a  ®"),
            ("soft\u{ad}hyphen zero\u{200b}width \u{feff}bom", "softhyphen zerowidth bom"),
            ("\u{5e9}\u{5c1}\u{5b8}\u{5dc}\u{5d5}\u{5b9}\u{5dd}", "שלום"),
            ("م\u{64f}ح\u{64e}م\u{651}\u{64e}د م\u{640}حمد", "محمد محمد"),
            ("हिन्दी กำ", "हिन्दी ก\u{e4d}า"),
            ("❤\u{fe0f} 1\u{fe0f}\u{20e3}", "❤ 1"),
        ];
        for (text, expected) in cases {
            assert_eq!(fold(text), expected, "{text}");
            assert_eq!(fold(expected), expected, "{text}: a folded text is not folded any further");
        }
    }

    #[test]
    fn each_character_covers_its_cluster_in_the_original_text() {
        let spans = |text: &str| {
            let mut spans = Vec::new();
            fold_chars(text, &mut |folded: FoldedChar| spans.push((folded.c, folded.start, folded.end)));
            spans
        };
        assert_eq!(spans("aE\u{301}b"), [('a', 0, 1), ('e', 1, 4), ('b', 4, 5)]);
        assert_eq!(spans("ﬁ½"), [('f', 0, 3), ('i', 0, 3), ('1', 3, 5), ('⁄', 3, 5), ('2', 3, 5)]);
        assert_eq!(spans("ｶﾞx"), [('ガ', 0, 6), ('x', 6, 7)]);
        assert_eq!(spans("a\u{200b}b"), [('a', 0, 4), ('b', 4, 5)]);
    }
}
