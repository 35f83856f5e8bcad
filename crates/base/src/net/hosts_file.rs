//! Looks host names up in `/etc/hosts` (hosts(5)). The file is read anew at each lookup, so that a change has an effect
//! at the next connection.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use crate::regular_file;

/// The path of the file.
pub const HOSTS_FILE: &str = "/etc/hosts";
/// Upper bound of the size of the file in bytes.
const MAX_HOSTS_BYTES: u64 = 1 << 20;

/// Returns the addresses of a host name: loopback for `localhost` and names below it (RFC 6761, section 6.3), else
/// those in `/etc/hosts`, in its order. Without the file, a name has no address.
pub fn find_addresses(name: &str) -> io::Result<Vec<IpAddr>> {
    find_addresses_in_file(Path::new(HOSTS_FILE), name)
}

fn find_addresses_in_file(path: &Path, name: &str) -> io::Result<Vec<IpAddr>> {
    // A name may end with the dot of the root.
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    if name == "localhost" || name.ends_with(".localhost") {
        return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
    }
    match regular_file::read(path, MAX_HOSTS_BYTES) {
        Ok(bytes) => Ok(find_addresses_in_text(&String::from_utf8_lossy(&bytes), &name)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Finds the addresses of a name in lower case. A line has an address, then names; a `#` begins a comment. Lines with
/// another address than an IP address are skipped, as the C library does.
fn find_addresses_in_text(text: &str, name: &str) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_ascii_whitespace();
        let Some(address) = words.next().and_then(|word| word.parse::<IpAddr>().ok()) else { continue };
        if words.any(|word| word.eq_ignore_ascii_case(name)) && !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(text: &str, name: &str) -> Vec<String> {
        find_addresses_in_text(text, name).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_hosts_file_has_names_and_aliases_of_addresses_without_regard_to_case() {
        let text = "127.0.0.1\tlocalhost\n\n# 10.9.9.9 api.example\n 10.0.0.5  API.example api # api2\n\
                    fd00::5 api.example\n10.0.0.5 api.example\nfe80::1%eth0 api.example\nnonsense api.example\n\
                    10.0.0.6 api.example.net\n";
        assert_eq!(addresses(text, "api.example"), ["10.0.0.5", "fd00::5"]);
        assert_eq!(addresses(text, "api"), ["10.0.0.5"]);
        for absent in ["api2", "example", "10.0.0.5", "", "#"] {
            assert!(addresses(text, absent).is_empty(), "{absent}");
        }
    }

    #[test]
    fn localhost_is_loopback_whatever_the_hosts_file_says() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hosts");
        std::fs::write(&file, "10.0.0.9 localhost a.localhost localhost.example\n").unwrap();
        for name in ["localhost", "LOCALHOST.", "a.localhost", "b.c.localhost"] {
            let found = find_addresses_in_file(&file, name).unwrap();
            assert!(found.len() == 2 && found.iter().all(IpAddr::is_loopback), "{name}: {found:?}");
        }
        for name in ["localhost.example", "Localhost.example."] {
            assert_eq!(find_addresses_in_file(&file, name).unwrap(), ["10.0.0.9".parse::<IpAddr>().unwrap()], "{name}");
        }
    }

    #[test]
    fn each_lookup_reads_the_hosts_file_anew_and_up_to_its_size_limit() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hosts");
        assert_eq!(find_addresses_in_file(&file, "api.example").unwrap(), [] as [IpAddr; 0], "there is no file");
        for address in ["10.0.0.5", "10.0.0.6"] {
            std::fs::write(&file, format!("{address} api.example\n")).unwrap();
            assert_eq!(find_addresses_in_file(&file, "api.example").unwrap(), [address.parse::<IpAddr>().unwrap()]);
        }
        std::fs::write(&file, vec![b'\n'; MAX_HOSTS_BYTES as usize + 1]).unwrap();
        assert!(find_addresses_in_file(&file, "api.example").unwrap_err().to_string().contains("larger than"));
        assert!(find_addresses_in_file(dir.path(), "api.example").is_err(), "a folder");
    }
}
