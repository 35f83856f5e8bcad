//! Configuration: reading and proving never panic and tell each mistake in one line; what `config show` prints is a
//! configuration, and the same one.

use std::path::{Path, PathBuf};

use docwharf::base::error_chain::OneLine;
use docwharf::config::keys::keys;
use docwharf::config::problem::ConfigProblem;
use docwharf::config::show::{as_json, as_toml, lists_as_json, lists_as_toml, values_in_force};
use docwharf::config::sources::ConfigSources;
use docwharf::config::written::{WrittenConfig, variable_name};

/// Lines of TOML; behind a NUL, values for variables of the environment.
pub fn config(data: &[u8]) {
    let (text, environment) = match data.iter().position(|&b| b == 0) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &[][..]),
    };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let file = Path::new("/nowhere/c.toml");
    let mut raw = WrittenConfig::default();
    raw.read_toml(text, file);
    let names: Vec<String> = keys().map(|key| variable_name(key.name)).collect();
    let variables = environment.split(|&b| b == 0).filter_map(|pair| {
        let (&number, value) = pair.split_first()?;
        let name = &names[usize::from(number) % names.len()];
        Some((name.into(), String::from_utf8_lossy(value).into_owned().into()))
    });
    raw.read_env(variables);
    told(&raw.problems);
    told(&raw.warnings);
    if !raw.problems.is_empty() {
        return;
    }
    // A file of redirects is read while it is proved, wherever it lies: that is none of fuzzing's business.
    if raw.get("server.redirectsFile").is_some() {
        return;
    }
    let sources = ConfigSources { flag: Some(PathBuf::from(file)), bare: true, ..ConfigSources::default() };
    let config = match sources.check(&raw) {
        Err(problems) => {
            assert!(!problems.is_empty());
            return told(&problems);
        }
        Ok(config) => config,
    };
    told(&config.warnings);
    let values = values_in_force(&raw, &config, &sources.folder());
    let (toml, lists) = (as_toml(&values) + &lists_as_toml(&raw), lists_as_json(&raw));
    let json = as_json(&values);

    let mut again = WrittenConfig::default();
    again.read_toml(&toml, file);
    assert!(again.problems.is_empty(), "what config show prints is not understood: {:?}\n{toml}", again.problems);
    let again_checked = sources.check(&again).expect("what config show prints is a configuration");
    let (before, after) = (plain(&json["values"]), values_in_force(&again, &again_checked, &sources.folder()));
    assert_eq!(before, plain(&as_json(&after)["values"]), "{toml}");
    assert_eq!(plain_lists(&lists), plain_lists(&lists_as_json(&again)), "{toml}");
}

/// The values alone, without where they stand.
fn plain(values: &serde_json::Value) -> Vec<(String, serde_json::Value)> {
    let values = values.as_object().expect("an object");
    values.iter().map(|(key, value)| (key.clone(), value["value"].clone())).collect()
}

fn plain_lists(lists: &serde_json::Value) -> Vec<(String, Vec<serde_json::Value>)> {
    let lists = lists.as_object().expect("an object");
    let rows = |rows: &serde_json::Value| -> Vec<serde_json::Value> {
        rows.as_array().expect("a list").iter().map(|row| row["values"].clone()).collect()
    };
    lists.iter().map(|(name, list)| (name.clone(), rows(list))).collect()
}

/// One line each, where it is printed.
fn told(problems: &[ConfigProblem]) {
    for problem in problems {
        let line = OneLine(&problem.to_string()).to_string();
        assert!(!line.is_empty() && !line.chars().any(char::is_control), "{line:?}");
        assert!(line.chars().count() < 2000, "{} characters", line.chars().count());
    }
}
