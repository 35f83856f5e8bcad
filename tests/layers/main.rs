//! Checks the layers of the program inside each crate (Cargo enforces them between crates), and the documents.

#![allow(missing_docs)]
#![allow(clippy::disallowed_methods)] // it starts cargo

mod container;
mod cycles;
mod debian_package;
mod documents;
mod first_configurations;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The layers inside each crate, in the order of ARCHITECTURE.md: crate → module or top-level file → layer. The numbers
/// count only within a crate. A crate without a row has no layers.
const LAYERS: &[(&str, &[(&str, u32)])] = &[
    ("crates/base/src", &[("codec", 2), ("net", 2)]),
    ("crates/site/src", &[("bundle", 1), ("seal", 2)]),
    ("crates/agent/src", &[("store", 0), ("api", 0), ("fetch", 0), ("publish", 1), ("analytics", 1), ("sync", 2)]),
    ("src", &[("features", 0), ("admin", 1), ("config", 1), ("daemon", 2), ("doctor", 2), ("cli", 3)]),
];

/// Returns the layer of a module without a row. In one crate, such modules may import from each other. In `base`, they
/// are below `codec` and `net`; in `site`, they are on the layer of `bundle` and below `seal`.
fn default_layer(folder: &str) -> u32 {
    u32::from(matches!(folder, "crates/base/src" | "crates/site/src"))
}

/// The folders with the sources of the program.
const SOURCE_FOLDERS: [&str; 8] = [
    "crates/base/src",
    "crates/site/src",
    "crates/search/src",
    "crates/serve/src",
    "crates/agent/src",
    "crates/analytics/src",
    "crates/origin/src",
    "src",
];

