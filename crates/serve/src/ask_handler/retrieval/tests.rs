use super::*;
use crate::search::test_indexes;
use crate::test_versions::version_with_files;
use crate::{AssistantSettings, SiteSettings};

/// Pages that all contain the word of the question.
const FILES: [(&str, &str); 3] = [
    ("a.html", "<title>A</title><h1 id=a>Anchors</h1><p>Anchors of the harbour.<h2 id=b>Old anchors</h2><p>Anchors."),
    ("b.html", "<title>B</title><h1>Quays</h1><p>Quays with anchors."),
    ("c.html", "<title>C</title><h1>Ropes</h1><p>Ropes for anchors."),
];

/// Returns the addresses of the passages that are found within this time.
async fn passages_within(max_time: Duration) -> Vec<String> {
    let site = Site::new(SiteSettings::default());
    let version = version_with_files(&FILES, 0);
    let index = test_indexes::build_index(&version);
    site.set_version(version);
    site.set_search_settings(Arc::new(test_indexes::settings()));
    site.set_assistant_settings(Some(Arc::new(AssistantSettings::default())));
    let question = ReaderQuestion::parse(br#"{"question":"anchors"}"#, 100).unwrap();
    let version = site.served_version().unwrap();
    let settings = site.search.settings().unwrap();
    let query = build_query(&site, &question, index, Arc::clone(&version), &settings.settings);
    let source = PassageSource { version, addresses: query.addresses.clone(), markdown: Arc::clone(&site.markdown) };
    let pending = site.search.submit_with(1, query, move |response| {
        assert_eq!(response.total, 3);
        source.select_passages(&response, 10_000, max_time)
    });
    pending.wait().await.unwrap().into_iter().map(|passage| passage.url).collect()
}

#[tokio::test]
async fn after_the_time_for_conversions_the_passages_are_those_of_the_pages_that_were_read() {
    let page = |url: &String| url.split('#').next().unwrap().to_owned();
    let all = passages_within(Duration::from_hours(1)).await;
    let pages: std::collections::BTreeSet<String> = all.iter().map(page).collect();
    assert_eq!(pages.len(), 3, "{all:?}");
    // The best page is always read: an answer without passages would say that nothing was found.
    let few = passages_within(Duration::ZERO).await;
    assert!(!few.is_empty(), "{few:?}");
    assert!(few.iter().all(|url| page(url) == page(&all[0])), "{few:?}");
}
