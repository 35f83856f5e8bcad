//! Tests of the tokens of texts, and of what holds for the tokens of any text.

use super::*;

/// Texts and their tokens. A token is the first letter of its kind (`X`: a symbol suffix), its position and its text. A
/// line that starts with spaces continues the one before it.
const TOKEN_TABLE: &str = r#"
hello => W0:hello
Hello, World! => W0:hello S1:world! W1:world
a b  c => W0:a W1:b W2:c
(word) "word," 'word'. [word]; <word>: *word*? => W0:word W1:word W2:word W3:word W4:word W5:word
don't l’heure => W0:don W1:t W2:l W3:heure
ThreadPoolExecutor => W0:threadpoolexecutor P0:thread P1:pool P2:executor
thread pool executor => W0:thread W1:pool W2:executor
use ThreadPoolExecutor now => W0:use W1:threadpoolexecutor P1:thread P2:pool P3:executor W4:now
HTTPServer => W0:httpserver P0:http P1:server
HTTP => W0:http
getHTTPResponseCode => W0:gethttpresponsecode P0:get P1:http P2:response P3:code
URLs parseURLs IDsFor => W0:urls W1:parseurls P1:parse P2:urls W3:idsfor P3:ids P4:for
iPhone macOS PostgreSQL => W0:iphone P0:i P1:phone W2:macos P2:mac P3:os W4:postgresql P4:postgre P5:sql
XMLHttpRequest2 => W0:xmlhttprequest2 P0:xmlhttprequest P0:xml P1:http P2:request P3:2
lru_cache => W0:lru_cache P0:lru P1:cache
__init__ => W0:__init__ P0:init
_private trailing_ => W0:_private P0:private W1:trailing_ P1:trailing
_ __ a_ => W0:a_ P0:a
SCREAMING_SNAKE_CASE => W0:screaming_snake_case P0:screaming P1:snake P2:case
sha256_hash => W0:sha256_hash P0:sha256 P0:sha P1:256 P2:hash
OAuth2 => W0:oauth2 P0:oauth P0:o P1:auth P2:2
IPv6Address => W0:ipv6address P0:ipv P0:i P1:pv P2:6 P3:address
utf8 => W0:utf8 P0:utf P1:8
UTF-8 => W0:utf W1:8
x86_64 => W0:x86_64 P0:x86 P0:x P1:86 P2:64
i18n k8s => W0:i18n P0:i P1:18 P2:n W3:k8s P3:k P4:8 P5:s
2024 3rd 4xx => W0:2024 W1:3rd P1:3 P2:rd W3:4xx P3:4 P4:xx
a1b2c3d4e5f6a7b8c9 => W0:a1b2c3d4e5f6a7b8c9
camelCase_with2Parts => W0:camelcase_with2parts P0:camelcase P0:camel P1:case P2:with2parts P2:with P3:2 P4:parts
os.path.join => S0:os.path.join W0:os X1:path.join W1:path X2:join W2:join
os.path.join(a, b) => S0:os.path.join W0:os X1:path.join W1:path X2:join W2:join W3:a W4:b
std::vec::Vec => S0:std::vec::vec W0:std X1:vec::vec W1:vec X2:vec W2:vec
std::collections::HashMap::new() => S0:std::collections::hashmap::new W0:std X1:collections::hashmap::new
    W1:collections X2:hashmap::new W2:hashmap P2:hash P3:map X4:new W4:new
Foo.bar_baz => S0:foo.bar_baz W0:foo X1:bar_baz W1:bar_baz P1:bar P2:baz
self.fooBar() => S0:self.foobar W0:self X1:foobar W1:foobar P1:foo P2:bar
3.11.2 v1.2.3 => S0:3.11.2 W0:3 W1:11 W2:2 S3:v1.2.3 W3:v1 P3:v P4:1 W5:2 W6:3
127.0.0.1:8080 => S0:127.0.0.1 W0:127 W1:0 W2:0 W3:1 W4:8080
example.com/docs/index.html => S0:example.com W0:example X1:com W1:com W2:docs S3:index.html W3:index X4:html W4:html
end.of sentence. => S0:end.of W0:end X1:of W1:of W2:sentence
wait...what => W0:wait W1:what
a..b 0..10 => W0:a W1:b W2:0 W3:10
open() open(file) file(s) => S0:open W0:open S1:open W1:open W2:file W3:file W4:s
print(x)(y) => S0:print W0:print W1:x W2:y
C++ c++17 g++. => S0:c++ W0:c S1:c++ W1:c W2:17 S3:g++ W3:g
C# F#, page#2 foo# => S0:c# W0:c S1:f# W1:f W2:page W3:2 W4:foo
println! println!("{}") vec![1] => S0:println! W0:println S1:println! W1:println S2:vec! W2:vec W3:1
std::println!() => S0:std::println! W0:std X1:println! W1:println
Hello! a!=b wow!! => S0:hello! W0:hello W1:a W2:b W3:wow
.NET ASP.NET .gitignore => S0:.net X0:net W0:net S1:asp.net W1:asp X2:net W2:net S3:.gitignore X3:gitignore
    W3:gitignore
