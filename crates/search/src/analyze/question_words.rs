//! Words that make a question or a sentence of other words. They are in the index like all others; a query need not
//! find them if it has other words.
//!
//! All lists are folded. English is the language of most keywords (`for`, `in`, `is`, `where`, `with`), so an English
//! word other than an article is only left out if the query is a question: `is null` and `where clause` stay whole.
//! Words that are keywords more often than function words (`for`, `with`, `if`, `not`) are not in the list at all.

use super::query::{ParsedQuery, QueryWord, WordGap};

/// English words that are left out of any query.
const ENGLISH_ARTICLES: &[&str] = &["a", "an", "the"];
/// English words that make a question of a query wherever they stand.
const ENGLISH_QUESTION_WORDS: &[&str] = &["how", "what", "why"];
/// English words that make a question of a query of three words or more that starts with them.
const ENGLISH_LONG_QUESTION_WORDS: &[&str] = &["which", "who", "whom", "whose"];
/// English words that start a question if one of [`ENGLISH_SECOND_WORDS`] follows, and are keywords otherwise.
const ENGLISH_FIRST_WORDS: &[&str] = &[
    "are", "can", "could", "did", "do", "does", "has", "have", "is", "may", "should", "was", "were", "when", "where",
    "will", "would",
];
const ENGLISH_SECOND_WORDS: &[&str] = &[
    "a", "an", "are", "can", "could", "did", "do", "does", "i", "is", "it", "my", "one", "should", "that", "the",
    "there", "this", "to", "was", "we", "were", "will", "would", "you",
];
/// English words that make a sentence of a query with [`MIN_SENTENCE_WORDS`]: `turn a list of lists into a flat one`.
const ENGLISH_SENTENCE_WORDS: &[&str] = &["a", "an", "i", "me", "my", "someone", "the", "you", "your"];
/// The number of words that a sentence has at least.
const MIN_SENTENCE_WORDS: usize = 6;
/// The English words that are left out of a question, with the verbs that only say what the reader does.
const ENGLISH_FUNCTION_WORDS: &[&str] = &[
    "a", "about", "am", "an", "and", "any", "are", "at", "be", "been", "being", "by", "can", "could", "did", "do",
    "does", "doing", "done", "find", "get", "has", "have", "how", "i", "in", "into", "is", "it", "its", "know", "may",
    "me", "might", "my", "need", "of", "on", "one", "or", "our", "out", "see", "shall", "should", "so", "some", "tell",
    "that", "the", "their", "them", "there", "these", "they", "this", "those", "to", "us", "want", "was", "we", "were",
    "what", "when", "where", "which", "who", "whom", "whose", "why", "will", "would", "you", "your",
];
/// The ends of English words after an apostrophe: `what's`, `don't`, `they're`.
const ENGLISH_ENDINGS: &[&str] = &["d", "ll", "m", "re", "s", "t", "ve"];
/// The German words that need not be found.
const GERMAN_FUNCTION_WORDS: &[&str] = &[
    "am", "an", "auf", "aus", "bei", "das", "dass", "dem", "den", "der", "des", "die", "dies", "diese", "dieser",
    "ein", "eine", "einem", "einen", "einer", "eines", "es", "fur", "gibt", "hat", "ich", "im", "in", "ist", "kann",
    "konnen", "man", "mein", "meine", "meinen", "mich", "mir", "mit", "muss", "sich", "sie", "sind", "soll", "und",
    "vom", "von", "wann", "warum", "was", "welche", "welchem", "welchen", "welcher", "welches", "wer", "werden",
    "weshalb", "wie", "wieso", "wir", "wird", "wo", "woher", "wohin", "wozu", "zu", "zum", "zur",
];
/// The French words that need not be found.
const FRENCH_FUNCTION_WORDS: &[&str] = &[
    "a", "au", "aux", "avec", "ce", "ces", "cette", "combien", "comment", "dans", "de", "des", "doit", "du", "en",
    "est", "et", "faut", "il", "ils", "je", "la", "le", "les", "ma", "mes", "mon", "nous", "on", "ou", "par", "peut",
    "peux", "pour", "pourquoi", "quand", "que", "quel", "quelle", "quelles", "quels", "qui", "quoi", "sa", "se", "ses",
    "son", "sont", "sur", "un", "une", "vous", "y",
];
/// The beginnings of French words before an apostrophe: `l'heure`, `qu'est`.
const FRENCH_BEGINNINGS: &[&str] =
    &["c", "d", "j", "jusqu", "l", "lorsqu", "m", "n", "puisqu", "qu", "quoiqu", "s", "t"];
