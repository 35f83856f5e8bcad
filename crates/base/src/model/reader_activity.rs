//! Activity of the readers of a site: the searches and page views that a server hands over to the code that stores
//! them. Nothing in it identifies a reader. No I/O.

use std::fmt;

/// The id of a search, with which a click refers to it: 64 random bits, written as 16 lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SearchId(pub u64);

impl SearchId {
    /// Parses 16 hexadecimal digits, of either case.
    pub fn parse(text: &str) -> Option<SearchId> {
        let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex.then(|| u64::from_str_radix(text, 16).ok().map(SearchId)).flatten()
    }
}

/// The kind of client that searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SearchSource {
    /// A person, with the search box, the search page or a client that asks for its searches to be recorded.
    Reader,
    /// A program that searches for a person, such as ask, which looks for passages that answer a question.
    Assistant,
}

/// A search or a click on one of its results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SearchActivity {
    /// A finished search.
    Search {
        /// The id to which a click may refer; `None` for a search of the search page.
        id: Option<SearchId>,
        /// The text as it was typed.
        query: String,
        /// The number of results; `None` if it is not known.
        results: Option<u64>,
        /// The kind of client.
        source: SearchSource,
        /// The time, in milliseconds since 1970.
        time: i64,
    },
    /// A click on a result of the search with this id.
    Click {
        /// The id of the search.
        id: SearchId,
        /// The path of the page.
        page: String,
        /// The time, in milliseconds since 1970.
        time: i64,
    },
    /// A click on a result of the search page, which is known by its query only.
    PageClick {
        /// The text as it was typed.
        query: String,
        /// The path of the page.
        page: String,
        /// The time, in milliseconds since 1970.
        time: i64,
    },
}

/// The class of the client that requested a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VisitorClass {
    /// A person with a browser.
    Human,
    /// An agent or a crawler of an AI service.
    Ai,
    /// Any other program.
    Bot,
}

/// The views of one page by class of visitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ViewCounts {
    /// Views by people.
    pub human: u64,
    /// Views by agents and crawlers of AI services.
    pub ai: u64,
    /// Views by other programs.
    pub bot: u64,
}

impl ViewCounts {
    /// Counts one view.
    pub fn add_view(&mut self, class: VisitorClass) {
        match class {
            VisitorClass::Human => self.human += 1,
            VisitorClass::Ai => self.ai += 1,
            VisitorClass::Bot => self.bot += 1,
        }
    }
}

/// The counts of one day (UTC) since they were last taken. Each list has a key at most once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DayActivity {
    /// The day, in days since 1970.
    pub day: i64,
    /// The views of pages, by path.
    pub views: Vec<(String, ViewCounts)>,
    /// The pages with which people began a visit, by path.
    pub entries: Vec<(String, u64)>,
    /// The hosts whose pages led people here.
    pub referrers: Vec<(String, u64)>,
    /// The paths that people requested and that do not exist, without query.
    pub not_found: Vec<(String, u64)>,
    /// The names of the programs that requested pages.
    pub agents: Vec<(String, u64)>,
}

/// The activity since it was last taken.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReaderActivity {
    /// The counts by day, in ascending order.
    pub days: Vec<DayActivity>,
    /// The searches and clicks, in the order in which they were received.
    pub searches: Vec<SearchActivity>,
    /// The number of searches and clicks that were dropped, because too many were received.
    pub dropped: u64,
}

impl ReaderActivity {
    /// Returns whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.days.is_empty() && self.searches.is_empty() && self.dropped == 0
    }
}

impl fmt::Display for SearchId {
    /// Writes 16 lower-case hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_id_is_16_hexadecimal_digits() {
        assert_eq!(SearchId::parse("00000000000000ff"), Some(SearchId(255)));
        assert_eq!(SearchId(255).to_string(), "00000000000000ff");
        assert_eq!(SearchId::parse("FFFFFFFFFFFFFFFF"), Some(SearchId(u64::MAX)));
        for wrong in ["", "ff", "00000000000000fg", "+000000000000001", "00000000000000001", "０000000000000"] {
            assert_eq!(SearchId::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn views_are_counted_by_class() {
        let mut counts = ViewCounts::default();
        for class in [VisitorClass::Human, VisitorClass::Human, VisitorClass::Ai, VisitorClass::Bot] {
            counts.add_view(class);
        }
        assert_eq!(counts, ViewCounts { human: 2, ai: 1, bot: 1 });
    }
}
