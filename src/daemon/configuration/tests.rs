//! Tests of the configuration of a running daemon and of its changes.

use std::collections::BTreeSet;

use super::*;

const TLS: &str = "[tls]\ncertFile = \"/tls/cert\"\nkeyFile = \"/tls/key\"\n";

fn config(text: &str) -> Config {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.toml");
    std::fs::write(&path, text).unwrap();
    let config_inputs = ConfigInputs { config_path: Some(path), ignores_environment: true, ..ConfigInputs::default() };
    config_inputs.load().unwrap_or_else(|problems| panic!("{text}: {problems:?}"))
}

#[test]
fn a_key_that_needs_a_restart_keeps_its_value_and_is_named_at_each_reload() {
    for (key, text) in [
        ("store.path", "[store]\npath = \"/other\"\n"),
        ("store.scrub", "[store]\nscrub = \"3d\"\n"),
        ("server.listen", "[server]\nlisten = \"127.0.0.1:1234\"\n"),
        ("tls.listen", TLS),
        ("access.log", "[access]\nlog = \"json\"\n"),
        ("admin.listen", "[admin]\nlisten = \"127.0.0.1:1234\"\n"),
        ("activate.listen", "[activate]\nlisten = \"127.0.0.1:1234\"\n"),
        ("server.codings", "[server]\ncodings = []\n"),
        ("server.basePath", "[server]\nbasePath = \"/docs\"\n"),
        ("server.csp", "[server]\ncsp = \"report\"\n"),
        ("server.frames", "[server]\nframes = \"none\"\n"),
        ("tls.hsts", "[tls]\nhsts = \"1d\"\n"),
    ] {
        let old = config("");
        let (first, change) = ConfigChange::between(&old, config(text));
        assert_eq!(change.restart_keys, [key]);
        assert_eq!(first.tls, None, "{key}: a certificate that appears waits for a restart");
        let (second, change) = ConfigChange::between(&first, config(text));
        assert_eq!(change.restart_keys, [key], "it is named again");
        assert_eq!(second, first);
    }
}

#[test]
fn reload_keeps_a_removed_certificate_but_accepts_new_certificate_files() {
    let old = config(TLS);
    let (config_without, change) = ConfigChange::between(&old, config(""));
    assert_eq!((config_without.tls, change.restart_keys), (old.tls.clone(), vec!["tls.listen"]));
    let (renewed, change) = ConfigChange::between(&old, config(&TLS.replace("/tls/", "/new/")));
    assert_eq!(renewed.tls.unwrap().files.certificate, PathBuf::from("/new/cert"));
    assert_eq!((change.is_different, change.restart_keys), (true, vec![]));
}

#[test]
fn each_file_that_the_configuration_names_is_watched_with_its_kind() {
    let dir = tempfile::tempdir().unwrap();
    let rules = dir.path().join("moved");
    std::fs::write(&rules, "/a /b\n").unwrap();
    let config_inputs = ConfigInputs { config_path: Some("/etc/c.toml".into()), ..ConfigInputs::default() };
    let watched = |text: &str| {
        let mut watched = watched_files(&config_inputs, &config(text));
        // The environment of the test may name it.
        let roots = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
        watched.retain(|(_, path)| Some(path) != roots.as_ref());
        watched.into_iter().collect::<BTreeSet<_>>()
    };
    let expected = |files: &[(WatchedKind, &str)]| {
        let own = (WatchedKind::Settings, PathBuf::from("/etc/c.toml"));
        let files = files.iter().map(|(kind, path)| (*kind, PathBuf::from(path)));
        files.chain([own]).collect::<BTreeSet<_>>()
    };
    assert_eq!(watched(""), expected(&[]));
    let api = "[api]\nbaseUrl = \"https://api.example/v1\"\ndomain = \"d.example\"\nkeyFile = \"/key\"\n";
    assert_eq!(watched(api), expected(&[(WatchedKind::Settings, "/key")]));
    // Without [api], the key is not used; the roots are, for links.
    let link = "[api]\ncaFile = \"/ca\"\n[staticExport]\nbundleUrl = \"https://b.example/b.zip\"\n";
    assert_eq!(watched(link), expected(&[(WatchedKind::Settings, "/ca")]));
    let files = "[staticExport]\nbundleUrl = \"/b.zip\"\n[sync]\ninbox = \"/in\"\n";
    assert_eq!(watched(files), expected(&[(WatchedKind::Bundle, "/b.zip"), (WatchedKind::Inbox, "/in")]));
    // The file with the link, also while it is missing, and the bundle that it names.
    let link_file = dir.path().join("link").to_str().expect("a temporary folder has a plain name").to_owned();
    let linked = format!("[staticExport]\nbundleUrlFile = \"{link_file}\"\n");
    assert_eq!(watched(&linked), expected(&[(WatchedKind::Settings, &link_file)]));
    std::fs::write(&link_file, "/b.zip\n").unwrap();
    assert_eq!(watched(&linked), expected(&[(WatchedKind::Settings, &link_file), (WatchedKind::Bundle, "/b.zip")]));
    let pair = [(WatchedKind::Certificate, "/tls/cert"), (WatchedKind::Certificate, "/tls/key")];
    assert_eq!(watched(TLS), expected(&pair));
    let rules = rules.to_str().expect("a temporary folder has a plain name");
    let file = watched(&format!("[server]\nredirectsFile = \"{rules}\"\n"));
    assert_eq!(file, expected(&[(WatchedKind::Settings, rules)]));
    let words = dir.path().join("words.toml");
    std::fs::write(&words, "sets = []\n").unwrap();
    let words = words.to_str().expect("a temporary folder has a plain name");
    let file = watched(&format!("[search]\nsynonyms = \"{words}\"\n"));
    assert_eq!(file, expected(&[(WatchedKind::Settings, words)]));
}