"x".join(y) f().bar => W0:x S1:.join X1:join W1:join W2:y S3:f W3:f W4:bar
--flag -v -1 => S0:--flag W0:flag S1:-v W1:v W2:1
--max-old-space-size=4096 => S0:--max-old-space-size W0:max W1:old W2:space W3:size W4:4096
--storage.tsdb.path => S0:--storage.tsdb.path S0:storage.tsdb.path W0:storage X1:tsdb.path W1:tsdb X2:path W2:path
git commit --amend -m => W0:git W1:commit S2:--amend W2:amend S3:-m W3:m
a-b a--b ---x -- - => W0:a W1:b W2:a W3:b W4:x
[--no-verify|-n] => S0:--no-verify W0:no W1:verify S2:-n W2:n
content-type => W0:content W1:type
@decorator @app.route("/") => S0:@decorator X0:decorator W0:decorator S1:@app.route X1:app.route W1:app X2:route
    W2:route
me@example.com @scope/pkg => W0:me S1:example.com W1:example X2:com W2:com S3:@scope X3:scope W3:scope W4:pkg
#define #[derive(Debug)] &#39; => S0:#define X0:define W0:define S1:derive W1:derive W2:debug W3:39
$HOME %s &str *args **kwargs => W0:home W1:s W2:str W3:args W4:kwargs
Crème BRÛLÉE => W0:creme W1:brulee
Straße Ærø => W0:strasse W1:aero
ÆON Þór ŒUVRE => W0:aeon W1:thor W2:oeuvre
Größe_überALLES => W0:grosse_uberalles P0:grosse P1:uberalles P1:uber P2:alles
ｆｕｌｌＷｉｄｔｈ Ｃ＋＋ => W0:fullwidth P0:full P1:width S2:c++ W2:c
ﬁle x² ½ 1½ => W0:file W1:x2 P1:x P2:2 W3:1 W4:2 W5:11 W6:2
Python™ Foo® => W0:python W1:foo
Привет мирУ => W0:привет W1:миру P1:мир P2:у
ОШИБКА_123 => W0:ошибка_123 P0:ошибка P1:123
ΟΔΥΣΣΕΥΣ => W0:οδυσσευσ
日本語 => B0:日本 U0:日 B1:本語 U1:本 U2:語
漢字 字 => B0:漢字 U0:漢 U1:字 U2:字
食べる => U0:食 B1:べる U1:べ U2:る
データベース らーめん => B0:デー U0:デ B1:ータ U1:ー B2:タベ U2:タ B3:ベー U3:ベ B4:ース U4:ー U5:ス B6:らー U6:ら
    B7:ーめ U7:ー B8:めん U8:め U9:ん
