//! Tests of whole pages.

mod generators;
mod hostile;
mod oracle;

use super::*;

fn extract(html: &str) -> ExtractedPage {
    extract_page(html.as_bytes(), &ExtractLimits::default()).unwrap()
}

/// Describes each section as its headings, anchor and text, with `|` between the blocks.
fn describe(page: &ExtractedPage) -> Vec<String> {
    let describe_section = |section: &Section| {
        let anchor = section.anchor.as_deref().unwrap_or("-");
        format!("{} #{anchor}: {}", section.headings.join(" > "), section.text.replace('\n', " | "))
    };
    page.sections.iter().map(describe_section).collect()
}

/// Returns the texts of all sections, with `|` between the blocks.
fn text(html: &str) -> String {
    let texts: Vec<String> = extract(html).sections.iter().map(|section| section.text.replace('\n', " | ")).collect();
    texts.join(" || ")
}

/// Returns the texts that are code.
fn code(html: &str) -> Vec<String> {
    let page = extract(html);
    let spans = page.sections.iter().flat_map(|section| {
        section.code_spans.iter().map(move |&(start, end)| section.text[start as usize..end as usize].to_owned())
    });
    spans.collect()
}

#[test]
fn content_is_read_from_the_best_root_that_has_text() {
    for (html, expected) in [
        ("<div>a</div>", "a"),
        ("<body>a<article>b</article>c</body>", "b"),
        ("a<div role=main>b</div><article>c</article>d", "b"),
        ("a<div role=main>b</div><main>c</main>d", "c"),
        ("a<main>b<div data-pagefind-body>c</div>d</main>e", "c"),
        ("a<main>b<article>c</article>d</main>e", "b | c | d"),
        ("<article>a</article>b<article>c</article>", "a | c"),
        ("a<main> </main>b", "a | b"),
        ("a<main><nav>b</nav></main>c", "a | c"),
        ("<body data-pagefind-body>a<main>b</main>c", "a | b | c"),
        ("<body>a</body>b</html>c", "abc"),
        ("<html><head><title>t</title></head><body>a", "a"),
    ] {
        assert_eq!(text(html), expected, "{html}");
    }
}

#[test]
fn headings_and_text_outside_the_root_are_not_in_the_page() {
    let page = extract(
        "<h1>Site</h1><p>Slogan</p><a href=/x>x</a>\
         <main><h1 id=p>Page</h1><p>Text <a href=/y>y</a></p></main><h2>F</h2>",
    );
    assert_eq!(describe(&page), ["Page #p: Text y"]);
    assert_eq!((page.words, page.link_words, page.site_links, page.title.as_str()), (3, 1, 1, "Page"));
}

#[test]
fn elements_that_are_not_content_are_left_out() {
    for left_out in [
        "<script>if (a < b) { '</p>' }</script>",
        "<style>p > a {}</style>",
        "<template><p>x</p></template>",
        "<nav><ul><li>x<li>y</ul></nav>",
        "<header><p>x</p></header>",
        "<footer>x</footer>",
        "<aside><div>x</div></aside>",
        "<form><input value=x><label>x</label></form>",
        "<button>x</button>",
        "<svg><title>x</title><path d='M0'/><text>x</text></svg>",
        "<svg/>",
        "<svg><foreignObject><div>x</div></foreignObject></svg>",
        "<noscript><p>x</p></noscript>",
        "<iframe><p>x</p></iframe>",
        "<textarea><p>x</textarea>",
        "<select><option>x<option>y</select>",
        "<div role=navigation>x<div>y</div></div>",
        "<div role=search>x</div>",
        "<div data-pagefind-ignore=all>x</div>",
        "<span aria-hidden=true>x<span>y</span>z</span>",
        "<a class='headerlink' href='#x'>x</a>",
        "<a class=sr-only href='#x'>x</a>",
        "<!-- x --> <!--> <!-- <p>x --!> <?x y?> <!x> </ x>",
        "<nav>x<nav>y</nav>z</nav>",
        "<nav>x<header>y<h1>y</h1></header>z</nav>",
    ] {
        let html = format!("<main><p>before {left_out} after</p></main>");
        let text = text(&html);
        let words: Vec<&str> = text.split([' ', '|']).filter(|word| !word.is_empty()).collect();
        assert_eq!(words, ["before", "after"], "{left_out}");
    }
}

