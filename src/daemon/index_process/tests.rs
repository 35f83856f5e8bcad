//! Tests of the process that builds a search index.

use super::*;
use docwharf_site::rules::netlify_files;

fn rules(netlify: &str, docs_json: &[(&str, &str)]) -> Arc<RuleSet> {
    let mut draft = RuleDraft::default();
    netlify_files::read_redirects(netlify, "rules", &mut draft);
    for (source, value) in [("/m/*", Some("noindex")), ("/m/o", None), ("/n", Some("all"))] {
        let rule = draft.fields.add_rule(Pattern::parse(source, PatternDialect::Netlify).unwrap()).unwrap();
        match value {
            Some(value) => draft.fields.add_field(rule, "X-Robots-Tag", value, RuleOwner::Operator).unwrap(),
            None => draft.fields.add_removal(rule, "X-Robots-Tag").unwrap(),
        }
    }
    for (source, destination) in docs_json {
        let rule = RedirectRule::new(
            String::new(),
            source,
            destination,
            PatternDialect::DocsJson,
            RuleAction::Redirect(308),
            true,
        );
        draft.add(String::new(), rule);
    }
    assert!(draft.faults.is_empty(), "{:?}", draft.faults);
    Arc::new(RuleSet::new(draft))
}

#[test]
fn rules_are_the_same_in_the_index_process() {
    let rules =
        rules("/a* /b 301!\n/c /d 200\n/e/:x /f/:x 307\n", &[("/g*", "/h"), ("/i/:y*", "/j/:y*"), ("/k", "/l")]);
    let addresses = AddressSettings { base_path: "/docs/".to_owned(), slashes: Some(Slashes::Serve), rules };
    let inputs = IndexInputs {
        version: VersionId(Digest::compute(b"x")),
        product: BuildProduct::SearchIndex,
        base_path: addresses.base_path.clone(),
        redirects_slashes: Some(false),
        rules: addresses.rules.list().iter().map(RuleInput::new).collect(),
        robots_rules: addresses.rules.fields.rules_about(&X_ROBOTS_TAG).collect(),
        exclude: Vec::new(),
        links_to_markdown: true,
        digest: String::new(),
        is_background: true,
    };
    let json = serde_json::to_vec(&inputs).unwrap();
    let received: IndexInputs = serde_json::from_slice(&json).unwrap();
    assert_eq!(received.address_settings().unwrap(), addresses);
    let wrong = RuleInput { status: 418, ..RuleInput::new(&addresses.rules.list()[0]) };
    assert!(IndexInputs { rules: vec![wrong], ..received }.address_settings().is_err());
}

#[test]
fn output_of_the_process_is_read_line_by_line() {
    let mut output = ProcessOutput::default();
    for piece in ["prog", "ress 3 10\nprogress 4 ", "10\nreport {\"pages\":1,", "\"sections\":2,"] {
        output.add(piece.as_bytes()).unwrap();
    }
    assert_eq!((output.progress, output.report.is_some()), (IndexProgress { done: 4, pages: 10 }, false));
    let rest = "\"leftOut\":{\"noIndex\":0,\"refresh\":0,\"notFoundPage\":0,\"notServed\":0,\"excluded\":0,\
                \"repeated\":0,\"unreadable\":0},\"cut\":{\"textBytes\":0,\"sections\":0,\"headings\":0,\
                \"slowPages\":0},\"bytes\":3,\"seconds\":0.5,\"peakMemory\":7}\n";
    output.add(rest.as_bytes()).unwrap();
    let report = output.report.as_ref().unwrap();
    assert_eq!((report.build.pages, report.build.sections, report.build.bytes, report.peak_memory), (1, 2, 3, 7));
    assert_eq!(output.error, None);
    // The message of the command is more useful than what a library has written before it.
    output.add(b"memory allocation of 9 bytes failed\nother\n").unwrap();
    assert_eq!(output.error.as_deref(), Some("memory allocation of 9 bytes failed"));
    output.add(b"docwharf: cannot write a\x1bb\n").unwrap();
    assert_eq!(output.error.as_deref(), Some("cannot write a\\u{1b}b"));
    assert!(output.add(&vec![b'x'; MAX_LINE_BYTES + 1]).is_err());
}

#[test]
fn a_full_disk_is_distinguished_from_other_failures() {
    for (message, expected) in [
        ("cannot write the search index: No space left on device (os error 28)", true),
        ("no space: Disk quota exceeded (os error 122)", true),
        ("cannot read the search index", false),
    ] {
        assert_eq!(is_no_space(message), expected, "{message}");
    }
}