ﾃﾞｰﾀ => B0:デー U0:デ B1:ータ U1:ー U2:タ
Python入門 => W0:python B1:入門 U1:入 U2:門
使用--flag和C++。 => B0:使用 U0:使 U1:用 S2:--flag W2:flag U3:和 S4:c++ W4:c
在os.path中 => U0:在 S1:os.path W1:os X2:path W2:path U3:中
한국어 가 => B0:한국 U0:한 B1:국어 U1:국 U2:어 U3:가
ﾡￂ => U0:가
ภาษาไทย => B0:ภา U0:ภ B1:าษ U1:า B2:ษา U2:ษ B3:าไ U3:า B4:ไท U4:ไ B5:ทย U5:ท U6:ย
ກາ => B0:ກາ U0:ກ U1:າ
ភាសា => B0:ភា U0:ភ B1:ាស B2:សា U2:ស
မြန်မာ => B0:မြ U0:မ B1:ြန B2:န် U2:န B3:်မ B4:မာ U4:မ
हिन्दी => W0:हिन्दी
שלום עולם => W0:שלום W1:עולם
مرحبا => W0:مرحبا
東京タワー2024年 => B0:東京 U0:東 U1:京 B2:タワ U2:タ B3:ワー U3:ワ U4:ー W5:2024 U6:年
中文，英文 => B0:中文 U0:中 U1:文 B2:英文 U2:英 U3:文
file名.txt => W0:file U1:名 S2:.txt X2:txt W2:txt
…dots… => W0:dots
100% => W0:100
~/.config => S0:.config X0:config W0:config
foo->bar foo::<T>::new => W0:foo W1:bar W2:foo W3:t W4:new
naïve façade => W0:naive W1:facade
x-real-ip: 10 => W0:x W1:real W2:ip W3:10
@2x 50@60 => W0:2x P0:2 P1:x W2:50 W3:60
--2024 --_x => S0:--2024 W0:2024 S1:--_x W1:_x P1:x
C++/CLI a+b i++ => S0:c++ W0:c W1:cli W2:a W3:b S4:i++ W4:i
F#. G## #12 => S0:f# W0:f S1:g# W1:g W2:12
log2(x) 2(x) => S0:log2 W0:log2 P0:log P1:2 W2:x W3:2 W4:x
_("text") _.map => S0:_ W0:text S1:_.map X1:map W1:map
.5 a.5 ..foo => W0:5 S1:a.5 W1:a W2:5 W3:foo
crate::a::B!{} => S0:crate::a::b! W0:crate X1:a::b! W1:a X2:b! W2:b
Node.js v20.11.0-rc.1 => S0:node.js W0:node X1:js W1:js S2:v20.11.0 W2:v20 P2:v P3:20 W4:11 W5:0 S6:rc.1 W6:rc W7:1
kubectl --kubeconfig=~/.kube/config => W0:kubectl S1:--kubeconfig W1:kubeconfig S2:.kube X2:kube W2:kube W3:config
"#;

/// Pieces of random texts: what the tokenizer treats in a special way.
const PIECES: &[&str] = &[
    "a", "b", "Z", "S", "s", "HTTP", "word", "Word", "7", "42", "_", "__", ".", "::", ":", "-", "--", "!", "++", "#",
    "@", "(", ")", "()", ",", "'", "\"", "<", ">", "/", "$", " ", " ", " ", "\n", "\u{a0}", "é", "E\u{301}", "ß", "İ",
    "Æ", "ﬁ", "½", "™", "Σ", "ς", "м", "Й", "\u{ad}", "\u{200b}", "\u{301}", "\u{306}", "\u{fe0f}", "日", "本", "か",
    "\u{3099}", "ー", "ﾃ", "ﾞ", "。", "，", "\u{3000}", "\u{1112}", "\u{1161}", "\u{11ab}", "가", "ㄱ", "ㅏ", "ก", "ำ",
    "\u{e34}", "ह", "\u{93f}", "ש", "\u{5b8}", "م", "\u{640}", "ﷺ", "😀",
];
const RANDOM_TEXTS: usize = 20_000;
const MAX_RANDOM_PIECES: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
struct OwnedToken {
    kind: TokenKind,
    position: u32,
    text: String,
    start: usize,
    end: usize,
}

/// A sequence of numbers (xorshift64) that looks random and is the same in each run.
struct RandomNumbers(u64);

impl RandomNumbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound
    }

    fn text(&mut self) -> String {
        let pieces = self.below(MAX_RANDOM_PIECES + 1);
        (0..pieces).map(|_| PIECES[self.below(PIECES.len())]).collect()
    }
}

/// Calls `check` with each random text.
fn for_random_texts(mut check: impl FnMut(&str)) {
    let mut random = RandomNumbers(0x9e37_79b9_7f4a_7c15);
    for _ in 0..RANDOM_TEXTS {
        check(&random.text());
    }
}

fn tokens(text: &str) -> Vec<OwnedToken> {
    tokens_with(text, true)
}

fn tokens_with(text: &str, takes_shortcut: bool) -> Vec<OwnedToken> {
    let mut tokens = Vec::new();
    {
        let mut add = |token: Token<'_>| {
            let (kind, position, text) = (token.kind, token.position, token.text.to_owned());
            tokens.push(OwnedToken { kind, position, text, start: token.start as usize, end: token.end as usize });
        };
        let mut tokenizer = Tokenizer::new(&mut add);
        tokenizer.takes_shortcut = takes_shortcut;
        tokenizer.read_text(text);
    }
    tokens
}