#[test]
#[cfg(feature = "analytics")]
fn the_file_of_patterns_and_the_file_of_keys_are_watched_and_changed_patterns_are_a_change() {
    let dir = tempfile::tempdir().unwrap();
    let bots = dir.path().join("bots");
    let text = format!("[analytics]\nbots = {bots:?}\nkeyFile = \"/keys\"\n");
    let put = |pattern: &str| {
        std::fs::write(&bots, pattern).unwrap();
        config(&text)
    };
    let old = put("bot Checker\n");
    let files = watched_files(&ConfigInputs::default(), &old);
    for path in [bots.clone(), PathBuf::from("/keys")] {
        assert!(files.contains(&(WatchedKind::Settings, path)), "{files:?}");
    }
    let (same, change) = ConfigChange::between(&old, put("bot Checker\n"));
    assert_eq!((change.is_different, change.analytics), (false, false));
    let (_, change) = ConfigChange::between(&same, put("bot Inspector\n"));
    assert_eq!((change.is_different, change.analytics), (true, true));
}

#[test]
fn the_gate_resolves_addresses_with_the_new_rules_below_the_base_path_in_force() {
    let text = "[server]\nbasePath = \"/docs\"\nslashes = \"serve\"\n\
                [[server.redirects]]\nsource = \"/a\"\ndestination = \"/b\"\n";
    let (new, change) = ConfigChange::between(&config(""), config(text));
    let addresses = &new.sync_settings.gate.address_settings;
    assert_eq!((addresses.base_path.as_str(), addresses.slashes), ("/", None));
    assert_eq!((new.settings.base_path.as_str(), new.settings.slashes), ("/", None));
    assert_eq!((addresses.rules.list().len(), new.rules.list().len()), (1, 1));
    assert_eq!(change.restart_keys, ["server.basePath", "server.slashes"]);
}

#[test]
fn seal_threads_are_the_configured_number_or_half_of_the_processors() {
    assert_eq!(sync_settings_for_tasks(&config("[sync]\nthreads = 7\n")).seal_options.threads, 7);
    assert_eq!(sync_settings_for_tasks(&config("")).seal_options.threads, default_thread_count());
}

#[test]
fn reload_applies_to_running_tasks_and_an_invalid_file_keeps_the_old_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.toml");
    let put = |text: &str| std::fs::write(&path, text).unwrap();
    put("[sync]\nkeep = 1\n");
    let config_inputs =
        ConfigInputs { config_path: Some(path.clone()), ignores_environment: true, ..ConfigInputs::default() };
    let config_inputs = config_inputs.with_file_state();
    let config = config_inputs.load().unwrap_or_else(|problems| panic!("{problems:?}"));
    let mut live = LiveConfiguration::new(config_inputs, config);
    let keep =
        |live: &LiveConfiguration| (live.sync_settings().space_limits.keep, live.in_force().load().space_limits.keep);
    assert_eq!((keep(&live), live.error()), ((1, 1), None));
    put("[sync]\nkeep = 2\n");
    assert!(live.reload().is_some_and(|change| change.is_different));
    assert_eq!((keep(&live), live.error()), ((2, 2), None));
    put("[sync]\nkeep = -1\n[limits]\nentries = 0\n");
    assert_eq!(live.reload(), None);
    let name = path.display();
    let error = format!(
        "{name}:2:1: sync.keep: a whole number from 0 to 10000 is needed; \
         {name}:4:1: limits.entries: a whole number from 1 to 10000000 is needed"
    );
    assert_eq!((keep(&live), live.error()), ((2, 2), Some(&*error)));
    put("");
    assert_eq!(live.reload(), None);
    assert_eq!(live.error(), Some(&*format!("configuration: {name} is empty or missing")));
    // The same configuration again is no change, and the mistake is gone.
    put("[sync]\nkeep = 2\n");
    assert!(live.reload().is_some_and(|change| !change.is_different));
    assert_eq!((keep(&live), live.error()), ((2, 2), None));
}

