//! The files of the search box, of its panel for questions, and the style sheet of the search page.

use std::num::NonZeroUsize;

/// The script of the search box, as written. [`render_search_script`] makes what is served.
const SEARCH_JS: &str = include_str!("../../assets/search.js");

/// The function in the script that sends the events of readers, as written.
const READER_EVENTS_JS: &str = include_str!("../../assets/reader_events.js");

/// The style sheet of the search box, served as `BASE/_docwharf/search.css`.
pub const SEARCH_CSS: &str = include_str!("../../assets/search.css");

/// The script of the panel for questions, as written. [`render_ask_script`] makes what is served.
const ASK_JS: &str = include_str!("../../assets/ask.js");

/// The style sheet of the panel for questions, served as `BASE/_docwharf/ask.css`.
pub const ASK_CSS: &str = include_str!("../../assets/ask.css");

/// The style sheet of the search page, served as `BASE/_docwharf/page.css`.
pub const PAGE_CSS: &str = include_str!("../../assets/page.css");

/// The place of the settings in the script: an empty object, so that the file is a valid script as written.
const SETTINGS_PLACEHOLDER: &str = "/*SETTINGS*/{}";

/// The place of [`READER_EVENTS_JS`] in the script.
const EVENTS_PLACEHOLDER: &str = "/*EVENTS*/() => null";

/// The settings of the search box, as its script gets them.
#[derive(Debug, Clone, Copy)]
pub struct SearchScriptSettings<'a> {
    /// The CSS selectors of the elements of the site that open the box (`search.selectors`).
    pub selectors: &'a [String],
    /// Whether the box adds a button to pages without such an element (`search.button`).
    pub button: bool,
    /// Whether the box sends the searches, clicks and views of readers to the server, which records them.
    pub events: bool,
    /// The maximum length of a question in characters; `None` if no questions are answered, so that the box has no
    /// button for them.
    pub max_question: Option<NonZeroUsize>,
}

/// Renders `BASE/_docwharf/search.js`: the script with the settings as a JSON literal. Empty lines, lines of comments
/// and indentation are left out. No literal of the script spans lines.
pub fn render_search_script(settings: &SearchScriptSettings<'_>) -> String {
    let mut json = serde_json::json!({ "selectors": settings.selectors, "button": settings.button });
    // Without the key, nothing is sent.
    if settings.events {
        json["events"] = true.into();
    }
    if let Some(max_question) = settings.max_question {
        json["ask"] = max_question.get().into();
    }
    let reader_events = remove_comments(READER_EVENTS_JS);
    // A selector may contain the text of the other placeholder.
    let script = remove_comments(SEARCH_JS).replacen(EVENTS_PLACEHOLDER, reader_events.trim_end(), 1);
    script.replacen(SETTINGS_PLACEHOLDER, &json.to_string(), 1)
}

/// Renders `BASE/_docwharf/ask.js`, a module that the box imports: the script without empty lines, lines of comments
/// and indentation.
pub fn render_ask_script() -> String {
    remove_comments(ASK_JS)
}

