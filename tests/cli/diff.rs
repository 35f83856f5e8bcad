//! `docwharf diff`: the differences between two versions, as text, JSON and Markdown.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use support::zip::{Member, deflated, zip};
use support::{CommandOutput, Daemon, docwharf, run_to_end, temporary_folder};

struct Store {
    dir: tempfile::TempDir,
}

impl Store {
    fn new() -> Store {
        Store { dir: temporary_folder() }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    fn run(&self, arguments: &[&str]) -> CommandOutput {
        run_to_end(docwharf().args(arguments).env("DOCWHARF_STORE__PATH", self.root()))
    }

    fn put(&self, label: &str, files: &[(&str, &str)]) {
        let members: Vec<Member> = files.iter().map(|(name, text)| deflated(name, text)).collect();
        let bundle = self.dir.path().join("bundle.zip");
        std::fs::write(&bundle, zip(&members)).unwrap();
        self.run(&["import", bundle.to_str().unwrap(), "--label", label]).expect(0);
    }
}

const OLD: &[(&str, &str)] = &[("index.html", "one"), ("gone.html", "x"), ("same.html", "s"), ("a.css", "a{}")];
const NEW: &[(&str, &str)] = &[("index.html", "three"), ("new.html", "y"), ("same.html", "s"), ("a.css", "a{}")];

/// A store with the versions `old` and `new`.
fn store() -> Store {
    let store = Store::new();
    store.put("old", OLD);
    store.put("new", NEW);
    store
}

#[test]
fn diff_lists_added_removed_and_changed_pages_and_exits_1_if_there_are_any() {
    let store = store();
    let text = store.run(&["diff", "old", "new"]).expect(1);
    assert_eq!(text.stderr, "", "differences are a result, not an error");
    for words in [
        "pages   3 → 3: 1 added, 1 removed, 1 changed",
        "others  1 → 1: no change",
        "pages added (1)\n  \"new.html\"  1 B",
        "pages removed (1)\n  \"gone.html\"  1 B",
        "pages changed (1)\n  \"index.html\"  3 B → 5 B",
    ] {
        assert!(text.stdout.contains(words), "{words} in {}", text.stdout);
    }
    assert!(text.stdout.contains("size    8 B → 10 B (+2 B)\n"), "{}", text.stdout);
    let back = store.run(&["diff", "new", "old"]).expect(1).stdout;
    assert!(back.contains("size    10 B → 8 B (-2 B)\n") && back.contains("\"index.html\"  5 B → 3 B"), "{back}");
    let same = store.run(&["diff", "new", "new"]).expect(0);
    assert!(same.stdout.ends_with("size    10 B → 10 B\n"), "{}", same.stdout);
    assert!(same.stdout.contains("pages   3 → 3: no change"), "{}", same.stdout);
    let json = store.run(&["diff", "old", "new", "--json"]).expect(1).json();
    assert_eq!((&json["schemaVersion"], &json["equal"]), (&1.into(), &false.into()));
    assert_eq!(json["pages"]["changed"][0], serde_json::json!({ "path": "index.html", "before": 3, "after": 5 }));
    assert_eq!(json["pages"]["added"][0]["before"], serde_json::Value::Null);
    assert_eq!(json["bytes"], serde_json::json!({ "before": 8, "after": 10 }));
    assert_eq!(store.run(&["diff", "new", "new", "--json"]).expect(0).json()["equal"], true);
}

#[test]
fn diff_accepts_labels_hash_prefixes_and_roles_and_has_default_versions() {
    let store = store();
    let json = store.run(&["diff", "old", "new", "--json"]).expect(1).json();
    let (old, new) = (json["from"].as_str().unwrap(), json["to"].as_str().unwrap());
    for names in [["previous", "active"], [&old[..8], "newest"], ["previous", new]] {
        let json = store.run(&["diff", names[0], names[1], "--json"]).expect(1).json();
        assert_eq!((&json["from"], &json["to"]), (&old.into(), &new.into()), "{names:?}");
    }
    // By default: the active version, and the one that would be next.
    store.run(&["diff"]).expect(0);
    store.run(&["rollback"]).expect(0);
    let json = store.run(&["diff", "--json"]).expect(1).json();
    assert_eq!((&json["from"], &json["to"]), (&old.into(), &new.into()));
    let json = store.run(&["diff", "new", "--json"]).expect(0).json();
    assert_eq!((&json["from"], &json["to"]), (&new.into(), &new.into()));
    store.run(&["release"]).expect(0);
    // The version that waits is the pinned one, though another is newer.
    let mut pinned = docwharf();
    pinned.env("DOCWHARF_STORE__PATH", store.root()).env("DOCWHARF_STATIC_EXPORT__VERSION", "old");
    let json = run_to_end(pinned.args(["diff", "--json"])).expect(1).json();
    assert_eq!((&json["from"], &json["to"]), (&new.into(), &old.into()));
    let versions = store.run(&["versions", "--json"]).expect(0).json()["versions"].clone();
    for (label, role) in [("new", "active"), ("old", "previous")] {
        let mut all = versions.as_array().unwrap().iter();
        assert!(all.any(|version| version["labels"][0] == label && version["role"] == role), "{versions}");
    }
    for (names, words) in [(["nothing", "new"], "no version or label"), (["1234567", "new"], "8 digits")] {
        let output = store.run(&["diff", names[0], names[1]]).expect(2);
        assert!(output.stderr.contains(words) && output.stderr.lines().count() == 1, "{}", output.stderr);
    }
    let empty = Store::new();
    assert!(empty.run(&["diff"]).expect(2).stderr.contains("there is no active version"));
}

#[test]
fn diff_shortens_long_lists_without_all_and_json_is_complete() {
    let store = Store::new();
    store.put("few", &[("index.html", "x")]);
    let names: Vec<String> = (0..50).map(|n| format!("p{n:02}.html")).collect();
    let mut files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "p")).collect();
    files.push(("index.html", "x"));
    store.put("many", &files);
    let count = |arguments: &[&str], word: &str| {
        let output = store.run(&[&["diff", "few", "many"], arguments].concat()).expect(1);
        (output.stdout.matches(word).count(), output.stdout)
    };
    let (lines, text) = count(&[], ".html\"");
    assert!(lines == 20 && text.contains("… and 30 more"), "{text}");
    assert_eq!(count(&["--all"], ".html\"").0, 50);
    assert_eq!(count(&["--json"], "\"path\"").0, 50);
    assert_eq!(count(&["--markdown"], "- `").0, 20);
    assert_eq!(count(&["--markdown", "--all"], "- `").0, 50);
}