#[test]
fn blocks_separate_text_and_inline_elements_do_not() {
    for (html, expected) in [
        ("<p>a</p><p>b</p>", "a | b"),
        ("<p>thread<b>pool</b><i>executor</i>", "threadpoolexecutor"),
        ("<p>Vec<wbr>Deque", "VecDeque"),
        ("<p>a<br>b", "a | b"),
        ("a<hr>b", "a | b"),
        ("<ul><li>a<li>b</ul>c", "a | b | c"),
        ("<table><tr><th>a<th>b<tr><td>c<td>d</table>e", "a | b | c | d | e"),
        ("<dl><dt>a<dd>b<dt>c<dd>d</dl>", "a | b | c | d"),
        ("<blockquote>a</blockquote>b", "a | b"),
        ("<figure><img alt=x><figcaption>a</figcaption></figure>b", "a | b"),
        ("<details><summary>a</summary>b</details>", "a | b"),
        ("a <span> b </span> c", "a b c"),
        ("a<span>\n</span>b", "a b"),
        ("<p>a</p>\n\n<p></p><div></div><p>b", "a | b"),
        ("a<!-- -->b", "ab"),
        ("a < b & c > d", "a < b & c > d"),
        ("a<b", "a"),
    ] {
        assert_eq!(text(html), expected, "{html}");
    }
}

#[test]
fn omitted_end_tags_do_not_swallow_the_rest_of_the_page() {
    for (html, expected) in [
        ("<div><p>a<p>b</div>c", "a | b | c"),
        ("<ul><li>a<ul><li>b</ul><li><nav>x</nav>c</ul>d", "a | b | c | d"),
        ("<div><nav>x</div>a", "a"),
        ("<ul><li><aside>x<li>y</ul>a", "a"),
        ("<p><span aria-hidden=true>x<p>a", "a"),
        ("<table><tr><td><button>x<td>y</table>a", "y | a"),
        ("<div><svg><g>x</div>a", "a"),
        ("<svg><g><p>a", "a"),
        ("<a class=headerlink>x<div>y</a>a</div>", "a"),
        ("<a class=headerlink>x<a href=y>a</a>", "a"),
        ("<h1>Title<p>a", "a"),
        ("<h1>Title<ul><li>a", "a"),
        ("<main>a</main>b<main>c", "a | c"),
        ("<pre>a\nb<p>c", "a | b | c"),
    ] {
        assert_eq!(text(html), expected, "{html}");
    }
}

#[test]
fn left_out_element_without_an_end_tag_ends_with_the_element_around_it_or_the_page() {
    assert_eq!(text("a<nav>x<p>y<div>z</div></p>w"), "a");
    assert_eq!(text("<main>a<aside>x</main>b"), "a");
    assert_eq!(text("<div>a<nav><div>x</div>y</div>b"), "a | b");
    assert_eq!(text("a<script>x<p>y"), "a");
    assert_eq!(text("a<!-- x <p>y"), "a");
    assert_eq!(text("a<p title='x>y"), "a");
}

#[test]
fn misplaced_end_tags_change_nothing() {
    assert_eq!(text("<main></div></p></span></li>a</td></h2>b</main>c"), "ab");
    assert_eq!(text("<nav>x</span></p></li></td>y</nav>a"), "a");
    assert_eq!(text("<main><table><tr><td></div></main>a</table>b</main>c"), "a | b");
}

