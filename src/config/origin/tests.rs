//! Tests of all keys of an origin: their defaults, values of another type, and the documents that list them.

use std::path::Path;
use std::time::Duration;

use docwharf_base::model::limits::BundleLimits;
use docwharf_origin::source::ProjectSource;

use super::check_text;
use super::keys::ORIGIN_KEYS;
use crate::config::key_documents::handbook_row;
use crate::config::key_table::{ConfigKey, TableList};

const HANDBOOK: &str = include_str!("../../../docs/origin.md");
const EXAMPLE_FILE: &str = include_str!("../../../origin.example.toml");

const STORE: &str = "[store]\npath = \"/var/lib/docwharf-origin\"\n";
const PROJECT: &str = "[[organization]]\nid = \"acme\"\n[[organization.project]]\nid = \"docs\"\n\
                       domain = \"docs.acme.example\"\n";

/// The checked configuration as text.
fn checked(text: &str) -> Result<String, Vec<String>> {
    match check_text(text, Path::new("/etc/origin.toml"), BundleLimits::default()) {
        Ok(config) => Ok(format!("{config:#?}")),
        Err(problems) => Err(problems.iter().map(ToString::to_string).collect()),
    }
}

/// All lists, those in rows of other lists too.
fn lists() -> Vec<&'static TableList> {
    let mut found: Vec<&TableList> = ORIGIN_KEYS.lists.iter().collect();
    let mut i = 0;
    while let Some(list) = found.get(i) {
        found.extend(list.lists);
        i += 1;
    }
    found
}

/// All keys, those of lists too.
fn all_keys() -> Vec<ConfigKey> {
    ORIGIN_KEYS.keys().chain(lists().into_iter().flat_map(|list| list.keys.iter().copied())).collect()
}

/// A configuration in which this key has an effect, with and without the key.
fn setting(key: &ConfigKey, value: &str) -> (String, String) {
    let (section, name) = key.parts();
    let source = match name {
        "branch" | "build" | "output" | "tools" | "network" | "allowUntrusted" | "buildTime" | "buildSize"
        | "previews" => "git = \"docs.git\"\n",
        "parallel" | "robots" | "most" => "crawl = \"http://127.0.0.1:3000/\"\n",
        _ => "directory = \"site\"\n",
    };
    let line = format!("{name} = {value}\n");
    let without = format!("{STORE}{PROJECT}{source}");
    let with = match section {
        "organization.project" => format!("{without}{line}"),
        "store" => format!("{STORE}{line}{PROJECT}{source}"),
        _ => format!("[{section}]\n{line}{without}"),
    };
    (with, without)
}

#[test]
fn explicit_default_of_each_origin_key_equals_the_unset_key() {
    for key in all_keys().iter().filter(|key| !key.default.is_empty()) {
        let (with, without) = setting(key, key.default);
        assert_eq!(checked(&with), checked(&without), "{}", key.name);
    }
}

#[test]
fn origin_key_with_a_value_of_the_wrong_type_is_reported_in_one_line() {
    for key in all_keys().iter().filter(|key| key.name != "organization.id") {
        let (with, _) = setting(key, "[[1]]");
        let with =
            with.replace("id = \"docs\"\n", if key.name.ends_with("project.id") { "" } else { "id = \"docs\"\n" });
        let problems = match key.name {
            "store.path" => checked(&format!("[store]\npath = [[1]]\n{PROJECT}")),
            "organization.project.domain" | "organization.project.directory" => {
                let name = key.parts().1;
                let lines = with.lines().filter(|line| !line.starts_with(&format!("{name} = \"")));
                checked(&lines.collect::<Vec<_>>().join("\n"))
            }
            _ => checked(&with),
        };
        let problems = problems.expect_err(key.name);
        let naming = problems.iter().filter(|line| line.contains(&format!("{} has a value of", key.name)));
        assert_eq!((naming.count(), problems.len()), (1, 1), "{}: {problems:#?}", key.name);
    }
}

