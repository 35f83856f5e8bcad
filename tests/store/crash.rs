//! Killed at any moment: the old version is served at once, the next import succeeds, nothing is left over.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::tar::{file, gzip, tar};
use support::zip::{deflated, zip};
use support::{Daemon, docwharf, end, folder, http};

/// A small generator, so that a failing run can be repeated from its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Content `n`: its front page says so, and so does every other file.
fn pages(n: u32) -> Vec<(String, String)> {
    let filler: String = format!("a line of version {n}\n").repeat(2000);
    let mut pages = vec![("index.html".to_owned(), format!("version {n}"))];
    pages.extend((0..150).map(|i| (format!("part/{i}.html"), format!("{i} {filler}"))));
    pages
}

fn bundle(n: u32) -> Vec<u8> {
    let pages = pages(n);
    if n.is_multiple_of(2) {
        zip(&pages.iter().map(|(name, text)| deflated(name, text)).collect::<Vec<_>>())
    } else {
        gzip(&tar(&pages.iter().map(|(name, text)| file(name, text)).collect::<Vec<_>>()))
    }
}

fn import(dir: &Path, n: u32) -> Command {
    let mut command = docwharf();
    command.arg("import").arg(dir.join(format!("{n}.bundle"))).arg("--config").arg(dir.join("c.toml"));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn served(dir: &Path) -> String {
    let daemon = Daemon::start(docwharf().arg("run").arg("--config").arg(dir.join("c.toml")));
    let first = http::get(&daemon.address, "/").text();
    let n = first.strip_prefix("version ").unwrap_or_else(|| panic!("not a page of ours: {first:?}"));
    let last = http::get(&daemon.address, "/part/149").text();
    assert!(last.ends_with(&format!("of version {n}\n")), "mixed versions");
    n.to_owned()
}

#[test]
fn two_hundred_kills_at_random_moments_of_an_import() {
    const KINDS: u32 = 6;
    let dir = folder();
    let dir = dir.path();
    std::fs::write(
        dir.join("c.toml"),
        "[store]\npath = \"store\"\n[server]\nlisten = \"127.0.0.1:0\"\n[sync]\nkeep = 1\n",
    )
    .unwrap();
    for n in 0..KINDS {
        std::fs::write(dir.join(format!("{n}.bundle")), bundle(n)).unwrap();
    }
    let begun = Instant::now();
    assert!(import(dir, 0).status().unwrap().success());
    // The window of time in which kills fall; it follows the machine, so that they fall everywhere in an import.
    let mut whole = begun.elapsed();

    let seed = std::env::var("DOCWHARF_TEST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed_0002);
    println!("seed {seed}");
    let mut random = Random(seed);
    let (mut killed, mut round, mut old) = (0, 0u32, "0".to_owned());
    while killed < 200 {
        assert!(round < 4000, "only {killed} imports were killed before their end");
        let n = 1 + round % (KINDS - 1);
        let mut child = import(dir, n).spawn().unwrap();
        std::thread::sleep(whole.mul_f64((random.next() % 1000) as f64 / 1000.0));
        let _ = child.kill();
        let ended = child.wait().unwrap();
        if ended.signal() == Some(9) {
            killed += 1;
            whole = whole.mul_f64(1.02);
        } else {
            whole = whole.mul_f64(0.95).max(Duration::from_millis(5));
        }
        if round % 4 == 0 {
            let now = served(dir);
            assert!(now == old || now == n.to_string(), "round {round}: {now} is neither {old} nor {n}");
            old = now;
        } else {
            // The record tells the same without a server; the next round with one proves it.
            let status =
                end(docwharf().args(["status", "--json", "--config"]).arg(dir.join("c.toml"))).expect(0).json();
            assert_eq!(status["activePresent"], true, "round {round}");
            old = version_of(&status["active"], dir);
        }
        if round % 10 == 9 {
            assert!(import(dir, n).status().unwrap().success(), "the import after round {round}");
            old = n.to_string();
            assert_eq!(served(dir), old);
        }
        round += 1;
    }
    assert!(import(dir, 0).status().unwrap().success());
    nothing_is_left_over(&dir.join("store"));
}

/// Which content the version `id` is, by its front page in the store.
fn version_of(id: &serde_json::Value, dir: &Path) -> String {
    let image = dir.join("store/versions").join(id.as_str().unwrap()).join("site.zip");
    let out = dir.join("look");
    end(docwharf().args(["bundle", "unpack"]).arg(&image).arg(&out)).expect(0);
    let text = std::fs::read_to_string(out.join("index.html")).unwrap();
    std::fs::remove_dir_all(&out).unwrap();
    text.strip_prefix("version ").unwrap().to_owned()
}

fn nothing_is_left_over(store: &Path) {
    let names = |dir: &Path| -> Vec<String> {
        let mut names: Vec<String> =
            std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(
        names(store),
        [
            "downloads",
            "history.jsonl",
            "lock",
            "receipts",
            "scrub.json",
            "staging",
            "state.json",
            "suspect",
            "versions"
        ]
    );
    assert!(names(&store.join("staging")).is_empty());
    let versions = names(&store.join("versions"));
    // active, previous and one more
    assert!(versions.len() <= 3, "{versions:?}");
    for id in &versions {
        assert_eq!(names(&store.join("versions").join(id)), ["index", "site.zip"]);
        let image = store.join("versions").join(id).join("site.zip");
        let proved = end(docwharf().args(["bundle", "verify", "--json"]).arg(image)).expect(0).json();
        assert_eq!(proved["version"], id.as_str());
    }
    for id in names(&store.join("receipts")) {
        assert!(versions.contains(&id), "a receipt of {id}, which is gone");
        for receipt in names(&store.join("receipts").join(&id)) {
            assert!(!receipt.starts_with('.'), "{receipt}");
        }
    }
}
