//! `[search]`: the full-text search of the served site.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use docwharf_base::model::digest::Digest;
use docwharf_base::processors;
use docwharf_base::regular_file;
use docwharf_search::analyze::{MAX_SYNONYM_FILE_BYTES, SynonymTable};
use docwharf_serve::search::{InjectMode, SearchBoxSettings, SearchSettings};
use docwharf_site::rules::pattern::{Pattern, PatternDialect};

use super::checker::ValueChecker;

/// The maximum number of selectors. The script of the search box looks for each of them in every page.
const MAX_SELECTORS: usize = 50;
/// The maximum length of a selector in characters.
const MAX_SELECTOR_CHARS: usize = 500;
/// The maximum number of patterns of excluded addresses. A build compares each page with all of them.
const MAX_EXCLUDED_PATTERNS: usize = 1000;

/// The elements of common sites that open the search box, as in the default of `search.selectors`.
const DEFAULT_SELECTORS: [&str; 4] =
    ["#search-bar-entry", "#search-bar-entry-mobile", ".DocSearch-Button", "[data-docwharf-search]"];

/// The settings of the search.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchConfig {
    /// Whether readers can search the site.
    pub enabled: bool,
    /// Whether pages get the script of the search box.
    pub inject: InjectMode,
    /// The CSS selectors of elements that open the box.
    pub selectors: Vec<String>,
    /// Whether pages without such an element get a button.
    pub button: bool,
    /// The patterns of addresses that the index leaves out, as written.
    pub exclude: Vec<String>,
    /// The words that mean the same.
    pub synonyms: Synonyms,
    /// The number of searches that run at a time.
    pub parallel: NonZeroUsize,
}

impl Default for SearchConfig {
    fn default() -> SearchConfig {
        SearchConfig {
            enabled: true,
            inject: InjectMode::default(),
            selectors: DEFAULT_SELECTORS.map(str::to_owned).to_vec(),
            button: true,
            exclude: Vec::new(),
            synonyms: Synonyms::default(),
            parallel: NonZeroUsize::new(processors::count()).unwrap_or(NonZeroUsize::MIN),
        }
    }
}

impl SearchConfig {
    /// Returns the settings for a site.
    pub fn to_site_settings(&self) -> SearchSettings {
        SearchSettings {
            enabled: self.enabled,
            search_box: SearchBoxSettings { selectors: self.selectors.clone(), button: self.button, events: false },
            parallel: self.parallel,
            exclude: self.excluded_patterns().into(),
            synonyms: Arc::clone(&self.synonyms.table),
            inject: self.inject,
        }
    }

    /// Returns the same settings for a site that cannot be searched.
    #[must_use]
    pub fn disabled(&self) -> SearchConfig {
        SearchConfig { enabled: false, ..self.clone() }
    }

    /// Returns the patterns of addresses that the index leaves out.
    pub fn excluded_patterns(&self) -> Vec<Pattern> {
        parse_excluded_patterns(&self.exclude)
    }
}

/// The words that mean the same: the built-in ones, and those of the operator's file.
#[derive(Clone)]
pub struct Synonyms {
    /// The operator's file, if there is one.
    pub file: Option<PathBuf>,
    /// The digest of the content of that file. It identifies the table.
    digest: Option<Digest>,
    /// The words.
    pub table: Arc<SynonymTable>,
}

impl Default for Synonyms {
    fn default() -> Synonyms {
        Synonyms { file: None, digest: None, table: Arc::new(SynonymTable::built_in()) }
    }
}

impl PartialEq for Synonyms {
    fn eq(&self, other: &Synonyms) -> bool {
        (&self.file, self.digest) == (&other.file, other.digest)
    }
}

/// Shows the file and not the words: the order of the table is not deterministic.
impl fmt::Debug for Synonyms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Synonyms").field("file", &self.file).field("digest", &self.digest).finish_non_exhaustive()
    }
}

