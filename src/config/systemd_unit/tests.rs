//! Reading systemd units: drop-ins, the user of a service, its sandbox, its credentials and its environment.

use super::*;
use crate::config::systemd_credentials::SystemdCredentials;

fn unit(text: &str) -> ServiceUnit {
    ServiceUnit::parse(DEFAULT_UNIT, &[format!("[Service]\n{text}")])
}

#[test]
fn shipped_systemd_units_are_parsed_completely() {
    let unit = ServiceUnit::parse(DEFAULT_UNIT, &[include_str!("../../../systemd/docwharf.service").to_owned()]);
    assert!(unit.dynamic_user && !unit.may_bind_low_ports());
    assert_eq!(unit.configuration(), Path::new("/etc/docwharf/config.toml"));
    assert_eq!(unit.credential("api-key"), Some(Path::new("/etc/docwharf/api-key")));
    assert_eq!(unit.environment_files, [Path::new("/etc/docwharf/environment")]);
    assert!(unit.owns(Path::new("/var/lib/docwharf/versions")));
    assert_eq!(unit.write_barrier(Path::new("/srv/inbox")), Some("ProtectSystem="));
    let name = "docwharf@guides.service";
    let template = ServiceUnit::parse(name, &[include_str!("../../../systemd/docwharf@.service").to_owned()]);
    assert_eq!(template.configuration(), Path::new("/etc/docwharf/guides.toml"));
    assert_eq!(template.credential("api-key"), Some(Path::new("/etc/docwharf/guides.api-key")));
    assert_eq!(template.user.as_deref(), Some("docwharf-guides"));
    assert!(template.owns(Path::new("/var/lib/private/docwharf-guides")));
}

#[test]
fn drop_in_of_the_higher_priority_folder_wins_and_file_names_define_the_order() {
    let (strong, weak) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (folder, path, text) in [
        (&weak, "a@.service", "User=of-the-template"),
        (&weak, "a@b.service.d/20-user.conf", "User=weak"),
        (&strong, "a@.service.d/20-user.conf", "User=strong"),
        (&strong, "a@b.service.d/10-first.conf", "User=earlier"),
        (&strong, "a@b.service.d/90-last.txt", "User=no-drop-in"),
    ] {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("[Service]\n{text}\n")).unwrap();
    }
    let folders = UnitFolders(vec![strong.path().to_owned(), weak.path().to_owned()]);
    assert_eq!(folders.load("a@b.service").unwrap().user.as_deref(), Some("strong"));
    assert!(folders.load("b@b.service").is_none());
}

#[test]
fn drop_ins_add_to_lists_and_an_empty_value_begins_them_anew() {
    let parse_with = |drop_in: &str| {
        let own = "[Service]\nReadWritePaths=/a\nLoadCredential=api-key:/k\n[Install]\nUser=no\n".to_owned();
        ServiceUnit::parse(DEFAULT_UNIT, &[own, drop_in.to_owned()])
    };
    let unit = parse_with("[Service]\nReadWritePaths=-/b \\\n  \"/c d\"\n# ReadWritePaths=/e\n");
    assert_eq!(unit.read_write_paths, ["/a", "/b", "/c d"].map(PathBuf::from));
    assert_eq!(unit.user, None);
    let unit = parse_with("[Service]\nReadWritePaths=\nReadWritePaths=/b\nLoadCredential=\n");
    assert_eq!(unit.read_write_paths, [Path::new("/b")]);
    assert_eq!(unit.credential("api-key"), None);
}

#[test]
fn low_ports_need_root_or_the_capability_on_the_host() {
    for (text, may) in [
        ("User=docwharf", false),
        ("User=root", true),
        ("", true),
        ("User=root\nCapabilityBoundingSet=", false),
        ("User=a\nAmbientCapabilities=CAP_NET_BIND_SERVICE", true),
        ("User=a\nAmbientCapabilities=CAP_NET_BIND_SERVICE\nCapabilityBoundingSet=", false),
        ("User=a\nAmbientCapabilities=CAP_NET_BIND_SERVICE\nPrivateUsers=yes", false),
        ("User=a\nAmbientCapabilities=CAP_NET_BIND_SERVICE\nCapabilityBoundingSet=~CAP_SYS_ADMIN", true),
        ("User=a\nAmbientCapabilities=CAP_NET_BIND_SERVICE\nCapabilityBoundingSet=CAP_NET_BIND_SERVICE", true),
        ("DynamicUser=yes", false),
    ] {
        assert_eq!(unit(text).may_bind_low_ports(), may, "{text}");
    }
}

