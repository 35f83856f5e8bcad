//! The class of a folded character: what it can be part of.

use unicode_normalization::char::is_combining_mark;

use super::fold::LetterCase;

/// The class of a folded character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CharClass {
    /// White space, punctuation, signs.
    Separator,
    Underscore,
    Digit,
    /// A letter that was written as a capital.
    Upper,
    /// A small letter.
    Lower,
    /// A letter without case, or a mark.
    Letter,
    /// A character of a script without spaces between words.
    Unspaced(Script),
}

/// A script without spaces between words, or (Hangul) with spaces between groups of words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Script {
    Han,
    Hiragana,
    Katakana,
    Hangul,
    Thai,
    Lao,
    Khmer,
    Myanmar,
}

impl CharClass {
    /// Returns the class of a folded character that was written in `case`. `previous` is the class of the character
    /// before it.
    pub(super) fn classify(c: char, case: LetterCase, previous: CharClass) -> CharClass {
        if c.is_ascii() {
            return match c {
                'a'..='z' => CharClass::classify_letter(case),
                '0'..='9' => CharClass::Digit,
                '_' => CharClass::Underscore,
                _ => CharClass::Separator,
            };
        }
        if let Some(script) = script_of(c, previous) {
            CharClass::Unspaced(script)
        } else if c.is_alphabetic() {
            CharClass::classify_letter(case)
        } else if c.is_numeric() {
            CharClass::Digit
        } else if is_combining_mark(c) {
            CharClass::Letter
        } else {
            CharClass::Separator
        }
    }

    fn classify_letter(case: LetterCase) -> CharClass {
        match case {
            LetterCase::Upper => CharClass::Upper,
            LetterCase::Lower => CharClass::Lower,
            LetterCase::Uncased => CharClass::Letter,
        }
    }

    /// Whether the character can be part of a word.
    pub(super) fn is_word(self) -> bool {
        self.is_name_start() || self == CharClass::Digit
    }

    /// Whether the character is a letter of a word.
    pub(super) fn is_letter(self) -> bool {
        matches!(self, CharClass::Upper | CharClass::Lower | CharClass::Letter)
    }

    /// Whether a name in a programming language can start with the character.
    pub(super) fn is_name_start(self) -> bool {
        self.is_letter() || self == CharClass::Underscore
    }
}

/// Returns the script of `c` if it has no spaces between words. Digits of these scripts are part of words instead.
fn script_of(c: char, previous: CharClass) -> Option<Script> {
    if c < '\u{e01}' {
        return None;
    }
    Some(match c {
        // The sign for a long vowel, and the voice marks that could not be composed, belong to both Kana.
        '\u{30fc}' | '\u{3099}' | '\u{309a}' => match previous {
            CharClass::Unspaced(Script::Hiragana) => Script::Hiragana,
            _ => Script::Katakana,
        },
        '\u{3041}'..='\u{3096}' | '\u{309d}'..='\u{309f}' | '\u{1b001}'..='\u{1b11f}' => Script::Hiragana,
        '\u{30a1}'..='\u{30fa}' | '\u{30fd}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}' | '\u{1aff0}'..='\u{1b000}' => {
            Script::Katakana
        }
        '\u{2e80}'..='\u{2fdf}'
        | '\u{3005}'
        | '\u{3007}'
        | '\u{3021}'..='\u{3029}'
        | '\u{3038}'..='\u{303b}'
        | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{3fffd}' => Script::Han,
        '\u{1100}'..='\u{11ff}'
        | '\u{3131}'..='\u{318e}'
        | '\u{a960}'..='\u{a97f}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{d7b0}'..='\u{d7ff}' => Script::Hangul,
        '\u{e01}'..='\u{e3a}' | '\u{e40}'..='\u{e4e}' => Script::Thai,
        '\u{e81}'..='\u{ebd}' | '\u{ec0}'..='\u{ece}' | '\u{edc}'..='\u{edf}' => Script::Lao,
        '\u{1780}'..='\u{17d3}' | '\u{17d7}' | '\u{17dc}' | '\u{17dd}' => Script::Khmer,
        '\u{1000}'..='\u{103f}'
        | '\u{1050}'..='\u{108f}'
        | '\u{109a}'..='\u{109d}'
        | '\u{a9e0}'..='\u{a9ef}'
        | '\u{a9fa}'..='\u{a9fe}'
        | '\u{aa60}'..='\u{aa76}'
        | '\u{aa7a}'..='\u{aa7f}' => Script::Myanmar,
        _ => return None,
    })
}
