//! Extraction of the searchable text of HTML pages. Any bytes are a page: its text is within the limits, has no hidden
//! characters and no needless white space, and its anchors are ids in the page. A generated page has the sections that
//! it was written with: their anchors, headings, words, code and links, and nothing that is left out.

use std::fmt::Write;

use docwharf::search::extract::{
    DEFINITION_LEVEL, ExtractLimits, ExtractedPage, LeftOutContent, MAX_HEADING_CHARS, MAX_SECTIONS, MAX_TEXT_BYTES,
    Section, extract_page,
};

use super::fuzz_input::FuzzInput;

/// The depth of generated elements below which there are only paragraphs.
const MAX_DEPTH: usize = 3;
/// The maximum number of headings in the path of a section.
const MAX_PATH_HEADINGS: usize = 8;

/// Text as it is written, and its words.
const WORDS: [(&str, &[&str]); 14] = [
    ("plain", &["plain"]),
    ("caf&eacute;", &["café"]),
    ("x&lt;y", &["x<y"]),
    ("a&amp;amp;b", &["a&amp;b"]),
    ("one&nbsp;two", &["one", "two"]),
    ("zero\u{200b}width", &["zerowidth"]),
    ("&#8238;turned", &["turned"]),
    ("soft&shy;hyphen", &["softhyphen"]),
    ("&unknown;", &["&unknown;"]),
    ("<b>bold</b>", &["bold"]),
    ("<span>in <i>it</i></span>", &["in", "it"]),
    ("<!-- hidden -->", &[]),
    ("日本語\n", &["日本語"]),
    ("a < b", &["a", "<", "b"]),
];

/// Elements that are left out with their content.
const LEFT_OUT: [&str; 17] = [
    "<nav><ul><li>hidden<li>hidden</ul></nav>",
    "<aside><p>hidden</aside>",
    "<footer>hidden <b>hidden</b></footer>",
    "<header><p>hidden</p><h2>hidden</h2></header>",
    "<form><p>hidden</p><button>hidden</button></form>",
    "<script>if (a < b) { '<p>hidden</p>' }</script>",
    "<style>p > a { content: 'hidden' }</style>",
    "<template><h1>hidden</h1><p>hidden</template>",
    "<button>hidden</button>",
    "<svg><title>hidden</title><text>hidden</text></svg>",
    "<noscript><p>hidden</p></noscript>",
    "<iframe><p>hidden</p></iframe>",
    "<div aria-hidden=\"true\"><h2 id=\"hidden\">hidden</h2>hidden</div>",
    "<div role=\"navigation\"><a href=\"other.html\">hidden</a></div>",
    "<div role=\"search\">hidden</div>",
    "<div data-pagefind-ignore><dl><dt id=\"hidden\">hidden<dd>hidden</dl></div>",
    "<!-- <h1 id=hidden>hidden</h1> -->",
];

/// The start and end tags of roots.
const ROOTS: [(&str, &str); 5] = [
    ("<main>", "</main>"),
    ("<div role=\"main\">", "</div>"),
    ("<article>", "</article>"),
    ("<div data-pagefind-body>", "</div>"),
    ("<section class=\"x\" data-pagefind-body=\"\">", "</section>"),
];

/// What follows the text of a heading, and is no part of it.
const HEADING_ENDS: [&str; 5] = [
    "",
    "",
    " <a class=\"headerlink\" href=\"#x\">hidden</a>",
    " <a href=\"#x\">\u{b6}</a>",
    " <button>hidden</button>",
];

/// Whether a character is hidden: it controls a terminal, changes the direction of text, or has no width.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{2064}' | '\u{2066}'..='\u{206f}' | '\u{feff}')
}