#[test]
fn sandbox_check_names_the_systemd_setting_that_prevents_writing() {
    for (text, path, barrier) in [
        ("User=a", "/srv/inbox", None),
        ("ProtectSystem=strict", "/srv/inbox", Some("ProtectSystem=")),
        ("ProtectSystem=strict\nReadWritePaths=/srv", "/srv/inbox", None),
        ("ProtectSystem=strict\nReadWritePaths=/srv/in", "/srv/inbox", Some("ProtectSystem=")),
        ("ProtectSystem=full", "/srv/inbox", None),
        ("ProtectSystem=full", "/etc/docwharf/inbox", Some("ProtectSystem=")),
        ("ProtectSystem=yes", "/usr/share/www", Some("ProtectSystem=")),
        ("ProtectHome=yes", "/home/a/inbox", Some("ProtectHome=")),
        ("PrivateTmp=yes\nReadWritePaths=/tmp", "/tmp/inbox", Some("PrivateTmp=")),
        ("DynamicUser=yes", "/srv/inbox", Some("ProtectSystem=")),
        ("DynamicUser=yes\nStateDirectory=docwharf", "/var/lib/docwharf/inbox", None),
        ("DynamicUser=yes\nLogsDirectory=docwharf", "/var/log/docwharf/access.log", None),
        ("DynamicUser=yes\nStateDirectory=a:b docwharf", "/var/lib/a/inbox", None),
        ("DynamicUser=yes\nStateDirectory=docwharf", "/var/lib/private/docwharf/inbox", None),
        ("DynamicUser=yes\nStateDirectory=docwharf", "/var/lib/docwharf2/inbox", Some("ProtectSystem=")),
        // A dynamic user implies `strict`, also beside an explicit `full`.
        ("DynamicUser=yes\nProtectSystem=full", "/srv/inbox", Some("ProtectSystem=")),
        ("DynamicUser=yes\nProtectSystem=no", "/srv/inbox", Some("ProtectSystem=")),
        ("ProtectHome=read-only", "/root/inbox", Some("ProtectHome=")),
        // A dynamic user implies `read-only`.
        ("DynamicUser=yes", "/home/a/inbox", Some("ProtectHome=")),
        ("DynamicUser=yes\nProtectHome=no", "/home/a/inbox", Some("ProtectHome=")),
        ("ProtectHome=tmpfs", "/run/user/1/inbox", Some("ProtectHome=")),
        ("ProtectHome=yes\nReadWritePaths=/home/a", "/home/a/inbox", None),
        ("PrivateTmp=disconnected", "/var/tmp/inbox", Some("PrivateTmp=")),
        ("ProtectSystem=yes", "/etc/inbox", None),
        ("ProtectSystem=strict", "/dev/shm/inbox", None),
    ] {
        assert_eq!(unit(text).write_barrier(Path::new(path)), barrier, "{text} {path}");
    }
}

#[test]
fn the_sandbox_hides_homes_and_temporary_files_also_where_the_service_may_write() {
    for (text, path, barrier) in [
        ("User=a", "/home/a/key", None),
        ("ProtectHome=yes", "/home/a/key", Some("ProtectHome=")),
        ("ProtectHome=yes\nReadWritePaths=/home/a", "/home/a/key", Some("ProtectHome=")),
        ("ProtectHome=yes", "/homes/key", None),
        ("PrivateTmp=yes", "/tmp/key", Some("PrivateTmp=")),
        ("PrivateTmp=yes", "/var/tmp/key", Some("PrivateTmp=")),
        ("ProtectHome=tmpfs", "/run/user/1/key", Some("ProtectHome=")),
        // Read-only homes are not hidden; a dynamic user implies `read-only`, but the unit may hide homes.
        ("ProtectHome=read-only", "/home/a/key", None),
        ("DynamicUser=yes", "/root/key", None),
        ("DynamicUser=yes\nProtectHome=no", "/root/key", None),
        ("DynamicUser=yes\nProtectHome=yes", "/root/key", Some("ProtectHome=")),
        ("DynamicUser=yes", "/etc/docwharf/key", None),
    ] {
        assert_eq!(unit(text).read_barrier(Path::new(path)), barrier, "{text} {path}");
    }
}

