//! What makes two terms the same. Pure.

/// The term as it is counted: without space at its ends, each run of white space in it one space, in lower case (both
/// as Unicode has it). Accents, punctuation and composed forms stay what they are. Folding what is folded changes nothing.
pub(super) fn fold(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !folded.is_empty() {
            folded.push(' ');
        }
        folded.push_str(word);
    }
    // Of the whole: what a final sigma is depends on what stands beside it.
    folded.to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_that_a_reader_would_call_the_same_are_the_same() {
        for (text, folded) in [
            ("Install", "install"),
            ("  how\t to \r\n DEPLOY\u{3000}it\u{a0}", "how to deploy it"),
            ("ÜBER Straße", "über straße"),
            ("ΟΔΟΣ ΟΔΟΣ", "οδος οδος"),
            ("İ", "i\u{307}"),
            ("c++ / --flag", "c++ / --flag"),
            ("検索", "検索"),
            (" \n", ""),
        ] {
            assert_eq!(fold(text), folded, "{text:?}");
            assert_eq!(fold(folded), folded, "{text:?}");
        }
    }
}