/// The Spanish words that need not be found.
const SPANISH_FUNCTION_WORDS: &[&str] = &[
    "a", "al", "como", "con", "cual", "cuales", "cuando", "cuanto", "de", "debe", "debo", "del", "donde", "e", "el",
    "ella", "en", "es", "esta", "estan", "este", "esto", "hay", "la", "las", "lo", "los", "me", "mi", "mis", "o",
    "para", "por", "porque", "puede", "puedo", "que", "quien", "se", "si", "son", "su", "sus", "un", "una", "unas",
    "unos", "y", "yo",
];
/// The Portuguese words that need not be found.
const PORTUGUESE_FUNCTION_WORDS: &[&str] = &[
    "a", "ao", "aos", "as", "com", "como", "da", "das", "de", "deve", "devo", "do", "dos", "e", "ela", "ele", "em",
    "esta", "este", "eu", "ha", "isso", "isto", "me", "meu", "meus", "minha", "minhas", "na", "nas", "no", "nos", "o",
    "onde", "os", "ou", "para", "pela", "pelo", "pode", "por", "porque", "posso", "quais", "qual", "quando", "quanto",
    "que", "quem", "sao", "se", "seu", "seus", "sua", "suas", "um", "uma", "umas", "uns",
];

/// Japanese words that ask for a way to do something if they stand behind a verb: `追加する方法`, `入れ方`.
const JAPANESE_WAYS: &[&str] = &["方法", "方"];

/// Returns the folded question words of the language of a tag (`en`, `de`, `fr`, `es`, `pt`); none for other languages.
pub fn question_words(lang: &str) -> &'static [&'static str] {
    match lang.trim().split(['-', '_']).next().unwrap_or_default().to_ascii_lowercase().as_str() {
        "en" => ENGLISH_FUNCTION_WORDS,
        "de" => GERMAN_FUNCTION_WORDS,
        "fr" => FRENCH_FUNCTION_WORDS,
        "es" => SPANISH_FUNCTION_WORDS,
        "pt" => PORTUGUESE_FUNCTION_WORDS,
        _ => &[],
    }
}

/// Marks the words of the query that need not be found: none if no other word and no phrase remains. `lang` is the
/// language of the page. English words are marked whatever that language is.
pub(super) fn mark_question_words(query: &mut ParsedQuery, lang: Option<&str>) {
    let of_language = lang.map(question_words).filter(|words| *words != ENGLISH_FUNCTION_WORDS).unwrap_or_default();
    let of_english = if is_english_question(&query.words) { ENGLISH_FUNCTION_WORDS } else { ENGLISH_ARTICLES };
    let flags: Vec<bool> = (0..query.words.len())
        .map(|index| {
            let word = &query.words[index];
            let text = word.text.as_str();
            let is_known = of_english.contains(&text) || of_language.contains(&text);
            (is_known && stands_alone(query, index)) || is_elided(&query.words, index, of_language)
        })
        .zip(mark_japanese_grammar(&query.words))
        .map(|(is_question_word, is_grammar)| is_question_word || is_grammar)
        .collect();
    let is_all = query.phrases.is_empty() && flags.iter().all(|is_question_word| *is_question_word);
    for (word, flag) in query.words.iter_mut().zip(flags) {
        word.is_question_word = flag && !is_all;
    }
}

/// Marks the Japanese words that are grammar: Hiragana behind other characters are particles and endings (`の`, `には`,
/// `する`), while content words are written in Kanji and Katakana. Hiragana at the start of a query is a word, which
/// may be content. A word for `way` or `method` behind a verb makes a question of it.
fn mark_japanese_grammar(words: &[QueryWord]) -> Vec<bool> {
    let mut flags = Vec::with_capacity(words.len());
    for (index, word) in words.iter().enumerate() {
        let is_behind = index > 0 && word.gap == WordGap::Joined;
        let is_grammar = if is_hiragana(&word.text) {
            // A run of Hiragana is one word.
            let is_in_run = is_behind && is_hiragana(&words[index - 1].text);
            is_behind && (!is_in_run || flags[index - 1])
        } else {
            let is_last = words[index + 1..].iter().all(|word| is_hiragana(&word.text));
            JAPANESE_WAYS.contains(&word.text.as_str()) && is_behind && is_hiragana(&words[index - 1].text) && is_last
        };
        flags.push(is_grammar);
    }
    flags
}

fn is_hiragana(text: &str) -> bool {
    text.chars().all(|c| matches!(c, '\u{3041}'..='\u{309f}'))
}

fn is_english_question(words: &[QueryWord]) -> bool {
    let text = |index: usize| words.get(index).map_or("", |word| word.text.as_str());
    let has_question_word = words
        .iter()
        .enumerate()
        .any(|(index, word)| ENGLISH_QUESTION_WORDS.contains(&word.text.as_str()) && is_separate(words, index));
    let is_long_question = ENGLISH_LONG_QUESTION_WORDS.contains(&text(0))
        || (ENGLISH_FIRST_WORDS.contains(&text(0)) && ENGLISH_SECOND_WORDS.contains(&text(1)));
    let is_sentence = words.len() >= MIN_SENTENCE_WORDS
        && words.iter().any(|word| ENGLISH_SENTENCE_WORDS.contains(&word.text.as_str()));
    has_question_word || (words.len() > 2 && is_long_question) || is_sentence
}

