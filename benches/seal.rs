//! Proving, sealing and making durable, against the tools that people unpack bundles with.
//!
//! `cargo bench --bench seal -- FOLDER [--rounds N]`, where FOLDER holds `site.zip` and `site.tar.gz` of one large site
//! (`.ci/extra corpus` makes them of the Rust documentation). Each peer's command ends with `sync -f`, as docwharf's
//! import is durable by itself. The rounds are interleaved, each run starts with a quiet disk, every extraction goes to a new folder, and nothing is
//! deleted before the end, because deleting large trees slows what is written after it. Needs GNU time.

#![allow(missing_docs)]

mod peers;

use std::path::Path;
use std::process::Command;

use peers::{Arguments, compare, first_line, installed, measure, median, quiet_disk};

/// Imports ten different versions one after another: the tenth must cost what the first did.
fn ten_imports(program: &str, archive: &Path, scratch: &Path) {
    if !installed("zip") {
        println!("zip is not installed: the ten imports are left out");
        return;
    }
    let store = scratch.join("ten");
    let mut walls = Vec::new();
    for n in 0..=10 {
        let bundle = scratch.join(format!("ten-{n}.zip"));
        std::fs::copy(archive, &bundle).expect("the archive can be copied");
        let page = scratch.join(format!("added-{n}.html"));
        std::fs::write(&page, format!("version {n}")).expect("the scratch folder can be written");
        let added = Command::new("zip").arg("-qj").arg(&bundle).arg(&page).status().expect("zip runs");
        assert!(added.success());
        quiet_disk();
        let run = measure(
            &format!("DOCWHARF_STORE__PATH=\"$D/../ten\" {program} -q import \"$A\""),
            &bundle.to_string_lossy(),
            &store,
        );
        if n > 0 {
            walls.push(run.wall); // the first one of all warms up
        }
    }
    let first = median(walls[..3].to_vec());
    let last = median(walls[7..].to_vec());
    let all: Vec<String> = walls.iter().map(|w| format!("{w:.2}")).collect();
    println!(
        "\n## ten imports of different versions\n\nseconds: {}; last three over first three: {:.2}",
        all.join(" "),
        last / first
    );
}

fn main() {
    let Some(Arguments { folder, rounds }) = peers::arguments("seal") else { return };
    let scratch = tempfile::Builder::new().prefix("bench-seal-").tempdir_in(&folder).expect("FOLDER can be written");
    let program = env!("CARGO_BIN_EXE_docwharf");
    println!("{}", first_line(&format!("{program} --version")));
    for command in ["tar --version", "unzip -v", "bsdtar --version", "ripunzip --version"] {
        if installed(command.split(' ').next().unwrap_or_default()) {
            println!("{}", first_line(command));
        }
    }
    let import = format!("DOCWHARF_STORE__PATH=\"$D\" {program} -q import \"$A\"");
    let against = |title, name: &str, peers: &[(&'static str, &str)]| {
        let archive = folder.join(name);
        let size = std::fs::metadata(&archive).expect("the archive is there").len();
        let archive = archive.to_string_lossy();
        compare(title, &archive, size, scratch.path(), rounds, ("docwharf import", &import), peers);
    };
    against(
        "zip",
        "site.zip",
        &[
            ("unzip", "unzip -q \"$A\" -d \"$D\""),
            ("bsdtar", "bsdtar xf \"$A\" -C \"$D\""),
            ("ripunzip", "ripunzip -q unzip-file -d \"$D\" \"$A\""),
        ],
    );
    against("tar.gz", "site.tar.gz", &[("tar", "tar xzf \"$A\" -C \"$D\""), ("bsdtar", "bsdtar xf \"$A\" -C \"$D\"")]);
    ten_imports(program, &folder.join("site.zip"), scratch.path());
    println!("\nremoving the scratch folder; this may take longer than all the rest");
}
