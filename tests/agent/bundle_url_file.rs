//! `staticExport.bundleUrlFile`: the link to the bundle is in a file, such as a mounted secret.

use std::os::unix::fs::symlink;
use std::path::Path;

use support::host::{Host, bundle, front_page_title, run_with_timeout, toml_string};
use support::until;
use support::upstream::{SIGNATURE, Upstream, UpstreamCall};

/// The variable that sets the key.
const VARIABLE: &str = "DOCWHARF_STATIC_EXPORT__BUNDLE_URL_FILE";

/// A host whose link is in the file `bundle-url`, which does not exist yet.
fn host() -> Host {
    Host::bare().set("staticExport.bundleUrlFile", toml_string("bundle-url")).set("sync.interval", toml_string("1h"))
}

/// Writes the secret `link` as kubelet does: its file is a link to `..data/link`, and `..data` is a link to a folder,
/// which is replaced by rename.
fn mount_secret(folder: &Path, revision: &str, link: &str) {
    let data = folder.join(format!("..{revision}"));
    std::fs::create_dir_all(&data).unwrap();
    std::fs::write(data.join("link"), link).unwrap();
    symlink(format!("..{revision}"), folder.join("..data_tmp")).unwrap();
    std::fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    if !folder.join("link").is_symlink() {
        symlink("..data/link", folder.join("link")).unwrap();
    }
}

/// Checks that no file of the store and none of these texts contains the signature of a link.
#[track_caller]
fn assert_no_signature(host: &Host, texts: &[&str]) {
    for text in texts {
        assert!(!text.contains(SIGNATURE), "{text}");
    }
    if host.path("store").exists() {
        assert_no_signature_below(&host.path("store"));
    }
}

#[track_caller]
fn assert_no_signature_below(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            assert_no_signature_below(&path);
        } else if kind.is_file() {
            let content = std::fs::read(&path).unwrap();
            let is_found = content.windows(SIGNATURE.len()).any(|window| window == SIGNATURE.as_bytes());
            assert!(!is_found, "the signature is in {}", path.display());
        }
    }
}

#[test]
fn a_link_in_a_mounted_secret_is_followed_when_it_is_replaced_without_a_restart() {
    let first = Upstream::new(bundle("one"));
    let second = Upstream::new(bundle("two"));
    let host = host().set("staticExport.bundleUrlFile", toml_string("secret/link"));
    std::fs::create_dir(host.path("secret")).unwrap();
    mount_secret(&host.path("secret"), "2026_1", &format!("{}\n", first.link()));
    let daemon = host.run_logged();
    until("the first version", || front_page_title(&daemon) == "one");
    mount_secret(&host.path("secret"), "2026_2", &second.link());
    until("the version of the new link", || front_page_title(&daemon) == "two");
    assert_eq!((first.count(UpstreamCall::Download), second.count(UpstreamCall::Download)), (1, 1));
    let shown = host.ok(&["status"]).stdout;
    assert!(shown.contains(second.link().split('?').next().unwrap()), "{shown}");
    drop(daemon);
    let log = host.log();
    assert_no_signature(&host, &[&shown, &log, &host.ok(&["history"]).stdout, &host.ok(&["config", "show"]).stdout]);
}

#[test]
fn sync_reads_the_link_from_the_file_that_key_or_variable_names() {
    let upstream = Upstream::new(bundle("one"));
    let host = host();
    host.put("bundle-url", format!(" \t{}\r\n\n", upstream.link()));
    assert_eq!(host.sync(), "activated");
    assert_eq!(host.sync(), "already current");
    // The variable overrides the key; its path is relative to the working directory.
    upstream.publish(bundle("two"));
    let other = Host::bare();
    other.put("link", upstream.link());
    let mut command = other.command(&["sync"]);
    run_with_timeout(command.current_dir(other.dir.path()).env(VARIABLE, "link")).expect(0);
    let mut command = host.command(&["sync"]);
    let ended = run_with_timeout(command.env(VARIABLE, host.path("missing"))).expect(2);
    assert!(ended.stderr.contains("missing (staticExport.bundleUrlFile)"), "{}", ended.stderr);
}