#[test]
fn anchor_of_a_heading_is_its_id_or_that_of_a_child_or_the_element_around_it() {
    for (html, expected) in [
        ("<h2 id=a>T</h2>", Some("a")),
        ("<h2><a id=a></a>T</h2>", Some("a")),
        ("<h2><a name=a>T</a></h2>", Some("a")),
        ("<h2><span><code id=a>T</code></span></h2>", Some("a")),
        ("<h2>T <a class=headerlink id=a href=#a>¶</a></h2>", Some("a")),
        ("<h2>T <a aria-hidden=true id=a href=#a>¶</a></h2>", Some("a")),
        ("<h2>T <button id=x>copy</button></h2>", None),
        ("<section id=a><h2>T</h2></section>", Some("a")),
        ("<div id=b><div class=titlepage><div><h2>T</h2></div></div></div>", Some("b")),
        ("<section id=b><h2 id=a>T</h2></section>", Some("a")),
        ("<section id=b><h2><a id=a></a>T</h2></section>", Some("a")),
        ("<a id=a></a><h2>T</h2>", Some("a")),
        ("<p><a name=a></a></p>\n<h2>T</h2>", Some("a")),
        ("<section id=b><a name=a></a><h2>T</h2></section>", Some("b")),
        ("<a id=a></a>text<h2>T</h2>", None),
        ("<main id=x><h2>T</h2></main>", None),
        ("<body id=x><h2>T</h2>", None),
        ("<p id=x>text<h2>T</h2>", None),
        ("<nav><a id=x></a></nav><h2>T</h2>", None),
        ("<h2 id='a b&amp;c'>T</h2>", Some("a b&c")),
        ("<h2 id=gr&ouml;&#223;e>T</h2>", Some("größe")),
        ("<h2 id=''>T</h2>", None),
    ] {
        let page = extract(html);
        let section = page.sections.last().unwrap();
        assert_eq!((section.headings.last().unwrap().as_str(), section.anchor.as_deref()), ("T", expected), "{html}");
    }
}

#[test]
fn id_around_headings_belongs_to_the_first_of_them_only() {
    let page = extract("<section id=a><h2>One</h2>1<h2>Two</h2>2<section id=b><h3>Three</h3></section></section>");
    assert_eq!(describe(&page), ["One #a: 1", "Two #-: 2", "Two > Three #b: "]);
}

#[test]
fn heading_without_an_id_has_the_anchor_of_the_heading_above() {
    let page = extract("<h1>P</h1><h2 id=a>A</h2><h3>B</h3>b<h4>C</h4>c<h2>D</h2>d");
    assert_eq!(describe(&page), ["P #-: ", "P > A #a: ", "P > A > B #a: b", "P > A > B > C #a: c", "P > D #-: d"]);
}

#[test]
fn text_before_the_first_heading_is_a_section_of_the_page_itself() {
    let page = extract("<p>intro</p><h1 id=t>Title</h1><p>text</p>");
    assert_eq!(describe(&page), [" #-: intro", "Title #t: text"]);
    assert_eq!((page.sections[0].level, page.sections[1].level), (1, 1));
    assert!(extract("").sections.is_empty() && extract("<main>\n <p></p></main>").sections.is_empty());
}

#[test]
fn heading_is_one_line_without_the_sign_that_links_to_it() {
    for (html, expected) in [
        ("<h2>A\n  long <code>title</code></h2>", "A long title"),
        ("<h2>A<br>B<div>C</div></h2>", "A B C"),
        ("<h2>A<a href=#a>¶</a></h2>", "A"),
        ("<h2><a href=#a>§</a>A</h2>", "A"),
        ("<h2>A <a href=#a> # </a></h2>", "A"),
        ("<h2><a href=#a>A <code>?</code> B</a></h2>", "A ? B"),
        ("<h2>A <a href=#a>🔗\u{fe0f}</a></h2>", "A"),
        ("<h2>C<a href=/c>#</a></h2>", "C#"),
        ("<h2>A &amp;&nbsp;B&#8203;C &lt;T&gt;</h2>", "A & BC <T>"),
        ("<h2>A<h2>B</h2>", "B"),
        ("<h2>A<svg><title>x</title></svg></h2>", "A"),
    ] {
        assert_eq!(extract(html).sections.last().unwrap().headings, [expected], "{html}");
    }
}

#[test]
fn sign_that_links_to_a_place_in_the_text_is_not_text() {
    assert_eq!(text("<p>A<a href=#a>¶</a></p><p>B <a href=#b>#</a> C"), "A | B C");
    assert_eq!(text("<p>A <a href=#a>x</a> <a href=/b>#</a>"), "A x #");
    assert_eq!(text("<p><a href=#a>¶</a> B"), "B");
    assert_eq!(text("x<main><a href=#a>¶</a>B</main>"), "B");
    assert!(extract("<p><a href=#a>¶</a>").sections.is_empty());
}

#[test]
fn heading_without_text_starts_no_section() {
    let page = extract("<h1>A</h1>a<h2 id=x> <img src=y></h2>b<section id=s><h2></h2><h3>C</h3></section>");
    assert_eq!(describe(&page), ["A #-: a | b", "A > C #s: "]);
}

