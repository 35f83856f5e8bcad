//! Folding of search terms, so that equal terms are counted together. Pure functions.

/// Folds a term: removes white space at its ends, replaces each run of white space by one space, and converts to lower
/// case (both by the rules of Unicode). Accents, punctuation and composed forms do not change. Folding a folded term
/// changes nothing.
pub fn fold_term(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !folded.is_empty() {
            folded.push(' ');
        }
        folded.push_str(word);
    }
    // The whole text at once: whether a sigma is a final one depends on its neighbours.
    folded.to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_terms_that_differ_in_case_or_white_space_are_equal() {
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
            assert_eq!(fold_term(text), folded, "{text:?}");
            assert_eq!(fold_term(folded), folded, "{text:?}");
        }
    }
}
