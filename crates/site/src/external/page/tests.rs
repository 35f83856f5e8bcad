use super::*;

fn read_facts(html: &str, piece: usize) -> Vec<String> {
    let mut facts = Vec::new();
    let mut feed = |sink: &mut dyn FnMut(&[u8]) -> bool| {
        let _ = html.as_bytes().chunks(piece).all(sink);
    };
    read_page(&mut feed, &mut |fact| {
        facts.push(match fact {
            ContentFact::Address(kind, text) => format!("{} {text}", kind.name()),
            ContentFact::MentionedAddress(text) => format!("? {text}"),
            ContentFact::InlineScript(digest) => format!("script {}", &digest.to_hex()[..8]),
            ContentFact::EventHandler(digest) => format!("handler {}", &digest.to_hex()[..8]),
            ContentFact::InlineStyle(digest) => format!("style {}", &digest.to_hex()[..8]),
            ContentFact::StyleAttribute(digest) => format!("style= {}", &digest.to_hex()[..8]),
            other => format!("{other:?}"),
        });
    });
    facts
}

fn short_digest(text: &str) -> String {
    Digest::compute(text.as_bytes()).to_hex()[..8].to_owned()
}

#[test]
fn page_addresses_are_classified_by_the_resource_that_browsers_load() {
    let html = r#"<!doctype html><base href="https://b.example/"><link rel="preload STYLESHEET" href=a.css>
            <link rel="preload" as=font href=f.woff2><link rel=preconnect href="//c.example"><link rel=canonical href=no>
            <link rel="shortcut icon" href=i.ico><link rel=manifest href=m.json><script src=s.js></script>
            <script type="application/ld+json">{"no": "https://no.example/"}</script>
            <img src=i.png srcset="i1.png, i2.png 2x"><picture><source srcset=p.webp></picture>
            <video poster=v.png><source src=v.mp4></video><iframe src=fr.html></iframe><object data=o.svg></object>
            <form action="https://form.example/"><a href="https://no.example/">x</a><a href="javascript:void(0)">y</a>
            <noscript><img src="n.png"></noscript><svg><image href="s.png"/></svg>
            <meta http-equiv=refresh content="5; url=https://next.example/"><a href="javascript:go()">z</a>"#;
    let expected = [
        "base https://b.example/",
        "style a.css",
        "font f.woff2",
        "hint //c.example",
        "image i.ico",
        "manifest m.json",
        "ScriptFile",
        "script s.js",
        "image i.png",
        "image i1.png",
        "image i2.png",
        "image p.webp",
        "image v.png",
        "media v.mp4",
        "frame fr.html",
        "object o.svg",
        "form https://form.example/",
        "image n.png",
        "image s.png",
        "refresh https://next.example/",
        "JavaScriptAddress",
    ];
    assert_eq!(read_facts(html, 7), expected);
    assert_eq!(read_facts(html, 1 << 20), expected);
}

#[test]
fn inline_code_of_a_page_is_hashed_as_browsers_hash_it() {
    let html = "<script>a\r\n<!-- <script> b</script> -->\rc\0</script><script type=module>é</script><script></script>\
            <style>p{}\r\n</style><p style=\"a:&quot;b&quot;\r\n\" ONCLICK='go(1 && 2)'>x</p><script type=text/plain>no</script>";
    for piece in [1, 3, 1 << 20] {
        assert_eq!(
            read_facts(html, piece),
            [
                format!("script {}", short_digest("a\n<!-- <script> b</script> -->\nc\u{fffd}")),
                format!("script {}", short_digest("é")),
                format!("style {}", short_digest("p{}\n")),
                format!("style= {}", short_digest("a:\"b\"\n")),
                format!("handler {}", short_digest("go(1 && 2)")),
            ],
            "{piece}"
        );
    }
}

#[test]
fn srcdoc_pages_are_read_and_scripts_with_uncertain_text_are_reported() {
    let html = "<iframe srcdoc=\"<script>in()</script>&lt;img src='https://i.example/'>\"></iframe>";
    let script = format!("script {}", short_digest("in()"));
    assert_eq!(read_facts(html, 99), ["NestedPageStart", &script, "image https://i.example/", "NestedPageEnd"]);
    for html in [
        "<p onclick='a(&notin;)'>",
        "<svg><script>a &amp; b</script></svg>",
        "<svg><script><![CDATA[a]]></script></svg>",
    ] {
        assert_eq!(read_facts(html, 99), ["UncertainScript"], "{html}");
    }
    assert_eq!(read_facts("\u{feff}<script>a</script>", 99), [format!("script {}", short_digest("a"))]);
    let mut deep = "<script>x</script>".to_owned();
    for _ in 0..10 {
        deep = format!("<iframe srcdoc=\"{}\"></iframe>", deep.replace('&', "&amp;").replace('"', "&quot;"));
    }
    assert_eq!(
        read_facts(&deep, 1 << 20),
        [
            "NestedPageStart",
            "NestedPageStart",
            "NestedPageStart",
            "UncertainScript",
            "NestedPageEnd",
            "NestedPageEnd",
            "NestedPageEnd"
        ]
    );
}

