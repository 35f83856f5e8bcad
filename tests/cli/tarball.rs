//! `install.sh` of the tarball: the files that it installs, replaces and removes. `.ci/packages` runs it with systemd.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{CommandOutput, program_path, run_docwharf, run_to_end, temporary_folder};

/// Makes the folder that a tarball has, with the program of these tests.
fn unpacked_tarball(parent: &Path) -> PathBuf {
    let top = parent.join("unpacked");
    fs::create_dir_all(top.join("man")).unwrap();
    fs::create_dir_all(top.join("completions")).unwrap();
    fs::create_dir_all(top.join("systemd")).unwrap();
    std::os::unix::fs::symlink(program_path(), top.join("docwharf")).unwrap();
    let tree = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::copy(tree.join("packaging/tarball/install.sh"), top.join("install.sh")).unwrap();
    for file in ["LICENSE-MIT", "LICENSE-APACHE", "CHANGELOG.md"] {
        fs::copy(tree.join(file), top.join(file)).unwrap();
    }
    fs::write(top.join("LICENSES-THIRD-PARTY"), "others").unwrap();
    for unit in ["docwharf.service", "docwharf.socket", "docwharf@.service"] {
        fs::copy(tree.join("systemd").join(unit), top.join("systemd").join(unit)).unwrap();
    }
    run_docwharf(["man".as_ref(), "--all".as_ref(), top.join("man/man1").as_os_str()]).expect(0);
    for (shell, file) in [("bash", "docwharf.bash"), ("zsh", "_docwharf"), ("fish", "docwharf.fish")] {
        let script = run_docwharf(["completions", shell]).expect(0).stdout;
        fs::write(top.join("completions").join(file), script).unwrap();
    }
    top
}

/// Runs the script through `sh`: a child of another test may still hold it open for writing, and such a file cannot be
/// executed.
fn run_script(top: &Path, options: &[&str]) -> CommandOutput {
    run_to_end(Command::new("sh").arg(top.join("install.sh")).args(options))
}

fn install(top: &Path, prefix: &Path, options: &[&str]) -> CommandOutput {
    run_script(top, &[&["--prefix", prefix.to_str().unwrap(), "--no-systemd"], options].concat())
}

/// The files below a folder, by their paths in it.
fn list_files(folder: &Path) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    let mut remaining = vec![folder.to_owned()];
    while let Some(next) = remaining.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                remaining.push(entry.path());
            } else {
                files.insert(entry.path().strip_prefix(folder).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    files
}

#[test]
fn install_sh_installs_and_removes_its_own_files_only() {
    let dir = temporary_folder();
    let (top, prefix) = (unpacked_tarball(dir.path()), dir.path().join("prefix"));
    fs::create_dir_all(prefix.join("share/man/man1")).unwrap();
    fs::write(prefix.join("share/man/man1/docwharfinger.1"), "another program's").unwrap();
    let printed = install(&top, &prefix, &[]).expect(0);
    assert_eq!(printed.stderr, "");
    assert!(printed.stdout.starts_with("docwharf "), "{}", printed.stdout);
    let installed = list_files(&prefix);
    for file in [
        "bin/docwharf",
        "share/man/man1/docwharf.1",
        "share/man/man1/docwharf-sync.1",
        "share/bash-completion/completions/docwharf",
        "share/zsh/site-functions/_docwharf",
        "share/fish/vendor_completions.d/docwharf.fish",
        "share/doc/docwharf/LICENSE-MIT",
        "share/doc/docwharf/LICENSES-THIRD-PARTY",
    ] {
        assert!(installed.contains(file), "{file} is not among {installed:?}");
    }
    let is_temporary = |file: &String| Path::new(file).extension().is_some_and(|extension| extension == "new");
    assert!(!installed.iter().any(is_temporary), "{installed:?}");
    let mode = |file: &str| fs::metadata(prefix.join(file)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("bin/docwharf"), mode("share/man/man1/docwharf.1")), (0o755, 0o644));
    run_to_end(Command::new(prefix.join("bin/docwharf")).arg("--version")).expect(0);
    install(&top, &prefix, &["--uninstall"]).expect(0);
    assert_eq!(list_files(&prefix), ["share/man/man1/docwharfinger.1".to_owned()].into());
}

#[test]
fn install_sh_replaces_a_program_that_runs() {
    let dir = temporary_folder();
    let (top, prefix) = (unpacked_tarball(dir.path()), dir.path().join("prefix"));
    install(&top, &prefix, &[]).expect(0);
    let site = dir.path().join("site");
    fs::create_dir(&site).unwrap();
    fs::write(site.join("index.html"), "<h1>home</h1>").unwrap();
    let mut server = Command::new(prefix.join("bin/docwharf"));
    server.args(["serve", "--listen", "127.0.0.1:0"]).arg(&site).stdout(std::process::Stdio::piped());
    let mut server = server.spawn().unwrap();
    // The address is printed when the server listens.
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(server.stdout.take().unwrap()), &mut line).unwrap();
    assert!(line.contains("127.0.0.1"), "{line}");
    let replaced = install(&top, &prefix, &[]);
    server.kill().unwrap();
    server.wait().unwrap();
    replaced.expect(0);
    run_to_end(Command::new(prefix.join("bin/docwharf")).arg("--version")).expect(0);
}

#[test]
fn install_sh_refuses_what_it_cannot_do() {
    let dir = temporary_folder();
    let (top, prefix) = (unpacked_tarball(dir.path()), dir.path().join("prefix"));
    assert!(run_script(&top, &["--prefix", "relative"]).expect(1).stderr.contains("absolute"));
    // A unit names the program by its path, in which a space would end it.
    assert!(
        run_script(&top, &["--prefix", "/tmp/a b", "--no-systemd"]).expect(1).stderr.contains("special characters")
    );
    assert!(run_script(&top, &["--unknown"]).expect(2).stderr.contains("--prefix DIR"));
    // The program of another architecture: nothing is installed.
    fs::remove_file(top.join("docwharf")).unwrap();
    fs::write(top.join("docwharf"), b"\x7fELF\x02\x01\x01").unwrap();
    fs::set_permissions(top.join("docwharf"), fs::Permissions::from_mode(0o755)).unwrap();
    let refused = install(&top, &prefix, &[]).expect(1);
    assert!(refused.stderr.contains("does not run here"), "{}", refused.stderr);
    assert!(!prefix.exists());
}