/// The tokens in the form of the table.
fn describe(text: &str) -> String {
    let describe_token = |token: &OwnedToken| {
        let letter = match token.kind {
            TokenKind::Word => 'W',
            TokenKind::Piece => 'P',
            TokenKind::Symbol => 'S',
            TokenKind::SymbolSuffix => 'X',
            TokenKind::Bigram => 'B',
            TokenKind::Unigram => 'U',
        };
        format!("{letter}{}:{}", token.position, token.text)
    };
    tokens(text).iter().map(describe_token).collect::<Vec<_>>().join(" ")
}

#[test]
fn each_text_of_the_table_has_its_tokens() {
    let mut cases: Vec<(&str, String)> = Vec::new();
    for line in TOKEN_TABLE.lines().filter(|line| !line.is_empty()) {
        if let Some((text, expected)) = line.split_once(" => ") {
            cases.push((text, expected.to_owned()));
        } else if let Some((_, expected)) = cases.last_mut() {
            expected.push(' ');
            expected.push_str(line.trim_start());
        }
    }
    assert!(cases.len() >= 80);
    for (text, expected) in cases {
        assert_eq!(describe(text), expected, "{text}");
    }
}

#[test]
fn marks_and_invisible_characters_do_not_split_words() {
    let cases = [
        ("", ""),
        (" \t\r\n\u{b}\u{c}", ""),
        ("e\u{301}te\u{301}", "W0:ete"),
        ("co\u{ad}operate Thread\u{200b}Pool", "W0:cooperate W1:threadpool P1:thread P2:pool"),
        ("\u{feff}word\u{200d}", "W0:word"),
        ("a\u{a0}b\u{3000}c", "W0:a W1:b W2:c"),
        ("К\u{438}\u{306}", "W0:кй"),
        ("\u{5e9}\u{5b8}\u{5dc}\u{5d5}\u{5dd}", "W0:שלום"),
        ("\u{1112}\u{1161}\u{11ab}\u{1100}\u{1173}\u{11af}", "B0:한글 U0:한 U1:글"),
        ("か\u{3099}き", "B0:がき U0:が U1:き"),
        ("❤\u{fe0f} 1\u{fe0f}\u{20e3}", "W0:1"),
        ("\u{301} \u{200b} \u{e34}", ""),
        ("ﷺ", "W0:صلى W1:الله W2:عليه W3:وسلم"),
    ];
    for (text, expected) in cases {
        assert_eq!(describe(text), expected, "{}", text.escape_unicode());
    }
}

