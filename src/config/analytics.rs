//! `[analytics]`: what this host records about its readers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use docwharf_base::model::digest::Digest;
use docwharf_base::regular_file;
use docwharf_serve::recording::agents::{AgentPattern, parse_patterns};

use docwharf_base::net::NetworkSettings;

use super::analytics_delivery::{DeliverySettings, check_delivery};
use super::checker::ValueChecker;
use super::key_table::exact_size;
use super::value_parsers::parse_project;
use super::written_value::ConfigValue;
use docwharf_agent::analytics::key_file::AnalyticsKeyFile;

/// The project if neither `analytics.projectId` nor `api.projectId` names one.
const DEFAULT_PROJECT: &str = "site";
/// The default time for which searches and counts are kept.
const DEFAULT_KEEP: Duration = Duration::from_hours(400 * 24);
/// The default space that searches and counts may take, in bytes.
const DEFAULT_MAX_BYTES: u64 = 1 << 30;
/// The maximum size of the file of patterns in bytes.
const MAX_PATTERN_FILE_BYTES: u64 = 1 << 20;

/// The settings of recording what readers do.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::struct_excessive_bools)] // each is a key, in any combination
pub struct AnalyticsConfig {
    /// Whether anything is recorded; false if docwharf was built without the feature `analytics`.
    pub enabled: bool,
    /// Whether searches and clicks on their results are recorded.
    pub searches: bool,
    /// Whether views of pages are counted.
    pub pages: bool,
    /// The project in the addresses of the API.
    pub project: String,
    /// The keys for the API on `admin.listen`, if there are any.
    pub key_file: Option<AnalyticsKeyFile>,
    /// The time for which searches and counts are kept.
    pub keep: Duration,
    /// The space that searches and counts may take, in bytes.
    pub max_bytes: u64,
    /// Whether secrets are masked.
    pub mask: bool,
    /// Whether nothing is recorded of requests with `Sec-GPC: 1` or `DNT: 1`.
    pub respect_opt_out: bool,
    /// The operator's patterns by which visitors are classified.
    pub bots: BotPatterns,
    /// The origin that receives what is recorded, if there is one.
    pub deliver: Option<DeliverySettings>,
}

impl Default for AnalyticsConfig {
    fn default() -> AnalyticsConfig {
        AnalyticsConfig {
            enabled: cfg!(feature = "analytics"),
            searches: true,
            pages: true,
            project: DEFAULT_PROJECT.to_owned(),
            key_file: None,
            keep: DEFAULT_KEEP,
            max_bytes: DEFAULT_MAX_BYTES,
            mask: true,
            respect_opt_out: true,
            bots: BotPatterns::default(),
            deliver: None,
        }
    }
}

impl AnalyticsConfig {
    /// Returns whether searches and clicks on their results are recorded.
    pub fn records_searches(&self) -> bool {
        self.enabled && self.searches
    }

    /// Returns whether views of pages are counted.
    pub fn records_pages(&self) -> bool {
        self.enabled && self.pages
    }
}

/// The operator's patterns by which visitors are classified.
#[derive(Debug, Clone, Default)]
pub struct BotPatterns {
    /// The operator's file, if there is one.
    pub file: Option<PathBuf>,
    /// The digest of the content of that file. It identifies the patterns.
    digest: Option<Digest>,
    /// The patterns.
    pub patterns: Arc<[AgentPattern]>,
}

impl PartialEq for BotPatterns {
    fn eq(&self, other: &BotPatterns) -> bool {
        (&self.file, self.digest) == (&other.file, other.digest)
    }
}

