use super::*;

fn found(html: &str, piece: usize) -> Vec<String> {
    let mut all = Vec::new();
    let mut feed = |take: &mut dyn FnMut(&[u8]) -> bool| {
        let _ = html.as_bytes().chunks(piece).all(take);
    };
    read_page(&mut feed, &mut |fact| {
        all.push(match fact {
            ContentFact::Address(kind, text) => format!("{} {text}", kind.name()),
            ContentFact::Mention(text) => format!("? {text}"),
            ContentFact::Script(digest) => format!("script {}", &digest.hex()[..8]),
            ContentFact::Handler(digest) => format!("handler {}", &digest.hex()[..8]),
            ContentFact::Style(digest) => format!("style {}", &digest.hex()[..8]),
            ContentFact::StyleAttribute(digest) => format!("style= {}", &digest.hex()[..8]),
            other => format!("{other:?}"),
        });
    });
    all
}

fn short(text: &str) -> String {
    Digest::of(text.as_bytes()).hex()[..8].to_owned()
}

#[test]
fn addresses_are_told_by_what_browsers_take_them_for() {
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
        "Runs",
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
        "CodeInAddress",
    ];
    assert_eq!(found(html, 7), expected);
    assert_eq!(found(html, 1 << 20), expected);
}

#[test]
fn what_stands_in_a_page_is_named_as_a_browser_names_it() {
    let html = "<script>a\r\n<!-- <script> b</script> -->\rc\0</script><script type=module>é</script><script></script>\
            <style>p{}\r\n</style><p style=\"a:&quot;b&quot;\r\n\" ONCLICK='go(1 && 2)'>x</p><script type=text/plain>no</script>";
    for piece in [1, 3, 1 << 20] {
        assert_eq!(
            found(html, piece),
            [
                format!("script {}", short("a\n<!-- <script> b</script> -->\nc\u{fffd}")),
                format!("script {}", short("é")),
                format!("style {}", short("p{}\n")),
                format!("style= {}", short("a:\"b\"\n")),
                format!("handler {}", short("go(1 && 2)")),
            ],
            "{piece}"
        );
    }
}

#[test]
fn pages_in_attributes_are_read_and_doubts_are_told() {
    let html = "<iframe srcdoc=\"<script>in()</script>&lt;img src='https://i.example/'>\"></iframe>";
    let script = format!("script {}", short("in()"));
    assert_eq!(found(html, 99), ["Enters", &script, "image https://i.example/", "Leaves"]);
    for html in [
        "<p onclick='a(&notin;)'>",
        "<svg><script>a &amp; b</script></svg>",
        "<svg><script><![CDATA[a]]></script></svg>",
    ] {
        assert_eq!(found(html, 99), ["Unsure"], "{html}");
    }
    assert_eq!(found("\u{feff}<script>a</script>", 99), [format!("script {}", short("a"))]);
    let mut deep = "<script>x</script>".to_owned();
    for _ in 0..10 {
        deep = format!("<iframe srcdoc=\"{}\"></iframe>", deep.replace('&', "&amp;").replace('"', "&quot;"));
    }
    assert_eq!(found(&deep, 1 << 20), ["Enters", "Enters", "Enters", "Unsure", "Leaves", "Leaves", "Leaves"]);
}

#[test]
fn what_comments_cut_into_parts_is_doubted_and_nothing_else_is() {
    let style = "<svg><style>a<![CDATA[b]]></style></svg><script>c</script>";
    assert_eq!(
        found(style, 99),
        [format!("style {}", short("a")), "UnsureStyle".to_owned(), format!("script {}", short("c"))]
    );
    for html in ["<svg><script>a<!-- x -->b</script></svg>", "<svg><script>a<b/>c</script></svg>"] {
        assert_eq!(found(html, 99), [format!("script {}", short("a")), "Unsure".to_owned()], "{html}");
    }
    assert_eq!(found("<svg><script href=x.js>a<!-- x -->b</script>c</svg>", 99), ["Runs", "script x.js"]);
}