#[test]
fn a_link_file_may_name_a_file_url_or_an_absolute_path() {
    let host = host();
    host.put_bundle(&bundle("one"));
    let path = host.path("bundle.zip");
    for location in [path.display().to_string(), format!("file://{}", path.display())] {
        host.put("bundle-url", location);
        host.ok(&["sync", "--refresh"]);
    }
    // The bundle is watched, as one that `bundleUrl` names.
    let daemon = host.run();
    until("the first version", || front_page_title(&daemon) == "one");
    host.put_bundle(&bundle("two"));
    until("the changed bundle", || front_page_title(&daemon) == "two");
    drop(daemon);
    std::fs::remove_file(path).unwrap();
    let ended = host.expect_exit_one_line(2, &["sync"]);
    assert!(ended.stderr.contains("bundle.zip (staticExport.bundleUrlFile); put a bundle there"), "{}", ended.stderr);
}

#[test]
fn bundle_url_and_bundle_url_file_together_are_a_mistake() {
    let upstream = Upstream::new(bundle("one"));
    let host = host().set("staticExport.bundleUrl", toml_string(&upstream.link()));
    host.put("bundle-url", upstream.link());
    let message = "staticExport.bundleUrlFile: staticExport.bundleUrl is set, too";
    for arguments in [&["sync"][..], &["run"], &["config", "check"]] {
        let ended = host.expect_exit_one_line(2, arguments);
        assert!(ended.stderr.contains(message) && !ended.stderr.contains(SIGNATURE), "{}", ended.stderr);
    }
    // One in the file and the other in the environment are not different.
    let host = host.without("staticExport.bundleUrl");
    let mut command = host.command(&["sync"]);
    let ended = run_with_timeout(command.env("DOCWHARF_STATIC_EXPORT__BUNDLE_URL", upstream.link())).expect(2);
    assert!(ended.stderr.contains(message), "{}", ended.stderr);
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn a_link_file_without_a_usable_link_ends_a_sync_with_2_and_is_a_warning_of_config_check() {
    let upstream = Upstream::new(bundle("one"));
    let host = host();
    let link = upstream.link();
    let long = format!("{link}&x={}", "0".repeat(64 << 10));
    for (content, reason) in [
        (None, "cannot read the link to the bundle from "),
        (Some(String::new()), "it is empty"),
        (Some(" \n".to_owned()), "it is empty"),
        (Some(format!("{link}\n{link}\n")), "it has more than one line"),
        (Some(link.replace("http://", "")), "it has neither a link"),
        (Some(link.replace("http://", "ftp://")), "not from \"ftp\""),
        (Some(long), "larger than 65536 bytes"),
    ] {
        if let Some(content) = content {
            host.put("bundle-url", content);
        }
        for (code, arguments) in [(2, &["sync"][..]), (2, &["run"]), (0, &["config", "check"])] {
            let ended = run_with_timeout(&mut host.command(arguments)).expect(code);
            let is_named = ended.stderr.contains("bundle-url (staticExport.bundleUrlFile)");
            assert!(is_named && ended.stderr.contains(reason), "{arguments:?}: {}", ended.stderr);
            let lines = ended.stderr.lines().filter(|line| line.starts_with("docwharf: "));
            assert_eq!(lines.count(), 1, "{}", ended.stderr);
            assert_no_signature(&host, &[&ended.stderr]);
            if arguments == ["run"] {
                assert_eq!(ended.stdout, "", "no address is announced");
            }
        }
    }
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn run_serves_on_without_a_link_and_follows_the_file_when_it_has_one() {
    let upstream = Upstream::new(bundle("one"));
    let host = host();
    host.put("bundle-url", upstream.link());
    host.ok(&["sync"]);
    std::fs::remove_file(host.path("bundle-url")).unwrap();
    let daemon = host.run_logged();
    assert_eq!(front_page_title(&daemon), "one");
    until("it misses the file", || host.last_error().contains("cannot read the link to the bundle from "));
    // A file that is mounted later.
    upstream.publish(bundle("two"));
    host.put("bundle-url", upstream.link());
    until("the version of the link", || front_page_title(&daemon) == "two");
    host.put("bundle-url", format!("{}\n{}", upstream.link(), upstream.link()));
    until("it reports the second line", || host.last_error().contains("it has more than one line"));
    assert_eq!(front_page_title(&daemon), "two");
    drop(daemon);
    assert_no_signature(&host, &[&host.log()]);
}

#[test]
fn sync_by_a_daemon_uses_the_link_that_is_in_the_file_now() {
    let upstream = Upstream::new(bundle("one"));
    let other = Upstream::new(bundle("two"));
    let host = host();
    host.put("bundle-url", upstream.link());
    let daemon = host.run();
    until("the first version", || front_page_title(&daemon) == "one");
    for (next, title) in [(&other, "two"), (&upstream, "one"), (&other, "two"), (&upstream, "one")] {
        host.put("bundle-url", next.link());
        // The daemon has had no time to notice the change.
        host.ok(&["sync"]);
        assert_eq!(front_page_title(&daemon), title);
    }
    // The configuration names another file: that is another source.
    let elsewhere = Host::bare()
        .set("store.path", toml_string(host.path("store").to_str().unwrap()))
        .set("staticExport.bundleUrlFile", toml_string("bundle-url"));
    elsewhere.put("bundle-url", upstream.link());
    let ended = elsewhere.expect_exit_one_line(8, &["sync"]);
    assert!(ended.stderr.contains("another"), "{}", ended.stderr);
}

#[test]
fn an_expired_link_in_a_file_is_reported_with_the_key_of_the_file() {
    let upstream = Upstream::new(bundle("one"));
    upstream.on(UpstreamCall::Download).respond_with(support::upstream::expired_link_reply());
    let host = host();
    host.put("bundle-url", upstream.link());
    let ended = host.expect_exit_one_line(4, &["sync"]);
    let advice = "put a fresh one in the file of staticExport.bundleUrlFile, or set [api]";
    assert!(ended.stderr.contains(advice) && !ended.stderr.contains(SIGNATURE), "{}", ended.stderr);
}

#[test]
fn with_an_api_the_link_in_a_file_is_for_the_empty_store_only_and_a_missing_one_is_no_error() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::new(&upstream).set("staticExport.bundleUrlFile", toml_string("bundle-url"));
    let ended = run_with_timeout(&mut host.command(&["sync"])).expect(0);
    assert!(ended.stderr.contains("using the API instead"), "{}", ended.stderr);
    assert_eq!((upstream.count(UpstreamCall::Start), upstream.count(UpstreamCall::Download)), (1, 1));
    let second = Host::new(&upstream).set("staticExport.bundleUrlFile", toml_string("bundle-url"));
    second.put("bundle-url", upstream.link());
    second.ok(&["sync"]);
    assert_eq!(upstream.count(UpstreamCall::Start), 1, "the link was enough");
}

#[test]
fn an_air_gapped_host_refuses_a_link_in_a_file_that_leads_elsewhere_now_and_later() {
    let upstream = Upstream::new(bundle("one"));
    let elsewhere = "https://192.0.2.1/b.zip?token=s3cret-token";
    let reason = "bundle-url: deployment.type is \"air-gapped\", and 192.0.2.1:443 is neither loopback nor in";
    let host = host().set("deployment.type", toml_string("air-gapped"));
    host.put("bundle-url", elsewhere);
    for arguments in [&["sync"][..], &["run"], &["config", "check"]] {
        let ended = host.expect_exit_one_line(2, arguments);
        let is_named = ended.stderr.contains("staticExport.bundleUrlFile: ") && ended.stderr.contains(reason);
        assert!(is_named && !ended.stderr.contains("s3cret"), "{}", ended.stderr);
    }
    host.put("bundle-url", upstream.link());
    let daemon = host.run_logged();
    until("the version of loopback", || front_page_title(&daemon) == "one");
    host.put("bundle-url", elsewhere);
    until("it refuses the link", || host.status()["configError"].as_str().is_some_and(|error| error.contains(reason)));
    let shown = host.ok(&["status"]).stdout;
    assert!(shown.lines().any(|line| line.contains(reason)), "{shown}");
    assert_eq!(front_page_title(&daemon), "one");
    // The previous link is in force until there is another one that is permitted.
    upstream.publish(bundle("two"));
    host.put("bundle-url", upstream.link());
    until("the next permitted link", || front_page_title(&daemon) == "two");
    assert!(host.status()["configError"].is_null());
    drop(daemon);
    let log = host.log();
    assert!(log.contains("the previous configuration stays in force") && !log.contains("s3cret"), "{log}");
}

#[test]
fn doctor_and_config_check_warn_of_a_link_file_that_others_may_read() {
    let upstream = Upstream::new(bundle("one"));
    let host = host();
    host.put("bundle-url", upstream.link());
    let is_warned = |arguments: &[&str]| {
        let ended = host.ok(arguments);
        format!("{}{}", ended.stdout, ended.stderr).contains("bundle-url (staticExport.bundleUrlFile) is open to more")
    };
    for (mode, expected) in [(0o640, false), (0o644, true)] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(host.path("bundle-url"), mode).unwrap();
        assert_eq!(is_warned(&["config", "check"]), expected);
        assert_eq!(is_warned(&["doctor"]), expected);
    }
}
