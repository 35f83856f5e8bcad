//! Pages as documentation generators write them, shortened.

use super::{describe, extract};

#[test]
fn sphinx_page() {
    let page = extract(
        r##"<!DOCTYPE html>
<html lang="en" data-content_root="../">
  <head><meta charset="utf-8" /><title>os &#8212; Miscellaneous interfaces &#8212; Python 3.11 documentation</title>
    <link rel="canonical" href="https://docs.python.org/3/library/os.html" /><script>var x = "<h1>no</h1>";</script></head>
  <body>
<div class="mobile-nav"><nav role="navigation"><h1>Navigation</h1></nav></div>
    <div class="related" role="navigation" aria-label="related navigation"><h3>Navigation</h3>
      <ul><li class="right"><a href="../genindex.html">index</a></li></ul></div>
    <div class="document"><div class="documentwrapper"><div class="bodywrapper">
          <div class="body" role="main">
  <section id="module-os">
<span id="os-miscellaneous"></span><h1><code class="xref py py-mod docutils literal notranslate"><span class="pre">os</span></code> — Miscellaneous interfaces<a class="headerlink" href="#module-os" title="Link">¶</a></h1>
<p><strong>Source code:</strong> <a class="reference external" href="https://github.com/x">Lib/os.py</a></p>
<section id="file-names">
<h2>File Names<a class="headerlink" href="#file-names" title="Link">¶</a></h2>
<p>In Python, names use the <code class="docutils literal"><span class="pre">str</span></code> type.</p>
<dl class="py function">
<dt class="sig sig-object py" id="os.ctermid">
<span class="sig-prename descclassname"><span class="pre">os.</span></span><span class="sig-name descname"><span class="pre">ctermid</span></span><span class="sig-paren">(</span><span class="sig-paren">)</span><a class="headerlink" href="#os.ctermid" title="Link">¶</a></dt>
<dd><p>Return the filename of the terminal.</p>
<div class="availability"><p><a class="reference internal" href="intro.html"><span>Availability</span></a>: Unix.</p></div>
</dd></dl>
<p>After the function.</p>
</section></section>
            <div class="clearer"></div></div></div></div>
      <div class="sphinxsidebar" role="navigation"><h4>Previous topic</h4></div></div>
    <div class="footer">&copy; 2001</div>
  </body></html>"##,
    );
    assert_eq!(
        describe(&page),
        [
            "os — Miscellaneous interfaces #module-os: Source code: Lib/os.py",
            "os — Miscellaneous interfaces > File Names #file-names: In Python, names use the str type. | After the function.",
            "os — Miscellaneous interfaces > File Names > os.ctermid() #os.ctermid: Return the filename of the terminal. | Availability: Unix.",
        ]
    );
    assert_eq!(page.title, "os — Miscellaneous interfaces — Python 3.11 documentation");
    assert_eq!(page.canonical.as_deref(), Some("https://docs.python.org/3/library/os.html"));
}

#[test]
fn old_sphinx_page_with_div_sections() {
    let page = extract(
        r##"<div class="related"><h3>Navigation</h3></div><div class="body" role="main">
<div class="section" id="guide"><span id="x"></span><h1>Guide<a class="headerlink" href="#guide">¶</a></h1>
<div class="section" id="first-steps"><h2>First steps<a class="headerlink" href="#first-steps">¶</a></h2><p>Go.</p>
<div class="highlight-python notranslate"><div class="highlight"><pre><span></span><span class="kn">import</span> <span class="nn">os</span>
<span class="n">os</span><span class="o">.</span><span class="n">getpid</span><span class="p">()</span>
</pre></div></div></div></div></div>"##,
    );
    assert_eq!(describe(&page), ["Guide #guide: ", "Guide > First steps #first-steps: Go. | import os | os.getpid()"]);
    let section = &page.sections[1];
    assert_eq!(section.code_spans, [(4, section.text.len() as u32)]);
}

