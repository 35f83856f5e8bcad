//! HTML and the Markdown that is expected for it.

mod hidden;
mod hostile;

use super::*;

/// Renders the content of a body at `/docs/guide/page.html`.
fn render(body: &str) -> String {
    render_whole(body).text
}

fn render_whole(page: &str) -> PageMarkdown {
    let settings = MarkdownSettings { page_url: "guide/page.html", base_path: "/docs/" };
    render_page(page.as_bytes(), &settings).unwrap()
}

fn check(cases: &[(&str, &str)]) {
    for (html, expected) in cases {
        assert_eq!(render(html).trim_end_matches('\n'), *expected, "{html}");
    }
}

#[test]
fn headings_and_paragraphs() {
    check(&[
        ("<h1>Title</h1><p>One\n two.</p><p>Three.", "# Title\n\nOne two.\n\nThree."),
        ("<h6>Deep</h6>text<h7>x</h7>", "###### Deep\n\ntextx"),
        ("<h2><a href=#x>Linked</a> <code>code</code></h2>", "## [Linked](/docs/guide/page.html#x) `code`"),
        ("<h2>Title<a class=headerlink href=#t>¶</a></h2>", "## Title"),
        ("<h2><a href=#t>#</a> Title <a href=#t>§</a></h2>", "## Title"),
        ("<h2></h2><p></p>", ""),
        ("<h2><b>Bold</b> and <i>not</i></h2>", "## Bold and not"),
        ("<h2>A<br>B</h2>", "## A B"),
        ("<h2>C # #</h2>", "## C \\# \\#"),
        ("<p>a<br>b<br></p>", "a\\\nb"),
        ("a<hr>b", "a\n\n---\n\nb"),
        ("<div>a<div>b</div>c</div>", "a\n\nb\n\nc"),
    ]);
}

#[test]
fn emphasis_links_and_code() {
    check(&[
        ("<em>a</em> <b>b</b> <strong><i>c</i></strong> <del>d</del>", "*a* **b** ***c*** ~~d~~"),
        ("x<b> b </b>y", "x **b** y"),
        ("<b></b><b> </b>x<i></i>", "x"),
        ("<b>a</b><b>b</b> <b><strong>c</strong></b>", "**ab** **c**"),
        ("<b><p>a</p><p>b</p></b>", "**a**\n\n**b**"),
        ("<b>a<i>b</b>c</i>", "**a*b***c"),
        ("<code>a</code> <kbd>Ctrl</kbd> <tt>x</tt>", "`a` `Ctrl` `x`"),
        ("<code>a</code><code>b</code>", "`ab`"),
        ("<code>a `b` ``c</code>", "```a `b` ``c```"),
        ("<code>`a</code>", "`` `a ``"),
        ("<code>a\n <b>b</b></code>c", "`a b`c"),
        ("<code>a </code>b", "`a` b"),
        ("<b><code>a*</code></b>", "**`a*`**"),
        ("<a href=x.html>a</a>", "[a](/docs/guide/x.html)"),
        ("<a href=/y><code>a</code></a>", "[`a`](/y)"),
        ("<a href='https://e.org/a b'> t </a>.", "[t](https://e.org/a%20b) ."),
        ("<a href=x></a>b<a href=y> </a>", "b"),
        ("<a name=x>a</a>", "a"),
        ("<a href=x>a]b[c</a>", "[a\\]b\\[c](/docs/guide/x)"),
        ("<a href=x>a<a href=y>b</a>", "[a](/docs/guide/x)[b](/docs/guide/y)"),
        ("<a href=x><p>a</p><p>b</p></a>", "[a](/docs/guide/x)\n\n[b](/docs/guide/x)"),
        ("<img src=x alt='A *cat*'> <a href=x><img alt=logo></a>", "A \\*cat\\* [logo](/docs/guide/x)"),
        ("text <a href=#x>¶</a> more", "text more"),
    ]);
}

#[test]
fn lists() {
    check(&[
        ("<ul><li>a<li>b</ul>c", "- a\n- b\n\nc"),
        ("<ol start=9><li>a<li>b</ol>", "9. a\n10. b"),
        ("<ul><li>a<ul><li>b<li>c</ul><li>d</ul>", "- a\n  - b\n  - c\n- d"),
        ("<ol><li><p>a</p><p>b</p><li>c</ol>", "1. a\n\n   b\n2. c"),
        ("<ul><li><pre>x\n\ny</pre></ul>", "- ```\n  x\n\n  y\n  ```"),
        ("<ul><li></li><li>a</ul>", "- a"),
        ("<ul><li>a<ol start=3><li>b</ol></ul>", "- a\n\n  3. b"),
        ("<p>x<ul><li><ul><li>a</ul></ul>", "x\n\n- - a"),
        ("<li>a", "- a"),
        ("<blockquote><p>a<p>b<ul><li>c</ul></blockquote>d", "> a\n>\n> b\n>\n> - c\n\nd"),
        ("<blockquote>a</blockquote><blockquote>b</blockquote>", "> a\n\n> b"),
        ("<ol start=99999999999><li>a</ol>", "1. a"),
        ("<ol start=-1><li>a</ol>", "1. a"),
    ]);
}

