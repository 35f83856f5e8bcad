use std::num::{NonZeroU32, NonZeroUsize};

use docwharf_base::model::reader_activity::{SearchActivity, SearchSource};
use docwharf_base::net::NetworkSettings;
use docwharf_base::secret::SafeUrl;
use http::Request;
use http::header::HOST;
use http_body_util::BodyExt;

use super::*;
use crate::peer::Peer;
use crate::recording::RecordingSettings;
use crate::recording::agents::AgentClassifier;
use crate::search::test_indexes;
use crate::test_versions::version_with_files;
use crate::{AskSettings, AssistantSettings, SiteSettings};

const PEER: Peer = Peer {
    address: std::net::SocketAddr::V4(std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 7)),
    is_encrypted: false,
    is_loopback_listener: false,
};

/// Creates a site with an index, whose endpoint does not exist, and with a recorder.
fn site_with_ask() -> (Arc<Site>, Arc<Recorder>) {
    let site = Site::new(SiteSettings::default());
    let version = version_with_files(&[("a.html", "<title>A</title><h1>Anchors</h1><p>text")], 0);
    let index = test_indexes::build_index(&version);
    site.set_version(version);
    site.set_search_settings(Arc::new(test_indexes::settings()));
    site.set_search_index(Some(index));
    let ask = AskSettings {
        // Nothing listens on the port 1.
        base_url: SafeUrl::parse("http://127.0.0.1:1/v1").unwrap(),
        model: "m".to_owned(),
        key_file: None,
        max_question: NonZeroUsize::new(1000).unwrap(),
        max_context: NonZeroUsize::new(10_000).unwrap(),
        max_answer: NonZeroU32::MIN,
        timeout: Duration::from_secs(20),
        parallel: NonZeroUsize::MIN,
        per_minute: NonZeroU32::new(1000).unwrap(),
        per_day: NonZeroU32::new(1000).unwrap(),
        network: NetworkSettings { ignore_proxies: true, ..NetworkSettings::default() },
    };
    let settings = AssistantSettings { ask: Some(ask), ..AssistantSettings::default() };
    site.set_assistant_settings(Some(Arc::new(settings)));
    let recorder = Arc::new(Recorder::new(
        "/",
        RecordingSettings {
            searches: true,
            pages: false,
            respects_opt_out: true,
            agents: Arc::new(AgentClassifier::built_in()),
        },
    ));
    site.set_recorder(Some(Arc::clone(&recorder)));
    (site, recorder)
}

/// Sends a question with a further field, and returns the response.
async fn ask(site: &Arc<Site>, question: &str, field: (&str, &str)) -> Response<ResponseBody> {
    let request = Request::post("/_docwharf/ask").header(HOST, "127.0.0.1").header(field.0, field.1);
    let request = request.body(()).unwrap();
    let context = RequestContext::new(site, &request, Some(PEER));
    let checked = check_ask_request(&context).unwrap().unwrap_or_else(|refusal| panic!("{refusal:?}"));
    let mut body = CountedBytes::new(BODY_LIMITS.memory);
    assert!(body.append(json!({ "question": question }).to_string().as_bytes()));
    let answer = checked.answer(&context, Ok(body));
    drop(context);
    answer.await
}

#[tokio::test]
async fn a_question_is_recorded_as_a_search_of_the_assistant_unless_its_reader_has_opted_out() {
    let (site, recorder) = site_with_ask();
    let response = ask(&site, "xyzzyplugh", ("x-a", "b")).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(ask(&site, "xyzzyplugh", ("sec-gpc", "1")).await.status(), StatusCode::OK);
    let recorded = recorder.take().searches;
    let [SearchActivity::Search { id: None, query, results: Some(0), source: SearchSource::Assistant, .. }] =
        &recorded[..]
    else {
        panic!("{recorded:?}")
    };
    assert_eq!(query, "xyzzyplugh");
    let counts = [AskOutcome::NothingFound, AskOutcome::Cancelled];
    assert_eq!(counts.map(|outcome| site.ask_counts().get(outcome)), [2, 0]);
}

#[tokio::test]
async fn a_response_is_neither_cached_nor_changed_by_rules_of_the_bundle() {
    let (site, _) = site_with_ask();
    for (question, accept, status) in [
        ("xyzzyplugh", "application/json", StatusCode::OK),
        ("xyzzyplugh", "text/event-stream", StatusCode::OK),
        ("anchors", "text/event-stream", StatusCode::BAD_GATEWAY),
        ("", "text/event-stream", StatusCode::BAD_REQUEST),
    ] {
        let response = ask(&site, question, ("accept", accept)).await;
        assert_eq!(response.status(), status, "{question} {accept}");
        assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
        assert!(response.body().location().is_none(), "{question} {accept}");
        assert_eq!(response.extensions().get(), Some(&SearchResource::Answers));
        assert!(!response.into_body().collect().await.unwrap().to_bytes().is_empty());
    }
    let counts = [AskOutcome::NothingFound, AskOutcome::EndpointFailed, AskOutcome::Invalid];
    assert_eq!(counts.map(|outcome| site.ask_counts().get(outcome)), [2, 1, 1]);
}

#[tokio::test]
async fn an_answer_ends_at_its_deadline_although_nobody_reads_it_and_at_once_if_its_body_is_dropped() {
    let start = |deadline: Duration| {
        let (held, dropped) = tokio::sync::oneshot::channel::<()>();
        let work = async move {
            std::future::pending::<()>().await;
            drop(held);
        };
        (run_until(tokio::time::Instant::now() + deadline, work), dropped)
    };
    let (unread, ended) = start(Duration::from_millis(20));
    assert!(ended.await.is_err());
    drop(unread);
    let (body, ended) = start(Duration::from_hours(1));
    drop(body);
    assert!(ended.await.is_err());
}
