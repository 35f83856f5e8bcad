//! What stands in a page as JSON and is no script, yet says what scripts fetch: import maps and speculation rules. A policy
//! names both as it names scripts (HTML, "prepare the script element"); other data needs no name.

use serde_json::Value;

use super::{Fact, Kind};

/// Which of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Map {
    /// Where modules are.
    Imports,
    /// Which pages may be fetched before anybody asks for them.
    Speculations,
}

impl Map {
    /// What a `script` of this type is.
    pub(super) fn of(kind: &str) -> Option<Map> {
        match kind.trim_ascii().to_ascii_lowercase().as_str() {
            "importmap" => Some(Map::Imports),
            "speculationrules" => Some(Map::Speculations),
            _ => None,
        }
    }
}

/// Tells of each address in it. One that does not parse is nothing to a browser.
pub(super) fn read(map: Map, text: &str, tell: &mut dyn FnMut(Fact<'_>)) {
    let Ok(Value::Object(all)) = serde_json::from_str(text) else { return };
    let of = |name: &str| all.get(name).and_then(Value::as_object).into_iter().flatten();
    match map {
        Map::Imports => {
            let mut script = |text: &str| tell(Fact::Address(Kind::Script, text));
            of("imports").filter_map(|(_, to)| to.as_str()).for_each(&mut script);
            for (scope, imports) in of("scopes") {
                // What it begins with is that of scripts that import something.
                script(scope);
                let imports = imports.as_object().into_iter().flatten();
                imports.filter_map(|(_, to)| to.as_str()).for_each(&mut script);
            }
            of("integrity").for_each(|(address, _)| script(address));
        }
        Map::Speculations => {
            let rules = ["prefetch", "prerender"].iter().filter_map(|action| all.get(*action)?.as_array()).flatten();
            let lists = rules.filter_map(|rule| rule.get("urls")?.as_array());
            lists.flatten().filter_map(Value::as_str).for_each(|text| tell(Fact::Address(Kind::Hint, text)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(map: Map, text: &str) -> Vec<String> {
        let mut all = Vec::new();
        read(map, text, &mut |fact| {
            let Fact::Address(kind, text) = fact else { panic!("{fact:?}") };
            all.push(format!("{} {text}", kind.name()));
        });
        all
    }

    #[test]
    fn maps_name_where_modules_are_and_rules_which_pages_may_be_fetched() {
        let text = r#"{"imports": {"a": "1", "b": null, "c": 7}, "scopes": {"2": {"a": "3", "b": null}, "4": 5}, "integrity": {"6": "x"},
            "prefetch": [{"urls": ["7", 8]}, {"where": {}}], "prerender": [{"urls": ["9"]}, 1], "other": [{"urls": ["no"]}]}"#;
        assert_eq!(found(Map::Imports, text), ["script 1", "script 2", "script 3", "script 4", "script 6"]);
        assert_eq!(found(Map::Speculations, text), ["hint 7", "hint 9"]);
        for text in
            ["", "[]", "{\"imports\": {\"a\": \"1\"}", "{\"imports\": [\"a\"], \"prefetch\": {\"urls\": [\"a\"]}}"]
        {
            assert_eq!((found(Map::Imports, text), found(Map::Speculations, text)), (vec![], vec![]), "{text}");
        }
        for (kind, map) in [
            ("importmap", Some(Map::Imports)),
            (" ImportMap\n", Some(Map::Imports)),
            ("SpeculationRules", Some(Map::Speculations)),
            ("module", None),
            ("", None),
        ] {
            assert_eq!(Map::of(kind), map, "{kind}");
        }
    }
}
