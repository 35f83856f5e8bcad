//! The parameters of a search: the query of its address, which is form data (`application/x-www-form-urlencoded`).
//! Pure.

use docwharf_base::model::reader_activity::SearchId;
use docwharf_search::page::{DEFAULT_LIMIT, MAX_LIMIT, MAX_OFFSET, MAX_QUERY_CHARS};
use percent_encoding::percent_decode_str;

/// The maximum length of `section` in bytes. The search page repeats it in several links.
pub(crate) const MAX_SECTION_BYTES: usize = 1024;
/// The maximum length of `lang` in bytes. Real tags are far shorter.
const MAX_LANG_BYTES: usize = 35;

/// The names of the parameters. All others are ignored.
const PARAMETER_NAMES: [&str; 6] = ["q", "limit", "offset", "section", "lang", "record"];

/// The parameters of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SearchParameters {
    /// The question as it was typed (`q`).
    pub(crate) text: String,
    /// The maximum number of results.
    pub(crate) limit: u32,
    /// The number of results that are left out at the beginning.
    pub(crate) offset: u32,
    /// The path below which pages are searched, below the base path.
    pub(crate) section: Option<String>,
    /// The language tag of the pages that are searched first.
    pub(crate) lang: Option<String>,
    /// The id under which the search is recorded; `None` if the client does not ask for that.
    pub(crate) record: Option<SearchId>,
}

impl Default for SearchParameters {
    fn default() -> SearchParameters {
        SearchParameters {
            text: String::new(),
            limit: DEFAULT_LIMIT,
            offset: 0,
            section: None,
            lang: None,
            record: None,
        }
    }
}

/// The reason why parameters are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ParameterFault {
    /// A percent sign begins no encoding, or the decoded bytes are not UTF-8.
    #[error("the parameters are not percent-encoded UTF-8")]
    Encoding,
    /// The text is too long.
    #[error("q has more than {} characters", MAX_QUERY_CHARS)]
    LongText,
    /// The number of results is not a number, or out of bounds.
    #[error("limit is not a number from 1 to {}", MAX_LIMIT)]
    Limit,
    /// The number of results that are left out is not a number, or out of bounds.
    #[error("offset is not a number from 0 to {}", MAX_OFFSET)]
    Offset,
    /// The path is too long.
    #[error("section has more than {} bytes", MAX_SECTION_BYTES)]
    LongSection,
    /// The id is no id.
    #[error("record is not 16 hexadecimal digits")]
    Record,
}

/// Parameters that are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InvalidParameters {
    /// The first reason.
    pub(crate) fault: ParameterFault,
    /// The parameters that are valid, for the form of the search page; defaults instead of the others. A text that is
    /// too long is cut.
    pub(crate) valid: SearchParameters,
}

impl SearchParameters {
    /// Parses the query of a request target. Of parameters with the same name, the first one counts. An empty `section`
    /// and a `lang` that is no language tag count as absent: pages have anything in their attribute `lang`, and forms
    /// send empty fields.
    pub(crate) fn parse(query: Option<&str>) -> Result<SearchParameters, InvalidParameters> {
        let mut values: [Option<String>; PARAMETER_NAMES.len()] = Default::default();
        let mut fault = None;
        for pair in query.unwrap_or_default().split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(name), Some(value)) = (decode_component(name), decode_component(value)) else {
                fault = Some(ParameterFault::Encoding);
                continue;
            };
            if let Some(index) = PARAMETER_NAMES.iter().position(|known| *known == name) {
                values[index].get_or_insert(value);
            }
        }
        let [text, limit, offset, section, lang, record] = values;
        let mut valid = SearchParameters::default();
        let mut refuse = |reason: ParameterFault| fault = fault.or(Some(reason));
        let text = text.unwrap_or_default();
        valid.text = text.chars().take(MAX_QUERY_CHARS).collect();
        if valid.text.len() < text.len() {
            refuse(ParameterFault::LongText);
        }
        if let Some(limit) = limit {
            match parse_number(&limit, 1, MAX_LIMIT) {
                Some(number) => valid.limit = number,
                None => refuse(ParameterFault::Limit),
            }
        }
        if let Some(offset) = offset {
            match parse_number(&offset, 0, MAX_OFFSET) {
                Some(number) => valid.offset = number,
                None => refuse(ParameterFault::Offset),
            }
        }
        match section.filter(|section| !section.trim_matches('/').is_empty()) {
            Some(section) if section.len() > MAX_SECTION_BYTES => refuse(ParameterFault::LongSection),
            section => valid.section = section,
        }
        valid.lang = lang.filter(|lang| may_be_language_tag(lang)).map(|lang| lang.replace('_', "-"));
        if let Some(record) = record {
            valid.record = SearchId::parse(&record);
            if valid.record.is_none() {
                refuse(ParameterFault::Record);
            }
        }
        match fault {
            None => Ok(valid),
            Some(fault) => Err(InvalidParameters { fault, valid }),
        }
    }

    /// Returns whether the reader has typed nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.text.trim().is_empty()
    }
}

