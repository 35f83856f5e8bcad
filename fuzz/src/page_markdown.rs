//! Markdown of HTML pages. Any bytes are a page: the Markdown is within its limit, blocks begin at the starts of lines,
//! sections are within the text and begin with a block, and no character is hidden. Text that is written between tags
//! that hide it is not in the Markdown, and a visible text is in it without becoming a link.

use docwharf::search::markdown::{MAX_MARKDOWN_BYTES, MarkdownSettings, PageMarkdown, render_page};

/// Elements around a text that hide it.
const HIDING: [(&str, &str); 8] = [
    ("<!--", "-->"),
    ("<p hidden>", "</p>"),
    ("<div aria-hidden=true>", "</div>"),
    ("<template>", "</template>"),
    ("<noscript>", "</noscript>"),
    ("<section style='display : none !important'>", "</section>"),
    ("<div style='opacity:0.0'>", "</div>"),
    ("<div style='color:red;font-size:0px'>", "</div>"),
];

fn render(html: &[u8]) -> Option<PageMarkdown> {
    let markdown = render_page(html, &MarkdownSettings { page_url: "a/b.html", base_path: "/docs/" }).ok()?;
    check(&markdown);
    Some(markdown)
}

fn check(markdown: &PageMarkdown) {
    let text = &markdown.text;
    assert!(text.len() <= MAX_MARKDOWN_BYTES + 1);
    assert!(text.is_empty() || text.ends_with('\n'));
    assert!(markdown.block_starts.is_sorted_by(|first, second| first < second));
    for &start in &markdown.block_starts {
        let start = start as usize;
        assert!(start < text.len() && (start == 0 || text.as_bytes()[start - 1] == b'\n'));
    }
    for section in &markdown.sections {
        assert!(section.start < section.end && section.end as usize <= text.len());
        assert!(markdown.block_starts.binary_search(&section.start).is_ok());
        assert!(text.is_char_boundary(section.end as usize));
    }
    let is_hidden = |character: char| {
        character.is_control() && !matches!(character, '\n' | '\t')
            || matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
            || matches!(character, '\u{feff}' | '\u{e0000}'..='\u{e007f}')
    };
    for shown in [text, &markdown.title] {
        assert!(!shown.contains(is_hidden), "{shown:?}");
    }
}

pub fn page_markdown(data: &[u8]) {
    render(data);
    // The first byte chooses how the rest is used as text.
    let Some((&choice, rest)) = data.split_first() else { return };
    let text: String = String::from_utf8_lossy(rest).chars().filter(|c| !matches!(c, '<' | '>' | '&' | '-')).collect();
    let (before, after) = HIDING[usize::from(choice) % HIDING.len()];
    let page = format!("<main><p>shown</p>{before}hiddenword {text} hiddenword{after}<p>end</p></main>");
    let markdown = render(page.as_bytes()).expect("a small page can be read");
    assert_eq!(markdown.text, "shown\n\nend\n", "{page}");
    let visible = render(format!("<p>{text}</p>").as_bytes()).expect("a small page can be read");
    // Each bracket that could begin a link is escaped.
    let mut is_escaped = false;
    for character in visible.text.chars() {
        assert!(character != '[' || is_escaped, "{text:?}: {}", visible.text);
        is_escaped = character == '\\' && !is_escaped;
    }
}