#[test]
fn docbook_page() {
    let page = extract(
        r##"<?xml version="1.0" encoding="UTF-8" standalone="no"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN" "http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">
<html xmlns="http://www.w3.org/1999/xhtml"><head><title>20.4. Resource Consumption</title></head><body id="docContent" class="container-fluid col-10">
<div class="navheader"><table width="100%"><tr><th colspan="5" align="center">20.4. Resource Consumption</th></tr></table><hr /></div>
<div class="sect1" id="RUNTIME-CONFIG-RESOURCE"><div class="titlepage"><div><div><h2 class="title" style="clear: both">20.4. Resource Consumption <a href="#RUNTIME-CONFIG-RESOURCE" class="id_link">#</a></h2></div></div></div>
<div class="sect2" id="RUNTIME-CONFIG-RESOURCE-MEMORY"><div class="titlepage"><div><div><h3 class="title">20.4.1. Memory</h3></div></div></div>
<div class="variablelist"><dl class="variablelist">
<dt id="GUC-SHARED-BUFFERS"><span class="term"><code class="varname">shared_buffers</code> (<code class="type">integer</code>)
<a id="id-1.6.7.7.3.2.1.1.3" class="indexterm"></a></span></dt>
<dd><p>Sets the amount of memory.</p></dd>
<dt><a id="GUC-HUGE-PAGES"></a><span class="term"><code class="varname">huge_pages</code></span></dt><dd><p>Controls huge pages.</p></dd>
</dl></div></div></div>
<div class="navfooter"><hr /><table width="100%"><tr><td>Prev</td></tr></table></div></body></html>"##,
    );
    assert_eq!(
        describe(&page),
        [
            "20.4. Resource Consumption #RUNTIME-CONFIG-RESOURCE: ",
            "20.4. Resource Consumption > 20.4.1. Memory #RUNTIME-CONFIG-RESOURCE-MEMORY: ",
            "20.4. Resource Consumption > 20.4.1. Memory > shared_buffers (integer) #GUC-SHARED-BUFFERS: Sets the amount of memory.",
            "20.4. Resource Consumption > 20.4.1. Memory > huge_pages #GUC-HUGE-PAGES: Controls huge pages.",
        ]
    );
}

#[test]
fn docbook_reference_page() {
    let page = extract(
        r#"<body><div class="refentry" id="SQL-VACUUM"><a id="id-1.9.3.184" class="indexterm"></a><div class="titlepage"></div>
<div class="refnamediv"><h2><span class="refentrytitle">VACUUM</span></h2><p>VACUUM — garbage-collect a database</p></div>
<div class="refsynopsisdiv"><h2>Synopsis</h2><pre class="synopsis">
VACUUM [ ( <em class="replaceable"><code>option</code></em> [, ...] ) ]
</pre></div><div class="refsect1" id="id-1.9.3.184.5"><h2>Description</h2><p>Reclaims storage.</p></div></div>"#,
    );
    assert_eq!(
        describe(&page),
        [
            "VACUUM #SQL-VACUUM: VACUUM — garbage-collect a database",
            "Synopsis #-: VACUUM [ ( option [, ...] ) ]",
            "Description #id-1.9.3.184.5: Reclaims storage.",
        ]
    );
}

#[test]
fn mdbook_page() {
    let page = extract(
        r##"<!DOCTYPE HTML><html lang="en" class="light sidebar-visible" dir="ltr"><head><title>Recoverable Errors - The Rust Book</title></head><body>
<div id="body-container"><script>try {} catch (e) { }</script><input type="checkbox" id="sidebar-toggle-anchor" class="hidden">
<nav id="sidebar" class="sidebar" aria-label="Table of contents"><ol class="chapter"><li><a href="ch01.html">Getting Started</a></ol></nav>
<div id="page-wrapper" class="page-wrapper"><div class="page">
<div id="menu-bar" class="menu-bar"><h1 class="menu-title">The Rust Book</h1></div>
<div id="search-wrapper" class="hidden"><form id="searchbar-outer"><input type="search"></form></div>
<div id="content" class="content"><main>
<h2 id="recoverable-errors-with-result"><a class="header" href="#recoverable-errors-with-result">Recoverable Errors with <code>Result</code></a></h2>
<p>Most errors aren’t serious.</p>
<pre><pre class="playground"><code class="language-rust"><span class="boring">#![allow(unused)]
</span><span class="boring">fn main() {
</span>enum Result&lt;T, E&gt; {}
<span class="boring">}</span></code></pre></pre>
<h3 id="the-operator"><a class="header" href="#the-operator">The <code>?</code> Operator</a></h3>
<p>See <a href="ch06.html">Chapter 6</a>.</p>
</main><nav class="nav-wrapper"><a rel="next" href="ch09-03.html">x</a></nav></div></div></div></div></body></html>"##,
    );
    assert_eq!(
        describe(&page),
        [
            "Recoverable Errors with Result #recoverable-errors-with-result: Most errors aren’t serious. | #![allow(unused)] | fn main() { | enum Result<T, E> {} | }",
            "Recoverable Errors with Result > The ? Operator #the-operator: See Chapter 6.",
        ]
    );
    assert_eq!((page.site_links, page.title.as_str()), (1, "Recoverable Errors - The Rust Book"));
}

