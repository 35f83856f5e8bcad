//! The first configuration of a host, `config init --for`, and what it says before its first version.

use std::path::Path;
use std::process::Command;

use support::host::{Host, bundle, front_page_title, run_with_timeout, toml_string};
#[cfg(feature = "origin")]
use support::write_site;
use support::{Daemon, docwharf, http, temporary_folder, until};

/// Runs `config init FILE --for PLACE` and `config check`, and returns the text that was written.
fn init(folder: &Path, place: &str) -> String {
    let file = folder.join(format!("{place}.toml"));
    let ended = run_with_timeout(docwharf().args(["config", "init", "--for", place]).arg(&file)).expect(0);
    assert_eq!(ended.stdout, format!("{}\n", file.display()));
    assert_eq!(ended.stderr.lines().count(), 1, "the next step: {}", ended.stderr);
    run_with_timeout(docwharf().args(["config", "check", "--config"]).arg(&file)).expect(0);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.lines().count() <= 15, "{text}");
    // Without a file, the same text is printed.
    let printed = run_with_timeout(docwharf().args(["config", "init", "--for", place])).expect(0).stdout;
    assert_eq!(printed, text);
    text
}

/// Creates `docwharf run` with this configuration, whose folders and addresses are replaced by ones of the test.
fn run_command(folder: &Path, place: &str) -> Command {
    let mut command = docwharf();
    command.args(["run", "--config"]).arg(folder.join(format!("{place}.toml")));
    command.env("DOCWHARF_STORE__PATH", folder.join(format!("{place}-store")));
    command.env("DOCWHARF_SYNC__INBOX", folder.join(format!("{place}-inbox")));
    command.env("DOCWHARF_SERVER__LISTEN", "127.0.0.1:0").env("DOCWHARF_SEARCH__ENABLED", "false");
    command
}

#[test]
fn each_short_configuration_of_a_host_loads_and_serves_a_bundle_from_its_inbox() {
    let folder = temporary_folder();
    for place in ["vm", "air-gap"] {
        let text = init(folder.path(), place);
        assert!(text.contains("inbox = \""), "{text}");
        let daemon = Daemon::start(&mut run_command(folder.path(), place));
        assert_eq!(http::get(&daemon.address, "/").status, 503, "{place}");
        let inbox = folder.path().join(format!("{place}-inbox"));
        until("the inbox is there", || inbox.is_dir());
        std::fs::write(inbox.join("bundle.zip.part"), bundle(place)).unwrap();
        std::fs::rename(inbox.join("bundle.zip.part"), inbox.join("bundle.zip")).unwrap();
        until("the bundle is served", || front_page_title(&daemon) == place);
    }
}

#[test]
fn the_short_configuration_of_a_container_loads_and_serves_the_bundle_of_the_mounted_link() {
    let folder = temporary_folder();
    let text = init(folder.path(), "container");
    let (before, link) = text.split_once("#[staticExport]").expect("a link instead of [api]");
    let (before, _) = before.split_once("[api]").expect("the API");
    let with_link = format!("{before}[staticExport]{}", link.replace("\n#", "\n"));
    assert!(with_link.contains("\nbundleUrlFile = \"/run/secrets/bundle-url\""), "{with_link}");
    std::fs::write(folder.path().join("container.toml"), with_link).unwrap();
    let mut command = run_command(folder.path(), "container");
    command.env_remove("DOCWHARF_SYNC__INBOX").env("DOCWHARF_ADMIN__LISTEN", "127.0.0.1:0");
    command.env("DOCWHARF_STATIC_EXPORT__BUNDLE_URL_FILE", folder.path().join("bundle-url"));
    // Without the secret, the container ends and says what is missing.
    let ended = run_with_timeout(&mut command).expect(2);
    assert!(ended.stderr.contains("bundle-url (staticExport.bundleUrlFile): No such file"), "{}", ended.stderr);
    std::fs::write(folder.path().join("bundle.zip"), bundle("container")).unwrap();
    std::fs::write(folder.path().join("bundle-url"), folder.path().join("bundle.zip").to_str().unwrap()).unwrap();
    let daemon = Daemon::start(&mut command);
    until("the bundle is served", || front_page_title(&daemon) == "container");
}

#[test]
#[cfg(feature = "origin")]
fn the_short_configuration_of_an_origin_loads_and_serves_the_management_api() {
    let folder = temporary_folder();
    write_site(&folder.path().join("site"), &[("index.html", "<title>one</title>")]);
    let text = init(folder.path(), "origin");
    let file = folder.path().join("origin.toml");
    let local = text
        .replace("\"/var/lib/docwharf-origin\"", &toml_string(folder.path().join("state").to_str().unwrap()))
        .replace("\"/srv/docs\"", &toml_string(folder.path().join("site").to_str().unwrap()))
        .replace("127.0.0.1:8090", "127.0.0.1:0");
    std::fs::write(&file, local).unwrap();
    // As the comment in the file says.
    let mut command = docwharf();
    run_with_timeout(command.args(["origin", "key", "create", "docs", "laptop", "--config"]).arg(&file)).expect(0);
    let daemon = Daemon::start(docwharf().args(["origin", "--config"]).arg(&file));
    assert_eq!(http::get(&daemon.address, "/v1/export/jobs/x").status, 401);
    // A mistake in it is found by `config check`, too.
    std::fs::write(&file, text.replace("domain = ", "domian = ")).unwrap();
    let ended = run_with_timeout(docwharf().args(["config", "check", "--config"]).arg(&file)).expect(2);
    assert!(ended.stderr.contains("did you mean organization.project.domain?"), "{}", ended.stderr);
}

#[test]
fn an_unknown_place_is_a_usage_error_and_an_existing_file_stays() {
    let ended = run_with_timeout(docwharf().args(["config", "init", "--for", "cloud"])).expect(2);
    assert!(ended.stderr.contains("vm") && ended.stderr.contains("air-gap"), "{}", ended.stderr);
    let folder = temporary_folder();
    let file = folder.path().join("c.toml");
    std::fs::write(&file, "mine").unwrap();
    let ended = run_with_timeout(docwharf().args(["config", "init", "--for", "vm"]).arg(&file)).expect(8);
    assert!(ended.stderr.contains("it exists and was not changed"), "{}", ended.stderr);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn a_host_without_a_version_says_how_the_first_one_arrives() {
    let host = Host::bare().set("sync.inbox", toml_string("inbox"));
    let next_step = format!("copy a bundle to {}", host.path("inbox").display());
    let line = |name: &str| {
        let text = host.ok(&["status"]).stdout;
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(name)).map(|rest| rest.trim().to_owned());
        lines.next()
    };
    assert_eq!(host.ok(&["versions"]).stdout, "no versions\n");
    let next = line("next step").unwrap_or_default();
    assert!(next.starts_with(&next_step) && next.contains("docwharf run"), "{next}");
    let daemon = host.run_logged();
    until("the log says it", || host.log().contains(&format!("there is nothing to serve yet: {next_step}")));
    until("the status says it", || line("next step").as_deref() == Some(&next_step));
    assert_eq!(line("listening "), Some(format!("http://{}/", daemon.address)));
    std::fs::write(host.path("inbox/first.zip"), bundle("first")).unwrap();
    until("the version", || front_page_title(&daemon) == "first");
    until("the status has it", || line("serving ").is_some());
    assert_eq!(line("next step"), None);
    let versions = host.ok(&["versions"]).stdout;
    let heads: Vec<&str> = versions.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(heads, ["version", "role", "arrived", "size", "labels", "and", "source"]);
    assert_eq!(versions.lines().count(), 2, "{versions}");
}