/// Checks a text that a result can show. Only texts of sections have several lines.
fn check_text(text: &str, has_lines: bool) {
    let is_line_feed = |c: char| has_lines && c == '\n';
    assert_eq!(text.trim(), text, "white space at an end");
    assert!(!text.chars().any(|c| is_hidden(c) && !is_line_feed(c)), "a hidden character in {text:?}");
    assert!(!text.chars().any(|c| c.is_whitespace() && c != ' ' && !is_line_feed(c)), "white space in {text:?}");
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\n');
    assert!(!text.as_bytes().windows(2).any(|pair| pair.iter().all(is_space)), "two separators in {text:?}");
}

/// Checks the ranges of code: in order, apart from each other, and not empty.
fn check_code(section: &Section) {
    let mut last_end = 0;
    for &(start, end) in &section.code_spans {
        let code = section.text.get(start as usize..end as usize);
        let is_code = code.is_some_and(|code| !code.is_empty() && code.trim() == code);
        assert!(is_code && start >= last_end, "{:?} of {:?}", section.code_spans, section.text);
        last_end = end;
    }
}

fn check_section(section: &Section) {
    check_text(&section.text, true);
    check_code(section);
    section.headings.iter().for_each(|heading| check_text(heading, false));
    assert!((1..=DEFINITION_LEVEL).contains(&section.level), "level {}", section.level);
    assert_eq!(section.is_definition, section.level == DEFINITION_LEVEL);
    assert!(section.headings.len() <= MAX_PATH_HEADINGS && section.headings.iter().all(|heading| !heading.is_empty()));
    assert!(!section.headings.is_empty() || !section.text.is_empty(), "an empty section");
}

/// Checks that what was found is in the bytes of the page.
fn check_places(html: &[u8], page: &ExtractedPage) {
    if html.starts_with(b"\xff\xfe") || html.starts_with(b"\xfe\xff") {
        return;
    }
    let count = |text: &[u8]| html.windows(text.len()).filter(|place| place.eq_ignore_ascii_case(text)).count();
    assert!(page.sections.len() <= 1 + count(b"<h") + count(b"<dt"), "{} sections", page.sections.len());
    assert!(page.site_links as usize <= count(b"href"), "{} links", page.site_links);
    // Character references are not decoded here.
    let text = String::from_utf8_lossy(html);
    for anchor in page.sections.iter().filter_map(|section| section.anchor.as_deref()) {
        assert!(!anchor.is_empty() && (text.contains('&') || text.contains(anchor)), "{anchor:?} is not in the page");
    }
}

/// Checks any bytes as a page, and returns what was found.
fn check_page(html: &[u8], limits: &ExtractLimits) -> ExtractedPage {
    let page = extract_page(html, limits).expect("a short page needs little memory");
    let text_bytes: usize = page.sections.iter().map(|section| section.text.len()).sum();
    assert!(text_bytes <= limits.text_bytes, "{text_bytes} bytes of text");
    assert!(page.sections.len() <= limits.sections, "{} sections", page.sections.len());
    let headings = page.sections.iter().flat_map(|section| &section.headings).chain([&page.title]);
    for heading in headings {
        assert!(heading.chars().count() <= limits.heading_chars, "a long heading: {heading:?}");
    }
    check_text(&page.title, false);
    page.sections.iter().for_each(check_section);
    let without_heading = page.sections.iter().filter(|section| section.headings.is_empty()).count();
    assert!(without_heading <= 1, "{without_heading} sections without a heading");
    assert!(page.link_words <= page.words, "{} of {} words are in links", page.link_words, page.words);
    assert!(!page.left_out.time_exceeded, "a short page takes little time");
    check_places(html, &page);
    // Limits that are not reached change nothing.
    if page.left_out == LeftOutContent::default() {
        let unlimited = extract_page(html, &ExtractLimits::default()).expect("the page was read before");
        assert_eq!(page, unlimited);
    }
    page
}

/// A section as it was written.
#[derive(Debug, Default, PartialEq)]
struct WrittenSection {
    anchor: Option<String>,
    headings: Vec<String>,
    level: u8,
    words: Vec<String>,
    code: Vec<String>,
}

