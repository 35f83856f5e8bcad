//! The configurations to begin with: README.md, `config init --for` and the Debian package name the same keys.

use std::path::Path;

use toml::Table;

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Parses a configuration, with the keys behind a `#` that no space follows.
fn with_commented_keys(text: &str) -> Table {
    let lines = text.lines().map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n").parse().unwrap()
}

/// Returns the text between two texts of README.md.
fn readme_part(start: &str, end: &str) -> String {
    let readme = read("README.md");
    let (_, rest) = readme.split_once(start).unwrap_or_else(|| panic!("README.md has no {start}"));
    rest.split_once(end).unwrap_or_else(|| panic!("README.md has no {end} after {start}")).0.to_owned()
}

#[test]
fn the_configuration_of_a_vm_is_the_same_in_readme_config_init_and_the_package() {
    let mut readme: Table =
        readme_part("**A VM**", "**A container**").split("```").nth(1).unwrap()[4..].parse().unwrap();
    // The README opens the site to other hosts, as its text says.
    assert_eq!(readme["server"]["listen"].as_str(), Some("0.0.0.0:8080"));
    readme["server"]["listen"] = "127.0.0.1:8080".into();
    for name in ["packaging/debian/config.toml", "src/config/starter/vm.toml"] {
        let text = read(name);
        assert_eq!(with_commented_keys(&text), readme, "{name}");
        assert!(text.contains("chgrp docwharf, chmod 0640"), "{name}: the mode of the key");
        // The unit of an installation without the package passes the key: its user cannot read the file.
        readme["api"].as_table_mut().unwrap().remove("keyFile");
    }
    assert!(read("README.md").contains("\ninstall -m 640 -g docwharf my-key /etc/docwharf/api-key\n"));
}

#[test]
fn the_configuration_of_a_container_is_that_of_the_environment_in_readme_and_the_image() {
    let container: Table = read("src/config/starter/container.toml").parse().unwrap();
    let readme = readme_part("**A container**", "**An air-gapped host**");
    let image = read("Dockerfile");
    for (variable, section, key, is_of_image) in [
        ("DOCWHARF_STORE__PATH", "store", "path", true),
        ("DOCWHARF_SERVER__LISTEN", "server", "listen", true),
        ("DOCWHARF_API__BASE_URL", "api", "baseUrl", false),
        ("DOCWHARF_API__DOMAIN", "api", "domain", false),
        ("DOCWHARF_API__KEY_FILE", "api", "keyFile", false),
    ] {
        let text = if is_of_image { &image } else { &readme };
        let value = text.split_once(&format!("{variable}=")).and_then(|(_, rest)| rest.split_whitespace().next());
        assert_eq!(container[section][key].as_str(), value, "{variable}");
    }
    let keys = container.values().map(|section| section.as_table().unwrap().len()).sum::<usize>();
    assert_eq!(keys, 5, "a key that README.md does not name");
}