/// Decodes a name or a value of form data; `None` if it is not percent-encoded UTF-8.
fn decode_component(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let is_encoding =
        |start: usize| bytes.get(start + 1..start + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    if bytes.iter().enumerate().any(|(index, &byte)| byte == b'%' && !is_encoding(index)) {
        return None;
    }
    let spaced = text.replace('+', " ");
    String::from_utf8(percent_decode_str(&spaced).collect()).ok()
}

/// Parses a number of decimal digits between two bounds.
fn parse_number(text: &str, min: u32, max: u32) -> Option<u32> {
    // `parse` would also accept a sign.
    let number = text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    (min..=max).contains(&number).then_some(number)
}

/// Returns whether a text has the length and the characters of a language tag (BCP 47). Some pages write `_` for `-`.
pub(crate) fn may_be_language_tag(text: &str) -> bool {
    (1..=MAX_LANG_BYTES).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// Returns a section as a path within the site, without its leading slash. It may have the base path, which programs
/// copy from addresses.
pub(crate) fn section_in_site<'a>(base_path: &str, section: &'a str) -> &'a str {
    if section.trim_matches('/') == base_path.trim_matches('/') {
        return "";
    }
    section.strip_prefix(base_path).unwrap_or(section).trim_start_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> SearchParameters {
        SearchParameters::parse(Some(query)).unwrap_or_else(|invalid| panic!("{query}: {invalid:?}"))
    }

    fn fault(query: &str) -> ParameterFault {
        SearchParameters::parse(Some(query)).expect_err(query).fault
    }

    #[test]
    fn parameters_are_decoded_as_form_data() {
        for (query, text) in [
            ("q=a", "a"),
            ("q=a+b%20c", "a b c"),
            ("q=C%2B%2B", "C++"),
            ("q=%2525", "%25"),
            ("q=a=b", "a=b"),
            ("q=%E7%B7%9A%e7%a8%8b", "線程"),
            ("q=線程", "線程"),
            ("q", ""),
            ("", ""),
            ("&&q=a&", "a"),
            ("%71=a", "a"),
            ("q=a&q=b", "a"),
            ("Q=a&x=b", ""),
            ("q=a;limit=5", "a;limit=5"),
            ("q=--flag+%22exact+phrase%22", "--flag \"exact phrase\""),
            ("q=%00%1b", "\0\u{1b}"),
        ] {
            assert_eq!(
                parse(query),
                SearchParameters { text: text.to_owned(), ..SearchParameters::default() },
                "{query}"
            );
        }
        assert_eq!(SearchParameters::parse(None), Ok(SearchParameters::default()));
        let all = parse("lang=pt-BR&offset=490&section=%2Fguide%2Fa+b&limit=50&q=x");
        let (section, lang) = (Some("/guide/a b".to_owned()), Some("pt-BR".to_owned()));
        assert_eq!(all, SearchParameters { text: "x".to_owned(), limit: 50, offset: 490, section, lang, record: None });
    }

    #[test]
    fn numbers_out_of_bounds_long_texts_and_broken_encodings_are_refused() {
        for (query, expected) in [
            ("q=a&limit=0", ParameterFault::Limit),
            ("q=a&limit=51", ParameterFault::Limit),
            ("limit=", ParameterFault::Limit),
            ("limit=-1", ParameterFault::Limit),
            ("limit=%2B5", ParameterFault::Limit),
            ("limit=5+", ParameterFault::Limit),
            ("limit=5.0", ParameterFault::Limit),
            ("limit=ten", ParameterFault::Limit),
            ("limit=99999999999999999999", ParameterFault::Limit),
            ("offset=491", ParameterFault::Offset),
            ("offset=x", ParameterFault::Offset),
            ("q=%", ParameterFault::Encoding),
            ("q=a%2", ParameterFault::Encoding),
            ("q=%zz", ParameterFault::Encoding),
            ("q=%%41", ParameterFault::Encoding),
            ("q=%ff", ParameterFault::Encoding),
            ("q=%c3%28", ParameterFault::Encoding),
            ("q=a&other=%zz", ParameterFault::Encoding),
            ("%zz=a&limit=0", ParameterFault::Encoding),
            ("limit=0&offset=x", ParameterFault::Limit),
        ] {
            assert_eq!(fault(query), expected, "{query}");
        }
        // Characters count, and not bytes.
        assert_eq!(parse(&format!("q={}", "線".repeat(200))).text.chars().count(), 200);
        let long = SearchParameters::parse(Some(&format!("q={}&limit=5", "線".repeat(201)))).unwrap_err();
        assert_eq!(long.fault, ParameterFault::LongText);
        assert_eq!((long.valid.text.chars().count(), long.valid.limit), (200, 5));
        assert_eq!(parse(&format!("section={}", "a".repeat(1024))).section.map(|section| section.len()), Some(1024));
        assert_eq!(fault(&format!("section={}", "a".repeat(1025))), ParameterFault::LongSection);
    }

    #[test]
    fn faults_are_described_with_their_bounds() {
        for (query, expected) in [
            ("q=%", "the parameters are not percent-encoded UTF-8"),
            ("limit=0", "limit is not a number from 1 to 50"),
            ("offset=491", "offset is not a number from 0 to 490"),
        ] {
            assert_eq!(fault(query).to_string(), expected);
        }
        assert_eq!(ParameterFault::LongText.to_string(), "q has more than 200 characters");
    }

    #[test]
    fn an_empty_section_and_a_language_that_is_no_tag_count_as_absent() {
        for query in ["section=", "section=/", "section=%2F%2F", "lang=", "lang=a+b", "lang=%7B%7Blang%7D%7D"] {
            assert_eq!(parse(query), SearchParameters::default(), "{query}");
        }
        assert_eq!(parse(&format!("lang={}", "a-".repeat(10_000))), SearchParameters::default());
        assert_eq!(parse("lang=zh_CN").lang.as_deref(), Some("zh-CN"));
    }

    #[test]
    fn nothing_that_is_typed_is_an_error() {
        for text in ["\"", "\"a", "*:*", "a AND (b", "--", "\\", "{\"a\":1}", "'; DROP TABLE x", "<script>", "\u{202e}"]
        {
            let query =
                format!("q={}", percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC));
            assert_eq!(parse(&query).text, text);
            assert!(!parse(&query).is_empty(), "{text}");
        }
        for text in ["", "+", "%20%09", "+++"] {
            assert!(parse(&format!("q={text}")).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_section_may_have_the_base_path() {
        for (base_path, section, expected) in [
            ("/docs/", "/docs/guides", "guides"),
            ("/docs/", "/guides", "guides"),
            ("/docs/", "guides/", "guides/"),
            ("/docs/", "/docs", ""),
            ("/docs/", "docs/", ""),
            ("/docs/", "/docsx", "docsx"),
            ("/", "/guides", "guides"),
            ("/", "/", ""),
        ] {
            assert_eq!(section_in_site(base_path, section), expected, "{base_path} {section}");
        }
    }
}