#[test]
fn definitions_are_items_with_a_term_in_bold() {
    check(&[
        ("<dl><dt>a<dd>b<dt>c<dt>d<dd><p>e<p>f</dl>g", "- **a**\n\n  b\n\n- **c**\n- **d**\n\n  e\n\n  f\n\ng"),
        ("<dl><dt><code>a()</code><dd><dl><dt>b<dd>c</dl></dl>", "- **`a()`**\n  - **b**\n\n    c"),
        ("<dl><dd>a</dl>", "a"),
        ("<dt>a</dt>", "**a**"),
    ]);
}

#[test]
fn tables() {
    check(&[
        (
            "<table><thead><tr><th>A<th>B</thead><tbody><tr><td>1 | 2<td><code>a|b</code></table>",
            "| A | B |\n| --- | --- |\n| 1 \\| 2 | `a\\|b` |",
        ),
        ("<table><tr><td>1<td>2<tr><td>3</table>", "| | |\n| --- | --- |\n| 1 | 2 |\n| 3 |"),
        ("<table><tr><th>A<tr><td><p>a</p><p>b</p><ul><li>c</ul></table>", "| A |\n| --- |\n| a b c |"),
        ("<table><caption>Cap</caption><tr><th>A<tr><td>b<br>c</table>d", "Cap\n\n| A |\n| --- |\n| b c |\n\nd"),
        ("<table><tr><th>A<tr><td><table><tr><td>x<td>y</table>z</table>", "| A |\n| --- |\n| x y z |"),
        ("<table><tr><th>A<tr><td><pre>x\ny</pre></table>", "| A |\n| --- |\n| `x y` |"),
        ("<table></table><table><tr><td></table>", ""),
        ("<table role=presentation><tr><td>a<td><p>b</table>", "a\n\nb"),
        ("<ul><li>x<table><tr><th>A<tr><td>b</table></ul>", "- x\n\n  | A |\n  | --- |\n  | b |"),
        ("<table><tr><th>A<tr><td><h2>b</h2><a href=x>c</a></table>", "| A |\n| --- |\n| b [c](/docs/guide/x) |"),
    ]);
}

#[test]
fn code_blocks_have_the_language_that_the_generator_names() {
    check(&[
        ("<pre>\n a\n\tb  \n</pre>", "```\n a\n\tb\n```"),
        ("<pre><code class=language-rust>a</code></pre>", "```rust\na\n```"),
        (
            "<pre class='shiki' data-language=js><code><span class=line>a</span>\n<span>b</span></code></pre>",
            "```js\na\nb\n```",
        ),
        (
            "<div class='language-rb highlighter-rouge'><div class=highlight><pre class=highlight><code>a</code></pre></div></div>",
            "```rb\na\n```",
        ),
        (
            "<div class='highlight-python3 notranslate'><div class=highlight><pre><span></span>a</pre></div></div>",
            "```python3\na\n```",
        ),
        (
            "<div class='highlight-default notranslate'><div class=highlight><pre>a</pre></div></div><pre>b</pre>",
            "```\na\n```\n\n```\nb\n```",
        ),
        ("<div class='highlight highlight-source-shell'><pre>a</pre></div>", "```shell\na\n```"),
        ("<pre class='rust item'><code>fn <a href=x>a</a>()</code></pre>", "```rust\nfn a()\n```"),
        ("<pre class='sourceCode python'><code>a</code></pre>", "```python\na\n```"),
        ("<pre><code class='hljs bash'>a</code></pre>", "```bash\na\n```"),
        ("<pre><code><span>a<br></span><span>b<br></span></code></pre>", "```\na\nb\n```"),
        ("<pre><code><div>a</div><div>b</div></code></pre>", "```\na\nb\n```"),
        ("<pre>```\nx\n`````</pre>", "``````\n```\nx\n`````\n``````"),
        ("<pre>* _a_ &lt;b&gt; <b>c</b></pre>", "```\n* _a_ <b> c\n```"),
        (
            "<table class=highlighttable><tr><td class=linenos><pre>1\n2</pre><td class=code><div><pre>a\nb</pre></div></table>",
            "```\na\nb\n```",
        ),
        ("<pre><span class=linenos>1 </span>a</pre>", "```\na\n```"),
        ("<pre> \n </pre>", ""),
        ("<pre><code class='language-&quot;x y'>a</code></pre>", "```\na\n```"),
    ]);
}

