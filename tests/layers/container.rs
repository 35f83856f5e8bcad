//! The context of the container's build.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Returns the targets that Cargo finds in the workspace at `root`, each with the name of its package.
fn cargo_targets(root: &Path) -> BTreeSet<String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--offline", "--locked", "--format-version", "1"]);
    let output = cargo.current_dir(root).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    packages
        .iter()
        .flat_map(|package| package["targets"].as_array().unwrap().iter().map(move |target| (package, target)))
        .map(|(package, target)| format!("{} {} {}", package["name"], target["kind"], target["name"]))
        .collect()
}

// Regression: the manifest named tests that the context lacked, so `cargo build` refused it, and no image could be
// built.
#[test]
fn the_context_of_the_container_has_every_target_of_the_workspace() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let context = support::temporary_folder();
    let ignored = std::fs::read_to_string(root.join(".dockerignore")).unwrap();
    for name in ignored.lines().filter_map(|line| line.strip_prefix('!')) {
        symlink(root.join(name), context.path().join(name)).unwrap();
    }
    assert_eq!(cargo_targets(context.path()), cargo_targets(root));
}
