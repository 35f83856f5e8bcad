//! Import maps and speculation rules: JSON in a `script` element that names addresses to fetch. A policy applies the
//! same hashes to them as to scripts (HTML Standard, "prepare the script element"); other data blocks need no hash.

use serde_json::Value;

use super::content_fact::{ContentFact, ResourceKind};

/// The kind of a `script` element with JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JsonScriptKind {
    /// An import map: the addresses of modules.
    ImportMap,
    /// Speculation rules: the pages that a browser may fetch in advance.
    SpeculationRules,
}

impl JsonScriptKind {
    /// Returns the kind for a `type` attribute; `None` for any other type.
    pub(super) fn from_type(type_attribute: &str) -> Option<JsonScriptKind> {
        match type_attribute.trim_ascii().to_ascii_lowercase().as_str() {
            "importmap" => Some(JsonScriptKind::ImportMap),
            "speculationrules" => Some(JsonScriptKind::SpeculationRules),
            _ => None,
        }
    }
}

/// Reports each address in the JSON. A browser ignores JSON that does not parse.
pub(super) fn read_json_script(kind: JsonScriptKind, text: &str, report: &mut dyn FnMut(ContentFact<'_>)) {
    let Ok(Value::Object(document)) = serde_json::from_str(text) else { return };
    let entries = |name: &str| document.get(name).and_then(Value::as_object).into_iter().flatten();
    match kind {
        JsonScriptKind::ImportMap => {
            let mut report_script = |text: &str| report(ContentFact::Address(ResourceKind::Script, text));
            entries("imports").filter_map(|(_, to)| to.as_str()).for_each(&mut report_script);
            for (scope, imports) in entries("scopes") {
                // The key is a prefix of the addresses of the importing scripts.
                report_script(scope);
                let imports = imports.as_object().into_iter().flatten();
                imports.filter_map(|(_, to)| to.as_str()).for_each(&mut report_script);
            }
            entries("integrity").for_each(|(address, _)| report_script(address));
        }
        JsonScriptKind::SpeculationRules => {
            let rules =
                ["prefetch", "prerender"].iter().filter_map(|action| document.get(*action)?.as_array()).flatten();
            let lists = rules.filter_map(|rule| rule.get("urls")?.as_array());
            lists
                .flatten()
                .filter_map(Value::as_str)
                .for_each(|text| report(ContentFact::Address(ResourceKind::Hint, text)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_addresses(kind: JsonScriptKind, text: &str) -> Vec<String> {
        let mut addresses = Vec::new();
        read_json_script(kind, text, &mut |fact| {
            let ContentFact::Address(kind, text) = fact else { panic!("{fact:?}") };
            addresses.push(format!("{} {text}", kind.name()));
        });
        addresses
    }

    #[test]
    fn import_maps_yield_module_addresses_and_speculation_rules_yield_hints() {
        let text = r#"{"imports": {"a": "1", "b": null, "c": 7}, "scopes": {"2": {"a": "3", "b": null}, "4": 5}, "integrity": {"6": "x"},
            "prefetch": [{"urls": ["7", 8]}, {"where": {}}], "prerender": [{"urls": ["9"]}, 1], "other": [{"urls": ["no"]}]}"#;
        assert_eq!(
            read_addresses(JsonScriptKind::ImportMap, text),
            ["script 1", "script 2", "script 3", "script 4", "script 6"]
        );
        assert_eq!(read_addresses(JsonScriptKind::SpeculationRules, text), ["hint 7", "hint 9"]);
        for text in
            ["", "[]", "{\"imports\": {\"a\": \"1\"}", "{\"imports\": [\"a\"], \"prefetch\": {\"urls\": [\"a\"]}}"]
        {
            assert_eq!(
                (
                    read_addresses(JsonScriptKind::ImportMap, text),
                    read_addresses(JsonScriptKind::SpeculationRules, text)
                ),
                (vec![], vec![]),
                "{text}"
            );
        }
        for (type_attribute, expected) in [
            ("importmap", Some(JsonScriptKind::ImportMap)),
            (" ImportMap\n", Some(JsonScriptKind::ImportMap)),
            ("SpeculationRules", Some(JsonScriptKind::SpeculationRules)),
            ("module", None),
            ("", None),
        ] {
            assert_eq!(JsonScriptKind::from_type(type_attribute), expected, "{type_attribute}");
        }
    }
}