#[test]
fn markdown_characters_in_text_are_escaped() {
    check(&[
        ("*a* _b_ snake_case __init__", "\\*a\\* \\_b\\_ snake_case \\_\\_init\\_\\_"),
        ("`a` ~b~ [c](d) ![e](f)", "\\`a\\` \\~b\\~ \\[c](d) !\\[e](f)"),
        ("!<a href=x>y</a>", "\\![y](/docs/guide/x)"),
        ("&lt;script&gt; &lt;!-- a < b", "\\<script> \\<!-- a \\< b"),
        ("&amp;lt; &amp;#60; AT&amp;T R&amp;D; &amp;", "\\&lt; \\&#60; AT&T R\\&D; \\&"),
        ("C:\\Users \\* \\", "C:\\Users \\\\\\* \\\\"),
        ("# a<p>#a<p>#", "\\# a\n\n#a\n\n\\#"),
        ("- a<p>-a<p>+ a<p>---<p>=== a", "\\- a\n\n-a\n\n\\+ a\n\n\\---\n\n\\=== a"),
        ("> a<p>| a |<p>:-- | --", "\\> a\n\n\\| a |\n\n\\:-- | --"),
        ("1. a<p>1) a<p>1.5 a<p>1234567890. a<p>x1. a", "1\\. a\n\n1\\) a\n\n1.5 a\n\n1234567890. a\n\nx1. a"),
        ("<b>1</b>. a", "**1**. a"),
        ("a<br># b<br>1. c", "a\\\n\\# b\\\n1\\. c"),
        ("https://e.org/a_b_c", "https://e.org/a_b_c"),
        (
            "<p>Stop. [Click](https://evil.example/)\u{e0041} ![x](https://evil.example/x.png)\u{200b}\u{202e}</p>",
            "Stop. \\[Click](https://evil.example/) !\\[x](https://evil.example/x.png)",
        ),
    ]);
}

#[test]
fn main_content_is_that_of_the_index() {
    check(&[
        ("<nav>n</nav><p>a</p><main><h1>T</h1>m<aside>x</aside></main><footer>f</footer>z", "# T\n\nm"),
        ("<ul><li>n</ul><main><ul><li>m</ul></main>", "- m"),
        ("<ul><li><main><p>m</main></ul>", "m"),
        ("<table><tr><td>n<td><main><p>m<table><tr><th>A</table></main></table>", "m\n\n| A |\n| --- |"),
        ("<article><header>by x<h1>T</h1></header>a</article>", "# T\n\na"),
        ("<main></main><p>a</p>", "a"),
        ("<blockquote><main></main>a</blockquote>", "> a"),
        ("<p>a</p><div data-pagefind-body>b<p data-pagefind-ignore>c</div>", "b"),
        ("<p>a<script>b</script><style>c</style><svg><text>d</text></svg></p>", "a"),
        ("<form>a</form><button>b</button>c", "c"),
    ]);
}

#[test]
fn facts_of_the_page_are_read() {
    let page = render_whole(
        "<html lang=de-AT><title> A  title </title><meta name=Description content=' about\n&amp; more '>\
         <meta name=description content=second><base href=/docs/other/><meta name=robots content=noindex>\
         <main><h1 id=top>Head</h1><a href=x>y</a></main>",
    );
    assert_eq!((page.title.as_str(), page.description.as_deref()), ("A title", Some("about & more")));
    assert_eq!((page.lang.as_deref(), page.exclusion), (Some("de-at"), Some(PageExclusion::NoIndex)));
    assert_eq!((page.text.as_str(), page.is_cut), ("# Head\n\n[y](/docs/other/x)\n", false));
    assert_eq!(render_whole("<h2>b</h2><h1>a <i>c</i></h1>").title, "a c");
}

#[test]
fn sections_reach_to_the_next_heading_of_the_level_and_blocks_are_where_the_text_can_be_divided() {
    let page = render_whole(
        "<h1>T</h1><p>0<section id=a><h2>A</h2><p>1<h3 id=b>B</h3><p>2</section><h2><a name=c></a>C</h2>\
         <dl><dt id=f>f()<dd>3<dt id=g>g()<dt id=h>h()<dd>4</dl><p>5",
    );
    let sections: Vec<(&str, &str, &str)> = page
        .sections
        .iter()
        .map(|section| {
            let text = page.text[section.start as usize..section.end as usize].trim_end();
            (section.anchor.as_str(), section.heading.as_str(), text)
        })
        .collect();
    let term_g = "- **g()**\n- **h()**\n\n  4";
    assert_eq!(
        sections,
        [
            ("", "T", page.text.trim_end()),
            ("a", "A", "## A\n\n1\n\n### B\n\n2"),
            ("b", "B", "### B\n\n2"),
            ("c", "C", "## C\n\n- **f()**\n\n  3\n\n- **g()**\n- **h()**\n\n  4\n\n5"),
            ("f", "f()", "- **f()**\n\n  3"),
            ("g", "g()", term_g),
            ("h", "h()", "- **h()**\n\n  4"),
        ]
    );
    assert_eq!(page.find_section("b").unwrap().heading, "B");
    assert!(page.find_section("").is_none() && page.find_section("x").is_none());
    let blocks: Vec<&str> =
        page.block_starts.iter().map(|&start| page.text[start as usize..].lines().next().unwrap()).collect();
    assert_eq!(
        blocks,
        ["# T", "0", "## A", "1", "### B", "2", "## C", "- **f()**", "  3", "- **g()**", "- **h()**", "  4", "5"]
    );
}
