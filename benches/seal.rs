//! Verifying, sealing and syncing a bundle to disk, compared with the tools that people use to unpack bundles.
//!
//! `cargo bench --bench seal -- FOLDER [--rounds N]`, where FOLDER has `site.zip` and `site.tar.gz` of one large site
//! (`.ci/extra corpus` makes them of the Rust documentation). Each peer's command ends with `sync -f`, because
//! docwharf's import syncs its files, too. The rounds are interleaved, each run starts with an idle disk, every
//! extraction goes to a new folder, and nothing is deleted before the end, because deleting large trees slows later
//! writes. Needs GNU time.

#![allow(missing_docs)]
#![allow(clippy::disallowed_methods)] // it starts programs

mod peers;

use std::path::Path;
use std::process::Command;

use peers::{Arguments, compare, first_line, is_installed, measure, median, wait_for_idle_disk};

/// Imports ten different versions one after another. The last imports must cost as much as the first.
fn ten_imports(program: &str, archive: &Path, scratch: &Path) {
    if !is_installed("zip") {
        println!("zip is not installed: the ten imports are left out");
        return;
    }
    let store = scratch.join("ten");
    let mut seconds = Vec::new();
    for n in 0..=10 {
        let bundle = scratch.join(format!("ten-{n}.zip"));
        std::fs::copy(archive, &bundle).expect("the archive can be copied");
        let page = scratch.join(format!("added-{n}.html"));
        std::fs::write(&page, format!("version {n}")).expect("the scratch folder can be written");
        let status = Command::new("zip").arg("-qj").arg(&bundle).arg(&page).status().expect("zip runs");
        assert!(status.success());
        wait_for_idle_disk();
        let run = measure(
            &format!("DOCWHARF_STORE__PATH=\"$D/../ten\" {program} -q import \"$A\""),
            &bundle.to_string_lossy(),
            &store,
        );
        if n > 0 {
            seconds.push(run.wall); // the very first import is a warm-up
        }
    }
    let first = median(seconds[..3].to_vec());
    let last = median(seconds[7..].to_vec());
    let texts: Vec<String> = seconds.iter().map(|w| format!("{w:.2}")).collect();
    println!(
        "\n## ten imports of different versions\n\nseconds: {}; last three over first three: {:.2}",
        texts.join(" "),
        last / first
    );
}

fn main() {
    let Some(Arguments { folder, rounds }) = peers::arguments("seal") else { return };
    let scratch = tempfile::Builder::new().prefix("bench-seal-").tempdir_in(&folder).expect("FOLDER can be written");
    let program = env!("CARGO_BIN_EXE_docwharf");
    println!("{}", first_line(&format!("{program} --version")));
    for command in ["tar --version", "unzip -v", "bsdtar --version", "ripunzip --version"] {
        if is_installed(command.split(' ').next().unwrap_or_default()) {
            println!("{}", first_line(command));
        }
    }
    let import = format!("DOCWHARF_STORE__PATH=\"$D\" {program} -q import \"$A\"");
    let compare_archive = |title, name: &str, peers: &[(&'static str, &str)]| {
        let archive = folder.join(name);
        let size = std::fs::metadata(&archive).expect("the archive is there").len();
        let archive = archive.to_string_lossy();
        compare(title, &archive, size, scratch.path(), rounds, ("docwharf import", &import), peers);
    };
    compare_archive(
        "zip",
        "site.zip",
        &[
            ("unzip", "unzip -q \"$A\" -d \"$D\""),
            ("bsdtar", "bsdtar xf \"$A\" -C \"$D\""),
            ("ripunzip", "ripunzip -q unzip-file -d \"$D\" \"$A\""),
        ],
    );
    compare_archive(
        "tar.gz",
        "site.tar.gz",
        &[("tar", "tar xzf \"$A\" -C \"$D\""), ("bsdtar", "bsdtar xf \"$A\" -C \"$D\"")],
    );
    ten_imports(program, &folder.join("site.zip"), scratch.path());
    println!("\nremoving the scratch folder; this may take longer than the benchmark");
}