#[test]
fn offsets_lead_to_the_original_text() {
    let cases: &[(&str, &[&str])] = &[
        ("(Hello), World", &["hello=Hello", "world=World"]),
        ("E\u{301}té!", &["ete!=E\u{301}té!", "ete=E\u{301}té"]),
        ("os.Path()", &["os.path=os.Path", "os=os", "path=Path", "path=Path"]),
        ("x ThreadPool", &["x=x", "threadpool=ThreadPool", "thread=Thread", "pool=Pool"]),
        ("--Flag", &["--flag=--Flag", "flag=Flag"]),
        ("½ ﬁ", &["1=½", "2=½", "fi=ﬁ"]),
        ("日本", &["日本=日本", "日=日", "本=本"]),
        ("ﾃﾞｰ", &["デー=ﾃﾞｰ", "デ=ﾃﾞ", "ー=ｰ"]),
        ("Ａ＿ｂ", &["a_b=Ａ＿ｂ", "a=Ａ", "b=ｂ"]),
    ];
    for &(text, expected) in cases {
        let found: Vec<_> =
            tokens(text).iter().map(|token| format!("{}={}", token.text, &text[token.start..token.end])).collect();
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn tokens_of_any_text_are_ordered_and_are_what_their_place_in_the_text_folds_to() {
    for_random_texts(|text| {
        let (mut position, mut start) = (0, 0);
        for token in tokens(text) {
            let place = text.get(token.start..token.end).unwrap_or_default();
            assert!(!place.is_empty(), "{text:?}: {token:?}");
            assert!(!token.text.is_empty() && fold(place).contains(&token.text), "{text:?}: {token:?}");
            assert!(token.position >= position && token.start >= start, "{text:?}: {token:?}");
            (position, start) = (token.position, token.start);
        }
    });
}

#[test]
fn the_shortcut_for_plain_words_changes_no_token() {
    for_random_texts(|text| assert_eq!(tokens_with(text, true), tokens_with(text, false), "{text:?}"));
    let punctuation =
        ["", "(", "\"", "'", "<", "*", "[{", ")", ",", ".", "...", ";", ":", "::", "?", "!", ">", "-", "@", "#"];
    for before in punctuation {
        for word in ["word", "Word", "WORD", "W", "w", "42", "wOrd", "w0rd", "word_", "word.word"] {
            for after in punctuation {
                let text = format!("{before}{word}{after}");
                assert_eq!(tokens_with(&text, true), tokens_with(&text, false), "{text}");
            }
        }
    }
}

#[test]
fn neighbours_do_not_change_the_tokens_of_a_text() {
    for_random_texts(|text| {
        let mut expected = tokens(text);
        for token in &mut expected {
            token.position += 1;
            token.start += 2;
            token.end += 2;
        }
        let mut found = tokens(&format!("x {text} y"));
        found.remove(0);
        found.pop();
        assert_eq!(found, expected, "{text:?}");
    });
}

#[test]
fn the_terms_of_a_query_are_tokens_of_the_same_text_at_the_same_distances() {
    for_random_texts(|text| {
        let text = text.replace('"', " ");
        let (tokens, query) = (tokens(&text), parse_query(&text, Some("de")));
        let first = query.words.first().map_or(0, |word| word.position);
        for (distance, term) in phrase_terms(&query.words) {
            let position = first + distance as u32;
            assert!(tokens.iter().any(|token| token.position == position && token.text == term), "{text:?}: {term}");
        }
        for symbol in &query.symbols {
            assert!(tokens.iter().any(|token| token.text == symbol.text), "{text:?}: {symbol:?}");
        }
    });
}

#[test]
fn nothing_typed_is_an_error() {
    let (table, english) = (SynonymTable::built_in(), Stemmer::new(StemLanguage::ENGLISH));
    for_random_texts(|text| {
        let query = parse_query(text, Some("fr-CA"));
        let _ = (table.find(&query), query.joined_words());
        for word in query.words.iter().chain(query.phrases.iter().flatten()) {
            assert!(text.get(word.start as usize..word.end as usize).is_some(), "{text:?}: {word:?}");
            assert!(!english.stem(&word.text).is_empty());
        }
    });
}

#[test]
fn encoded_data_has_a_position_but_fills_no_index() {
    let letters = "x".repeat(tokenizer::MAX_WORD_BYTES);
    assert_eq!(describe(&letters), format!("W0:{letters}"));
    assert_eq!(describe(&format!("a {letters}x b")), "W0:a W2:b");
    assert_eq!(describe(&format!("a {letters}_x1 b")), "W0:a W2:b");
    let digest = "0a1b2c3d4e5f6a7b8c9d0e1f";
    assert_eq!(describe(digest), format!("W0:{digest}"));
}

#[test]
fn a_name_with_very_many_words_is_read_as_several_names() {
    let name = vec!["a"; 20].join(".");
    let symbols: Vec<_> = tokens(&name).into_iter().filter(|token| token.kind == TokenKind::Symbol).collect();
    assert_eq!(symbols.iter().map(|token| token.text.len()).collect::<Vec<_>>(), [31, 7]);
    assert_eq!(tokens(&name).iter().filter(|token| token.kind == TokenKind::Word).count(), 20);
}

#[test]
fn long_text_without_spaces_is_cut_at_its_punctuation() {
    let sentence = "全文検索の索引と質問。";
    let text = sentence.repeat(1000);
    let of_sentence = tokens(sentence);
    let found = tokens(&text);
    assert_eq!(found.len(), 1000 * of_sentence.len());
    assert!(found.chunks(of_sentence.len()).all(|chunk| chunk.iter().zip(&of_sentence).all(|(a, b)| a.text == b.text)));
}

#[test]
fn hostile_text_costs_no_more_than_its_length() {
    let mut count = 0;
    for text in ["a.", "a.1", "_", "-a", "--a-", "@a.", "日", "\u{301}", "aB", "a1", "ﷺ", "\u{1161}", "::a", "a\u{ad}"]
    {
        tokenize(&text.repeat(100_000), &mut |_: Token<'_>| count += 1);
    }
    assert!(count > 0);
}