impl WrittenSection {
    fn of(section: &Section) -> WrittenSection {
        let code = section.code_spans.iter().map(|&(start, end)| &section.text[start as usize..end as usize]);
        WrittenSection {
            anchor: section.anchor.clone(),
            headings: section.headings.clone(),
            level: section.level,
            words: section.text.split_whitespace().map(str::to_owned).collect(),
            code: code.map(|code| code.split_whitespace().collect::<Vec<_>>().join(" ")).collect(),
        }
    }
}

/// The sections of a page while it is written. A simple model of the order of headings.
#[derive(Debug, Default)]
struct Outline {
    sections: Vec<WrittenSection>,
    /// The section that text belongs to; `None` before the first heading.
    current: Option<usize>,
    /// The section of the text before the first heading.
    start: Option<usize>,
    /// The levels and sections of the headings above the current place.
    parents: Vec<(u8, usize)>,
    /// The ids of the open elements that no heading has used.
    ids: Vec<Option<String>>,
    links: u32,
}

impl Outline {
    fn current_section(&mut self) -> &mut WrittenSection {
        let section = self.current.or(self.start).unwrap_or_else(|| {
            self.sections.push(WrittenSection { level: 1, ..WrittenSection::default() });
            self.sections.len() - 1
        });
        if self.current.is_none() {
            self.start = Some(section);
        }
        self.current = Some(section);
        &mut self.sections[section]
    }

    /// Adds a section below another one, whose anchor it has if it has none itself.
    fn add_section(&mut self, level: u8, anchor: Option<String>, heading: String, parent: Option<usize>) -> usize {
        let parent = parent.map(|parent| &self.sections[parent]);
        let mut headings = parent.map_or_else(Vec::new, |parent| parent.headings.clone());
        headings.push(heading);
        let anchor = anchor.or_else(|| parent.and_then(|parent| parent.anchor.clone()));
        self.sections.push(WrittenSection { anchor, headings, level, ..WrittenSection::default() });
        self.current = Some(self.sections.len() - 1);
        self.sections.len() - 1
    }

    /// Adds the section of a heading. `before` is the id of an empty element right before it.
    fn add_heading(&mut self, level: u8, id: Option<String>, before: Option<String>, heading: String) {
        let around = self.ids.iter().rev().flatten().next().cloned();
        self.ids.fill(None);
        self.parents.retain(|(above, _)| *above < level);
        let parent = self.parents.last().map(|(_, section)| *section);
        let section = self.add_section(level, id.or(around).or(before), heading, parent);
        self.parents.push((level, section));
    }

    fn first_h1(&self) -> Option<&String> {
        self.sections.iter().find(|section| section.level == 1 && !section.headings.is_empty())?.headings.last()
    }
}

/// Writes a page, with an end tag for each element that needs one.
struct PageWriter<'i, 'd> {
    input: &'i mut FuzzInput<'d>,
    html: String,
    outline: Outline,
    /// The number of words and ids that have been written.
    names: u32,
}

impl PageWriter<'_, '_> {
    /// Returns a word or id that is nowhere else in the page.
    fn new_name(&mut self) -> String {
        self.names += 1;
        format!("w{}", self.names)
    }

    /// Returns an id once in a few times.
    fn maybe_id(&mut self) -> Option<String> {
        if self.input.once_in(3) { Some(self.new_name()) } else { None }
    }

    /// Writes words, and returns those that are visible: at least one.
    fn write_words(&mut self) -> Vec<String> {
        let first = self.new_name();
        let _ = write!(self.html, "{first} ");
        let mut words = vec![first];
        for _ in 0..self.input.below(3) {
            let (written, visible) = self.input.one_of(&WORDS);
            let _ = write!(self.html, "{written} ");
            words.extend(visible.iter().map(|&word| word.to_owned()));
        }
        words
    }

