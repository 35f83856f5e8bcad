//! Completions and manual pages: from the same definitions as the commands, complete, and without odd text.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use support::{commands_below, end, folder, run};

/// Runs the words through the completion of bash, as bash calls it; gives what is offered.
fn offered(script: &Path, words: &[&str]) -> BTreeSet<String> {
    let last = words.len() - 1;
    let before = if last > 0 { words[last - 1] } else { "" };
    let call = format!(
        "source {}; COMP_WORDS=({}); COMP_CWORD={last}; COMPREPLY=(); _docwharf docwharf {:?} {before:?}; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display(),
        words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" "),
        words[last],
    );
    let ended = end(Command::new("bash").args(["--norc", "--noprofile", "-c", &call])).expect(0);
    ended.stdout.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn bash_completes_the_names_of_real_commands() {
    let dir = folder();
    let script = dir.path().join("docwharf.bash");
    let printed = run(["completions", "bash"]).expect(0);
    assert_eq!(printed.stderr, "");
    std::fs::write(&script, printed.stdout).unwrap();
    end(Command::new("bash").arg("-n").arg(&script)).expect(0);
    for above in [&[][..], &["bundle"], &["config"], &["export"]] {
        let commands = commands_below(above);
        assert!(commands.len() >= 3, "{above:?}: {commands:?}");
        let words: Vec<&str> = ["docwharf"].iter().chain(above).chain(&[""]).copied().collect();
        let offered = offered(&script, &words);
        for command in commands {
            assert!(offered.contains(&command), "{command} is not among {offered:?}");
        }
    }
    assert_eq!(offered(&script, &["docwharf", "rollb"]), ["rollback".to_owned()].into());
    assert!(offered(&script, &["docwharf", "import", "--la"]).contains("--label"));
}

#[test]
fn there_is_a_script_for_each_shell_and_no_other() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(["completions", shell]).expect(0).stdout;
        assert!(script.contains("rollback"), "{shell}");
    }
    run(["completions", "cmd"]).expect(2);
}

/// A page that `man` sets without surprises: known requests only, no marks of other formats, no control characters.
#[track_caller]
fn assert_sound(name: &str, page: &str) {
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
    for odd in ["EXTRA", "[default: ]", "TODO"] {
        assert!(!page.contains(odd), "{name}: {odd}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let dir = folder();
    let pages = dir.path().join("man1");
    assert_eq!(run(["man".as_ref(), "--all".as_ref(), pages.as_os_str()]).expect(0).stdout, "");
    let mut wanted: BTreeSet<String> = ["docwharf.1".to_owned()].into();
    let mut open: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(above) = open.pop() {
        for name in commands_below(&above.iter().map(String::as_str).collect::<Vec<_>>()) {
            let below: Vec<String> = above.iter().cloned().chain([name]).collect();
            wanted.insert(format!("docwharf-{}.1", below.join("-")));
            open.push(below);
        }
    }
    let found = std::fs::read_dir(&pages).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let found: BTreeSet<String> = found.collect();
    assert_eq!(found, wanted);
    assert!(found.len() > 25, "{found:?}");
    for name in &found {
        let page = std::fs::read_to_string(pages.join(name)).unwrap();
        assert_sound(name, &page);
        assert_eq!(page.contains("\n.SH \"SEE ALSO\"\n"), name != "docwharf.1", "{name}");
    }
    assert_eq!(run(["man"]).expect(0).stdout, std::fs::read_to_string(pages.join("docwharf.1")).unwrap());
    // A file where the folder should be.
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    run(["man".as_ref(), "--all".as_ref(), file.as_os_str()]).expect(8);
}

#[test]
fn the_manual_says_what_the_readme_says_of_exit_codes_files_and_environment() {
    let page = run(["man"]).expect(0).stdout.replace("\\-", "-").replace("\\.", ".").replace("\\&", "");
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