/// Checks `[analytics]` and `[analytics.deliver]`. In a program without the feature `analytics`, each of their keys is
/// a mistake.
pub(super) fn check_analytics(
    checker: &mut ValueChecker<'_>,
    base_of: &dyn Fn(&str) -> PathBuf,
    network: &NetworkSettings,
) -> AnalyticsConfig {
    let defaults = AnalyticsConfig { project: default_project(checker), ..AnalyticsConfig::default() };
    if !cfg!(feature = "analytics") {
        refuse_keys(checker);
        return defaults;
    }
    let project = checker.parsed("analytics.projectId", parse_own_project).unwrap_or(defaults.project);
    let deliver = check_delivery(checker, base_of, &project, network);
    AnalyticsConfig {
        enabled: checker.flag("analytics.enabled").unwrap_or(defaults.enabled),
        searches: checker.flag("analytics.searches").unwrap_or(defaults.searches),
        pages: checker.flag("analytics.pages").unwrap_or(defaults.pages),
        project,
        key_file: checker
            .text("analytics.keyFile")
            .map(|path| AnalyticsKeyFile::new(base_of("analytics.keyFile").join(path))),
        keep: checker.duration("analytics.keep").unwrap_or(defaults.keep),
        max_bytes: check_max_bytes(checker).unwrap_or(defaults.max_bytes),
        mask: checker.flag("analytics.mask").unwrap_or(defaults.mask),
        respect_opt_out: checker.flag("analytics.respectOptOut").unwrap_or(defaults.respect_opt_out),
        bots: check_bots(checker, base_of).unwrap_or(defaults.bots),
        deliver,
    }
}

/// Records each key of the section as a mistake. Ignoring the keys would leave an operator without the data that the
/// configuration asks for.
fn refuse_keys(checker: &mut ValueChecker<'_>) {
    let names = checker.raw.keys().keys().map(|key| key.name).filter(|name| name.starts_with("analytics."));
    for name in names {
        checker.value::<()>(name, |_| Err("this docwharf was built without the feature \"analytics\"".to_owned()));
    }
}

/// Returns the project of the management API, else the built-in default. `api.projectId` itself is checked elsewhere.
fn default_project(checker: &ValueChecker<'_>) -> String {
    let project = checker.raw.get("api.projectId").and_then(|written| match &written.value {
        ConfigValue::Text(text) => parse_project(text).ok(),
        _ => None,
    });
    project.unwrap_or_else(|| DEFAULT_PROJECT.to_owned())
}

/// Parses the id of a project of this host. Unlike that of the management API, it is not copied from a dashboard.
fn parse_own_project(text: &str) -> Result<String, String> {
    parse_project(text)
        .map_err(|_| format!("{text:?} is not a project id: it is one segment of an address, without white space"))
}

fn check_max_bytes(checker: &mut ValueChecker<'_>) -> Option<u64> {
    const KEY: &str = "analytics.maxBytes";
    let (min, _) = checker.number_bounds(KEY);
    let bytes = checker.size(KEY)?;
    if bytes < min {
        return checker.value(KEY, |_| Err(format!("at least {} is needed", exact_size(min))));
    }
    Some(bytes)
}

fn check_bots(checker: &mut ValueChecker<'_>, base_of: &dyn Fn(&str) -> PathBuf) -> Option<BotPatterns> {
    let path = checker.text("analytics.bots").map(|path| base_of("analytics.bots").join(path))?;
    match read_bots(&path) {
        Ok(bots) => Some(bots),
        Err(mistakes) => {
            checker.file_problems("analytics.bots", &path, &mistakes);
            None
        }
    }
}

