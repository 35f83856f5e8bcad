//! Decodes character references in a text that arrives in pieces.

use std::borrow::Cow;

use docwharf_site::external::character_references::resolve_references;

/// An upper bound for the length of a character reference without its ampersand, in bytes.
const MAX_REFERENCE_BYTES: usize = 34;

/// Decodes the character references of a text node whose pieces end at any byte. A name that is not known stays as it
/// is written.
#[derive(Debug, Default)]
pub(super) struct ReferenceDecoder {
    /// The end of the last piece, if it may be the start of a reference.
    undecided: String,
}

impl ReferenceDecoder {
    /// Decodes a piece, but for an end that the next piece may complete.
    pub(super) fn decode<'a>(&mut self, piece: &'a str) -> Cow<'a, str> {
        if self.undecided.is_empty() {
            let (decided, undecided) = piece.split_at(decided_len(piece));
            self.undecided.push_str(undecided);
            return resolve_references(decided).0;
        }
        let mut text = std::mem::take(&mut self.undecided);
        text.push_str(piece);
        self.undecided = text.split_off(decided_len(&text));
        Cow::Owned(resolve_references(&text).0.into_owned())
    }

    /// Returns the rest of the text node, and is ready for the next one.
    pub(super) fn finish(&mut self) -> Option<String> {
        let rest = std::mem::take(&mut self.undecided);
        (!rest.is_empty()).then(|| resolve_references(&rest).0.into_owned())
    }
}

/// Returns the length of the text without a reference at its end that more text may continue.
fn decided_len(text: &str) -> usize {
    let is_undecided = |ampersand: &usize| {
        let reference = &text.as_bytes()[ampersand + 1..];
        reference.len() <= MAX_REFERENCE_BYTES && reference.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'#')
    };
    text.rfind('&').filter(is_undecided).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(pieces: &[&str]) -> String {
        let mut decoder = ReferenceDecoder::default();
        let mut text: String = pieces.iter().map(|piece| decoder.decode(piece).into_owned()).collect();
        text.extend(decoder.finish());
        assert_eq!(decoder.finish(), None);
        text
    }

    #[test]
    fn character_reference_is_decoded_wherever_the_text_is_split() {
        let text = "a &amp;&lt;b&gt; &eacute;&#233;&#xe9; &amp;lt; R&D &unknown; &";
        let expected = "a &<b> ééé &lt; R&D &unknown; &";
        assert_eq!(decode(&[text]), expected);
        for end in 0..=text.len() {
            let (first, second) = text.split_at(end);
            assert_eq!(decode(&[first, second]), expected, "split at {end}");
        }
        let bytes: Vec<String> = text.chars().map(String::from).collect();
        assert_eq!(decode(&bytes.iter().map(String::as_str).collect::<Vec<_>>()), expected);
    }

    #[test]
    fn undecided_text_is_bounded() {
        let mut decoder = ReferenceDecoder::default();
        let long = format!("&{}", "a".repeat(MAX_REFERENCE_BYTES + 1));
        assert_eq!(decoder.decode(&long), long);
        assert_eq!(decoder.finish(), None);
        let ampersands = "&".repeat(1 << 20);
        assert_eq!(decoder.decode(&ampersands).len(), ampersands.len() - 1);
        assert_eq!(decoder.finish().as_deref(), Some("&"));
    }
}