/// Checks `[search]`.
pub(super) fn check_search(checker: &mut ValueChecker<'_>, base_of: &dyn Fn(&str) -> PathBuf) -> SearchConfig {
    let defaults = SearchConfig::default();
    let modes = [("auto", InjectMode::Auto), ("always", InjectMode::Always), ("never", InjectMode::Never)];
    let parallel = checker.number("search.parallel").and_then(|number| NonZeroUsize::new(number as usize));
    SearchConfig {
        enabled: checker.flag("search.enabled").unwrap_or(defaults.enabled),
        inject: checker.word("search.inject", &modes).unwrap_or(defaults.inject),
        selectors: check_list(checker, "search.selectors", MAX_SELECTORS, check_selector).unwrap_or(defaults.selectors),
        button: checker.flag("search.button").unwrap_or(defaults.button),
        exclude: check_list(checker, "search.exclude", MAX_EXCLUDED_PATTERNS, |source| {
            parse_excluded(source).map(drop)
        })
        .unwrap_or(defaults.exclude),
        synonyms: check_synonyms(checker, base_of).unwrap_or(defaults.synonyms),
        parallel: parallel.unwrap_or(defaults.parallel),
    }
}

/// Parses how pages get the script of the search box, for the option `--search-box`.
pub fn parse_inject_mode(text: &str) -> Result<InjectMode, String> {
    match text {
        "auto" => Ok(InjectMode::Auto),
        "always" => Ok(InjectMode::Always),
        "never" => Ok(InjectMode::Never),
        _ => Err("\"auto\", \"always\" or \"never\" is needed".to_owned()),
    }
}

/// Reads a list of texts, of which each must pass `check_item`.
fn check_list(
    checker: &mut ValueChecker<'_>,
    key: &str,
    max_items: usize,
    check_item: impl Fn(&str) -> Result<(), String>,
) -> Option<Vec<String>> {
    let items: Vec<String> = checker.texts(key)?.into_iter().filter(|item| !item.is_empty()).collect();
    let checked = match items.len() {
        number if number > max_items => Err(format!("{number} items; at most {max_items} are allowed")),
        _ => items.iter().try_for_each(|item| check_item(item)),
    };
    match checked {
        Ok(()) => Some(items),
        Err(why) => {
            checker.value::<()>(key, |_| Err(why));
            None
        }
    }
}

/// Checks a CSS selector. Its syntax is not checked here: the browser ignores a selector that it does not understand.
fn check_selector(selector: &str) -> Result<(), String> {
    let chars = selector.chars().count();
    if chars > MAX_SELECTOR_CHARS {
        return Err(format!("a selector of {chars} characters; at most {MAX_SELECTOR_CHARS} are allowed"));
    }
    if selector.contains(char::is_control) {
        return Err(format!("{selector:?} is not a CSS selector"));
    }
    Ok(())
}

/// Parses patterns of excluded addresses. One that is not valid, which the check of the configuration excludes, is left
/// out.
pub fn parse_excluded_patterns(sources: &[String]) -> Vec<Pattern> {
    sources.iter().filter_map(|source| parse_excluded(source).ok()).collect()
}

fn parse_excluded(source: &str) -> Result<Pattern, String> {
    Pattern::parse(source, PatternDialect::DocsJson).map_err(|why| format!("{source:?}: {why}"))
}

/// Returns the path of the file of synonyms, if the configuration names one.
fn synonym_file(checker: &mut ValueChecker<'_>, base_of: &dyn Fn(&str) -> PathBuf) -> Option<PathBuf> {
    checker.text("search.synonyms").map(|path| base_of("search.synonyms").join(path))
}

fn check_synonyms(checker: &mut ValueChecker<'_>, base_of: &dyn Fn(&str) -> PathBuf) -> Option<Synonyms> {
    let path = synonym_file(checker, base_of)?;
    match read_synonyms(&path) {
        Ok(synonyms) => Some(synonyms),
        Err(mistakes) => {
            checker.file_problems("search.synonyms", &path, &mistakes);
            None
        }
    }
}

