//! `[[server.redirects]]`, `server.redirectsFile` and `[[server.headers]]`: the operator's rules. A wrong rule is a
//! mistake in the configuration; in a bundle, a wrong rule is only left out.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use docwharf_base::regular_file;
use docwharf_site::rules::header_fields::RuleOwner;
use docwharf_site::rules::pattern::{Pattern, PatternDialect};
use docwharf_site::rules::{RedirectRule, RuleAction, RuleDraft, RuleSet, docs_json, netlify_files};

use super::checker::ValueChecker;
use super::problem::{ConfigPlace, ConfigProblem};
use super::written_value::{ConfigValue, TableRow, WrittenValue};

/// The maximum size of a file of redirects in bytes.
const MAX_REDIRECTS_BYTES: u64 = 8 << 20;
/// The maximum number of mistakes in one file that are reported.
const MAX_REPORTED_FAULTS: usize = 10;

/// Checks the operator's rules. Those of the configuration itself come before those of the redirects file.
pub(super) fn check_rules(checker: &mut ValueChecker<'_>, base_of: &dyn Fn(&str) -> PathBuf) -> Arc<RuleSet> {
    let mut draft = RuleDraft::default();
    for row in checker.raw.rows("server.redirects") {
        match read_redirect(row) {
            Ok(rule) => draft.add(place_of(row), Ok(rule)),
            Err(problems) => checker.problems.extend(problems),
        }
    }
    for row in checker.raw.rows("server.headers") {
        if let Err(problems) = read_headers(row, &mut draft) {
            checker.problems.extend(problems);
        }
    }
    // Each rule was checked above, so a fault can only mean that there are too many.
    if let (Some(fault), Some(row)) = (draft.faults.first(), checker.raw.rows("server.redirects").last()) {
        checker
            .problems
            .push(ConfigProblem { place: row.place.clone(), message: format!("server.redirects: {}", fault.message) });
    }
    draft.faults.clear();
    if let Some(path) = redirects_file(checker, base_of) {
        read_file(checker, &path, &mut draft);
    }
    Arc::new(RuleSet::new(draft))
}

/// Returns the path of the redirects file, if the configuration names one.
pub(super) fn redirects_file(checker: &mut ValueChecker<'_>, base_of: &dyn Fn(&str) -> PathBuf) -> Option<PathBuf> {
    checker.text("server.redirectsFile").map(|path| base_of("server.redirectsFile").join(path))
}

fn read_file(checker: &mut ValueChecker<'_>, path: &Path, draft: &mut RuleDraft) {
    let name = path.display().to_string();
    match regular_file::read_text(path, MAX_REDIRECTS_BYTES) {
        Err(error) => draft.add_fault(name.clone(), format!("cannot be read: {error}")),
        Ok(text) if text.trim_start_matches('\u{feff}').trim_start().starts_with(['{', '[']) => {
            docs_json::read_redirects(&text, &name, true, draft);
        }
        Ok(text) => netlify_files::read_redirects(&text, &name, draft),
    }
    let Some(written) = checker.raw.get("server.redirectsFile") else { return };
    for fault in draft.faults.iter().take(MAX_REPORTED_FAULTS) {
        checker.problem(written, format!("server.redirectsFile: {fault}"));
    }
    if draft.faults.len() > MAX_REPORTED_FAULTS {
        let more = draft.faults.len() - MAX_REPORTED_FAULTS;
        checker.problem(written, format!("server.redirectsFile: {name}: {more} more mistakes"));
    }
    draft.faults.clear();
}

/// Formats the place of a row, for messages.
fn place_of(row: &TableRow) -> String {
    match &row.place {
        ConfigPlace::File(path, line, _) => format!("{}:{line}", path.display()),
        ConfigPlace::Env(name) => format!("${name}"),
        ConfigPlace::Missing => "configuration".to_owned(),
    }
}

/// Reads the values of one row, and collects mistakes.
struct RowReader<'a> {
    row: &'a TableRow,
    list: &'static str,
    problems: Vec<ConfigProblem>,
}