    /// Writes words that belong to the current section.
    fn write_text(&mut self) {
        let words = self.write_words();
        self.outline.current_section().words.extend(words);
    }

    /// Writes a code element.
    fn write_code(&mut self, start: &str, end: &str) {
        self.html.push_str(start);
        let words = self.write_words();
        self.html.push_str(end);
        let section = self.outline.current_section();
        section.code.push(words.join(" "));
        section.words.extend(words);
    }

    fn write_optional_end_tag(&mut self, tag: &str) {
        if self.input.once_in(2) {
            self.html.push_str(tag);
        }
    }

    /// Writes a paragraph with text, code and links.
    fn write_paragraph(&mut self) {
        self.html.push_str("<p>");
        self.write_text();
        for _ in 0..self.input.below(3) {
            match self.input.below(4) {
                0 => self.write_code("<code>", "</code> "),
                1 => self.write_code("<kbd>", "</kbd> "),
                2 => {
                    self.html.push_str("<a href=\"other.html\">");
                    self.write_text();
                    self.html.push_str("</a> ");
                    self.outline.links += 1;
                }
                _ => self.html.push_str("<a href=\"#x\">\u{b6}</a> "),
            }
            self.write_text();
        }
        self.write_optional_end_tag("</p>");
    }

    fn write_heading(&mut self) {
        let level = 1 + self.input.below(6) as u8;
        let before = self.maybe_id();
        if let Some(id) = &before {
            let _ = write!(self.html, "<a id=\"{id}\"></a>");
        }
        let (own, of_child) = (self.maybe_id(), self.maybe_id());
        let attribute = own.as_ref().map_or_else(String::new, |id| format!(" id=\"{id}\""));
        let child = of_child.as_ref().map_or_else(String::new, |id| format!("<a name='{id}'></a>"));
        let _ = write!(self.html, "<h{level}{attribute}>{child}");
        let words = self.write_words();
        let _ = write!(self.html, "{}</h{level}>", self.input.one_of(&HEADING_ENDS));
        self.outline.add_heading(level, own.or(of_child), before, words.join(" "));
    }

    fn write_list(&mut self) {
        self.html.push_str("<ul>");
        for _ in 0..=self.input.below(3) {
            self.html.push_str("<li>");
            self.write_text();
            self.write_optional_end_tag("</li>");
        }
        self.html.push_str("</ul>");
    }

    /// Writes a list of definitions. The text after it belongs to the section before it.
    fn write_definitions(&mut self) {
        let around = self.outline.current;
        self.html.push_str("<dl>");
        for _ in 0..=self.input.below(3) {
            let id = self.new_name();
            match self.input.below(4) {
                0 => {
                    self.html.push_str("<dt>");
                    self.write_text();
                }
                kind => {
                    let _ = match kind {
                        1 => write!(self.html, "<dt><span id=\"{id}\"></span>"),
                        _ => write!(self.html, "<dt class=\"x\" id=\"{id}\">"),
                    };
                    let term = self.write_words().join(" ");
                    let parent = around.or(self.outline.parents.last().map(|(_, section)| *section));
                    self.outline.add_section(DEFINITION_LEVEL, Some(id), term, parent);
                }
            }
            self.write_optional_end_tag("</dt>");
            self.html.push_str("<dd>");
            self.write_text();
            self.write_optional_end_tag("</dd>");
        }
        self.html.push_str("</dl>");
        self.outline.current = around;
    }

    /// Writes an element with blocks in it.
    fn write_container(&mut self, name: &str, depth: usize) {
        let id = self.maybe_id();
        let attribute = id.as_ref().map_or_else(String::new, |id| format!(" class=\"x\" id='{id}'"));
        let _ = write!(self.html, "<{name}{attribute}>");
        self.outline.ids.push(id);
        self.write_blocks(depth + 1);
        self.outline.ids.pop();
        let _ = write!(self.html, "</{name}>");
    }

