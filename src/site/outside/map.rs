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