#[test]
fn mintlify_page() {
    let page = extract(
        r##"<!DOCTYPE html><html lang="en" class="dark"><head><title>Quickstart - Docs</title></head><body>
<div id="navbar"><button id="search-bar-entry">Search...</button><nav><ul><li>Home</li></ul></nav></div>
<div id="sidebar">Get started</div>
<main><div id="content-area"><header id="header" class="relative"><div class="eyebrow">Get started</div>
<div><h1 id="page-title" class="inline-block">Quickstart</h1></div><div><p>Deploy your docs.</p></div></header>
<div class="mdx-content" id="content">
<h2 class="flex whitespace-pre-wrap group" id="install-the-cli"><div class="absolute" tabindex="-1"><a href="#install-the-cli" class="-ml-10" aria-label="Navigate to header">&#8203;<div class="w-6"><svg viewBox="0 0 576 512"><path d="M0 256C0"/></svg></div></a></div><span class="cursor-pointer">Install the CLI</span></h2>
<span data-as="p">Run this command:</span>
<div class="code-block"><div data-floating-buttons="true"><button aria-label="Copy"><svg><path d="M1"/></svg></button></div><pre class="shiki"><code language="bash"><span class="line"><span style="color:#fff">npm i -g mint</span></span>
</code></pre></div>
</div><div id="pagination"><footer>Powered by x</footer></div></div></main>
<script>self.__next_f.push([1,"<h2>no</h2>"])</script></body></html>"##,
    );
    assert_eq!(
        describe(&page),
        [
            "Quickstart #page-title: ",
            "Quickstart > Install the CLI #install-the-cli: Run this command: | npm i -g mint",
        ]
    );
}

#[test]
fn rustdoc_page() {
    let page = extract(
        r##"<!DOCTYPE html><html lang="en"><head><title>Vec in std::vec - Rust</title></head><body class="rustdoc struct">
<nav class="sidebar"><h2 class="location"><a href="#">Vec</a></h2></nav><div class="sidebar-resizer"></div>
<main><div class="width-limiter"><rustdoc-search></rustdoc-search><section id="main-content" class="content">
<div class="main-heading"><span class="rustdoc-breadcrumbs"><a href="../index.html">std</a>::<wbr><a href="index.html">vec</a></span>
<h1>Struct <span class="struct">Vec</span><button id="copy-path" title="Copy item path">Copy item path</button></h1></div>
<pre class="rust item-decl"><code>pub struct Vec&lt;T, A = <a class="struct" href="Global.html">Global</a>&gt;</code></pre>
<details class="toggle top-doc" open><summary class="hideme"><span>Expand description</span></summary><div class="docblock"><p>A contiguous growable array type.</p>
<h2 id="examples"><a class="doc-anchor" href="#examples">§</a>Examples</h2>
<p>Use <code>vec!</code>.</p></div></details>
<h2 id="implementations" class="section-header">Implementations<a href="#implementations" class="anchor">§</a></h2>
<div id="implementations-list"><details class="toggle implementors-toggle" open><summary><section id="impl-Vec%3CT%3E" class="impl"><a class="src rightside" href="../src/vec.rs.html#1">Source</a><a href="#impl-Vec%3CT%3E" class="anchor">§</a><h3 class="code-header">impl&lt;T&gt; <a class="struct" href="struct.Vec.html">Vec</a>&lt;T&gt;</h3></section></summary>
<div class="impl-items"><details class="toggle method-toggle" open><summary><section id="method.new" class="method"><h4 class="code-header">pub const fn <a href="#method.new" class="fn">new</a>() -&gt; Vec&lt;T&gt;</h4></section></summary>
<div class="docblock"><p>Constructs a new, empty vector.</p></div></details></div></details></div>
</section></div></main></body></html>"##,
    );
    assert_eq!(
        describe(&page),
        [
            " #-: std::vec",
            "Struct Vec #main-content: pub struct Vec<T, A = Global> | Expand description | A contiguous growable array type.",
            "Struct Vec > Examples #examples: Use vec!.",
            "Struct Vec > Implementations #implementations: Source",
            "Struct Vec > Implementations > impl<T> Vec<T> #impl-Vec%3CT%3E: ",
            "Struct Vec > Implementations > impl<T> Vec<T> > pub const fn new() -> Vec<T> #method.new: Constructs a new, empty vector.",
        ]
    );
}

#[test]
fn page_of_the_nineties() {
    let page = extract(
        "<HTML><HEAD><TITLE>Manual</TITLE><BODY BGCOLOR=white><A NAME=top></A><H1>Manual</H1>
<P>First<P>Second<UL><LI>One<LI>Two</UL><A NAME=\"part\"><H2>Part</H2></A>
<DL><DT>term<DD>meaning<DT><A NAME=opt>--opt</A><DD>option</DL><TABLE><TR><TD>a<TD>b<TR><TD>c</TABLE>End",
    );
    assert_eq!(
        describe(&page),
        [
            "Manual #top: First | Second | One | Two",
            "Manual > Part #part: term | meaning | a | b | c | End",
            "Manual > Part > --opt #opt: option",
        ]
    );
}
