//! The house stands: a file imports only from its own room and from floors below. Its documents are true.

#![allow(missing_docs)]

#[path = "floors/documents.rs"]
mod documents;

use std::collections::BTreeMap;
use std::path::Path;

/// Room or top-level file → floor, as ARCHITECTURE.md has it.
const FLOORS: &[(&str, u32)] = &[
    ("base", 0),
    ("model", 1),
    ("codec", 1),
    ("net", 1),
    ("bundle", 2),
    ("site", 2),
    ("store", 2),
    ("api", 2),
    ("fetch", 2),
    ("seal", 3),
    ("serve", 3),
    ("publish", 3),
    ("analytics", 3),
    ("sync", 4),
    ("origin", 4),
    ("admin", 5),
    ("config", 5),
    ("daemon", 6),
    ("doctor", 6),
    ("cli", 7),
    ("lib", 8),
];

fn sources(dir: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
            let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            found.push((name, std::fs::read_to_string(&path).unwrap()));
        }
    }
}

/// The rooms that a source text names by `crate::room`, single or in braces.
fn rooms_named(text: &str) -> Vec<String> {
    let mut rooms = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        let names: Vec<&str> = match rest.strip_prefix('{') {
            Some(list) => list[..list.find('}').unwrap_or(list.len())].split(',').collect(),
            None => vec![rest],
        };
        for name in names {
            let name: String = name.trim().chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            rooms.push(name);
        }
    }
    rooms
}

#[test]
fn every_file_imports_only_from_its_own_room_and_from_floors_below() {
    let floors: BTreeMap<&str, u32> = FLOORS.iter().copied().collect();
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    assert!(files.len() > 40, "only {} files found", files.len());
    let mut wrong = Vec::new();
    for (name, text) in &files {
        let room = name.split(['/', '.']).next().unwrap();
        if room == "main" {
            continue;
        }
        let Some(&floor) = floors.get(room) else {
            wrong.push(format!("{name} lies in a room that has no floor"));
            continue;
        };
        for other in rooms_named(text) {
            match floors.get(other.as_str()) {
                Some(&below) if below < floor || other == room => {}
                Some(_) => wrong.push(format!("{name} imports from {other}")),
                None => wrong.push(format!("{name} imports from {other}, which has no floor")),
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_lower_floors_do_no_io() {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    for (name, text) in files.iter().filter(|(name, _)| name.starts_with("model/") || name.starts_with("codec/")) {
        for word in ["std::fs", "std::net", "std::process", "tokio", "rustix"] {
            assert!(!text.contains(word), "{name} uses {word}");
        }
    }
}

#[test]
fn unsafe_code_is_in_the_mapping_and_in_one_option_of_a_socket_only() {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    for (name, text) in &files {
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let count = code.filter(|line| line.contains("unsafe {") || line.contains("unsafe fn")).count();
        let most = match name.as_str() {
            "site/mapping.rs" => usize::MAX,
            "site/memfd_arena.rs" => 1,
            "base/defer.rs" => 1,
            _ => 0,
        };
        assert!(count <= most, "{name} has unsafe code");
    }
}

/// Modules that open, create, rename or remove files where other users may write. A room stands for all its files.
const BY_DESCRIPTOR: &[&str] = &[
    "base/directory/mod.rs",
    "bundle/folder.rs",
    "daemon/arrivals.rs",
    "fetch/mod.rs",
    "origin/exports/subset.rs",
    "origin/leftover.rs",
    "origin/previews/shelf.rs",
    "publish/mod.rs",
    "seal/mod.rs",
    "store/mod.rs",
    "sync/inbox.rs",
];

/// Lines of other code in these modules that may use a path all the same, because it is one that an operator has written.
const BY_PATH: usize = 10;

#[test]
fn what_other_users_may_write_to_is_not_reached_by_path() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let listed = std::fs::read_to_string(root.join("clippy.toml")).unwrap();
    let needed = ["fs::write", "fs::rename", "fs::remove_file", "fs::remove_dir_all", "fs::set_permissions"];
    for method in needed.into_iter().chain(["File::open", "File::create", "OpenOptions::open", "DirBuilder::create"]) {
        assert!(listed.contains(&format!("\"std::fs::{}\"", method.trim_start_matches("fs::"))), "{method}");
    }
    let mut files = Vec::new();
    sources(&root.join("src"), &mut files);
    let mut by_path = 0;
    for module in BY_DESCRIPTOR {
        let below = module.strip_suffix("mod.rs").unwrap_or(module);
        let texts: Vec<_> = files.iter().filter(|(name, _)| name.starts_with(below)).collect();
        let (_, text) = texts.iter().find(|(name, _)| name == module).unwrap_or_else(|| panic!("{module} has gone"));
        assert!(text.contains("\n#![deny(clippy::disallowed_methods)]\n"), "{module} does not deny paths");
        for (name, text) in texts {
            let code = text.split("#[cfg(test)]\n").next().unwrap();
            for line in code.lines().filter(|line| line.contains("allow(clippy::disallowed_methods)")) {
                assert!(line.contains("// "), "{name} does not say why it may: {line}");
                by_path += 1;
            }
        }
    }
    assert!(by_path <= BY_PATH, "{by_path} places use paths where other users may write; {BY_PATH} are known");
}
