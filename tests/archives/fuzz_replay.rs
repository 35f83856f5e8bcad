//! Replays the fuzzing corpus: runs each file of `fuzz/corpus` through its target.

#[path = "../../fuzz/src/lib.rs"]
mod fuzz;

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

fn names(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    entries.map(|entry| entry.expect("an entry can be read").file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn every_fuzz_target_has_a_corpus_and_passes_each_of_its_files() {
    fuzz::be_thorough();
    let mut failed = Vec::new();
    for (target, check) in fuzz::TARGETS {
        let corpus = root().join("corpus").join(target);
        let corpus_files = names(&corpus);
        assert!(corpus_files.len() >= 10, "{target} has a corpus of {} files", corpus_files.len());
        for name in corpus_files {
            let data = fs::read(corpus.join(&name)).expect("a file of the corpus can be read");
            // The message of the panic describes the fault; this list has the inputs.
            if catch_unwind(|| check(&data)).is_err() {
                failed.push(format!("{target}/{name}"));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Runs a target with pseudo-random bytes. `DOCWHARF_FUZZ_RUNS` sets the number of runs, `DOCWHARF_SEED` the first
/// seed.
fn run_with_random_input(target: &str, runs: u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (runs, first) = (number("DOCWHARF_FUZZ_RUNS").unwrap_or(runs), number("DOCWHARF_SEED").unwrap_or(1));
    for seed in first..first + runs {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let len = next() % 1500;
        let data: Vec<u8> = (0..len).map(|_| (next() >> 32) as u8).collect();
        let is_ok = catch_unwind(|| fuzz::check(target, &data)).is_ok();
        assert!(is_ok, "{target}: DOCWHARF_SEED={seed} DOCWHARF_FUZZ_RUNS=1");
    }
}

/// The target derives a valid conversation from any bytes, so random input covers much of the code.
#[test]
fn the_http2_fuzz_target_passes_with_random_input() {
    run_with_random_input("http2", 1500);
}

/// These targets derive valid input from any bytes, too.
#[test]
fn the_parser_fuzz_targets_pass_with_random_input() {
    for target in ["http1_head", "hpack", "zstd_frame", "index", "sitemap", "robots", "cursor", "search_extract"] {
        run_with_random_input(target, 200);
    }
}

#[test]
fn every_fuzz_target_has_a_binary_and_a_corpus_and_is_replayed() {
    let replayed: BTreeSet<String> = fuzz::TARGETS.iter().map(|(target, _)| (*target).to_owned()).collect();
    let fuzzed = names(&root().join("fuzz_targets"));
    assert_eq!(fuzzed.iter().map(|name| name.trim_end_matches(".rs").to_owned()).collect::<BTreeSet<_>>(), replayed);
    assert_eq!(names(&root().join("corpus")), replayed);
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the manifest can be read");
    for target in &replayed {
        assert!(manifest.contains(&format!("[[bin]]\nname = \"{target}\"\n")), "{target} is not in fuzz/Cargo.toml");
        let text = fs::read_to_string(root().join(format!("fuzz_targets/{target}.rs"))).expect("a target can be read");
        assert!(text.contains(&format!("check(\"{target}\", data)")), "{target} runs another target");
    }
}