/// Reads a file of patterns; the error lists its mistakes.
fn read_bots(path: &Path) -> Result<BotPatterns, Vec<String>> {
    let text = regular_file::read_text(path, MAX_PATTERN_FILE_BYTES)
        .map_err(|error| vec![format!("cannot be read: {error}")])?;
    let patterns =
        parse_patterns(&text).map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<String>>())?;
    let digest = Some(Digest::compute(text.as_bytes()));
    Ok(BotPatterns { file: Some(path.to_owned()), digest, patterns: patterns.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::problem::ConfigProblem;
    use crate::config::written::WrittenConfig;

    /// Checks the section of a configuration in this folder with `check_section`.
    fn checked_with<T>(
        folder: &Path,
        text: &str,
        check_section: impl FnOnce(&mut ValueChecker<'_>, &dyn Fn(&str) -> PathBuf) -> T,
    ) -> Result<T, Vec<String>> {
        let mut raw = WrittenConfig::default();
        raw.read_toml(text, Path::new("c.toml"));
        let problems = std::mem::take(&mut raw.problems);
        let mut checker = ValueChecker { raw: &raw, problems };
        let config = check_section(&mut checker, &|_| folder.to_owned());
        ConfigProblem::sort(&mut checker.problems);
        let lines: Vec<String> = checker.problems.iter().map(ToString::to_string).collect();
        if lines.is_empty() { Ok(config) } else { Err(lines) }
    }

    fn check_section(checker: &mut ValueChecker<'_>, base_of: &dyn Fn(&str) -> PathBuf) -> AnalyticsConfig {
        check_analytics(checker, base_of, &NetworkSettings::default())
    }

    #[cfg(feature = "analytics")]
    fn checked(text: &str) -> Result<AnalyticsConfig, Vec<String>> {
        checked_with(Path::new("/nowhere"), text, check_section)
    }

    #[test]
    #[cfg(feature = "analytics")]
    fn without_the_section_everything_is_recorded_with_the_defaults() {
        let defaults = checked("").unwrap();
        assert_eq!(defaults, AnalyticsConfig::default());
        assert!(defaults.records_searches() && defaults.records_pages());
        let config = checked(
            "[analytics]\nsearches = false\npages = true\nprojectId = \"docs\"\nkeyFile = \"keys\"\nkeep = \"1d\"\n\
             maxBytes = \"1MiB\"\nmask = false\nrespectOptOut = false\n",
        )
        .unwrap();
        assert_eq!((config.records_searches(), config.records_pages()), (false, true));
        assert_eq!((config.mask, config.respect_opt_out), (false, false));
        let (project, keep, max_bytes) = (config.project.as_str(), config.keep, config.max_bytes);
        assert_eq!((project, keep, max_bytes), ("docs", Duration::from_hours(24), 1 << 20));
        assert_eq!(config.key_file, Some(AnalyticsKeyFile::new("/nowhere/keys".into())));
        let off = checked("[analytics]\nenabled = false\n").unwrap();
        assert!(!off.records_searches() && !off.records_pages());
    }

    #[test]
    fn the_project_is_that_of_the_api_unless_the_section_names_one() {
        let project = |text: &str| checked_with(Path::new("/nowhere"), text, check_section).unwrap().project;
        assert_eq!(project(""), "site");
        assert_eq!(project("[api]\nprojectId = \" p_1 \"\n"), "p_1");
        // A mistake in [api] is reported by the check of that section.
        assert_eq!(project("[api]\nprojectId = \"a b\"\n"), "site");
        assert_eq!(project("[api]\nprojectId = 7\n"), "site");
        #[cfg(feature = "analytics")]
        assert_eq!(project("[api]\nprojectId = \"p_1\"\n[analytics]\nprojectId = \"docs\"\n"), "docs");
    }

    #[test]
    #[cfg(feature = "analytics")]
    fn each_mistake_in_analytics_is_one_line_that_names_its_key() {
        const NOT_A_PROJECT: &str =
            "projectId: \"a b\" is not a project id: it is one segment of an address, without white space";
        for (line, expected) in [
            ("enabled = \"perhaps\"", "enabled: true or false is needed"),
            ("projectId = \"a b\"", NOT_A_PROJECT),
            ("projectId = \"\"", "projectId: it is empty"),
            ("keyFile = \"\"", "keyFile: it is empty"),
            ("keep = \"23h\"", "keep: at least 1d is needed"),
            ("keep = 400", "keep: a duration such as \"15m\" is needed"),
            ("maxBytes = \"1023KiB\"", "maxBytes: at least 1MiB is needed"),
            ("maxBytes = -1", "maxBytes: a size is not negative"),
            ("respectOptOut = 1", "respectOptOut: true or false is needed"),
            ("bots = \"\"", "bots: it is empty"),
        ] {
            let problems = checked(&format!("[analytics]\n{line}\n")).unwrap_err();
            assert_eq!(problems, [format!("c.toml:2:1: analytics.{expected}")]);
        }
        let absent = checked("[analytics]\nbots = \"none.txt\"\n").unwrap_err();
        let start = "c.toml:2:1: analytics.bots: /nowhere/none.txt: cannot be read: ";
        assert!(absent.len() == 1 && absent[0].starts_with(start), "{absent:?}");
    }

    #[test]
    #[cfg(feature = "analytics")]
    fn a_delivery_needs_an_address_and_a_key_and_has_the_project_of_this_host() {
        let section = "[analytics]\nprojectId = \"docs\"\n[analytics.deliver]\n";
        let base = "baseUrl = \"https://origin.example/v1\"\n";
        let config = checked(&format!("{section}{base}keyFile = \"key\"\n")).unwrap().deliver.unwrap();
        assert_eq!((config.project.as_str(), config.key_file.as_path()), ("docs", Path::new("/nowhere/key")));
        assert_eq!((config.interval, config.queue_bytes), (Duration::from_mins(1), 64 << 20));
        let all = "keyFile = \"key\"\nprojectId = \"p\"\ninterval = \"1s\"\nqueue = \"1MiB\"\n";
        let config = checked(&format!("{section}{base}{all}")).unwrap().deliver.unwrap();
        let settings = (config.project.as_str(), config.interval, config.queue_bytes);
        assert_eq!(settings, ("p", Duration::from_secs(1), 1 << 20));
        assert_eq!(checked("[analytics.deliver]\ninterval = \"2s\"\n").unwrap().deliver, None);
        for (lines, expected) in [
            (base, "4:1: analytics.deliver.keyFile is missing: [analytics.deliver] needs baseUrl and keyFile"),
            (
                "keyFile = \"k\"",
                "4:1: analytics.deliver.baseUrl is missing: [analytics.deliver] needs baseUrl and keyFile",
            ),
            ("interval = \"900ms\"", "4:1: analytics.deliver.interval: at least 1s is needed"),
            ("queue = \"1KiB\"", "4:1: analytics.deliver.queue: at least 1MiB is needed"),
        ] {
            let problems = checked(&format!("{section}{lines}")).unwrap_err();
            assert_eq!(problems, [format!("c.toml:{expected}")]);
        }
    }

    #[test]
    #[cfg(feature = "analytics")]
    fn a_file_of_patterns_is_read_and_its_mistakes_name_the_file_and_the_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bots.txt");
        let config = |content: &str| {
            std::fs::write(&path, content).unwrap();
            checked_with(dir.path(), "[analytics]\nbots = \"bots.txt\"\n", check_section)
        };
        let first = config("bot LinkChecker\n").unwrap();
        assert_eq!((first.bots.file.as_deref(), first.bots.patterns.len()), (Some(path.as_path()), 1));
        assert_eq!(first, config("bot LinkChecker\n").unwrap());
        assert_ne!(first, config("bot Inspector\n").unwrap(), "another content is a change");
        let mistakes = config(&"nonsense\n".repeat(12)).unwrap_err();
        assert_eq!(mistakes.len(), 11, "{mistakes:#?}");
        let start = format!("c.toml:2:1: analytics.bots: {}: ", path.display());
        assert!(mistakes[0].starts_with(&format!("{start}line 1: ")), "{mistakes:#?}");
        assert_eq!(mistakes[10], format!("{start}at least 2 more mistakes"));
        let large = config(&"#".repeat(usize::try_from(MAX_PATTERN_FILE_BYTES).unwrap() + 1)).unwrap_err();
        assert!(large[0].ends_with("cannot be read: the file is larger than 1048576 bytes"), "{large:?}");
    }

    #[test]
    fn without_the_feature_each_key_of_the_section_is_a_mistake_that_names_it() {
        let text = "[analytics]\nkeep = \"1h\"\nenabled = true\n[search]\nenabled = true\n";
        let problems = checked_with(Path::new("/nowhere"), text, |checker, _| refuse_keys(checker)).unwrap_err();
        let why = "this docwharf was built without the feature \"analytics\"";
        assert_eq!(
            problems,
            [format!("c.toml:2:1: analytics.keep: {why}"), format!("c.toml:3:1: analytics.enabled: {why}")]
        );
    }
}