/// Reads the Rust files below a folder: the path from the root of the repository, and the text.
fn read_sources(folder: &str) -> Vec<(String, String)> {
    fn collect(root: &Path, dir: &Path, found: &mut Vec<(String, String)>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(root, &path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
                found.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    collect(root, &root.join(folder), &mut found);
    found
}

fn read_all_sources() -> Vec<(String, String)> {
    SOURCE_FOLDERS.into_iter().flat_map(read_sources).collect()
}

/// Returns the modules that a source text names as `crate::module`, single or in braces.
fn named_modules(text: &str) -> BTreeSet<String> {
    let mut modules = BTreeSet::new();
    for (start, _) in text.match_indices("crate::") {
        let rest = &text[start + "crate::".len()..];
        let names: Vec<&str> = match rest.strip_prefix('{') {
            Some(list) => list[..list.find('}').unwrap_or(list.len())].split(',').collect(),
            None => vec![rest],
        };
        for name in names {
            let name: String = name.trim().chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            modules.insert(name);
        }
    }
    modules
}

#[test]
fn every_file_imports_only_from_its_own_module_and_from_layers_below() {
    let mut problems = Vec::new();
    for &(folder, rows) in LAYERS {
        let rows: BTreeMap<&str, u32> = rows.iter().copied().collect();
        let layer_of = |module: &str| rows.get(module).copied().unwrap_or(default_layer(folder));
        let files = read_sources(folder);
        let module_of = |name: &str| name[folder.len() + 1..].split(['/', '.']).next().unwrap().to_owned();
        let modules: BTreeSet<String> = files.iter().map(|(name, _)| module_of(name)).collect();
        for module in rows.keys() {
            assert!(modules.contains(*module), "{folder} has no module {module}");
        }
        for (name, text) in &files {
            let module = module_of(name);
            if module == "lib" || module == "main" {
                continue;
            }
            for imported in named_modules(text).intersection(&modules) {
                let (own_layer, imported_layer) = (layer_of(&module), layer_of(imported));
                let both_without_row = !rows.contains_key(module.as_str()) && !rows.contains_key(imported.as_str());
                if *imported != module && imported_layer >= own_layer && !both_without_row {
                    problems.push(format!("{name} imports from {imported}"));
                }
            }
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

/// Returns the top-level modules from which a file of a crate imports, outside its tests. `name` is the path below the
/// crate's `src`.
fn imported_modules(name: &str, text: &str) -> BTreeSet<String> {
    // `mod.rs` is the module of its folder, one level higher than its path.
    let depth = name.split('/').count() - usize::from(name.ends_with("/mod.rs"));
    let code = text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut code = lines.collect::<Vec<_>>().join("\n").replace(&"super::".repeat(depth), "crate::");
    code.retain(|c| c != '\n');
    named_modules(&code)
}

#[test]
fn serve_modules_have_no_import_cycle() {
    let folder = "crates/serve/src";
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, text) in read_sources(folder) {
        let name = &name[folder.len() + 1..];
        let module = name.split(['/', '.']).next().unwrap().to_owned();
        if module != "lib" && !name.ends_with("tests.rs") {
            imports.entry(module).or_default().extend(imported_modules(name, &text));
        }
    }
    let modules: BTreeSet<String> = imports.keys().cloned().collect();
    for (module, others) in &mut imports {
        others.retain(|other| other != module && modules.contains(other));
    }
    assert!(imports["handler"].contains("file_response") && imports["http2"].contains("respond"), "imports are found");
    // Modules that import from none of the remaining modules are not in a circle.
    while let Some(module) = imports.iter().find(|(_, others)| others.is_empty()).map(|(module, _)| module.clone()) {
        imports.remove(&module);
        for others in imports.values_mut() {
            others.remove(&module);
        }
    }
    assert!(imports.is_empty(), "each of these imports from another one of them, or from one that does: {imports:#?}");
}

#[test]
fn model_and_codec_modules_do_no_io() {
    let pure = ["crates/base/src/model/", "crates/base/src/codec/"];
    for (name, text) in read_all_sources().iter().filter(|(name, _)| pure.iter().any(|folder| name.starts_with(folder)))
    {
        for word in ["std::fs", "std::net", "std::process", "tokio", "rustix"] {
            assert!(!text.contains(word), "{name} uses {word}");
        }
    }
}

#[test]
fn unsafe_code_is_only_in_two_memory_mappings_one_socket_option_and_the_isolation_of_children() {
    let mut found = BTreeSet::new();
    for (name, text) in read_all_sources() {
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let count =
            code.filter(|line| ["unsafe {", "unsafe fn", "unsafe impl"].iter().any(|part| line.contains(part))).count();
        let max_count = match name.as_str() {
            "crates/site/src/mapping.rs" => usize::MAX,
            "crates/site/src/memfd_arena.rs" | "crates/base/src/tcp_options.rs" => 1,
            "crates/base/src/child_network.rs" => 4,
            _ => 0,
        };
        assert!(count <= max_count, "{name} has unsafe code");
        if count > 0 {
            found.insert(name);
        }
    }
    assert_eq!(found.len(), 4, "{found:?}");
}

/// Modules that open, create, rename or remove files where other users may write. A `mod.rs` stands for all files of
/// its folder.
const DESCRIPTOR_MODULES: &[&str] = &[
    "crates/base/src/directory/mod.rs",
    "crates/site/src/bundle/folder.rs",
    "crates/site/src/seal/mod.rs",
    "crates/agent/src/fetch/mod.rs",
    "crates/agent/src/publish/mod.rs",
    "crates/agent/src/store/mod.rs",
    "crates/agent/src/sync/inbox.rs",
    "crates/origin/src/exports/subset.rs",
    "crates/origin/src/previews/store.rs",
    "crates/origin/src/source/git/site_folder.rs",
    "crates/origin/src/stale_work.rs",
    "src/daemon/inbox.rs",
];

/// Upper bound of the exceptions in these modules: lines that may use a path, because an operator has configured it.
const MAX_PATH_EXCEPTIONS: usize = 10;

#[test]
fn modules_that_use_folders_writable_by_other_users_open_no_files_by_path() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let clippy_config = std::fs::read_to_string(root.join(".ci/file-methods/clippy.toml")).unwrap();
    let required = ["fs::write", "fs::rename", "fs::remove_file", "fs::remove_dir_all", "fs::set_permissions"];
    for method in required.into_iter().chain(["File::open", "File::create", "OpenOptions::open", "DirBuilder::create"])
    {
        assert!(clippy_config.contains(&format!("\"std::fs::{}\"", method.trim_start_matches("fs::"))), "{method}");
    }
    let files = read_all_sources();
    let mut exceptions = 0;
    for module in DESCRIPTOR_MODULES {
        let prefix = module.strip_suffix("mod.rs").unwrap_or(module);
        let texts: Vec<_> = files.iter().filter(|(name, _)| name.starts_with(prefix)).collect();
        let (_, text) = texts.iter().find(|(name, _)| name == module).unwrap_or_else(|| panic!("there is no {module}"));
        assert!(text.contains("\n#![deny(clippy::disallowed_methods)]\n"), "{module} does not deny paths");
        for (name, text) in texts {
            let code = text.split("#[cfg(test)]\n").next().unwrap();
            for line in code.lines().filter(|line| line.contains("allow(clippy::disallowed_methods)")) {
                assert!(line.contains("// "), "{name} gives no reason for an exception: {line}");
                exceptions += 1;
            }
        }
    }
    assert!(
        exceptions <= MAX_PATH_EXCEPTIONS,
        "{exceptions} lines use paths where other users may write; at most {MAX_PATH_EXCEPTIONS} may"
    );
}

/// The files that may use the methods by which a process connects, asks a name server or starts a program.
const OUTBOUND_FILES: [&str; 3] =
    ["crates/base/src/child_network.rs", "crates/base/src/net/client.rs", "crates/base/src/net/connect.rs"];
/// The parts of a path that a file with an exception for paths does not contain: there, clippy would allow it to
/// connect, too.
const OUTBOUND_WORDS: [&str; 10] = [
    "net::",
    "reqwest",
    "hyper",
    "socket2",
    "libc",
    "connect",
    "lookup_host",
    "socket_addr",
    "ToSocketAddrs",
    "Command",
];

/// Returns the files of the modules to which a file gives an exception as a whole.
fn excepted_modules(name: &str, code: &str) -> Vec<String> {
    let folder = name.strip_suffix("mod.rs").map_or_else(|| name.replace(".rs", "/"), str::to_owned);
    let lines: Vec<&str> = code.lines().collect();
    let pairs = lines.windows(2).filter(|pair| pair[0].contains("allow(clippy::disallowed_methods)"));
    pairs
        .filter_map(|pair| pair[1].trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'))
        .map(|module| format!("{folder}{module}.rs"))
        .collect()
}

#[test]
fn only_one_module_may_connect_ask_a_name_server_or_start_a_program() {
    let read = |name: &str| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap();
    let clippy_config = read("clippy.toml");
    for method in [
        "reqwest::Client::builder",
        "rustix::net::connect",
        "std::net::TcpStream::connect",
        "std::net::ToSocketAddrs::to_socket_addrs",
        "std::net::UdpSocket::bind",
        "tokio::net::TcpSocket::connect",
        "tokio::net::TcpStream::connect",
        "tokio::net::lookup_host",
        "reqwest::ClientBuilder",
        "std::process::Command::new",
        "url::Url::socket_addrs",
    ] {
        assert!(clippy_config.contains(&format!("\"{method}\"")), "{method} is allowed");
    }
    for lint in ["disallowed_methods", "disallowed_types"] {
        assert!(read("Cargo.toml").contains(&format!("\n{lint} = \"deny\"\n")), "{lint}");
    }
    let is_path_exception = |name: &str| {
        DESCRIPTOR_MODULES.iter().any(|module| name.starts_with(module.strip_suffix("mod.rs").unwrap_or(module)))
    };
    let files: BTreeMap<String, String> = read_all_sources().into_iter().collect();
    let code_of = |name: &str| files[name].split("#[cfg(test)]\n").next().unwrap();
    let (mut found, mut path_exceptions) = (BTreeSet::new(), BTreeSet::new());
    for name in files.keys() {
        let code = code_of(name);
        let has_type = code.contains("allow(clippy::disallowed_types)");
        assert!(!has_type || name == "crates/base/src/net/client.rs", "{name}");
        if !code.contains("allow(clippy::disallowed_methods)") {
            continue;
        }
        if is_path_exception(name) {
            path_exceptions.extend(excepted_modules(name, code).into_iter().chain([name.clone()]));
        } else {
            found.insert(name.clone());
        }
    }
    assert_eq!(found, OUTBOUND_FILES.map(str::to_owned).into());
    assert!(path_exceptions.contains("crates/site/src/seal/unpack.rs"), "{path_exceptions:?}");
    for name in path_exceptions {
        for line in code_of(&name).lines().filter(|line| !line.trim_start().starts_with("//")) {
            assert!(!OUTBOUND_WORDS.iter().any(|word| line.contains(word)), "{name} may connect: {line}");
        }
    }
}
