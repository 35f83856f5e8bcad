//! `doctor --user`: the user for whom paths and ports are checked. Only root can check as another user.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::XattrFlags;
use serde_json::Value;
use support::host::{Host, run_with_timeout, toml_string};
use support::run_to_end;

use super::doctor::{assert_check, doctor, parse_checks};

/// A user that most systems have, and its group.
const NOBODY: u32 = 65534;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A host with a store and a key file of mode 0600, whose folder every user may enter.
fn host() -> Host {
    let host = Host::bare()
        .set("api.baseUrl", toml_string("https://api.invalid/v1"))
        .set("api.domain", toml_string("docs.example.com"))
        .set("api.keyFile", toml_string("key"));
    host.put("key", "dwk_1");
    std::fs::create_dir(host.path("store")).unwrap();
    set_mode(host.dir.path(), 0o755);
    set_mode(&host.path("store"), 0o700);
    set_mode(&host.path("docwharf.toml"), 0o644);
    host
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

#[track_caller]
fn checks_as(host: &Host, user: &str) -> Vec<Value> {
    parse_checks(&run_with_timeout(&mut doctor(host, &["--offline", "--user", user])))
}

/// Allows a user to read a file by an access control list (acl(5)), which modes do not show.
fn allow_by_list(path: &Path, uid: u32) {
    // The format of the extended attribute: a version, then tag, rights and id of each entry.
    let mut list = 2_u32.to_le_bytes().to_vec();
    let no_id = u32::MAX;
    for (tag, rights, id) in
        [(0x01_u16, 6_u16, no_id), (0x02, 4, uid), (0x04, 0, no_id), (0x10, 4, no_id), (0x20, 0, no_id)]
    {
        list.extend(tag.to_le_bytes());
        list.extend(rights.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    rustix::fs::setxattr(path, "system.posix_acl_access", &list, XattrFlags::empty()).unwrap();
}

#[test]
fn doctor_checks_paths_and_ports_as_the_user_that_is_named() {
    if !is_root() {
        return;
    }
    let host = host().set("server.listen", toml_string("127.0.0.1:81"));
    set_mode(&host.path("docwharf.toml"), 0o644);
    let name = docwharf::base::accounts::find_user_name(NOBODY);
    let description = docwharf::base::accounts::describe_user(NOBODY);
    for user in [Some(NOBODY.to_string()), name].into_iter().flatten() {
        let found = checks_as(&host, &user);
        assert_check(&found, "user", "ok", &[&format!("the following is checked as {description}")]);
        let store = host.path("store").display().to_string();
        assert_check(&found, "permissions", "error", &[&format!("{description} lacks rwx on {store}"), "chown "]);
        let key = host.path("key").display().to_string();
        assert_check(&found, "key", "error", &[&format!("{description} lacks r on {key}")]);
        let first: u16 = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start")
            .map_or(1024, |text| text.trim().parse().unwrap());
        if first > 81 {
            assert_check(&found, "ports", "error", &[&format!("{description} may not listen below port {first}")]);
        }
    }
    // Root itself may do all this.
    let found = checks_as(&host, "root");
    assert_check(&found, "user", "ok", &["the following is checked as root (uid 0)"]);
    assert!(!found.iter().any(|check| check["status"] == "error"), "{found:#?}");
    // The advice helps.
    for name in ["store", "key"] {
        chown(host.path(name), Some(NOBODY), None).unwrap();
    }
    let host = host.set("server.listen", toml_string("127.0.0.1:0"));
    set_mode(&host.path("docwharf.toml"), 0o644);
    let found = checks_as(&host, &NOBODY.to_string());
    assert!(!found.iter().any(|check| check["status"] == "error"), "{found:#?}");
}

#[test]
fn the_kernel_decides_about_the_user_and_not_the_mode_of_the_file() {
    if !is_root() {
        return;
    }
    let host = host();
    chown(host.path("store"), Some(NOBODY), None).unwrap();
    let user = NOBODY.to_string();
    assert_check(&checks_as(&host, &user), "key", "error", &["lacks r on"]);
    allow_by_list(&host.path("key"), NOBODY);
    assert_check(&checks_as(&host, &user), "key", "ok", &["api.keyFile"]);
    // A list that names another user allows nothing, although the mode of the file is the same.
    allow_by_list(&host.path("key"), NOBODY - 1);
    assert_check(&checks_as(&host, &user), "key", "error", &["lacks r on"]);
}

/// Runs `doctor` by root where `/etc/passwd` and `/etc/group` have one more user.
fn with_package_user(host: &Host, more: &[&str]) -> Vec<Value> {
    for (name, line) in [
        ("passwd", "docwharf:x:9870:9871::/nonexistent:/usr/sbin/nologin\n"),
        ("group", "docwharf:x:9871:\ndocs:x:9872:docwharf\n"),
    ] {
        let text = std::fs::read_to_string(format!("/etc/{name}")).unwrap();
        std::fs::write(host.path(name), format!("{text}{line}")).unwrap();
    }
    let mount =
        "mount --bind \"$1/passwd\" /etc/passwd && mount --bind \"$1/group\" /etc/group && shift && exec \"$@\"";
    let inner = doctor(host, more);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", mount, "sh"]).arg(host.dir.path());
    command.arg(inner.get_program()).args(inner.get_args());
    parse_checks(&run_to_end(&mut command))
}

#[test]
fn doctor_by_root_checks_as_the_user_of_the_package_with_its_groups() {
    if !is_root() {
        return;
    }
    let host = host();
    let docwharf = "docwharf (uid 9870)";
    let found = with_package_user(&host, &["--offline"]);
    assert_check(&found, "user", "ok", &[&format!("the following is checked as {docwharf}")]);
    let lacks = format!("{docwharf} lacks rwx on {}", host.path("store").display());
    assert_check(&found, "permissions", "error", &[&lacks, &format!("or chmod it so that {docwharf} has rwx")]);
    // Its primary group, and one that lists it.
    chown(host.path("store"), None, Some(9871)).unwrap();
    set_mode(&host.path("store"), 0o770);
    chown(host.path("key"), None, Some(9872)).unwrap();
    set_mode(&host.path("key"), 0o640);
    let found = with_package_user(&host, &["--offline"]);
    assert!(!found.iter().any(|check| check["status"] == "error"), "{found:#?}");
    let found = with_package_user(&host, &["--offline", "--user", "root"]);
    assert_check(&found, "user", "ok", &["the following is checked as root (uid 0)"]);
}

#[test]
fn a_user_that_cannot_be_checked_is_a_usage_error() {
    let host = host();
    let ended = host.expect_exit_one_line(2, &["doctor", "--user", "no-such-user"]);
    assert!(ended.stderr.contains("there is no user \"no-such-user\""), "{}", ended.stderr);
    let program = host.path("program");
    support::copy_program(&program);
    set_mode(&program, 0o755);
    let as_nobody = |user: &str| {
        let mut command = Command::new(&program);
        command.env_clear().args(["doctor", "--offline", "--user", user, "--config"]).arg(host.path("docwharf.toml"));
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        run_to_end(&mut command)
    };
    let own = if is_root() { NOBODY } else { rustix::process::geteuid().as_raw() };
    let ended = as_nobody("root").expect(2);
    let description = docwharf::base::accounts::describe_user(own);
    let reason = format!("only root can check as another user, and this is {description}; run it as root");
    assert!(ended.stderr.contains(&reason) && ended.stdout.is_empty(), "{ended:?}");
    // Its own name needs no right.
    let ended = as_nobody(&own.to_string());
    assert!(ended.stdout.contains(&format!("the following is checked as {description}")), "{ended:?}");
}