#[test]
fn origin_config_problems_have_their_place_and_suggest_the_nearest_key() {
    let project = format!("{PROJECT}directory = \"site\"\n");
    for (text, expected) in [
        (
            format!("[server]\nlisen = []\n[limit.total]\nrow = 5\n{STORE}{project}brunch = \"x\"\n"),
            &[
                "/etc/origin.toml:2:1: there is no key server.lisen; did you mean server.listen?",
                "/etc/origin.toml:3:2: there is no key limit; did you mean limits?",
                "/etc/origin.toml:13:1: there is no key organization.project.brunch; \
                 did you mean organization.project.branch?",
            ][..],
        ),
        (
            format!("[limits.total]\nrow = 5\n{STORE}{project}"),
            &["/etc/origin.toml:2:1: there is no key limits.total.row; did you mean limits.total.rows?"],
        ),
        (
            format!("[tls]\ncertFile = \"a\"\nlisten = [\"here\"]\n[exports]\nkeep = 0\n[store]\n{project}"),
            &[
                "/etc/origin.toml:1:2: tls.keyFile is missing: [tls] needs certFile, keyFile and listen",
                "/etc/origin.toml:3:1: tls.listen: \"here\" is not an address: write it like 127.0.0.1:8080 or [::]:8080",
                "/etc/origin.toml:5:1: exports.keep: a whole number from 1 to 1000000 is needed",
                "/etc/origin.toml:6:2: store.path is missing: keys, jobs, bundles and searches need a folder",
            ],
        ),
        (
            format!("{STORE}[[organization]]\n[[organization.project]]\ndomain = \"a\"\n"),
            &[
                "/etc/origin.toml:3:1: organization.id is missing",
                "/etc/origin.toml:4:1: organization.project.id is missing",
            ],
        ),
    ] {
        assert_eq!(checked(&text).expect_err(&text), expected, "{text}");
    }
}

/// The value in this line of the example file, in force or as a comment.
fn value_of<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let line = line.strip_prefix("# ").unwrap_or(line);
    line.strip_prefix(name)?.strip_prefix(" = ")
}