#[test]
fn a_key_that_waits_for_a_restart_is_known_until_its_old_value_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.toml");
    let put = |text: &str| std::fs::write(&path, text).unwrap();
    put("[server]\nlisten = \"127.0.0.1:1\"\n");
    let config_inputs =
        ConfigInputs { config_path: Some(path.clone()), ignores_environment: true, ..ConfigInputs::default() };
    let config = config_inputs.load().unwrap_or_else(|problems| panic!("{problems:?}"));
    let mut live = LiveConfiguration::new(config_inputs, config);
    assert!(live.restart_keys().is_empty());
    for (text, expected) in [
        ("[server]\nlisten = \"127.0.0.1:2\"\n", &["server.listen"][..]),
        ("a mistake", &["server.listen"]),
        ("[server]\nlisten = \"127.0.0.1:1\"\n", &[]),
    ] {
        put(text);
        live.reload();
        assert_eq!(live.restart_keys(), expected, "{text}");
    }
}

#[test]
fn config_change_reports_access_control_and_check_timing() {
    let none = || ConfigChange {
        is_different: true,
        access_control: false,
        check_timing: false,
        search: false,
        assistant: false,
        playground: false,
        analytics: false,
        restart_keys: vec![],
    };
    for (text, expected) in [
        ("", ConfigChange { is_different: false, ..none() }),
        ("[access]\nallow = [\"10.0.0.0/8\"]\n", ConfigChange { access_control: true, ..none() }),
        ("[server]\ntrustedProxies = [\"10.0.0.1\"]\n", ConfigChange { access_control: true, ..none() }),
        ("[sync]\ninterval = \"3h\"\n", ConfigChange { check_timing: true, ..none() }),
        ("[sync]\nschedule = \"0 3 * * *\"\n", ConfigChange { check_timing: true, ..none() }),
        (
            "[server]\ntrustedProxies = \"::1\"\n[access]\nheader = \"X-User\"\n",
            ConfigChange { access_control: true, ..none() },
        ),
        ("[search]\nenabled = false\n", ConfigChange { search: true, ..none() }),
        ("[search]\nexclude = \"/internal/:path*\"\n", ConfigChange { search: true, ..none() }),
        ("[assistant]\nmcp = false\n", ConfigChange { assistant: true, ..none() }),
        ("[assistant]\nbaseUrl = \"http://[::1]/v1\"\nmodel = \"m\"\n", ConfigChange { assistant: true, ..none() }),
        // The playground compares the host of each request, too.
        ("[assistant]\nhosts = \"docs.example\"\n", ConfigChange { assistant: true, playground: true, ..none() }),
        ("[playground]\nenabled = true\n", ConfigChange { playground: true, ..none() }),
        ("[[playground.allow]]\norigin = \"http://[::1]\"\n", ConfigChange { playground: true, ..none() }),
        // The endpoint of the model and the targets are reached with the same settings as the API.
        ("[network]\nconnectTimeout = \"1s\"\n", ConfigChange { playground: true, ..none() }),
        #[cfg(feature = "analytics")]
        ("[analytics]\nenabled = false\n", ConfigChange { analytics: true, ..none() }),
        #[cfg(feature = "analytics")]
        ("[analytics]\nkeyFile = \"/keys\"\n", ConfigChange { analytics: true, ..none() }),
        // Without analytics.projectId, the project is that of the API.
        (
            "[api]\nbaseUrl = \"https://api.example/v1\"\ndomain = \"d.example\"\nprojectId = \"p_1\"\n",
            ConfigChange { analytics: true, ..none() },
        ),
        ("[publish]\ndirectory = \"/www\"\n", none()),
        ("[admin]\nhosts = \"a.example\"\n", none()),
        ("[sync]\ninbox = \"/inbox\"\n", none()),
    ] {
        let (_, change) = ConfigChange::between(&config(""), config(text));
        assert_eq!(change, expected, "{text}");
    }
}