impl<'a> RowReader<'a> {
    fn new(row: &'a TableRow, list: &'static str) -> RowReader<'a> {
        RowReader { row, list, problems: Vec::new() }
    }

    fn add_problem(&mut self, place: &ConfigPlace, key: &str, why: &str) {
        let message = format!("{}.{key}: {why}", self.list);
        self.problems.push(ConfigProblem { place: place.clone(), message });
    }

    fn text(&mut self, key: &str) -> Option<&'a str> {
        let row = self.row;
        match row.get(key) {
            None => {
                self.add_problem(&row.place, key, "it is missing");
                None
            }
            Some(written) => {
                let found = written.value.as_text();
                if found.is_none() {
                    self.add_problem(&written.place, key, "a text in quotes is needed");
                }
                found
            }
        }
    }

    fn flag(&mut self, key: &str) -> Option<bool> {
        let written = self.row.get(key)?;
        if let ConfigValue::Flag(flag) = written.value {
            return Some(flag);
        }
        self.add_problem(&written.place, key, "true or false is needed");
        None
    }

    fn status(&mut self) -> Option<RuleAction> {
        let written: &WrittenValue = self.row.get("status")?;
        let action = match written.value {
            ConfigValue::Number(number) => {
                u16::try_from(number).map_err(|_| "it is not a status".to_owned()).and_then(RuleAction::from_status)
            }
            _ => Err("a number is needed".to_owned()),
        };
        action.map_err(|why| self.add_problem(&written.place, "status", &why)).ok()
    }
}

fn read_redirect(row: &TableRow) -> Result<RedirectRule, Vec<ConfigProblem>> {
    let mut reader = RowReader::new(row, "server.redirects");
    let (source, destination) = (reader.text("source"), reader.text("destination"));
    let (permanent, status, force) = (reader.flag("permanent"), reader.status(), reader.flag("force"));
    if let (Some(_), Some(written)) = (row.get("status"), row.get("permanent")) {
        reader.add_problem(&written.place, "permanent", "status sets it already; remove one of them");
    }
    let action = status.unwrap_or(RuleAction::Redirect(if permanent == Some(true) { 308 } else { 307 }));
    if let (Some(source), Some(destination), true) = (source, destination, reader.problems.is_empty()) {
        match RedirectRule::new(
            place_of(row),
            source,
            destination,
            PatternDialect::DocsJson,
            action,
            force.unwrap_or(false),
        ) {
            Ok(rule) => return Ok(rule),
            Err(why) => {
                let message = format!("server.redirects: {why}");
                reader.problems.push(ConfigProblem { place: row.place.clone(), message });
            }
        }
    }
    Err(reader.problems)
}

