//! The Debian package: its units, its configuration and its list of files. `.ci/packages-systemd` installs it.

use std::collections::BTreeSet;
use std::path::Path;

use toml::{Table, Value};

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns `[package.metadata.deb]`.
fn deb_metadata() -> Table {
    let manifest: Table = read("Cargo.toml").parse().unwrap();
    manifest["package"]["metadata"]["deb"].as_table().unwrap().clone()
}

/// Returns the lines of a unit that are not comments.
fn settings(unit: &str) -> BTreeSet<String> {
    let lines = unit.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// Settings of both packaged services that the units for an installation by hand lack.
const PACKAGED: [&str; 5] = [
    "Documentation=man:docwharf(1) file:///usr/share/doc/docwharf/",
    "ConfigurationDirectoryMode=0750",
    "IPAddressDeny=any",
    "IPAddressAllow=0.0.0.0/1 128.0.0.0/2 192.0.0.0/3",
    "IPAddressAllow=::/1 8000::/2 c000::/3 e000::/4 f000::/5 f800::/6 fc00::/7 fe00::/8",
];

#[test]
fn packaged_units_differ_from_those_for_a_hand_installation_in_user_folders_and_addresses_only() {
    for (unit, removed, added) in [
        (
            "docwharf.service",
            &["DynamicUser=yes", "StateDirectoryMode=0700"][..],
            &["User=docwharf", "Group=docwharf", "StateDirectoryMode=0750", "ReadWritePaths=-/var/spool/docwharf"][..],
        ),
        ("docwharf@.service", &[], &["Group=docwharf", "InaccessiblePaths=-/var/lib/docwharf -/var/spool/docwharf"]),
    ] {
        let by_hand = read(&format!("systemd/{unit}")).replace("/usr/local/bin/docwharf", "/usr/bin/docwharf");
        let mut expected = settings(&by_hand);
        for line in removed {
            assert!(expected.remove(*line), "systemd/{unit} has no {line}");
        }
        expected.extend(PACKAGED.iter().chain(added).map(|line| (*line).to_owned()));
        assert_eq!(settings(&read(&format!("packaging/debian/{unit}"))), expected, "{unit}");
    }
}

#[test]
fn the_packaged_configuration_has_at_most_15_lines_and_the_paths_of_the_package() {
    let text = read("packaging/debian/config.toml");
    assert!(text.lines().count() <= 15);
    let configuration: Table = text.parse().unwrap();
    assert_eq!(configuration["server"]["listen"].as_str(), Some("127.0.0.1:8080"));
    let inbox = configuration["sync"]["inbox"].as_str().unwrap();
    assert!(!configuration.contains_key("api"));
    for file in ["packaging/debian/docwharf.service", "packaging/debian/postinst", "packaging/debian/postrm"] {
        assert!(read(file).contains(inbox), "{file} does not name {inbox}");
    }
    // The lines of the API need no other change than their `#`.
    let enabled = text.lines().map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line));
    let enabled: Table = enabled.collect::<Vec<_>>().join("\n").parse().unwrap();
    assert_eq!(enabled["api"].as_table().unwrap().keys().collect::<Vec<_>>(), ["baseUrl", "domain", "keyFile"]);
    assert_eq!(enabled["api"]["keyFile"].as_str(), Some("api-key"));
}

#[test]
fn every_file_of_the_debian_package_exists_and_its_configuration_is_a_conffile() {
    let deb = deb_metadata();
    let assets: Vec<Vec<&str>> = deb["assets"].as_array().unwrap().iter().map(strings).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Built files are in target/.
    for asset in assets.iter().filter(|asset| !asset[0].starts_with("target/")) {
        assert!(root.join(asset[0]).is_file(), "{} is not there", asset[0]);
    }
    let in_etc = assets.iter().filter(|asset| asset[1].starts_with("etc/"));
    let in_etc: Vec<String> =
        in_etc.map(|asset| format!("/{}{}", asset[1], Path::new(asset[0]).file_name().unwrap().display())).collect();
    assert_eq!(strings(&deb["conf-files"]), in_etc);
    for script in ["preinst", "postinst", "prerm", "postrm"] {
        let folder = deb["maintainer-scripts"].as_str().unwrap();
        assert!(read(&format!("{folder}/{script}")).starts_with("#!/bin/sh\n"), "{script}");
    }
}

#[test]
fn the_maintainer_scripts_find_units_of_the_host_in_the_same_way() {
    // dpkg runs each script alone, so none can read the functions from another file.
    let functions = |script: &str| {
        let text = read(&format!("packaging/debian/{script}"));
        let start = text.find("# Prints the units of the host").unwrap_or_else(|| panic!("{script} has no functions"));
        let last = start + text[start..].find("\nfind_unpackaged_units() {\n").unwrap_or_else(|| panic!("{script}"));
        let end = last + text[last..].find("\n}\n").unwrap_or_else(|| panic!("{script}"));
        text[start..end].to_owned()
    };
    let expected = functions("postinst");
    assert!(expected.contains("\nfind_units_of_the_host() {\n"), "{expected}");
    for script in ["prerm", "postrm"] {
        assert_eq!(functions(script), expected, "packaging/debian/{script} differs from postinst");
    }
}

fn strings(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}