#[test]
fn diff_escapes_page_names_in_text_and_in_markdown() {
    let store = Store::new();
    store.put("old", &[("index.html", "x")]);
    let names = ["a\x1b[31m\n.html", "</details>|*b*.html", "c`d``e.html", "@team #1.html"];
    let mut files: Vec<(&str, &str)> = names.iter().map(|name| (*name, "p")).collect();
    files.push(("index.html", "x"));
    store.put("new", &files);
    let text = store.run(&["diff", "old", "new"]).expect(1).stdout;
    assert!(text.contains("\"a\\u{1b}[31m\\n.html\"") && !text.contains('\x1b'), "{text}");
    let markdown = store.run(&["diff", "old", "new", "--markdown"]).expect(1).stdout;
    for line in ["- `a\\u{1b}[31m\\n.html` ", "- `</details>|*b*.html` ", "- ```c`d``e.html``` ", "- `@team #1.html` "]
    {
        assert!(markdown.contains(line), "{line} in {markdown}");
    }
    assert!(markdown.contains("| pages | 1 | 5 | 4 | 0 | 0 |"), "{markdown}");
    assert_eq!(markdown.matches("<details>").count(), 1);
    let json = store.run(&["diff", "old", "new", "--json"]).expect(1).json();
    assert_eq!(json["pages"]["added"][2]["path"], names[0]);
    assert!(store.run(&["diff", "--json", "--markdown"]).expect(2).stderr.contains("cannot be used with"));
}

fn set_modes(dir: &Path, folder: u32, file: u32) {
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            set_modes(&entry.path(), folder, file);
        } else {
            std::fs::set_permissions(entry.path(), std::fs::Permissions::from_mode(file)).unwrap();
        }
    }
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(folder)).unwrap();
}

#[test]
fn diff_works_during_a_running_daemon_and_on_a_read_only_store() {
    let store = store();
    let mut command = docwharf();
    command.arg("run").env("DOCWHARF_STORE__PATH", store.root()).env("DOCWHARF_SERVER__LISTEN", "127.0.0.1:0");
    let daemon = Daemon::start(command.env("DOCWHARF_SYNC__INBOX", store.dir.path().join("inbox")));
    store.run(&["diff", "old", "new"]).expect(1);
    store.run(&["stage"]).expect(0);
    drop(daemon);
    let versions = store.root().join("versions");
    let before = support::read_tree(&versions);
    set_modes(&store.root(), 0o555, 0o444);
    store.run(&["diff", "old", "new"]).expect(1);
    set_modes(&store.root(), 0o755, 0o644);
    assert_eq!(support::read_tree(&versions), before, "nothing was written");
}

// Regression: a damaged index beside a valid image stayed damaged when its bundle was imported again.
#[test]
fn damaged_index_is_an_error_that_advises_a_new_import() {
    let store = store();
    let json = store.run(&["diff", "old", "new", "--json"]).expect(1).json();
    let index = store.root().join("versions").join(json["from"].as_str().unwrap()).join("index");
    std::fs::set_permissions(&index, std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::write(&index, "damaged").unwrap();
    let output = store.run(&["diff", "old", "new"]).expect(8);
    assert_eq!((output.stdout.as_str(), output.stderr.lines().count()), ("", 1));
    assert!(output.stderr.contains("`docwharf import` of its bundle"), "{}", output.stderr);
    store.put("old", OLD);
    store.run(&["diff", "old", "new"]).expect(1);
}