#[test]
fn the_example_file_has_each_key_with_its_default_and_no_other() {
    for key in all_keys() {
        let (section, name) = key.parts();
        let headings = [format!("[{section}]"), format!("[[{section}]]")];
        let mut current = "";
        let values: Vec<&str> = EXAMPLE_FILE
            .lines()
            .filter_map(|line| {
                let heading = line.strip_prefix("# ").unwrap_or(line);
                if heading.starts_with('[') {
                    current = heading;
                }
                headings.iter().any(|heading| heading == current).then(|| value_of(line, name)).flatten()
            })
            .collect();
        assert!(!values.is_empty(), "{} is missing", key.name);
        assert!(key.default.is_empty() || values == [key.default], "{}: {values:?}", key.name);
    }
    // With the comment signs of keys and headings removed, it is a configuration without an unknown key.
    let is_value = |line: &str| all_keys().iter().any(|key| value_of(line, key.parts().1).is_some());
    let lines = EXAMPLE_FILE.lines().map(|line| match line.strip_prefix("# ") {
        Some(rest) if rest.starts_with('[') || is_value(line) => rest,
        _ => line,
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    assert!(checked(&text).is_ok(), "{:#?}", checked(&text));
}

#[test]
fn the_handbook_has_the_row_of_each_key_and_no_other() {
    let is_limit = |key: &ConfigKey| key.name.starts_with("limits.");
    let rows: Vec<String> = all_keys().iter().filter(|key| !is_limit(key)).map(handbook_row).collect();
    let is_row = |line: &&str| rows.iter().any(|row| row.split('`').nth(1) == line.split('`').nth(1));
    let written: Vec<&str> = HANDBOOK.lines().filter(|line| line.starts_with("| `")).filter(is_row).collect();
    assert_eq!(written, rows);
    let limits =
        |section: &str| -> Vec<ConfigKey> { ORIGIN_KEYS.keys().filter(|key| key.parts().0 == section).collect() };
    let quoted = |key: &ConfigKey| {
        let is_text = key.default.starts_with('"');
        if is_text { format!("`{}`", key.default.trim_matches('"')) } else { key.default.to_owned() }
    };
    let (each, all) = (limits("limits.organization"), limits("limits.total"));
    for (each, all) in each.iter().zip(&all) {
        let start = format!("| `{}` | {} | {} | ", each.parts().1, quoted(each), quoted(all));
        assert_eq!(HANDBOOK.lines().filter(|line| line.starts_with(&start)).count(), 1, "{start}");
    }
    assert_eq!(HANDBOOK.lines().filter(|line| line.starts_with("| `")).count(), rows.len() + each.len());
}

#[test]
fn each_mistake_of_a_project_is_one_line_that_names_the_project_and_the_key() {
    let project = |lines: &str| format!("{STORE}{PROJECT}{lines}");
    let long = "a".repeat(65);
    for (lines, expected) in [
        ("", "6:1: project \"docs\" needs one of directory, git and crawl".to_owned()),
        ("directory = \"a\"\ngit = \"b\"\n", "6:1: project \"docs\" needs one of directory, git and crawl".to_owned()),
        (
            "directory = \"a\"\nbranch = \"b\"\n",
            "6:1: project \"docs\": branch: it is for projects with git =".to_owned(),
        ),
        ("git = \"a\"\nmost = 5\n", "6:1: project \"docs\": most: it is for projects with crawl =".to_owned()),
        (
            "directory = \"a\"\npreviews = true\n",
            "9:1: project \"docs\": previews: only a git source has branches to preview".to_owned(),
        ),
        (
            "git = \"a\"\noutput = \"/b\"\n",
            "9:1: project \"docs\": output: it is a folder of the checkout, such as \"book\"".to_owned(),
        ),
        ("git = \"a\"\nbranch = \"-b\"\n", "9:1: project \"docs\": branch: \"-b\" cannot be a branch".to_owned()),
        (
            "crawl = \"http://ada:secret-value@127.0.0.1/\"\n",
            "8:1: project \"docs\": crawl: it has no user name and no password".to_owned(),
        ),
        ("crawl = \"ftp://127.0.0.1/\"\n", "8:1: project \"docs\": crawl: ftp is not http or https".to_owned()),
        (
            "crawl = \"http://127.0.0.1/\"\nparallel = 1001\n",
            "9:1: project \"docs\": parallel: a whole number from 1 to 1000 is needed".to_owned(),
        ),
        (
            &*format!("directory = \"a\"\n[[organization]]\nid = \"{long}\"\n"),
            format!("10:1: organization \"{long}\": a name has 1 to 64 letters, digits, - and _"),
        ),
        (
            "directory = \"a\"\n[[organization]]\nid = \"acme\"\n",
            "10:1: organization \"acme\" is defined twice".to_owned(),
        ),
        (
            "directory = \"a\"\n[[organization]]\nid = \"other\"\n[[organization.project]]\nid = \"docs\"\n\
             domain = \"other.example\"\ndirectory = \"b\"\n",
            "12:1: project \"docs\" is defined twice; ids must be unique in all organizations".to_owned(),
        ),
        (
            "directory = \"a\"\n[[organization.project]]\nid = \"more\"\ndomain = \"docs.acme.example\"\n\
             directory = \"b\"\n",
            "11:1: project \"more\": the domain docs.acme.example is used twice".to_owned(),
        ),
    ] {
        let problems = checked(&project(lines)).expect_err(lines);
        assert_eq!(problems, [format!("/etc/origin.toml:{expected}")], "{lines}");
    }
    assert!(checked(&format!("{STORE}[[organization]]\nid = \"{}\"\n", "a".repeat(64))).is_err_and(|problems| {
        problems == ["configuration: there is nothing to serve: write [[organization]] and [[organization.project]]"]
    }));
}

#[test]
fn a_link_lives_from_a_second_to_a_week_and_paths_are_relative_to_the_file() {
    let config = |text: &str| {
        let text = format!("{text}{STORE}{PROJECT}git = \"docs.git\"\ntools = [\"bin\", \"/opt/bin\"]\n");
        check_text(&text, Path::new("/etc/origin.toml"), BundleLimits::default())
            .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let lifetime = |text: &str| {
        let config = config(&format!("[exports]\nlinkLifetime = \"{text}\"\n"));
        config.map(|config| config.settings.link_lifetime)
    };
    assert_eq!(lifetime("1s"), Ok(Duration::from_secs(1)));
    assert_eq!(lifetime("7d"), Ok(Duration::from_hours(7 * 24)));
    for wrong in ["999ms", "7d1ms"] {
        let message = format!("/etc/origin.toml:2:1: exports.linkLifetime: \"{wrong}\" is not from 1s to 7d");
        assert_eq!(lifetime(wrong), Err(vec![message]));
    }
    let project = config("").expect("a valid configuration").settings.organizations.remove(0).projects.remove(0);
    let ProjectSource::Git(git) = project.source else { panic!("it is no repository") };
    assert_eq!(git.repository, "/etc/docs.git");
    assert_eq!(git.tools, [Path::new("/etc/bin"), Path::new("/opt/bin")]);
    assert_eq!((project.allows_exports, project.allows_previews), (true, true));
    assert_eq!((git.allows_network, git.allows_no_sandbox), (false, false));
}

#[test]
fn air_gapped_origin_has_local_sources_or_allowed_addresses_and_builds_without_a_network() {
    let config = |allow: &str, lines: &str| {
        checked(&format!("[deployment]\ntype = \"air-gapped\"\nallow = {allow}\n{STORE}{PROJECT}{lines}\n"))
    };
    for lines in [
        "directory = \"site\"",
        "git = \"docs.git\"\nbuild = \"make\"\nnetwork = false",
        "git = \"/srv/docs.git\"",
        "git = \"file:///srv/docs.git\"",
        "git = \"http://127.0.0.1:3000/docs.git\"",
        "git = \"https://10.1.2.3:8443/docs.git\"",
        "crawl = \"http://[::1]:3000/\"",
        "crawl = \"https://10.1.2.3:8443/\"",
    ] {
        assert!(config("[\"10.0.0.0/8:8443\"]", lines).is_ok_and(|config| config.contains("AirGapped")), "{lines}");
    }
    let (is_name, not_allowed) = ("not as a name", "is neither loopback nor in deployment.allow; add it there");
    for (lines, key, reason) in [
        ("git = \"https://git.acme.example/docs.git\"", "11:1: project \"docs\": git:", is_name),
        ("git = \"http://localhost/docs.git\"", "11:1: project \"docs\": git:", is_name),
        ("git = \"git@10.1.2.3:docs.git\"", "11:1: project \"docs\": git:", is_name),
        ("git = \"ssh://git@10.1.2.3/docs.git\"", "11:1: project \"docs\": git:", is_name),
        ("git = \"https://10.1.2.3/docs.git\"", "11:1: project \"docs\": git:", not_allowed),
        ("crawl = \"http://docs.acme.example/\"", "11:1: project \"docs\": crawl:", is_name),
        ("crawl = \"http://localhost:3000/\"", "11:1: project \"docs\": crawl:", is_name),
        ("crawl = \"http://10.1.2.3:8442/\"", "11:1: project \"docs\": crawl:", not_allowed),
        ("git = \"docs.git\"\nnetwork = true", "12:1: project \"docs\": network:", "have no network"),
    ] {
        let problems = config("[\"10.0.0.0/8:8443\"]", lines).expect_err(lines);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains(key) && problems[0].contains(reason), "{problems:?}");
        let elsewhere = checked(&format!("{STORE}{PROJECT}{lines}\n"));
        assert!(elsewhere.is_ok(), "{elsewhere:?}");
    }
    let problems = config("[\"git.acme.example\"]", "directory = \"site\"").expect_err("a name");
    assert!(problems.len() == 1 && problems[0].contains(":3:1: deployment.allow: "), "{problems:?}");
    let warned = checked(&format!("[deployment]\nallow = [\"10.0.0.5\"]\n{STORE}{PROJECT}directory = \"site\"\n"));
    assert!(warned.is_ok_and(|config| config.contains("deployment.allow: it has no effect")));
}