#[test]
fn header_in_the_main_content_is_left_out_except_its_h1() {
    for (html, expected) in [
        ("<main><header><p>x</p><h1 id=a>T</h1><h2>y</h2></header><p>b</p></main>", &["T #a: b"][..]),
        ("<article><header>x<h1>T<button>y</button></h1>z</header>b</article>", &["T #-: b"][..]),
        ("<header><h1>Site</h1></header><p>b</p>", &[" #-: b"][..]),
        ("<main><header aria-hidden=true><h1>x</h1></header>b</main>", &[" #-: b"][..]),
        ("<main><header><h1 aria-hidden=true>x</h1></header>b</main>", &[" #-: b"][..]),
        ("<main><header><nav><h1>x</h1></nav><h1>T</h1></header>b</main>", &["T #-: b"][..]),
        ("<main><header><div aria-hidden=true>x<h1>x</h1>x</div>x<p>x</header>b</main>", &[" #-: b"][..]),
    ] {
        assert_eq!(describe(&extract(html)), expected, "{html}");
    }
}

#[test]
fn definitions_with_an_id_are_sections() {
    let html = "<h1 id=m>mod</h1>a<dl><dt id=f>f(<em>x</em>)</dt><dd><p>does f</p></dd>\
                <dt id=g>g()<dd>does g<dl><dt id=g.h>h</dt><dd>does h</dd></dl>more g</dl>b<dl><dt>x<dd>y</dl>";
    let page = extract(html);
    assert_eq!(
        describe(&page),
        [
            "mod #m: a | b | x | y",
            "mod > f(x) #f: does f",
            "mod > g() #g: does g | more g",
            "mod > g() > h #g.h: does h",
        ]
    );
    let definitions: Vec<_> = page.sections.iter().map(|section| (section.is_definition, section.level)).collect();
    assert_eq!(definitions, [(false, 1), (true, 7), (true, 7), (true, 7)]);
}

#[test]
fn id_before_the_text_of_a_definition_is_its_anchor() {
    for (html, expected) in [
        ("<dl><dt><a id=a></a>t<dd>d</dl>", &["t #a: d"][..]),
        ("<dl><dt><span><code id=a>t</code></span><dd>d</dl>", &["t #a: d"][..]),
        ("<dl><dt>t<a id=a></a><dd>d</dl>", &[" #-: t | d"][..]),
        ("<dl><dt>t<dd><a id=a></a>d</dl>", &[" #-: t | d"][..]),
        ("<dl><dt><dd><a id=a></a>d</dl>", &[" #-: d"][..]),
    ] {
        assert_eq!(describe(&extract(html)), expected, "{html}");
    }
}

#[test]
fn text_after_a_list_at_the_start_of_the_root_belongs_to_no_definition() {
    let page = extract("<h1>x</h1>x<main><dl><dt id=a>t<dd>d</dl>after</main>");
    assert_eq!(describe(&page), ["t #a: d", " #-: after"]);
}

#[test]
fn headings_in_a_list_of_definitions_end_with_the_list() {
    let page = extract("<h2 id=a>A</h2><dl><dt>t<dd><h3 id=b>B</h3>b</dl>a");
    assert_eq!(describe(&page), ["A #a: t | a", "A > B #b: b"]);
}

#[test]
fn code_keeps_its_lines_and_is_marked() {
    assert_eq!(text("<pre>def f():\n    return <b>1</b>\n\n\nf()</pre>after"), "def f(): | return 1 | f() | after");
    assert_eq!(
        code(
            "use <code>lru_cache</code>, <kbd>Ctrl</kbd>-<kbd>K</kbd> or <samp>out</samp><pre><code>a\nb</code></pre>c"
        ),
        ["lru_cache", "Ctrl", "K", "out", "a\nb"]
    );
    assert_eq!(code("<code>a <b>b</b></code> <tt>c</tt> <code> </code><code>d</code>"), ["a b", "d"]);
    assert_eq!(code("<p><code>a<p>b"), ["a"]);
    assert_eq!(code("<code>a<h2>T</h2>b"), ["a", "b"]);
}

#[test]
fn character_references_are_decoded_in_text_but_not_in_raw_text() {
    assert_eq!(
        text("<p>&lt;div&gt; &amp;amp; caf&eacute; &#x1F600; &mdash; &notaname; &"),
        "<div> &amp; café 😀 — &notaname; &"
    );
    assert_eq!(text("<xmp>&lt;</xmp>"), "&lt;");
    assert_eq!(extract("<title>a &amp; b &lt;c></title>").title, "a & b <c>");
}