#[test]
fn only_inline_code_that_is_split_by_child_nodes_is_reported_as_uncertain() {
    let style = "<svg><style>a<![CDATA[b]]></style></svg><script>c</script>";
    assert_eq!(
        read_facts(style, 99),
        [format!("style {}", short_digest("a")), "UncertainStyle".to_owned(), format!("script {}", short_digest("c"))]
    );
    for html in ["<svg><script>a<!-- x -->b</script></svg>", "<svg><script>a<b/>c</script></svg>"] {
        assert_eq!(
            read_facts(html, 99),
            [format!("script {}", short_digest("a")), "UncertainScript".to_owned()],
            "{html}"
        );
    }
    assert_eq!(read_facts("<svg><script href=x.js>a<!-- x -->b</script>c</svg>", 99), ["ScriptFile", "script x.js"]);
}

#[test]
fn hostile_page_is_reported_as_uncertain_within_bounded_memory() {
    let html = "<div><p>".repeat(2_000_000);
    assert_eq!(read_facts(&html, 65536), ["UncertainScript"]);
    let html = format!("<script>{}</script>", "x".repeat(64 << 20));
    assert_eq!(read_facts(&html, 65536).len(), 1);
}

#[test]
fn long_inline_script_or_style_is_hashed_completely() {
    let text = "x".repeat(2 * MAX_INLINE_TEXT_BYTES);
    for element in ["script", "style"] {
        let html = format!("<{element}>{text}</{element}>");
        assert_eq!(read_facts(&html, 65536), [format!("{element} {}", short_digest(&text))]);
    }
}

#[test]
fn each_attribute_with_an_address_is_reported_with_its_resource_kind() {
    for (html, expected) in [
        ("<img src=a>", &["image a"][..]),
        ("<img srcset='a 1x, b' src=' '>", &["image a", "image b"]),
        ("<video src=a poster=b>", &["media a", "image b"]),
        ("<audio src=a><source src=b><track src=c></audio>", &["media a", "media b", "media c"]),
        ("<video></video><picture><source src=a srcset=b></picture>", &["image a", "image b"]),
        ("<frame src=a>", &["frame a"]),
        ("<iframe src=a></iframe>", &["frame a"]),
        ("<embed src=a>", &["object a"]),
        ("<object data=a></object>", &["object a"]),
        ("<form action=a></form>", &["form a"]),
        ("<button formaction=a></button>", &["form a"]),
        ("<input formaction=a src=b>", &["form a", "image b"]),
        ("<body background=a>", &["image a"]),
        ("<table background=a>", &["image a"]),
        ("<table><td background=a><th background=b>", &["image a", "image b"]),
        ("<svg><image href=a xlink:href=b /><use href=c /></svg>", &["image a", "image b", "image c"]),
        ("<svg><feImage href=a /></svg>", &["image a"]),
        ("<base href=a>", &["base a"]),
        ("<meta http-equiv=REFRESH content='1;url=a'>", &["refresh a"]),
        ("<meta name=refresh content='1;url=a'>", &[]),
        ("<meta http-equiv=refresh content=1>", &[]),
        ("<a href=https://x.example/ ping='a  b'>x</a>", &["connect a", "connect b"]),
        ("<a href='javascript:void(0)'>x</a>", &[]),
        ("<area href='javascript:go()'>", &["JavaScriptAddress"]),
        ("<svg><a xlink:href='javascript:go()'>x</a></svg>", &["JavaScriptAddress"]),
        ("<iframe src='javascript:go()'></iframe>", &["JavaScriptAddress"]),
        ("<form action='javascript:;'></form>", &[]),
        ("<p src=a href=b data=c>", &[]),
        ("<a href='java&#115;cript:go()'>x</a>", &["JavaScriptAddress"]),
    ] {
        assert_eq!(read_facts(html, 99), expected, "{html}");
    }
}

