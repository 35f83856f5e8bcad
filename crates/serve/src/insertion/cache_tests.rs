//! Tests of responses with a tag from the cache, and of the chunks in which they are sent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::header::ACCEPT_ENCODING;
use http::{Method, StatusCode};
use http_body::Body as _;

use super::InsertedTag;
use super::tests::{ACCEPTED, encode, pages, read, send, site_with, tag};
use crate::response_cache::{CacheAddress, CacheKey, HeadFormat};
use crate::test_versions::version_with_files;
use crate::{Site, SiteSettings};

#[test]
fn a_cached_response_has_the_tag_that_it_was_stored_with_or_is_not_used() {
    let (pages, tag) = (pages(), tag());
    for page in pages.iter().filter(|page| page.content.len() <= 5000) {
        for accepted in ACCEPTED {
            let case = format!("{} {accepted}", page.name);
            let site = site_with(std::slice::from_ref(page), encode);
            site.set_inserted_tag(Some(Arc::clone(&tag)));
            let target = format!("/{}", page.name);
            let key = CacheKey { target: &target, accept_encoding: accepted.as_bytes(), ..CacheKey::default() };
            let address = CacheAddress::new(&site, &key, HeadFormat::Lines).expect("every client may read the site");
            let response = send(&site, Method::GET, &target, &[(ACCEPT_ENCODING, accepted)]);
            let location = response.body().location().expect("the response can be cached").clone();
            let full = read(response);
            address.store(StatusCode::OK, b"head", location);
            let cached_body = || {
                let mut out = Vec::new();
                address.find(&site, &mut out).map(|cached| cached.body.parts().concat())
            };
            assert!(cached_body() == Some(full), "{case}");
            // A change of the tag that is not seen yet as a change of the generation: `address` has the earlier one.
            for other in [InsertedTag::new("/docs/").map(Arc::new), None] {
                site.set_inserted_tag(other);
                assert!(cached_body().is_none(), "{case}");
                assert!(
                    CacheAddress::new(&site, &key, HeadFormat::Lines).unwrap().find(&site, &mut Vec::new()).is_none()
                );
            }
        }
    }
    let site = Site::new(SiteSettings::default());
    site.set_version(version_with_files(&[("a.html", "<p>a")], 0));
    site.set_inserted_tag(Some(Arc::clone(&tag)));
    let key = CacheKey { target: "/nowhere", ..CacheKey::default() };
    let address = CacheAddress::new(&site, &key, HeadFormat::Block).expect("every client may read the site");
    let response = send(&site, Method::GET, "/nowhere", &[]);
    let location = response.body().location().expect("the response can be cached").clone();
    address.store(StatusCode::NOT_FOUND, b"head", location);
    let full = read(response);
    let cached_body = || address.find(&site, &mut Vec::new()).map(|cached| cached.body.parts().concat());
    assert!(cached_body() == Some(full));
    site.set_inserted_tag(None);
    assert!(cached_body().is_none());
}

#[test]
fn a_whole_page_and_its_tag_are_sent_in_one_chunk() {
    let (pages, tag) = (pages(), tag());
    let site = site_with(&pages, encode);
    site.set_inserted_tag(Some(tag));
    for page in pages.iter().filter(|page| page.content.len() <= 5000) {
        for accepted in ACCEPTED {
            let response = send(&site, Method::GET, &format!("/{}", page.name), &[(ACCEPT_ENCODING, accepted)]);
            let mut body = response.into_body();
            let mut chunks = 0;
            while let Poll::Ready(Some(Ok(frame))) =
                Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()))
            {
                chunks += usize::from(frame.is_data());
            }
            assert_eq!((chunks, body.len()), (1, 0), "{} {accepted}", page.name);
        }
    }
}