#[test]
fn invalid_utf_8_is_replaced_and_references_around_it_are_decoded() {
    let mut html = b"<p>a\xff".to_vec();
    // The parser decodes text that is not valid UTF-8 in pieces, of which some end within a reference.
    html.extend(b"&amp; ".repeat(1000));
    html.extend(b"</p>z");
    let page = extract_page(&html, &ExtractLimits::default()).unwrap();
    assert_eq!(page.sections[0].text, format!("a\u{fffd}{}\nz", "& ".repeat(1000).trim_end()));
}

#[test]
fn declared_encodings_are_decoded() {
    fn page(html: &[u8]) -> String {
        extract_page(html, &ExtractLimits::default()).unwrap().sections.remove(0).text
    }
    assert_eq!(page(b"<meta charset=iso-8859-1><p>gr\xf6\xdfe"), "größe");
    assert_eq!(page(b"<meta charset=utf-8><p>gr\xc3\xb6\xc3\x9fe"), "größe");
    assert_eq!(page(b"<meta charset=shift_jis><p>\x8c\x9f\x8d\xf5 <b>\x83\x5c</b>"), "検索 ソ");
    assert_eq!(page(b"\xef\xbb\xbf<meta charset=iso-8859-1><p>gr\xc3\xb6\xc3\x9fe"), "größe");
    let utf_16: Vec<u8> =
        [0xff, 0xfe].into_iter().chain("<p>größe".encode_utf16().flat_map(u16::to_le_bytes)).collect();
    assert_eq!(page(&utf_16), "größe");
}

#[test]
fn title_is_the_title_element_else_the_first_h1() {
    for (html, expected) in [
        ("<title> A\n title </title><h1>H</h1>", "A title"),
        ("<title>A<b>B</title>", "A<b>B"),
        ("<title></title><h1>H</h1><h1>I</h1>", "H"),
        ("<h2>G</h2><h1>H</h1>", "H"),
        ("<svg><title>x</title></svg><title>A</title>", "A"),
        ("<title>A</title><body><title>B</title>", "A"),
        ("<p>text</p>", ""),
        ("<header><h1>Site</h1></header><p>text</p>", ""),
    ] {
        assert_eq!(extract(html).title, expected, "{html}");
    }
}

#[test]
fn facts_about_the_page_are_read_in_any_place_that_is_not_left_out() {
    let page = extract(
        "<!doctype html><html lang=pt-BR><head><meta charset=utf-8><meta name=robots content=noindex>\
         <link rel=canonical href='/a?b&amp;c'><title>T</title></head><body><p>x",
    );
    assert_eq!((page.lang.as_deref(), page.canonical.as_deref()), (Some("pt-br"), Some("/a?b&c")));
    assert_eq!((page.exclusion, page.sections.len()), (Some(PageExclusion::NoIndex), 1));
    for html in [
        "<template><meta name=robots content=noindex></template>",
        "<noscript><meta http-equiv=refresh content='0;url=x'></noscript>",
        "<script>'<meta name=robots content=noindex>'</script>",
        "<!-- <meta name=robots content=noindex> -->",
    ] {
        assert_eq!(extract(html).exclusion, None, "{html}");
    }
    assert_eq!(extract("<meta http-equiv=refresh content='0; url=next.html'>").exclusion, Some(PageExclusion::Refresh));
}

#[test]
fn words_and_links_are_counted_for_the_text_that_is_indexed() {
    let page = extract(
        "<main><h1>Two words</h1><p>and <a href=x.html>a link</a> <a href=https://example.org>to</a> \
         <a href=#here>here</a> <a name=n>none</a> <a href=y.html><img></a></p><nav><a href=z>z</a></nav></main>",
    );
    assert_eq!((page.words, page.link_words, page.site_links), (8, 4, 1));
    let page = extract("<ul><li><a href=a>a</a><li><a href=b>b<li><a href=c>c</ul>d");
    assert_eq!((page.words, page.link_words, page.site_links), (4, 3, 3));
    let page = extract("<h2><a href=#t>All linked</a></h2>");
    assert_eq!((page.words, page.link_words, page.site_links), (2, 2, 0));
}