#[test]
fn link_element_kind_is_decided_by_its_rel_and_as_attributes() {
    for (rel, destination, expected) in [
        ("stylesheet", "", "style a"),
        ("alternate STYLESHEET", "", "style a"),
        ("modulepreload", "", "script a"),
        ("preload", "script", "script a"),
        ("preload", "Style", "style a"),
        ("preload", "font", "font a"),
        ("preload", "image", "image aimage b"),
        ("preload", "audio", "media a"),
        ("preload", "video", "media a"),
        ("preload", "track", "media a"),
        ("preload", "document", "frame a"),
        ("preload", "embed", "frame a"),
        ("preload", "object", "frame a"),
        ("preload", "worker", "worker a"),
        ("preload", "fetch", "connect a"),
        ("preload", "", "connect a"),
        ("icon", "", "image aimage b"),
        ("apple-touch-icon", "", "image aimage b"),
        ("apple-touch-icon-precomposed", "", "image aimage b"),
        ("mask-icon", "", "image aimage b"),
        ("manifest", "", "manifest a"),
        ("preconnect", "", "hint a"),
        ("dns-prefetch", "", "hint a"),
        ("prefetch", "", "hint a"),
        ("prerender", "", "hint a"),
        ("prefetch stylesheet", "", "style a"),
        ("canonical", "", ""),
        ("alternate", "style", ""),
        ("stylesheets", "", ""),
        ("", "", ""),
    ] {
        let html = format!("<link rel='{rel}' as='{destination}' href=a imagesrcset='b 2x'>");
        assert_eq!(read_facts(&html, 99).concat(), expected, "{html}");
    }
    assert_eq!(read_facts("<link href=a>", 99), [""; 0]);
}

#[test]
fn script_element_is_reported_as_inline_script_or_script_file_by_type_and_src() {
    let script_digest = format!("script {}", short_digest("x"));
    for (html, expected) in [
        ("<script>x</script>", &[&*script_digest][..]),
        ("<script type=''>x</script>", &[&*script_digest]),
        ("<script type=' Text/JavaScript '>x</script>", &[&*script_digest]),
        ("<script type=module>x</script>", &[&*script_digest]),
        ("<script type=application/json>x</script>", &[]),
        ("<script type='text/javascript;charset=utf-8'>x</script>", &[]),
        ("<script type=text/plain language=javascript>x</script>", &[]),
        ("<script language=JavaScript1.2>x</script>", &[&*script_digest]),
        ("<script language=vbscript>x</script>", &[]),
        ("<script language=''>x</script>", &[&*script_digest]),
        ("<script src=a>x</script>", &["ScriptFile", "script a"]),
        ("<script type=text/plain src=a>x</script>", &["script a"]),
        ("<script type=importmap>{\"imports\": {\"a\": \"//x.example\"}}</script>", &["script //x.example"]),
        ("<script type=ImportMap src=a></script>", &["ScriptFile", "script a"]),
        ("<style></style><script></script>", &[]),
        ("<noscript><img src=a></noscript>", &["image a"]),
    ] {
        let facts: Vec<String> = read_facts(html, 99)
            .into_iter()
            .filter(|fact| !html.contains("=importmap") || !is_script_digest(fact))
            .collect();
        assert_eq!(facts, expected, "{html}");
    }
}

fn is_script_digest(fact: &str) -> bool {
    fact.strip_prefix("script ")
        .is_some_and(|digits| digits.len() == 8 && digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[test]
fn page_with_a_utf16_bom_or_unknown_character_references_is_uncertain() {
    let read_bytes = |bytes: &[u8]| {
        let mut facts = Vec::new();
        read_page(
            &mut |sink| {
                sink(bytes);
            },
            &mut |fact| facts.push(format!("{fact:?}")),
        );
        facts
    };
    assert_eq!(read_bytes(b"\xff\xfe<img src=a>"), ["UncertainScript"]);
    assert_eq!(read_bytes(b"\xfe\xff<img src=a>"), ["UncertainScript"]);
    assert_eq!(read_bytes(b"\xef\xbb\xbf<img src=a>"), ["Address(Image, \"a\")"]);
    assert_eq!(read_bytes(b" \xff\xfe<img src=a>"), ["Address(Image, \"a\")"]);
    for (html, expected) in [
        ("<p style='background: url(a) &notin;'>", &["UncertainStyle", "image a"][..]),
        ("<p onclick='fetch(\"//x.example\") &notin;'>", &["UncertainScript", "connect //x.example"]),
        (
            "<iframe srcdoc='<img src=a> &notin;'></iframe>",
            &["UncertainScript", "NestedPageStart", "image a", "NestedPageEnd"],
        ),
        ("<svg><style>a &amp; b</style></svg>", &["UncertainStyle"]),
        ("<svg><style>a<!-- --> b</style></svg>", &[&format!("style {}", short_digest("a")), "UncertainStyle"]),
    ] {
        assert_eq!(read_facts(html, 99), expected, "{html}");
    }
}
