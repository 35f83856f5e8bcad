//! Completions and manual pages: they are made from the definitions of the commands, complete, and well-formed.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use support::{list_subcommands, run_docwharf, run_to_end, temporary_folder};

/// Runs the completion of bash on these words, as bash calls it; returns the suggestions.
fn complete_words(script: &Path, words: &[&str]) -> BTreeSet<String> {
    let last = words.len() - 1;
    let before = if last > 0 { words[last - 1] } else { "" };
    let call = format!(
        "source {}; COMP_WORDS=({}); COMP_CWORD={last}; COMPREPLY=(); _docwharf docwharf {:?} {before:?}; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display(),
        words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" "),
        words[last],
    );
    let output = run_to_end(Command::new("bash").args(["--norc", "--noprofile", "-c", &call])).expect(0);
    output.stdout.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn bash_completion_suggests_every_command() {
    let dir = temporary_folder();
    let script = dir.path().join("docwharf.bash");
    let printed = run_docwharf(["completions", "bash"]).expect(0);
    assert_eq!(printed.stderr, "");
    std::fs::write(&script, printed.stdout).unwrap();
    run_to_end(Command::new("bash").arg("-n").arg(&script)).expect(0);
    for parent in [&[][..], &["bundle"], &["config"], &["export"]] {
        let commands = list_subcommands(parent);
        assert!(commands.len() >= 3, "{parent:?}: {commands:?}");
        let words: Vec<&str> = ["docwharf"].iter().chain(parent).chain(&[""]).copied().collect();
        let suggestions = complete_words(&script, &words);
        for command in commands {
            assert!(suggestions.contains(&command), "{command} is not among {suggestions:?}");
        }
    }
    assert_eq!(complete_words(&script, &["docwharf", "rollb"]), ["rollback".to_owned()].into());
    assert!(complete_words(&script, &["docwharf", "import", "--la"]).contains("--label"));
}

#[test]
fn completions_exist_for_every_supported_shell_only() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run_docwharf(["completions", shell]).expect(0).stdout;
        assert!(script.contains("rollback"), "{shell}");
    }
    run_docwharf(["completions", "cmd"]).expect(2);
}

/// Asserts that a page is well-formed: only known requests, no markup of other formats, no control characters.
#[track_caller]
fn assert_well_formed(name: &str, page: &str) {
    const REQUESTS: [&str; 9] = ["TH", "SH", "TP", "PP", "RS", "RE", "IP", "br", "ie"];
    for line in page.lines() {
        assert!(!line.contains('`'), "{name}: {line}");
        assert!(!line.chars().any(char::is_control), "{name}: {line:?}");
        assert!(!line.is_empty() && !line.starts_with('\''), "{name}: {line:?}");
        if let Some(request) = line.strip_prefix('.') {
            let word = request.split_whitespace().next().unwrap_or_default();
            assert!(REQUESTS.contains(&word) || [".el", ".ie"].contains(&&line[..3]), "{name}: {line}");
        }
    }
    let title = name.trim_end_matches(".1").to_uppercase();
    assert!(page.contains(&format!("\n.TH \"{title}\" \"1\" \"\" \"docwharf ")), "{name}: {}", &page[..200]);
    assert_eq!(page.matches(".ds Aq '").count(), 1, "{name}");
    for heading in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS"] {
        assert!(page.contains(&format!("\n.SH {heading}\n")), "{name} has no {heading}");
    }
    for text in ["EXTRA", "[default: ]", "TODO"] {
        assert!(!page.contains(text), "{name}: {text}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let dir = temporary_folder();
    let pages = dir.path().join("man1");
    assert_eq!(run_docwharf(["man".as_ref(), "--all".as_ref(), pages.as_os_str()]).expect(0).stdout, "");
    let mut expected: BTreeSet<String> = ["docwharf.1".to_owned()].into();
    let mut remaining: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(parent) = remaining.pop() {
        for name in list_subcommands(&parent.iter().map(String::as_str).collect::<Vec<_>>()) {
            let names: Vec<String> = parent.iter().cloned().chain([name]).collect();
            expected.insert(format!("docwharf-{}.1", names.join("-")));
            remaining.push(names);
        }
    }
    let found = std::fs::read_dir(&pages).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let found: BTreeSet<String> = found.collect();
    assert_eq!(found, expected);
    assert!(found.len() > 25, "{found:?}");
    for name in &found {
        let page = std::fs::read_to_string(pages.join(name)).unwrap();
        assert_well_formed(name, &page);
        assert_eq!(page.contains("\n.SH \"SEE ALSO\"\n"), name != "docwharf.1", "{name}");
    }
    assert_eq!(run_docwharf(["man"]).expect(0).stdout, std::fs::read_to_string(pages.join("docwharf.1")).unwrap());
    // A file is in the place of the folder.
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    run_docwharf(["man".as_ref(), "--all".as_ref(), file.as_os_str()]).expect(8);
}

#[test]
fn manual_page_lists_the_exit_codes_files_and_environment_of_the_readme() {
    let page = run_docwharf(["man"]).expect(0).stdout.replace("\\-", "-").replace("\\.", ".").replace("\\&", "");
    let readme = include_str!("../../README.md").replace('`', "");
    let (_, table) = readme.split_once("| code | meaning |").unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let mut codes = 0;
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert!(page.contains(&format!("\\fB{}\\fR\n{}\n", cells[0], cells[1])), "{row}");
        codes += 1;
    }
    assert_eq!(codes, 10);
    for word in ["/etc/docwharf/config.toml", "/var/lib/docwharf", "\\fBDOCWHARF_CONFIG\\fR", "NO_PROXY"] {
        assert!(page.contains(word), "{word}");
    }
}