/// Returns the lines of a script without indentation, empty lines and lines of comments.
fn remove_comments(script: &str) -> String {
    let mut out = String::with_capacity(script.len());
    for line in script.lines().map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with("//")) {
        out.push_str(line);
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value;

    use super::super::texts::TEXTS;
    use super::*;

    #[test]
    fn the_served_script_has_the_settings() {
        assert_eq!(SEARCH_JS.matches(SETTINGS_PLACEHOLDER).count(), 1);
        let selectors = ["#a".to_owned(), "[title=\"*/{}</script>\u{2028}\"]".to_owned()];
        let events_off = serde_json::json!({ "selectors": selectors, "button": false });
        let events_on = serde_json::json!({ "selectors": selectors, "button": false, "events": true });
        let ask_on = serde_json::json!({ "selectors": selectors, "button": false, "ask": 1000 });
        let settings = SearchScriptSettings { selectors: &selectors, button: false, events: false, max_question: None };
        for (settings, expected) in [
            (settings, events_off),
            (SearchScriptSettings { events: true, ..settings }, events_on),
            (SearchScriptSettings { max_question: NonZeroUsize::new(1000), ..settings }, ask_on),
        ] {
            let script = render_search_script(&settings);
            let line = script.lines().find(|line| line.contains("\"selectors\"")).unwrap();
            let json = &line[line.find("= {").unwrap() + 2..line.rfind(';').unwrap()];
            assert_eq!(serde_json::from_str::<Value>(json).unwrap(), expected);
            assert!(!script.contains(SETTINGS_PLACEHOLDER));
        }
    }

    #[test]
    fn a_selector_that_is_a_placeholder_stays_as_it_is() {
        let selectors = [EVENTS_PLACEHOLDER.to_owned()];
        let script = render_search_script(&SearchScriptSettings {
            selectors: &selectors,
            button: true,
            events: true,
            max_question: None,
        });
        assert_eq!(script.matches(EVENTS_PLACEHOLDER).count(), 1);
        assert!(script.contains("{\"button\":true,\"events\":true,\"selectors\":[\"/*EVENTS*/() => null\"]}"));
    }

    #[test]
    fn the_served_script_differs_from_the_written_one_in_comments_and_indentation_only() {
        assert_eq!(SEARCH_JS.matches(EVENTS_PLACEHOLDER).count(), 1);
        let script = render_search_script(&SearchScriptSettings {
            selectors: &[],
            button: true,
            events: false,
            max_question: None,
        });
        let code = |text: &str| {
            let lines = text.lines().map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with("//"));
            lines.collect::<Vec<_>>().join("\n")
        };
        let expected = code(SEARCH_JS)
            .replace(SETTINGS_PLACEHOLDER, "{\"button\":true,\"selectors\":[]}")
            .replace(EVENTS_PLACEHOLDER, &code(READER_EVENTS_JS));
        assert_eq!(script, expected + "\n");
        // A literal that spans lines would lose its indentation.
        assert!(script.lines().all(|line| line.matches('`').count().is_multiple_of(2)));
    }

    #[test]
    fn the_script_uses_nothing_that_strict_policies_forbid() {
        let forbidden = [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "DOMParser",
            "eval(",
            "Function(",
            "cssText",
            "WebAssembly",
            "localStorage",
            "sessionStorage",
            "indexedDB",
            "cookie",
            "javascript:",
        ];
        for word in forbidden {
            assert!(!SEARCH_JS.contains(word) && !READER_EVENTS_JS.contains(word), "{word}");
            assert!(!ASK_JS.contains(word), "{word} in ask.js");
        }
    }

    /// Returns the table of texts of a script by language, and the names of its texts.
    fn read_texts(script: &str) -> (BTreeMap<String, Vec<String>>, Vec<String>) {
        let start = script.find("/*TEXTS*/").unwrap() + "/*TEXTS*/".len();
        let end = script.find("/*END*/").unwrap();
        let mut table: BTreeMap<String, Vec<String>> = serde_json::from_str(&script[start..end]).unwrap();
        let names = table.remove("names").unwrap();
        (table, names)
    }

    #[test]
    fn the_panel_has_all_words_in_the_languages_of_the_box() {
        let ((of_box, _), (of_panel, names)) = (read_texts(SEARCH_JS), read_texts(ASK_JS));
        assert!(of_box.keys().eq(of_panel.keys()), "{:?}", of_panel.keys());
        for (lang, texts) in &of_panel {
            assert_eq!(texts.len(), names.len(), "{lang}");
            assert!(texts.iter().all(|text| !text.is_empty()), "{lang}");
        }
        for name in names {
            assert!(ASK_JS.contains(&format!("texts.{name}")), "{name} is not used");
        }
    }

    #[test]
    fn the_served_script_of_the_panel_is_a_module_with_one_function() {
        let script = render_ask_script();
        assert_eq!(script.matches("export ").count(), 1);
        assert!(script.contains("export const createPanel = ") && !script.contains("\n\n"));
        assert!(script.lines().all(|line| line.matches('`').count().is_multiple_of(2) || line.contains("FENCE")));
    }

    #[test]
    fn the_box_and_the_page_have_the_same_words() {
        let (table, names) = read_texts(SEARCH_JS);
        assert_eq!(table.len(), TEXTS.len());
        for texts in &TEXTS {
            let in_box = &table[texts.lang];
            assert_eq!(in_box.len(), names.len(), "{}", texts.lang);
            assert!(in_box.iter().all(|text| !text.is_empty()), "{}", texts.lang);
            for (name, in_page) in [
                ("search", texts.search),
                ("count", texts.count),
                ("none", texts.none),
                ("failed", texts.failed),
                ("building", texts.building),
                ("indexing", texts.indexing),
                ("partial", texts.partial),
                ("corrected", texts.corrected),
            ] {
                let index = names.iter().position(|other| other == name).unwrap();
                assert_eq!(in_box[index], in_page, "{} {name}", texts.lang);
            }
        }
    }
}