#[test]
fn a_hostile_page_ends_in_doubt_and_bounded_memory() {
    let html = "<div><p>".repeat(2_000_000);
    assert_eq!(found(&html, 65536), ["Unsure"]);
    let html = format!("<script>{}</script>", "x".repeat(64 << 20));
    assert_eq!(found(&html, 65536).len(), 1);
}

#[test]
fn each_attribute_that_names_something_is_told_with_what_it_is_for() {
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
        ("<area href='javascript:go()'>", &["CodeInAddress"]),
        ("<svg><a xlink:href='javascript:go()'>x</a></svg>", &["CodeInAddress"]),
        ("<iframe src='javascript:go()'></iframe>", &["CodeInAddress"]),
        ("<form action='javascript:;'></form>", &[]),
        ("<p src=a href=b data=c>", &[]),
        ("<a href='java&#115;cript:go()'>x</a>", &["CodeInAddress"]),
    ] {
        assert_eq!(found(html, 99), expected, "{html}");
    }
}

#[test]
fn what_a_link_is_for_is_told_by_its_words() {
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
        assert_eq!(found(&html, 99).concat(), expected, "{html}");
    }
    assert_eq!(found("<link href=a>", 99), [""; 0]);
}

#[test]
fn scripts_run_by_their_type_and_are_named_or_come_from_a_file() {
    let named = format!("script {}", short("x"));
    for (html, expected) in [
        ("<script>x</script>", &[&*named][..]),
        ("<script type=''>x</script>", &[&*named]),
        ("<script type=' Text/JavaScript '>x</script>", &[&*named]),
        ("<script type=module>x</script>", &[&*named]),
        ("<script type=application/json>x</script>", &[]),
        ("<script type='text/javascript;charset=utf-8'>x</script>", &[]),
        ("<script type=text/plain language=javascript>x</script>", &[]),
        ("<script language=JavaScript1.2>x</script>", &[&*named]),
        ("<script language=vbscript>x</script>", &[]),
        ("<script language=''>x</script>", &[&*named]),
        ("<script src=a>x</script>", &["Runs", "script a"]),
        ("<script type=text/plain src=a>x</script>", &["script a"]),
        ("<script type=importmap>{\"imports\": {\"a\": \"//x.example\"}}</script>", &["script //x.example"]),
        ("<script type=ImportMap src=a></script>", &["Runs", "script a"]),
        ("<style></style><script></script>", &[]),
        ("<noscript><img src=a></noscript>", &["image a"]),
    ] {
        let told: Vec<String> =
            found(html, 99).into_iter().filter(|fact| !html.contains("=importmap") || !is_named(fact)).collect();
        assert_eq!(told, expected, "{html}");
    }
}

fn is_named(fact: &str) -> bool {
    fact.strip_prefix("script ")
        .is_some_and(|digits| digits.len() == 8 && digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[test]
fn a_page_in_another_encoding_or_with_references_that_are_not_known_is_doubted() {
    let read_bytes = |bytes: &[u8]| {
        let mut all = Vec::new();
        read_page(
            &mut |take| {
                take(bytes);
            },
            &mut |fact| all.push(format!("{fact:?}")),
        );
        all
    };
    assert_eq!(read_bytes(b"\xff\xfe<img src=a>"), ["Unsure"]);
    assert_eq!(read_bytes(b"\xfe\xff<img src=a>"), ["Unsure"]);
    assert_eq!(read_bytes(b"\xef\xbb\xbf<img src=a>"), ["Address(Image, \"a\")"]);
    assert_eq!(read_bytes(b" \xff\xfe<img src=a>"), ["Address(Image, \"a\")"]);
    for (html, expected) in [
        ("<p style='background: url(a) &notin;'>", &["UnsureStyle", "image a"][..]),
        ("<p onclick='fetch(\"//x.example\") &notin;'>", &["Unsure", "connect //x.example"]),
        ("<iframe srcdoc='<img src=a> &notin;'></iframe>", &["Unsure", "Enters", "image a", "Leaves"]),
        ("<svg><style>a &amp; b</style></svg>", &["UnsureStyle"]),
        ("<svg><style>a<!-- --> b</style></svg>", &[&format!("style {}", short("a")), "UnsureStyle"]),
    ] {
        assert_eq!(found(html, 99), expected, "{html}");
    }
}
