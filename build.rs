//! Sets the commit, the target, the features and the compiler of the build as environment variables for `docwharf
//! version`. None of them depends on the time or the directory of the build.

#![allow(clippy::disallowed_methods)] // it runs git while docwharf is built

use std::env;
use std::process::Command;

fn main() {
    let target = env::var("TARGET").unwrap_or_default();
    println!("cargo:rustc-env=DOCWHARF_TARGET={target}");
    println!("cargo:rustc-env=DOCWHARF_COMPILER={}", compiler_version());
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=DOCWHARF_COMMIT");
    println!("cargo:rustc-env=DOCWHARF_COMMIT={}", find_commit().unwrap_or_default());
    let features =
        env::vars_os().filter_map(|(name, _)| name.to_str()?.strip_prefix("CARGO_FEATURE_").map(str::to_owned));
    let features = features.map(|name| name.to_ascii_lowercase().replace('_', "-"));
    // `default` is only a list of other features.
    let mut features: Vec<String> = features.filter(|name| name != "default").collect();
    features.sort();
    println!("cargo:rustc-env=DOCWHARF_FEATURES={}", features.join(","));
}

/// Returns the version of the compiler: `rustc 1.91.0 (f8297e351 2025-10-28)`. Cargo runs this program again if the
/// compiler changes.
fn compiler_version() -> String {
    let rustc = env::var_os("RUSTC").expect("cargo sets RUSTC");
    let output = Command::new(&rustc).arg("--version").output();
    let output = output.unwrap_or_else(|error| panic!("cannot run {}: {error}", rustc.display()));
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert!(output.status.success() && version.starts_with("rustc "), "{} has no version: {version}", rustc.display());
    version
}

/// Returns `$DOCWHARF_COMMIT` if it is set, as in the build of an image, which has no repository; otherwise the commit
/// that is checked out. Builds for development have none, because each commit would compile them again.
fn find_commit() -> Option<String> {
    if let Ok(commit) = env::var("DOCWHARF_COMMIT") {
        return Some(commit);
    }
    if env::var("PROFILE").ok()? != "release" {
        return None;
    }
    for source in ["src", "crates", "Cargo.toml", "Cargo.lock"] {
        println!("cargo:rerun-if-changed={source}");
    }
    println!("cargo:rerun-if-changed={}", run_git(&["rev-parse", "--git-path", "logs/HEAD"])?);
    let commit = run_git(&["rev-parse", "HEAD"])?;
    let is_changed = !run_git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Some(if is_changed { format!("{commit}-modified") } else { commit })
}

fn run_git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
