//! Configuration: reading and checking never panic, and report each problem in one line. The output of `config show` is
//! a configuration with the same values.

use std::path::{Path, PathBuf};

use docwharf::base::error_chain::OneLine;
use docwharf::config::inputs::ConfigInputs;
use docwharf::config::keys::keys;
use docwharf::config::problem::ConfigProblem;
use docwharf::config::show::{as_json, as_toml, lists_as_json, lists_as_toml, values_in_force};
use docwharf::config::written::{WrittenConfig, variable_name};

/// The input is TOML and, after a NUL, values of environment variables.
pub fn config(data: &[u8]) {
    let (text, environment) = match data.iter().position(|&b| b == 0) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &[][..]),
    };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let file = Path::new("/nowhere/c.toml");
    let mut written = WrittenConfig::default();
    written.read_toml(text, file);
    let names: Vec<String> = keys().map(|key| variable_name(key.name)).collect();
    let variables = environment.split(|&b| b == 0).filter_map(|pair| {
        let (&number, value) = pair.split_first()?;
        let name = &names[usize::from(number) % names.len()];
        Some((name.into(), String::from_utf8_lossy(value).into_owned().into()))
    });
    written.read_env(variables);
    assert_one_line_each(&written.problems);
    assert_one_line_each(&written.warnings);
    if !written.problems.is_empty() {
        return;
    }
    // Checking reads the redirects file at any path. Fuzzing must not read such files.
    if written.get("server.redirectsFile").is_some() {
        return;
    }
    let config_inputs =
        ConfigInputs { config_path: Some(PathBuf::from(file)), ignores_environment: true, ..ConfigInputs::default() };
    let config = match config_inputs.check(&written) {
        Err(problems) => {
            assert!(!problems.is_empty());
            return assert_one_line_each(&problems);
        }
        Ok(config) => config,
    };
    assert_one_line_each(&config.warnings);
    let values = values_in_force(&written, &config, &config_inputs.folder());
    let (toml, lists) = (as_toml(&values) + &lists_as_toml(&written), lists_as_json(&written));
    let json = as_json(&values);

    let mut reread = WrittenConfig::default();
    reread.read_toml(&toml, file);
    assert!(reread.problems.is_empty(), "the output of config show is not valid: {:?}\n{toml}", reread.problems);
    let reread_config = config_inputs.check(&reread).expect("the output of config show is a configuration");
    let (before, after) =
        (values_only(&json["values"]), values_in_force(&reread, &reread_config, &config_inputs.folder()));
    assert_eq!(before, values_only(&as_json(&after)["values"]), "{toml}");
    assert_eq!(lists_only(&lists), lists_only(&lists_as_json(&reread)), "{toml}");
}

/// The values without what has set them.
fn values_only(values: &serde_json::Value) -> Vec<(String, serde_json::Value)> {
    let values = values.as_object().expect("an object");
    values.iter().map(|(key, value)| (key.clone(), value["value"].clone())).collect()
}

fn lists_only(lists: &serde_json::Value) -> Vec<(String, Vec<serde_json::Value>)> {
    let lists = lists.as_object().expect("an object");
    let rows = |rows: &serde_json::Value| -> Vec<serde_json::Value> {
        rows.as_array().expect("a list").iter().map(|row| row["values"].clone()).collect()
    };
    lists.iter().map(|(name, list)| (name.clone(), rows(list))).collect()
}

/// Each problem is printed as one line.
fn assert_one_line_each(problems: &[ConfigProblem]) {
    for problem in problems {
        let line = OneLine(&problem.to_string()).to_string();
        assert!(!line.is_empty() && !line.chars().any(char::is_control), "{line:?}");
        assert!(line.chars().count() < 2000, "{} characters", line.chars().count());
    }
}
