//! Pages that are made to cost memory, time or call stack, or to hide text.

use super::*;

#[test]
fn nesting_costs_no_stack_and_the_text_in_it_is_read() {
    let depth = 100_000;
    let page = extract(&format!("{}deep{}<p>after", "<div>".repeat(depth), "</div>".repeat(depth)));
    assert_eq!(describe(&page), [" #-: deep | after"]);
    for tag in ["<span aria-hidden=true>", "<svg>", "<b>", "<dl><dt id=a>", "<table><tr><td>", "<a href=x>", "<x-y>"] {
        let page = extract(&format!("<p>before</p>{}x", tag.repeat(depth)));
        assert!(page.sections[0].text.starts_with("before"), "{tag}");
        assert!(!page.left_out.time_exceeded, "{tag}");
    }
}

#[test]
fn end_tags_without_start_tags_cost_little() {
    let page = extract(&format!("{}a{}b", "<div>".repeat(4000), "</p></x></li></td>".repeat(5000)));
    assert_eq!(page.sections[0].text, "ab");
    assert!(!page.left_out.time_exceeded);
}

#[test]
fn deep_lists_of_definitions_have_short_paths() {
    let page = extract(&"<dl><dt id=a>term<dd>".repeat(5000));
    assert!(page.sections.len() > 1000);
    assert!(page.sections.iter().all(|section| section.headings.len() <= 8));
}

#[test]
fn text_beyond_the_limit_is_left_out_and_counted() {
    let page = extract(&format!("<p>{}<p>end", "word ".repeat(700_000)));
    let text = &page.sections[0].text;
    assert_eq!(text.len(), MAX_TEXT_BYTES);
    let kept = text.bytes().filter(|&byte| byte != b' ').count();
    assert_eq!(page.left_out.text_bytes + kept, "word".len() * 700_000 + "end".len());
    assert_eq!((page.left_out.sections, page.left_out.headings), (0, 0));
}

#[test]
fn text_in_a_worse_root_does_not_use_up_the_limit() {
    let page = extract(&format!("<div>{}</div><main>content</main>", "word ".repeat(700_000)));
    assert_eq!(page.sections[0].text, "content");
    assert_eq!((page.left_out, page.words), (LeftOutContent::default(), 1));
}

#[test]
fn sections_beyond_the_limit_are_left_out_with_their_text_and_counted() {
    let page = extract(&"<h2 id=x>T</h2>x".repeat(MAX_SECTIONS + 1000));
    assert_eq!(page.sections.len(), MAX_SECTIONS);
    assert_eq!(page.left_out, LeftOutContent { text_bytes: 1000, sections: 1000, ..LeftOutContent::default() });
}

#[test]
fn long_headings_and_titles_are_cut() {
    let long = "ä".repeat(1 << 20);
    let page = extract(&format!("<title>{long}</title><h1>{long}</h1><h2>{}</h2><h3>short</h3>", &long[..1200]));
    let lengths: Vec<_> =
        page.sections.iter().map(|section| section.headings.last().unwrap().chars().count()).collect();
    assert_eq!(lengths, [MAX_HEADING_CHARS, MAX_HEADING_CHARS, 5]);
    assert_eq!((page.title.chars().count(), page.left_out.headings), (MAX_HEADING_CHARS, 3));
}

#[test]
fn heading_without_an_end_tag_does_not_swallow_the_page() {
    let page = extract(&format!("<h1>Title<p>{}", "word ".repeat(1000)));
    assert_eq!(page.sections[0].headings, ["Title"]);
    assert_eq!((page.sections[0].text.len(), page.left_out), (4999, LeftOutContent::default()));
}

#[test]
fn reading_ends_when_the_time_is_over() {
    let limits = ExtractLimits { time: Duration::ZERO, ..ExtractLimits::default() };
    let page = extract_page(b"<title>T</title><p>text", &limits).unwrap();
    assert!(page.left_out.time_exceeded && page.sections.is_empty());
    assert!(!extract("<p>text").left_out.time_exceeded);
}

#[test]
fn invisible_characters_appear_in_no_result() {
    for hidden in
        ["\u{202e}", "&#8238;", "&#x200B;", "\u{0}", "&#27;", "\u{9b}", "&shy;", "&zwj;", "\u{feff}", "\u{2066}"]
    {
        let page = extract(&format!(
            "<title>a{hidden}b</title><h1>a{hidden}b</h1>a{hidden}b<dl><dt id=x>a{hidden}b<dd>{hidden}</dl>"
        ));
        assert_eq!(page.title, "ab", "{hidden:?}");
        assert_eq!(describe(&page), ["ab #-: ab", "ab > ab #x: "], "{hidden:?}");
    }
}

#[test]
fn markup_in_text_stays_text() {
    let page = extract("<title>&lt;script&gt;</title><h1>&lt;b&gt;</h1>&lt;img src=x onerror=y&gt; &amp;lt;");
    assert_eq!(page.title, "<script>");
    assert_eq!(describe(&page), ["<b> #-: <img src=x onerror=y> &lt;"]);
}

#[test]
fn references_and_attributes_without_end_are_read_in_linear_time() {
    assert_eq!(extract(&format!("<p>{}", "&".repeat(1 << 20))).sections[0].text.len(), 1 << 20);
    assert_eq!(extract(&format!("<p>a<p title='{}", "x".repeat(4 << 20))).sections[0].text, "a");
    let id = "&amp;".repeat(1 << 20);
    assert_eq!(describe(&extract(&format!("<h1 id='{id}'>T</h1>"))), ["T #-: "]);
}

#[test]
fn page_whose_tag_needs_too_much_memory_is_an_error() {
    let html = format!("<p>a<p {}>b", "a ".repeat(1 << 20));
    let error = extract_page(html.as_bytes(), &ExtractLimits::default()).unwrap_err();
    assert_eq!(error.to_string(), "cannot parse the page as HTML");
}

#[test]
fn any_bytes_are_a_page() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let alphabet = b"<>/!-&;#'\"= aph1tdl\x00\xff\xc3\n";
    for _ in 0..2000 {
        let html: Vec<u8> = (0..200)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                alphabet[(state % alphabet.len() as u64) as usize]
            })
            .collect();
        let page = extract_page(&html, &ExtractLimits::default()).unwrap();
        for section in &page.sections {
            assert!(section.code_spans.iter().all(|&(start, end)| {
                section.text.get(start as usize..end as usize).is_some_and(|code| !code.is_empty())
            }));
            assert_eq!(section.text.trim(), section.text);
        }
    }
}
