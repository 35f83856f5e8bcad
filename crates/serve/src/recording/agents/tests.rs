//! Tests of the classes of visitors, with the rows of `agents.tsv` and User-Agents of real browsers and programs.

use std::collections::HashSet;

use super::*;

/// User-Agents of people: browsers of desktops, phones, tablets, television sets and consoles, and parts of apps that
/// show pages.
const BROWSERS: [&str; 33] = [
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 \
     Safari/537.36",
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36",
    "Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Mobile Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_7 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) \
     CriOS/142.0.7444.77 Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:145.0) Gecko/20100101 Firefox/145.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10.15; rv:145.0) Gecko/20100101 Firefox/145.0",
    "Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Mozilla/5.0 (Android 15; Mobile; rv:145.0) Gecko/145.0 Firefox/145.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_7 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) FxiOS/145.0 \
     Mobile/15E148 Safari/605.1.15",
    "Mozilla/5.0 (Windows NT 10.0; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.1 \
     Safari/605.1.15",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_7 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.1 \
     Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (iPad; CPU OS 17_7 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.7 \
     Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.0 Safari/605.1.15 \
     Epiphany/48.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36 \
     Edg/142.0.0.0",
    "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Mobile Safari/537.36 \
     EdgA/142.0.0.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36 \
     OPR/125.0.0.0",
    "Opera/9.80 (Android; Opera Mini/69.0.2254/191.303; U; en) Presto/2.12.423 Version/12.16",
    "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) SamsungBrowser/29.0 \
     Chrome/136.0.0.0 Mobile Safari/537.36",
    "Mozilla/5.0 (Linux; Android 14; SM-A546B Build/UP1A.231005.007; wv) AppleWebKit/537.36 (KHTML, like Gecko) \
     Version/4.0 Chrome/142.0.7444.48 Mobile Safari/537.36",
    "Mozilla/5.0 (Linux; Android 15; CPH2617 Build/AP3A.240617.008) AppleWebKit/537.36 (KHTML, like Gecko) \
     Chrome/138.0.7204.179 Mobile Safari/537.36",
    "Mozilla/5.0 (Linux; Android 12; CUBOT NOTE 20) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Mobile \
     Safari/537.36",
    "Mozilla/5.0 (Linux; Android 11; Cubot_X50) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/96.0.4664.104 Mobile \
     Safari/537.36",
    "Mozilla/5.0 (Linux; Android 9; KFTRWI) AppleWebKit/537.36 (KHTML, like Gecko) Silk/130.4.1 like \
     Chrome/130.0.6723.102 Safari/537.36",
    "Mozilla/5.0 (Linux; Android 13; ViewSonic VBook) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 \
     Safari/537.36",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36 \
     Vivaldi/7.6.3797.63",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_7 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/22H20 \
     [FBAN/FBIOS;FBAV/535.0.0.36.102;FBBV/804610563;FBDV/iPhone14,5;FBMD/iPhone;FBSN/iOS;FBSV/18.7;FBSS/3;FBLC/en_US]",
    "Mozilla/5.0 (Linux; U; Android 13; en-us; Redmi Note 12) AppleWebKit/537.36 (KHTML, like Gecko) Version/4.0 \
     Chrome/112.0.5615.136 Mobile Safari/537.36 XiaoMi/MiuiBrowser/14.31.1-gn",
    "Mozilla/5.0 (SMART-TV; LINUX; Tizen 8.0) AppleWebKit/537.36 (KHTML, like Gecko) 108.0.5359.1/8.0 TV Safari/537.36",
    "Mozilla/5.0 (PlayStation; PlayStation 5/9.00) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/16.4 \
     Safari/605.1.15",
    "Lynx/2.9.2 libwww-FM/2.14 SSL-MM/1.4.1 OpenSSL/3.5.1",
];

fn classify(classifier: &AgentClassifier, user_agent: &str) -> (VisitorClass, Option<String>) {
    let found = classifier.classify(user_agent.as_bytes());
    (found.class, found.name.map(|name| classifier.name(name).to_string()))
}

fn with_patterns(patterns: &[(VisitorClass, &str)]) -> AgentClassifier {
    let patterns: Vec<AgentPattern> =
        patterns.iter().map(|&(class, text)| AgentPattern { class, text: text.to_owned() }).collect();
    AgentClassifier::with_patterns(&patterns)
}

#[test]
fn each_row_of_the_data_file_is_complete_printable_and_unique() {
    let mut patterns = HashSet::new();
    for line in row_lines() {
        let row = parse_row(line).unwrap_or_else(|| panic!("malformed: {line:?}"));
        assert!(line.bytes().all(|byte| byte == b'\t' || byte == b' ' || byte.is_ascii_graphic()), "{line:?}");
        assert!((2..=200).contains(&row.pattern.len()), "{line:?}");
        assert!(row.pattern.trim() == row.pattern && row.name.trim() == row.name, "{line:?}");
        assert!(patterns.insert(row.pattern.to_ascii_lowercase()), "twice: {line:?}");
    }
    assert!(BUILT_IN_ROWS.starts_with("# Visitors by User-Agent. Date: 20"));
    let count = |kind: RowKind| built_in_rows().filter(|row| row.kind == kind).count();
    assert!(count(RowKind::Ai) > 90 && count(RowKind::Bot) > 1_000 && count(RowKind::Exception) > 0);
}

#[test]
fn each_pattern_of_the_data_file_classifies_as_its_own_class_under_its_own_name() {
    let classifier = AgentClassifier::built_in();
    for row in built_in_rows() {
        let expected = match row.kind {
            RowKind::Ai => (VisitorClass::Ai, Some(row.name.to_owned())),
            RowKind::Bot => (VisitorClass::Bot, Some(row.name.to_owned())),
            // Another row may have a longer pattern that begins with this word, but not one of an AI service.
            RowKind::Word => {
                assert_eq!(classify(&classifier, row.pattern).0, VisitorClass::Bot, "{row:?}");
                continue;
            }
            RowKind::Exception => (VisitorClass::Human, None),
        };
        let prefixed = format!("Mozilla/5.0 ({}", row.pattern);
        for user_agent in [row.pattern, &row.pattern.to_ascii_uppercase(), &prefixed] {
            assert_eq!(classify(&classifier, user_agent), expected, "{row:?}");
        }
    }
}

#[test]
fn no_pattern_matches_a_browser_of_a_person() {
    let classifier = AgentClassifier::built_in();
    for browser in BROWSERS {
        assert_eq!(classify(&classifier, browser), (VisitorClass::Human, None), "{browser}");
    }
}

#[test]
fn agents_of_ai_services_are_told_from_other_programs() {
    let classifier = AgentClassifier::built_in();
    for (user_agent, class, name) in [
        (
            "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko); compatible; GPTBot/1.3; +https://openai.com/gptbot",
            VisitorClass::Ai,
            "GPTBot",
        ),
        (
            "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; ClaudeBot/1.0; +claudebot@anthropic.com)",
            VisitorClass::Ai,
            "ClaudeBot",
        ),
        ("Claude-User (claude-code/2.1.9; +https://support.anthropic.com/)", VisitorClass::Ai, "Claude-User"),
        (
            "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; Perplexity-User/1.0; \
             +https://perplexity.ai/perplexity-user)",
            VisitorClass::Ai,
            "Perplexity-User",
        ),
        (
            "meta-externalagent/1.1 (+https://developers.facebook.com/docs/sharing/webmasters/crawler)",
            VisitorClass::Ai,
            "meta-externalagent",
        ),
        ("Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", VisitorClass::Bot, "Googlebot"),
        ("curl/8.15.0", VisitorClass::Bot, "curl"),
        ("Wget/1.25.0", VisitorClass::Bot, "Wget"),
        ("python-requests/2.32.5", VisitorClass::Bot, "python-requests"),
        ("Go-http-client/2.0", VisitorClass::Bot, "Go-http-client"),
        ("Java/21.0.4", VisitorClass::Bot, "Java"),
        (
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/142.0.0.0 \
             Safari/537.36",
            VisitorClass::Bot,
            "HeadlessChrome",
        ),
    ] {
        assert_eq!(classify(&classifier, user_agent), (class, Some(name.to_owned())), "{user_agent}");
    }
}

#[test]
fn a_visitor_without_user_agent_is_a_program() {
    let classifier = AgentClassifier::built_in();
    for user_agent in ["", " ", "\t \t"] {
        assert_eq!(classify(&classifier, user_agent), (VisitorClass::Bot, Some("(none)".to_owned())), "{user_agent:?}");
    }
    assert_eq!(classifier.classify(b"\xff\xfe").class, VisitorClass::Human);
}

#[test]
fn words_of_programs_count_only_where_no_letter_follows() {
    let classifier = AgentClassifier::built_in();
    for (user_agent, name) in [
        ("Mozilla/5.0 (compatible; NobodyKnowsThisBot/1.0)", Some("bot")),
        ("Mozilla/5.0 (compatible; nobody_bot2)", Some("bot")),
        ("NobodyCrawler", Some("crawler")),
        ("nobody's spiders", Some("spider")),
        ("Nobody/1.0 (+https://nobody.example/about)", Some("(link)")),
        ("Mozilla/5.0 (Linux; Android 12; CUBOT NOTE 20; nobody bot)", Some("bot")),
        ("Mozilla/5.0 (Bottle 1.0; Kubota)", None),
        ("Mozilla/5.0 (robotics)", None),
    ] {
        let class = if name.is_some() { VisitorClass::Bot } else { VisitorClass::Human };
        assert_eq!(classify(&classifier, user_agent), (class, name.map(str::to_owned)), "{user_agent}");
    }
}

#[test]
fn a_pattern_of_the_data_file_counts_only_at_the_beginning_of_a_word() {
    let classifier = AgentClassifier::built_in();
    // `YouBot` is an agent of an AI service.
    assert_eq!(classify(&classifier, "ShowyouBot/1.0"), (VisitorClass::Bot, Some("bot".to_owned())));
    assert_eq!(classify(&classifier, "x-YouBot/1.0"), (VisitorClass::Ai, Some("YouBot".to_owned())));
    assert_eq!(classify(&classifier, "ShowyouBot/1.0 YouBot"), (VisitorClass::Ai, Some("YouBot".to_owned())));
}

#[test]
fn patterns_of_the_operator_have_precedence() {
    let classifier = with_patterns(&[
        (VisitorClass::Human, "Intranet bot-free browser"),
        (VisitorClass::Bot, "GPTBot"),
        (VisitorClass::Ai, "curl/"),
        (VisitorClass::Bot, "tran"),
    ]);
    let named = |class, name: &str| (class, Some(name.to_owned()));
    assert_eq!(classify(&classifier, "X/1 (INTRANET BOT-FREE BROWSER)"), (VisitorClass::Human, None));
    assert_eq!(classify(&classifier, "GPTBot/1.3 ClaudeBot/1.0"), named(VisitorClass::Bot, "GPTBot"));
    assert_eq!(classify(&classifier, "curl/8.15.0"), named(VisitorClass::Ai, "curl/"));
    // They count within words too, as the documentation of the file says.
    assert_eq!(classify(&classifier, "Intranet/1.0"), named(VisitorClass::Bot, "tran"));
    assert_eq!(classify(&classifier, "ClaudeBot/1.0"), named(VisitorClass::Ai, "ClaudeBot"));
}

#[test]
fn the_longest_pattern_of_the_highest_precedence_counts() {
    let patterns = [(VisitorClass::Bot, "abc"), (VisitorClass::Ai, "bcdefg"), (VisitorClass::Bot, "xyz")];
    let classifier = with_patterns(&patterns);
    let name = |user_agent| classify(&classifier, user_agent).1;
    // The shorter one begins earlier and overlaps.
    assert_eq!(name("abcdefg").as_deref(), Some("bcdefg"));
    assert_eq!(name("xyz abc").as_deref(), Some("xyz"), "the first of two with the same length");
    // `Googlebot-Image` contains no `Googlebot/`, and both are patterns of programs.
    assert_eq!(name("Googlebot/2.1 Googlebot-Image/1.0").as_deref(), Some("Googlebot-Image"));
    // An agent of an AI service has precedence over a longer pattern of a program.
    assert_eq!(name("facebookexternalhit/1.1 GPTBot/1.3").as_deref(), Some("GPTBot"));
}

#[test]
fn equal_names_are_one_name() {
    let classifier = with_patterns(&[(VisitorClass::Bot, "ClaudeBot")]);
    let own = classifier.classify(b"ClaudeBot");
    assert_eq!(own.class, VisitorClass::Bot);
    let names: HashSet<&str> = classifier.names.iter().map(AsRef::as_ref).collect();
    assert_eq!(names.len(), classifier.names.len());
}

#[test]
fn only_the_beginning_of_a_long_user_agent_is_looked_at() {
    let classifier = AgentClassifier::built_in();
    let at = |offset: usize| format!("{}GPTBot/1.3", "-".repeat(offset));
    assert_eq!(classify(&classifier, &at(MAX_EXAMINED_BYTES - 6)).0, VisitorClass::Ai);
    assert_eq!(classify(&classifier, &at(MAX_EXAMINED_BYTES)).0, VisitorClass::Human);
    assert_eq!(classify(&classifier, &at(1 << 20)).0, VisitorClass::Human);
}