/// Reads a file of synonyms; the error lists its mistakes.
fn read_synonyms(path: &Path) -> Result<Synonyms, Vec<String>> {
    let text = regular_file::read_text(path, MAX_SYNONYM_FILE_BYTES as u64)
        .map_err(|error| vec![format!("cannot be read: {error}")])?;
    let table = SynonymTable::with_file(&text)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<String>>())?;
    let digest = Some(Digest::compute(text.as_bytes()));
    Ok(Synonyms { file: Some(path.to_owned()), digest, table: Arc::new(table) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::problem::ConfigProblem;
    use crate::config::written::WrittenConfig;

    fn checked_in(folder: &Path, text: &str) -> Result<SearchConfig, Vec<String>> {
        let mut raw = WrittenConfig::default();
        raw.read_toml(text, Path::new("c.toml"));
        let problems = std::mem::take(&mut raw.problems);
        let mut checker = ValueChecker { raw: &raw, problems };
        let config = check_search(&mut checker, &|_| folder.to_owned());
        ConfigProblem::sort(&mut checker.problems);
        let lines: Vec<String> = checker.problems.iter().map(ToString::to_string).collect();
        if lines.is_empty() { Ok(config) } else { Err(lines) }
    }

    fn checked(text: &str) -> Result<SearchConfig, Vec<String>> {
        checked_in(Path::new("/nowhere"), text)
    }

    #[test]
    fn without_the_section_the_search_is_on_with_its_defaults() {
        assert_eq!(checked("").unwrap(), SearchConfig::default());
        let config = checked(
            "[search]\nenabled = false\ninject = \"never\"\nselectors = []\nbutton = false\nexclude = \"/a, /b/:x*\"\n\
             parallel = 3\n",
        )
        .unwrap();
        assert_eq!((config.enabled, config.inject, config.button), (false, InjectMode::Never, false));
        assert!(config.selectors.is_empty());
        assert_eq!((config.exclude.len(), config.excluded_patterns().len(), config.parallel.get()), (2, 2, 3));
        assert!(config.excluded_patterns()[1].matches(b"/b/c/d").is_some());
    }

    #[test]
    fn each_mistake_of_the_section_is_one_line_that_names_its_key() {
        let many = format!("[search]\nselectors = [{}]\n", "\"a\",".repeat(MAX_SELECTORS + 1));
        let long = format!("[search]\nselectors = [\"{}\"]\n", "a".repeat(MAX_SELECTOR_CHARS + 1));
        let patterns = format!("[search]\nexclude = [{}]\n", "\"/a\",".repeat(MAX_EXCLUDED_PATTERNS + 1));
        let cases: &[(&str, &str)] = &[
            (&many, "search.selectors: 51 items; at most 50 are allowed"),
            (&long, "search.selectors: a selector of 501 characters; at most 500 are allowed"),
            ("[search]\nselectors = [\"a\\nb\"]\n", "search.selectors: \"a\\nb\" is not a CSS selector"),
            (&patterns, "search.exclude: 1001 items; at most 1000 are allowed"),
            (
                "[search]\ninject = \"perhaps\"\n",
                "search.inject: \"auto\", \"always\" or \"never\" is needed, not \"perhaps\"",
            ),
            ("[search]\nparallel = 0\n", "search.parallel: a whole number from 1 to 256 is needed"),
            ("[search]\nsynonyms = \"\"\n", "search.synonyms: it is empty"),
        ];
        for &(text, expected) in cases {
            assert_eq!(checked(text).unwrap_err(), [format!("c.toml:2:1: {expected}")]);
        }
        let wrong = checked("[search]\nexclude = [\"internal\"]\n").unwrap_err();
        assert!(wrong[0].starts_with("c.toml:2:1: search.exclude: \"internal\": "), "{wrong:?}");
        let absent = checked("[search]\nsynonyms = \"none.toml\"\n").unwrap_err();
        let start = "c.toml:2:1: search.synonyms: /nowhere/none.toml: cannot be read: ";
        assert!(absent[0].starts_with(start), "{absent:?}");
    }

    #[test]
    fn a_file_of_synonyms_is_read_and_its_mistakes_name_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("words.toml");
        let config = |content: &str| {
            std::fs::write(&path, content).unwrap();
            checked_in(dir.path(), "[search]\nsynonyms = \"words.toml\"\n")
        };
        let first = config("sets = [[\"quay\", \"wharf\"]]\n").unwrap();
        assert_eq!(first.synonyms.file.as_deref(), Some(path.as_path()));
        assert_ne!(first, config("sets = [[\"quay\", \"pier\"]]\n").unwrap(), "another content is a change");
        let mistakes = config(&format!("sets = [{}]\n", "[\"a\"],".repeat(12))).unwrap_err();
        assert_eq!(mistakes.len(), 11, "{mistakes:#?}");
        let start = format!("c.toml:2:1: search.synonyms: {}: ", path.display());
        assert!(mistakes.iter().all(|line| line.starts_with(&start)), "{mistakes:#?}");
        assert!(mistakes.iter().any(|line| line.ends_with(": at least 2 more mistakes")), "{mistakes:#?}");
        std::fs::write(&path, vec![b'#'; MAX_SYNONYM_FILE_BYTES + 1]).unwrap();
        let large = checked_in(dir.path(), "[search]\nsynonyms = \"words.toml\"\n").unwrap_err();
        assert!(large[0].ends_with("cannot be read: the file is larger than 8388608 bytes"), "{large:?}");
    }
}
