//! Checks that the imports between the files of a crate form no cycle.

use std::collections::{BTreeMap, BTreeSet};

use crate::read_sources;

/// A module: the names of its path below the root of its crate.
type ModulePath = Vec<String>;

/// Returns the module of a source file below `folder`.
fn module_of(folder: &str, file: &str) -> ModulePath {
    let path = file.strip_prefix(folder).and_then(|path| path.strip_prefix('/'));
    let path = path.and_then(|path| path.strip_suffix(".rs")).expect("a source file");
    let mut path: ModulePath = path.split('/').map(str::to_owned).collect();
    if path.last().is_some_and(|name| name == "mod" || name == "lib") {
        path.pop();
    }
    path
}

/// Expands the braces of a `use` declaration into single paths.
fn expand(tree: &str) -> Vec<String> {
    let Some((head, rest)) = tree.split_once('{') else { return vec![tree.trim().to_owned()] };
    let list = rest.rsplit_once('}').map_or(rest, |(list, _)| list);
    let (mut depth, mut items) = (0, vec![String::new()]);
    for c in list.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                items.push(String::new());
                continue;
            }
            _ => {}
        }
        items.last_mut().expect("the list is never empty").push(c);
    }
    let items = items.iter().filter(|item| !item.trim().is_empty());
    items.map(String::as_str).flat_map(expand).map(|item| format!("{}{item}", head.trim())).collect()
}

/// Returns the modules from which a file imports. Imports from its own child modules do not count.
fn imports(module: &[String], text: &str, modules: &BTreeSet<ModulePath>) -> BTreeSet<ModulePath> {
    // Tests at the end of a file may import from it with `use super::*`, and from anywhere else.
    let code = text.split("\nmod tests {").next().unwrap_or_default();
    let declarations = code.lines().collect::<Vec<_>>().join(" ");
    let declarations = declarations.split(';').filter_map(|statement| {
        let (before, tree) = statement.rsplit_once("use ")?;
        (before.is_empty() || before.ends_with([' ', ')', ']'])).then_some(tree)
    });
    let mut found = BTreeSet::new();
    for path in declarations.flat_map(expand) {
        let mut names = path.split("::").map(str::trim).peekable();
        let mut current: ModulePath = match names.peek() {
            Some(&"crate") => Vec::new(),
            Some(&"super") => module.to_vec(),
            _ => continue,
        };
        while let Some(name) = names.next_if(|&name| name == "crate" || name == "super") {
            if name == "super" {
                current.pop();
            }
        }
        for name in names {
            let child: ModulePath = current.iter().cloned().chain([name.to_owned()]).collect();
            if !modules.contains(&child) {
                break;
            }
            current = child;
        }
        if modules.contains(&current) && !current.starts_with(module) {
            found.insert(current);
        }
    }
    found
}

/// Returns the imports of each file below `folder`.
fn read_imports(folder: &str) -> BTreeMap<ModulePath, BTreeSet<ModulePath>> {
    let files = read_sources(folder);
    let modules: BTreeSet<ModulePath> = files.iter().map(|(name, _)| module_of(folder, name)).collect();
    let edges: BTreeMap<ModulePath, BTreeSet<ModulePath>> = files
        .iter()
        .map(|(name, text)| {
            let module = module_of(folder, name);
            let found = imports(&module, text, &modules);
            (module, found)
        })
        .collect();
    assert!(edges.values().map(BTreeSet::len).sum::<usize>() > 20, "imports are found");
    edges
}

#[track_caller]
fn assert_no_cycle(mut edges: BTreeMap<ModulePath, BTreeSet<ModulePath>>) {
    // Removes files that import from no remaining file, until there is none. The remaining files are in a cycle, or
    // import from a file that is.
    loop {
        let without_imports: Vec<ModulePath> =
            edges.iter().filter(|(_, imports)| imports.is_empty()).map(|(module, _)| module.clone()).collect();
        if without_imports.is_empty() {
            break;
        }
        for module in &without_imports {
            edges.remove(module);
            for imports in edges.values_mut() {
                imports.remove(module);
            }
        }
    }
    assert!(edges.is_empty(), "{edges:#?}");
}

#[test]
fn origin_files_have_no_import_cycle_and_no_import_from_the_crate_root() {
    let edges = read_imports("crates/origin/src");
    // The root has only re-exports, so an import from it is an import from the file of the re-exported item.
    let from_root: Vec<_> = edges.iter().filter(|(_, imports)| imports.contains(&ModulePath::new())).collect();
    assert!(from_root.is_empty(), "{from_root:#?}");
    assert_no_cycle(edges);
}

#[test]
fn agent_files_have_no_import_cycle() {
    assert_no_cycle(read_imports("crates/agent/src"));
}

#[test]
fn base_files_have_no_import_cycle() {
    assert_no_cycle(read_imports("crates/base/src"));
}

#[test]
fn site_files_have_no_import_cycle() {
    assert_no_cycle(read_imports("crates/site/src"));
}

#[test]
fn search_files_have_no_import_cycle() {
    assert_no_cycle(read_imports("crates/search/src"));
}

#[test]
fn serve_files_have_no_import_cycle() {
    assert_no_cycle(read_imports("crates/serve/src"));
}

#[test]
fn test_support_files_have_no_import_cycle() {
    assert_no_cycle(read_imports("crates/test-support/src"));
}

#[test]
fn root_package_files_have_no_import_cycle() {
    assert_no_cycle(read_imports("src"));
}