fn read_headers(row: &TableRow, draft: &mut RuleDraft) -> Result<(), Vec<ConfigProblem>> {
    let mut reader = RowReader::new(row, "server.headers");
    let block = reader.text("source").and_then(|source| {
        let block = Pattern::parse(source, PatternDialect::Netlify).and_then(|pattern| draft.fields.add_rule(pattern));
        block.map_err(|why| reader.add_problem(&row.place, "source", &why)).ok()
    });
    let Some(block) = block else { return Err(reader.problems) };
    if row.items.len() < 2 {
        reader.add_problem(&row.place, "values", "it is missing: write values = { X-Robots-Tag = \"noindex\" }");
    }
    for (key, written) in &row.items {
        let result = match (key.as_str(), &written.value) {
            ("source", _) => Ok(()),
            ("remove", ConfigValue::Text(name)) => draft.fields.add_removal(block, name),
            ("remove", ConfigValue::Texts(names)) => {
                names.iter().try_for_each(|name| draft.fields.add_removal(block, name))
            }
            (key, value) => match (key.strip_prefix("values."), value) {
                (Some(name), ConfigValue::Text(value)) => {
                    draft.fields.add_field(block, name, value, RuleOwner::Operator)
                }
                (Some(name), ConfigValue::Texts(values)) => {
                    values.iter().try_for_each(|value| draft.fields.add_field(block, name, value, RuleOwner::Operator))
                }
                _ => Err("a text in quotes, or a list of them, is needed".to_owned()),
            },
        };
        if let Err(why) = result {
            reader.add_problem(&written.place, key, &why);
        }
    }
    if reader.problems.is_empty() { Ok(()) } else { Err(reader.problems) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::written::WrittenConfig;

    fn checked(text: &str) -> Result<Arc<RuleSet>, Vec<String>> {
        checked_in(Path::new("/nowhere"), text)
    }

    fn checked_in(folder: &Path, text: &str) -> Result<Arc<RuleSet>, Vec<String>> {
        let mut raw = WrittenConfig::default();
        raw.read_toml(text, Path::new("c.toml"));
        let problems = std::mem::take(&mut raw.problems);
        let mut checker = ValueChecker { raw: &raw, problems };
        let rules = check_rules(&mut checker, &|_| folder.to_owned());
        ConfigProblem::sort(&mut checker.problems);
        let lines: Vec<String> = checker.problems.iter().map(ToString::to_string).collect();
        if lines.is_empty() { Ok(rules) } else { Err(lines) }
    }

    #[test]
    fn configured_redirect_is_temporary_by_default() {
        let text = "[[server.redirects]]\nsource = \"/a\"\ndestination = \"/b\"\n\
                    [[server.redirects]]\nsource = \"/c/:x*\"\ndestination = \"/d/:x*\"\npermanent = true\nforce = true\n\
                    [[server.redirects]]\nsource = \"/e\"\ndestination = \"/f\"\nstatus = 302\n\
                    [[server.redirects]]\nsource = \"/g/*\"\ndestination = \"/index.html\"\nstatus = 200\n";
        let rules = checked(text).unwrap();
        let rule = |n: usize| (rules.list()[n].action.status(), rules.list()[n].force, &*rules.list()[n].place);
        assert_eq!(
            [rule(0), rule(1), rule(2), rule(3)],
            [(307, false, "c.toml:1"), (308, true, "c.toml:4"), (302, false, "c.toml:9"), (200, false, "c.toml:13"),]
        );
    }

    #[test]
    fn ten_mistakes_of_a_redirects_file_are_reported_and_the_others_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("moved");
        let problems_of = |wrong: usize| {
            std::fs::write(&name, "/a /b 418\n".repeat(wrong)).unwrap();
            checked_in(dir.path(), "[server]\nredirectsFile = \"moved\"\n").unwrap_err()
        };
        let start = format!("c.toml:2:1: server.redirectsFile: {}", name.display());
        let ten = problems_of(10);
        assert_eq!(ten.len(), 10, "{ten:#?}");
        assert!(ten.iter().zip(1..).all(|(line, n)| line.starts_with(&format!("{start}:{n}: "))), "{ten:#?}");
        let twelve = problems_of(12);
        assert_eq!((&twelve[..10], &twelve[10..]), (&ten[..], &[format!("{start}: 2 more mistakes")][..]));
    }

    #[test]
    fn redirects_file_is_json_or_netlify_format_and_its_rules_come_last() {
        let dir = tempfile::tempdir().unwrap();
        let own =
            "[[server.redirects]]\nsource = \"/own\"\ndestination = \"/b\"\n[server]\nredirectsFile = \"moved\"\n";
        for content in [
            "/moved /b 308\n",
            "[{\"source\": \"/moved\", \"destination\": \"/b\"}]",
            " \n{\"redirects\": [{\"source\": \"/moved\", \"destination\": \"/b\"}]}",
            "\u{feff}{\"redirects\": [{\"source\": \"/moved\", \"destination\": \"/b\"}]}",
        ] {
            std::fs::write(dir.path().join("moved"), content).unwrap();
            let rules = checked_in(dir.path(), own).unwrap_or_else(|problems| panic!("{content}: {problems:#?}"));
            let found = rules.list().iter().map(|rule| (rule.place.starts_with("c.toml:"), rule.action.status()));
            assert_eq!(found.collect::<Vec<_>>(), [(true, 307), (false, 308)], "{content}");
        }
    }

    #[test]
    fn rules_beyond_the_limit_are_reported_at_the_first_excess_rule() {
        let rules = |number: usize| {
            let rule = |n: usize| format!("[[server.redirects]]\nsource = \"/{n}/*\"\ndestination = \"/b\"\n");
            checked(&(0..number).map(rule).collect::<String>())
        };
        assert_eq!(rules(1_000).map(|rules| rules.list().len()), Ok(1_000));
        let message = "server.redirects: there are more than 1000 rules with * or :name: this rule and those after it \
                       are ignored";
        assert_eq!(rules(1_001).map(|rules| rules.list().len()), Err(vec![format!("c.toml:3001:1: {message}")]));
    }

    #[test]
    fn config_rule_problems_are_reported_with_their_place_and_key() {
        for (text, expected) in [
            (
                "[[server.redirects]]\nsourse = \"/a\"\ndestination = \"/b\"\n",
                &[
                    "c.toml:1:1: server.redirects.source: it is missing",
                    "c.toml:2:1: there is no key server.redirects.sourse; did you mean server.redirects.source?",
                ][..],
            ),
            (
                "[server.redirects]\nsource = \"/a\"\n",
                &["c.toml:1:9: server.redirects is a list of tables: write [[server.redirects]]"],
            ),
            (
                "[server]\nredirects = [\"/a /b\"]\n",
                &["c.toml:2:1: server.redirects is a list of tables: write [[server.redirects]]"],
            ),
            (
                "[[server.redirect]]\nsource = \"/a\"\n",
                &["c.toml:1:10: there is no key server.redirect; did you mean server.redirects?"],
            ),
            (
                "[[server.redirects]]\nsource = \"/a\"\ndestination = 7\nforce = \"yes\"\n",
                &[
                    "c.toml:3:1: server.redirects.destination: a text in quotes is needed",
                    "c.toml:4:1: server.redirects.force: true or false is needed",
                ],
            ),
            (
                "[[server.redirects]]\nsource = \"/a\"\ndestination = \"/b\"\nstatus = 418\n",
                &[
                    "c.toml:4:1: server.redirects.status: the status 418 is none of 301, 302, 303, 307, 308, 200 and 404",
                ],
            ),
            (
                "[[server.redirects]]\nsource = \"/a\"\ndestination = \"/b\"\nstatus = 301\npermanent = true\n",
                &["c.toml:5:1: server.redirects.permanent: status sets it already; remove one of them"],
            ),
            (
                "[[server.redirects]]\nsource = \"/a\"\ndestination = \"//evil.example\"\n",
                &[
                    "c.toml:1:1: server.redirects: the destination begins with two slashes: another host is written https://…",
                ],
            ),
            (
                "[[server.headers]]\nsource = \"/*\"\n",
                &["c.toml:1:1: server.headers.values: it is missing: write values = { X-Robots-Tag = \"noindex\" }"],
            ),
            (
                "[[server.headers]]\nsource = \"/*\"\nvalues = { ETag = \"x\", X-A = 7, X-B = \"1\" }\nremove = [\"Vary\"]\n",
                &[
                    "c.toml:3:12: server.headers.values.ETag: etag is set by the server: no rule can change it",
                    "c.toml:3:24: server.headers.values.X-A: a text in quotes, or a list of them, is needed",
                    "c.toml:4:1: server.headers.remove: vary cannot be removed: set another value",
                ],
            ),
            (
                "[server]\nredirectsFile = \"none\"\n",
                &[
                    "c.toml:2:1: server.redirectsFile: /nowhere/none: cannot be read: No such file or directory (os error 2)",
                ],
            ),
        ] {
            assert_eq!(checked(text).unwrap_err(), expected, "{text}");
        }
    }
}