#[test]
fn unit_config_path_comes_from_option_or_variable_and_credentials_from_files() {
    for (text, path) in [
        ("ExecStart=/bin/docwharf run", "/etc/docwharf/config.toml"),
        ("ExecStart=/bin/docwharf run --config=/a.toml", "/a.toml"),
        ("ExecStart=/bin/docwharf run --config \"/a b.toml\" -v", "/a b.toml"),
        ("ExecStart=/bin/docwharf run\nEnvironment=DOCWHARF_CONFIG=/a DOCWHARF_CONFIG=/b", "/b"),
        ("ExecStart=/bin/docwharf run --config /a\nEnvironment=DOCWHARF_CONFIG=/b", "/a"),
        ("ExecStart=/bin/docwharf run --config /etc/%%/%N.toml", "/etc/%/docwharf.toml"),
    ] {
        assert_eq!(unit(text).configuration(), Path::new(path), "{text}");
    }
    let unit = unit("LoadCredential=api-key:/keys/a\nLoadCredential=tls-key:/keys/b");
    assert!(unit.passes_credential(Path::new("/keys/b")) && !unit.passes_credential(Path::new("/keys")));
    assert_eq!(unit.credential("tls-key"), Some(Path::new("/keys/b")));
    let credentials = SystemdCredentials::Unit(Box::new(unit));
    let found = credentials.find("api-key").map(|credential| (credential.path, credential.unit));
    assert_eq!(found, Some(("/keys/a".into(), Some(DEFAULT_UNIT.to_owned()))));
    assert_eq!(credentials.find("tls-cert"), None);
}

#[test]
fn last_value_of_a_unit_variable_wins_and_a_blank_value_is_unset() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("environment");
    std::fs::write(&file, "; a comment\nB='from file'\nC=\" \"\n").unwrap();
    let unit = unit(&format!("Environment=A=1 A=2 B=unit C=unit\nEnvironmentFile={}", file.display()));
    let credentials = SystemdCredentials::Unit(Box::new(unit));
    for (name, value) in [("A", Some("2")), ("B", Some("from file")), ("C", None), ("D", None)] {
        assert_eq!(credentials.variable(name).as_deref(), value, "{name}");
    }
    // The service itself reads its own environment.
    assert_eq!(SystemdCredentials::Passed(dir.path().to_owned()).variable("A"), None);
}

#[test]
fn masked_unit_has_no_settings_and_the_unit_file_of_highest_priority_wins() {
    let (strong, weak) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (folder, user) in [(&strong, "strong"), (&weak, "weak")] {
        std::fs::write(folder.path().join("a.service"), format!("[Service]\nUser={user}\n")).unwrap();
    }
    let folders = UnitFolders(vec![strong.path().to_owned(), weak.path().to_owned()]);
    assert_eq!(folders.load("a.service").unwrap().user.as_deref(), Some("strong"));
    std::fs::remove_file(strong.path().join("a.service")).unwrap();
    assert_eq!(folders.load("a.service").unwrap().user.as_deref(), Some("weak"));
    std::os::unix::fs::symlink("/dev/null", strong.path().join("a.service")).unwrap();
    assert!(folders.load("a.service").is_none_or(|unit| unit.user.is_none()), "the weaker file does not count");
}

#[test]
fn unit_environment_includes_its_environment_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("environment");
    std::fs::write(&file, "# a comment\nDOCWHARF_A__B=\"x y\"\nDOCWHARF_C=z=1\n").unwrap();
    let unit = unit(&format!("Environment=A=1 \"B=two words\"\nEnvironmentFile=-{}", file.display()));
    let all: Vec<_> = unit.environment().into_iter().map(|(n, v)| format!("{n:?}={v:?}")).collect();
    assert_eq!(all, [r#""A"="1""#, r#""B"="two words""#, r#""DOCWHARF_A__B"="x y""#, r#""DOCWHARF_C"="z=1""#]);
}
