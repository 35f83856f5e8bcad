//! Text that a reader of the page does not see.

use super::{check, render, render_whole};
use crate::extract::{ExtractLimits, extract_page};

/// An element that hides the text in it, once for each way to hide it.
const HIDDEN: [&str; 36] = [
    "<!-- secret -->",
    "<p hidden>secret</p>",
    "<p HIDDEN='until-found'>secret</p>",
    "<span aria-hidden=true>secret</span>",
    "<template>secret<p>secret</p></template>",
    "<noscript>secret<p>secret</p></noscript>",
    "<p style='display:none'>secret</p>",
    "<p style='DISPLAY : NONE ! important'>secret</p>",
    "<div style='color:red; display: none'><p>secret</p></div>",
    "<p style='&#x64;isplay&colon;none'>secret</p>",
    "<p style='visibility:hidden'>secret</p>",
    "<p style='opacity:0'>secret</p>",
    "<p style='opacity: 0.0 !important'>secret</p>",
    "<p style='font-size:0'>secret</p>",
    "<p style='font-size:0px'>secret</p>",
    "<p style='font-size : 0%'>secret</p>",
    "<li style=display:none>secret</li>",
    "<h2 style=display:none>secret</h2>",
    "<pre style=display:none>secret</pre>",
    "<table style=display:none><tr><td>secret</table>",
    "<a hidden href=x>secret</a>",
    "<img hidden alt=secret><img style=display:none alt=secret><img aria-hidden=true alt=secret>",
    "<span style='display:none'><b>secret</span>",
    "<script>secret</script><style>secret</style>",
    // Formatting elements that are not closed continue in the next block.
    "<p><b style='display:none'>x</p><p>secret</p></b>",
    "<p><a hidden>secret</p><p>secret</p></a>",
    "<div><i aria-hidden=true>x</div>secret</i>",
    "<p><code hidden>x</p><ul><li>secret</ul></code>",
    "<p style='quotes:\"/*\" \"b\";display:none'>secret</p>",
    "<p style='background:url(/*);display:none'>secret</p>",
    "<p style='@a{}display:none'>secret</p>",
    "<dialog>secret<p>secret</p></dialog>",
    "<datalist><option>secret</datalist>",
    "<ruby>x<rp>secret</rp></ruby>",
    "<math><semantics><mi>x</mi><annotation>secret</annotation></semantics></math>",
    "<table><tr><td><b hidden>secret<td>y</table>",
];

#[test]
fn hidden_text_reaches_neither_markdown_nor_the_index() {
    for hidden in HIDDEN {
        for page in [format!("<p>a</p>{hidden}<p>b</p>"), format!("<main><h1>T</h1><ul><li>a {hidden}</ul>b</main>")] {
            let markdown = render_whole(&page);
            assert!(!markdown.text.contains("secret"), "{page}: {}", markdown.text);
            assert!(markdown.text.contains('a') && markdown.text.contains('b'), "{page}: {}", markdown.text);
            let extracted = format!("{:?}", extract_page(page.as_bytes(), &ExtractLimits::default()).unwrap());
            assert!(!extracted.contains("secret"), "{page}: {extracted}");
        }
    }
}

#[test]
fn hidden_text_beyond_the_limits_of_nesting_and_style_stays_hidden() {
    let long_style = format!("{}display:none", "color:red;".repeat(2000));
    for page in [
        format!("<p>a</p>{}<div hidden>secret</div></x></x>secret", "<div>".repeat(4096)),
        format!("<p>a</p><p style='{long_style}'>secret</p>"),
    ] {
        let markdown = render_whole(&page);
        assert!(!markdown.text.contains("secret") && markdown.text.contains('a'), "{}", markdown.text);
        let extracted = format!("{:?}", extract_page(page.as_bytes(), &ExtractLimits::default()).unwrap());
        assert!(!extracted.contains("secret"), "{extracted}");
    }
}

#[test]
fn text_behind_an_unclosed_hidden_element_in_a_cell_is_read() {
    let page = "<table><tr><td><b hidden>secret<td>seen</table><p>after</p><dialog open>shown</dialog>";
    let markdown = render_whole(page);
    assert!(["seen", "after", "shown"].iter().all(|text| markdown.text.contains(text)), "{}", markdown.text);
    assert!(!markdown.text.contains("secret"), "{}", markdown.text);
}

#[test]
fn invisible_characters_are_removed_everywhere() {
    let tags: String = (0xe0000..=0xe007f).filter_map(char::from_u32).collect();
    let invisible = format!("\u{200b}\u{200d}\u{2060}\u{feff}\u{202e}\u{2066}\u{ad}\u{fe0f}{tags}");
    let page = format!(
        "<title>t{invisible}</title><meta name=description content='d{invisible}'><h1 id='i'>h{invisible}</h1>\
         <p>p{invisible}q<code>c{invisible}</code><a href='x{invisible}'>l{invisible}</a><img alt='a{invisible}'>\
         <pre>r{invisible}</pre><table><tr><td>{invisible}e</table>"
    );
    let markdown = render_whole(&page);
    assert_eq!(markdown.text, "# h\n\npq`c`[l](/docs/guide/x)a\n\n```\nr\n```\n\n| |\n| --- |\n| e |\n");
    assert_eq!((markdown.title.as_str(), markdown.description.as_deref()), ("t", Some("d")));
    assert_eq!(markdown.sections[0].heading, "h");
    check(&[("&#x200b;&#xe0041;", ""), ("a&#8203;b", "ab")]);
}

#[test]
fn visible_instructions_stay_text() {
    for text in [
        "[click](javascript:alert(1))",
        "![x](https://evil.example/?q=secret)",
        "&lt;img src=https://evil.example/&gt;",
        "&lt;!-- x --&gt;",
        "[ref]: https://evil.example/",
        "``` js",
        "~~~",
        "<code>`</code>[x](y)",
        "<b>[</b>x](y)",
        "<a href='x)(z'>t</a>",
        "<a href='javascript:x'>t</a>",
    ] {
        let markdown = render(&format!("<p>{text}</p>"));
        let mut rest = markdown.as_str();
        while let Some(at) = rest.find('[') {
            let is_escaped = rest[..at].ends_with('\\');
            assert!(is_escaped || rest[at..].contains("](/docs/guide/"), "{text}: {markdown}");
            rest = &rest[at + 1..];
        }
        assert!(!markdown.starts_with("```") && !markdown.starts_with("~~~"), "{text}: {markdown}");
        assert!(!markdown.contains("<img") || markdown.contains("\\<img"), "{text}: {markdown}");
    }
}