    fn write_blocks(&mut self, depth: usize) {
        for _ in 0..=self.input.below(4) {
            match self.input.below(12) {
                1 | 2 => self.write_heading(),
                3 => self.write_list(),
                4 => self.write_definitions(),
                5 => self.write_code("<pre>", "</pre>"),
                6 => self.write_code("<pre><code class=\"x\">", "</code></pre>"),
                7 | 8 => self.html.push_str(self.input.one_of(&LEFT_OUT)),
                9 if depth < MAX_DEPTH => self.write_container("section", depth),
                10 if depth < MAX_DEPTH => self.write_container("div", depth),
                _ => self.write_paragraph(),
            }
        }
    }

    /// Writes blocks outside the root, which are not in the page.
    fn write_outside(&mut self) {
        let outline = std::mem::take(&mut self.outline);
        if self.input.once_in(2) {
            self.write_blocks(MAX_DEPTH);
        }
        self.outline = outline;
    }

    /// Writes the root of the content. It has text, so that it is the root.
    fn write_root(&mut self) {
        if self.input.once_in(4) {
            self.write_blocks(0);
            return self.write_paragraph();
        }
        let (start, end) = self.input.one_of(&ROOTS);
        self.write_outside();
        self.html.push_str(start);
        if self.input.once_in(4) {
            let id = self.new_name();
            let _ = write!(self.html, "<header>hidden <p>hidden</p><h1 id={id}>");
            let words = self.write_words();
            self.html.push_str("</h1>hidden</header>");
            self.outline.add_heading(1, Some(id), None, words.join(" "));
        }
        self.write_blocks(0);
        self.write_paragraph();
        self.html.push_str(end);
        self.write_outside();
    }
}

/// Writes a page and checks its sections. Returns its HTML.
fn check_written_page(input: &mut FuzzInput<'_>) -> String {
    let mut writer = PageWriter { input, html: String::new(), outline: Outline::default(), names: 0 };
    writer.html.push_str("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">");
    let title = if writer.input.once_in(2) {
        let title = writer.new_name();
        let _ = write!(writer.html, "<title>{title} &amp; <b></title>");
        Some(format!("{title} & <b>"))
    } else {
        None
    };
    writer.html.push_str("</head><body>");
    writer.write_root();
    writer.html.push_str("</body></html>");
    let PageWriter { html, outline, .. } = writer;
    let page = check_page(html.as_bytes(), &ExtractLimits::default());
    let found: Vec<WrittenSection> = page.sections.iter().map(WrittenSection::of).collect();
    assert_eq!(found, outline.sections, "{html}");
    let title = title.or_else(|| outline.first_h1().cloned()).unwrap_or_default();
    assert_eq!((page.title, page.lang.as_deref(), page.exclusion), (title, Some("en"), None), "{html}");
    assert_eq!((page.site_links, page.left_out), (outline.links, LeftOutContent::default()), "{html}");
    html
}

/// The fuzz target: see the module documentation.
pub fn search_extract(data: &[u8]) {
    let mut input = FuzzInput::new(data);
    let is_any = input.once_in(2);
    let limits = ExtractLimits {
        text_bytes: input.one_of(&[MAX_TEXT_BYTES, 1000, 60, 7, 1, 0]),
        sections: input.one_of(&[MAX_SECTIONS, 5, 2, 1, 0]),
        heading_chars: input.one_of(&[MAX_HEADING_CHARS, 10, 2, 1]),
        ..ExtractLimits::default()
    };
    if is_any {
        check_page(input.rest(), &limits);
        return;
    }
    let cut = usize::from(input.u16());
    let html = check_written_page(&mut input);
    // The beginning of a page is a page, too, and so is a page within other limits.
    check_page(&html.as_bytes()[..cut % (html.len() + 1)], &limits);
    check_page(html.as_bytes(), &limits);
}
