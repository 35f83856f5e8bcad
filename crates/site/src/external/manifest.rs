//! Finds the images that a web app manifest names.

use super::content_fact::{ContentFact, ResourceKind};

/// Reports the images that a web app manifest names at any level: icons, screenshots, icons of shortcuts.
pub(super) fn read_manifest(text: &str, report: &mut dyn FnMut(ContentFact<'_>)) {
    fn walk(value: &serde_json::Value, report: &mut dyn FnMut(ContentFact<'_>)) {
        match value {
            serde_json::Value::Array(items) => items.iter().for_each(|item| walk(item, report)),
            serde_json::Value::Object(fields) => {
                for (name, value) in fields {
                    match value.as_str() {
                        Some(text) if name == "src" => report(ContentFact::Address(ResourceKind::Image, text)),
                        _ => walk(value, report),
                    }
                }
            }
            _ => {}
        }
    }
    // The recursion is bounded: serde_json refuses more than 128 levels.
    if let Ok(value) = serde_json::from_str(text) {
        walk(&value, report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn web_manifest_images_are_found_at_any_nesting_level() {
        for (text, expected) in [
            (r#"{"icons": [{"src": "a"}, {"src": "b", "sizes": "c"}], "start_url": "no"}"#, &["a", "b"][..]),
            (r#"{"shortcuts": [{"icons": [{"src": "a"}]}], "src": {"src": "b"}}"#, &["a", "b"]),
            (r#"[[{"src": "a"}]]"#, &["a"]),
            (r#"{"src": 7, "icons": "no"}"#, &[]),
            (r#"{"icons": [{"src": "a"}"#, &[]),
        ] {
            let mut images = Vec::new();
            read_manifest(text, &mut |fact| {
                let ContentFact::Address(ResourceKind::Image, text) = fact else { panic!("{fact:?}") };
                images.push(text.to_owned());
            });
            assert_eq!(images, expected, "{text}");
        }
    }
}
