//! Import maps and speculation rules: JSON in a `script` element that names addresses to fetch. A policy applies the
//! same hashes to them as to scripts (HTML Standard, "prepare the script element"); other data blocks need no hash.

use serde_json::Value;

use super::content_fact::{ContentFact, ResourceKind};

/// The type of a `script` element with JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JsonScriptKind {
    /// An import map: the addresses of modules.
    Imports,
    /// Speculation rules: the pages that a browser may fetch in advance.
    Speculations,
}

impl JsonScriptKind {
    /// Returns the type for a `type` attribute; `None` for any other.
    pub(super) fn of(kind: &str) -> Option<JsonScriptKind> {
        match kind.trim_ascii().to_ascii_lowercase().as_str() {
            "importmap" => Some(JsonScriptKind::Imports),
            "speculationrules" => Some(JsonScriptKind::Speculations),
            _ => None,
        }
    }
}

/// Reports each address in the JSON. A browser ignores JSON that does not parse.
pub(super) fn read_json_script(map: JsonScriptKind, text: &str, tell: &mut dyn FnMut(ContentFact<'_>)) {
    let Ok(Value::Object(all)) = serde_json::from_str(text) else { return };
    let of = |name: &str| all.get(name).and_then(Value::as_object).into_iter().flatten();
    match map {
        JsonScriptKind::Imports => {
            let mut script = |text: &str| tell(ContentFact::Address(ResourceKind::Script, text));
            of("imports").filter_map(|(_, to)| to.as_str()).for_each(&mut script);
            for (scope, imports) in of("scopes") {
                // The key is a prefix of the addresses of the importing scripts.
                script(scope);
                let imports = imports.as_object().into_iter().flatten();
                imports.filter_map(|(_, to)| to.as_str()).for_each(&mut script);
            }
            of("integrity").for_each(|(address, _)| script(address));
        }
        JsonScriptKind::Speculations => {
            let rules = ["prefetch", "prerender"].iter().filter_map(|action| all.get(*action)?.as_array()).flatten();
            let lists = rules.filter_map(|rule| rule.get("urls")?.as_array());
            lists
                .flatten()
                .filter_map(Value::as_str)
                .for_each(|text| tell(ContentFact::Address(ResourceKind::Hint, text)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(map: JsonScriptKind, text: &str) -> Vec<String> {
        let mut all = Vec::new();
        read_json_script(map, text, &mut |fact| {
            let ContentFact::Address(kind, text) = fact else { panic!("{fact:?}") };
            all.push(format!("{} {text}", kind.name()));
        });
        all
    }

    #[test]
    fn maps_name_where_modules_are_and_rules_which_pages_may_be_fetched() {
        let text = r#"{"imports": {"a": "1", "b": null, "c": 7}, "scopes": {"2": {"a": "3", "b": null}, "4": 5}, "integrity": {"6": "x"},
            "prefetch": [{"urls": ["7", 8]}, {"where": {}}], "prerender": [{"urls": ["9"]}, 1], "other": [{"urls": ["no"]}]}"#;
        assert_eq!(found(JsonScriptKind::Imports, text), ["script 1", "script 2", "script 3", "script 4", "script 6"]);
        assert_eq!(found(JsonScriptKind::Speculations, text), ["hint 7", "hint 9"]);
        for text in
            ["", "[]", "{\"imports\": {\"a\": \"1\"}", "{\"imports\": [\"a\"], \"prefetch\": {\"urls\": [\"a\"]}}"]
        {
            assert_eq!(
                (found(JsonScriptKind::Imports, text), found(JsonScriptKind::Speculations, text)),
                (vec![], vec![]),
                "{text}"
            );
        }
        for (kind, map) in [
            ("importmap", Some(JsonScriptKind::Imports)),
            (" ImportMap\n", Some(JsonScriptKind::Imports)),
            ("SpeculationRules", Some(JsonScriptKind::Speculations)),
            ("module", None),
            ("", None),
        ] {
            assert_eq!(JsonScriptKind::of(kind), map, "{kind}");
        }
    }
}