/// Whether a word is neither joined to others (`how-to`, `what.is`) nor part of a symbol (`--in`, `is()`).
fn stands_alone(query: &ParsedQuery, index: usize) -> bool {
    let word = &query.words[index];
    let is_in_symbol = query.symbols.iter().any(|symbol| symbol.start <= word.start && word.end <= symbol.end);
    is_separate(&query.words, index) && !is_in_symbol
}

fn is_separate(words: &[QueryWord], index: usize) -> bool {
    let is_joined = |word: &QueryWord| word.gap == WordGap::Joined;
    !words.get(index).is_some_and(is_joined) && !words.get(index + 1).is_some_and(is_joined)
}

/// Whether a word is only a part of a word beside an apostrophe: the `s` of `what's`, in French the `l` of `l'heure`.
fn is_elided(words: &[QueryWord], index: usize, of_language: &[&str]) -> bool {
    let text = words[index].text.as_str();
    let is_ending = words[index].gap == WordGap::Apostrophe && ENGLISH_ENDINGS.contains(&text);
    let is_before_apostrophe = words.get(index + 1).is_some_and(|next| next.gap == WordGap::Apostrophe);
    is_ending || (is_before_apostrophe && of_language == FRENCH_FUNCTION_WORDS && FRENCH_BEGINNINGS.contains(&text))
}

#[cfg(test)]
mod tests {
    use super::super::{fold, parse_query};
    use super::*;

    /// The words that remain to be found.
    fn remaining(text: &str, lang: &str) -> String {
        let query = parse_query(text, Some(lang));
        let words: Vec<_> =
            query.words.iter().filter(|word| !word.is_question_word).map(|word| word.text.as_str()).collect();
        words.join(" ")
    }

    #[test]
    fn question_words_are_left_out_when_other_words_remain() {
        let cases = [
            ("en", "how do I sort a list", "sort list"),
            ("en", "what is the GIL?", "gil"),
            ("en", "What's a decorator", "decorator"),
            ("en", "python how to open files", "python open files"),
            ("en", "where is the config file", "config file"),
            ("en", "can I use threads", "use threads"),
            ("en", "which database to use", "database use"),
            ("en", "the glossary", "glossary"),
            ("en", "why rust", "rust"),
            ("en", "turn a list of lists into one flat list", "turn list lists flat list"),
            ("en", "lists in the index", "lists in index"),
            ("ja", "how do I sort", "sort"),
            ("de", "Wie kann ich eine Datei öffnen?", "datei offnen"),
            ("de", "how do I open a Datei", "open datei"),
            ("fr", "Comment est-ce que l'on lit un fichier", "est ce lit fichier"),
            ("fr", "qu'est un itérateur", "iterateur"),
            ("es", "¿Cómo puedo borrar los índices?", "borrar indices"),
            ("pt", "Como faço a configuração do servidor", "faco configuracao servidor"),
        ];
        for (lang, text, expected) in cases {
            assert_eq!(remaining(text, lang), expected, "{text}");
        }
    }

    #[test]
    fn keywords_names_and_queries_of_question_words_stay_whole() {
        let cases = [
            ("where clause", "where clause"),
            ("is null", "is null"),
            ("is operator", "is operator"),
            ("for in loop", "for in loop"),
            ("which command", "which command"),
            ("when to", "when to"),
            ("how to", "how to"),
            ("what", "what"),
            ("the", "the"),
            ("how-to guide", "how to guide"),
            ("what --in does", "in"),
            ("why is() fails", "is fails"),
        ];
        for (text, expected) in cases {
            assert_eq!(remaining(text, "en"), expected, "{text}");
        }
    }

    #[test]
    fn japanese_particles_and_endings_need_not_be_found() {
        let cases = [
            ("画像のサイズを変えるには", "画像 サイ イズ 変"),
            ("プラグインの入れ方", "プラ ラグ グイ イン 入"),
            ("直線を引く方法", "直線 引"),
            ("表示方法", "表示 示方 方法"),
            ("ぼかし", "ぼか かし"),
            ("ぼかしフィルター", "ぼか かし フィ ィル ルタ ター"),
        ];
        for (text, expected) in cases {
            assert_eq!(remaining(text, "ja"), expected, "{text}");
        }
    }

    #[test]
    fn words_of_phrases_are_always_searched() {
        let query = parse_query("what \"is the\"", None);
        assert!(query.words[0].is_question_word);
        assert!(query.phrases[0].iter().all(|word| !word.is_question_word));
    }

    #[test]
    fn lists_are_folded_and_sorted() {
        for lang in ["en", "de-AT", "fr", "es", "pt_BR"] {
            let words = question_words(lang);
            assert!(words.is_sorted_by(|first, second| first < second), "{lang}: {words:?}");
            assert!(words.iter().all(|word| fold(word) == *word), "{lang}");
        }
        assert!(question_words("ja").is_empty());
    }
}
