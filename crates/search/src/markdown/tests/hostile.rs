//! Pages that would need much time, memory or stack, and pages of random parts.

use std::time::{Duration, Instant};

use super::super::MAX_MARKDOWN_BYTES;
use super::render_whole;
use crate::markdown::PageMarkdown;

fn check_page(page: &PageMarkdown) {
    assert!(page.text.len() <= MAX_MARKDOWN_BYTES + 1);
    assert!(page.text.is_empty() || page.text.ends_with('\n'));
    assert!(page.block_starts.is_sorted_by(|first, second| first < second));
    let len = page.text.len();
    for &start in &page.block_starts {
        assert!((start as usize) < len && page.text.is_char_boundary(start as usize));
        assert!(start == 0 || page.text.as_bytes()[start as usize - 1] == b'\n');
    }
    for section in &page.sections {
        assert!(section.start < section.end && page.block_starts.binary_search(&section.start).is_ok());
        assert!(page.text.is_char_boundary(section.end as usize) && section.end as usize <= len);
    }
}

#[test]
fn repeated_parts_are_bounded_in_time_and_size() {
    let parts = [
        "<div>",
        "<ul><li>",
        "<blockquote>",
        "<b>",
        "<b><i>",
        "<a href=x>y",
        "<table><tr><td>",
        "<td>x",
        "<tr><td>x",
        "<dl><dt>x<dd>",
        "<pre>",
        "<code>`",
        "`",
        "<pre>`",
        "<br>x",
        "*",
        "[",
        "<main>",
        "<article>x",
        "<h1>x",
        "<svg>",
        "<dt id=x>y",
        "<td colspan=99999 rowspan=99999>x",
        "<ol start=999999999><li>x",
        "&",
        "&#x200b;",
        "\\",
        "<!--",
        "<p hidden>",
        "<p style='display:none",
        "<img alt='x y'>",
        "<section id=x><h2>y",
        "x<hr>",
        "</b>",
        "<a href=#x>¶</a>",
        "<blockquote><br>x",
        "<table><tr><th>x</table>",
        "<b>x</b>",
        "<header><h1>x</header>",
        "1. ",
        "<li>x",
        "<ul></ul>",
    ];
    for part in parts {
        let page = part.repeat((1 << 20) / part.len());
        let start = Instant::now();
        check_page(&render_whole(&page));
        // The limit of the time for a page, and much for a slow machine.
        assert!(start.elapsed() < Duration::from_secs(20), "{part}: {:?}", start.elapsed());
    }
}

#[test]
fn text_beyond_the_limit_is_left_out() {
    for page in [
        "<p>word ".repeat(1 << 20),
        "word ".repeat(1 << 20),
        format!("<pre>{}", "line\n".repeat(1 << 20)),
        format!("<table>{}", "<tr><td>cell".repeat(1 << 19)),
        format!("<code>{}", "word ".repeat(1 << 20)),
        format!("<blockquote>{}", "<br>x".repeat(1 << 20)),
    ] {
        let markdown = render_whole(&page);
        check_page(&markdown);
        assert!(markdown.is_cut);
        assert!(markdown.text.len() > MAX_MARKDOWN_BYTES / 4, "{}", markdown.text.len());
    }
    assert!(!render_whole(&"<p>word ".repeat(1000)).is_cut);
}

#[test]
fn random_pages_end_without_a_panic() {
    let parts = [
        "<main>",
        "</main>",
        "<article>",
        "</article>",
        "<ul>",
        "</ul>",
        "<ol>",
        "<li>",
        "</li>",
        "<dl>",
        "</dl>",
        "<dt id=t>",
        "<dd>",
        "<table>",
        "</table>",
        "<tr>",
        "<td>",
        "<th rowspan=2>",
        "</td>",
        "<thead>",
        "<pre>",
        "</pre>",
        "<code>",
        "</code>",
        "<b>",
        "</b>",
        "<i>",
        "</i>",
        "<a href=#a>",
        "<a href=b>",
        "</a>",
        "¶",
        "text",
        " ",
        "\n",
        "*",
        "`",
        "[",
        "<h1>",
        "</h1>",
        "<h3 id=x>",
        "</h3>",
        "<p>",
        "</p>",
        "<br>",
        "<hr>",
        "<blockquote>",
        "</blockquote>",
        "<svg>",
        "</svg>",
        "<math>",
        "<mi>",
        "<header>",
        "</header>",
        "<p hidden>",
        "<div class=language-x>",
        "</div>",
        "&amp;",
        "!",
        "<img alt=i>",
        "<template>",
        "</template>",
        "<title>",
        "</title>",
        "<body>",
        "<caption>",
        "<section id=s>",
        "|",
        "1.",
    ];
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    for _ in 0..20_000 {
        let mut page = String::new();
        for _ in 0..30 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            page.push_str(parts[(state % parts.len() as u64) as usize]);
        }
        check_page(&render_whole(&page));
    }
}

#[test]
fn bytes_that_are_no_html_are_read() {
    for page in
        [&b""[..], b"\xff\xfe", b"\xef\xbb\xbf", b"<", b"<p", b"\0\0", b"<p>\xff\xffa", b"&#0;&#xd800;&#x110000;"]
    {
        let settings = super::MarkdownSettings { page_url: "", base_path: "/" };
        check_page(&super::render_page(page, &settings).unwrap());
    }
}
