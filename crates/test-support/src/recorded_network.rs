//! A network namespace without a way out: its only routes, for IPv4 and IPv6, lead to a network device that counts
//! packets, and so does the address of its name server. A test runs in it as a whole, with all programs that it starts.
//! Loopback works as usual. The name of the host is in no hosts file, so that a program which looks it up asks the name
//! server. Also a user namespace in which no network namespace is permitted.

use std::net::{ToSocketAddrs, UdpSocket};
use std::process::Command;

use crate::host::run_with_timeout;
use crate::temporary_folder;

/// The environment variable with which CI demands that these tests are made: it is set where they can be.
const REQUIRED: &str = "DOCWHARF_TEST_NAMESPACES_REQUIRED";
/// The environment variable by which the test program recognizes that it runs in the namespace.
const INSIDE: &str = "DOCWHARF_TEST_RECORDED_NETWORK";
/// The name of the host in the namespace. Programs add the domain of a name server to a name without a dot.
const HOST_NAME: &str = "docwharf-recorded-host";
/// Addresses for documentation (RFC 5737, RFC 3849), to which no host has a better route.
const OUTSIDE_ADDRESSES: [&str; 2] = ["203.0.113.9:9", "[2001:db8:1::9]:9"];
/// Sets the namespace up, up to its network. The arguments are a folder for files, the name of the host, and a program
/// with its arguments. `NAME_SERVER` is replaced.
const NAMES_SCRIPT: &str = r#"
folder=$1; echo "$2" >/proc/sys/kernel/hostname; shift 2
mount --make-rprivate /
echo 'nameserver NAME_SERVER' >"$folder/resolv.conf"
mount --bind "$folder/resolv.conf" /etc/resolv.conf
if test -e /etc/nsswitch.conf; then
    echo 'hosts: files dns' >"$folder/nsswitch.conf"
    mount --bind "$folder/nsswitch.conf" /etc/nsswitch.conf
fi
ip link set lo up
"#;

/// Sets a network up whose only route leads to a recorder. A pair of `veth` devices is used, because every kernel for
/// containers has it. The device sends nothing by itself: no ARP, no multicast, no solicitation of routers, no check
/// for duplicate addresses.
const RECORDER_SCRIPT: &str = r#"
ip link add recorder type veth peer name far_end
if test -d /proc/sys/net/ipv6/conf/recorder; then
    echo 1 >/proc/sys/net/ipv6/conf/far_end/disable_ipv6
    echo 1 >/proc/sys/net/ipv6/conf/recorder/addr_gen_mode
    for setting in accept_ra router_solicitations dad_transmits; do
        echo 0 >"/proc/sys/net/ipv6/conf/recorder/$setting"
    done
fi
ip link set recorder multicast off arp off
ip address add 192.0.2.1/24 dev recorder
ip link set recorder up
ip link set far_end up
ip route add default dev recorder
if test -d /proc/sys/net/ipv6/conf/recorder; then
    ip -6 address add 2001:db8::1/64 dev recorder nodad
    ip -6 route add default dev recorder
fi
"#;

/// The device that counts the packets which leave the namespace.
pub struct PacketRecorder(());

impl PacketRecorder {
    /// Returns the number of packets so far that were sent to an address outside.
    #[track_caller]
    pub fn packets(&self) -> u64 {
        let devices = std::fs::read_to_string("/proc/self/net/dev").expect("Linux lists network devices");
        let line = devices.lines().find_map(|line| line.trim_start().strip_prefix("recorder:"));
        // Eight numbers for received data, of which the second is the number of packets; then the same for sent data.
        let sent = line.and_then(|line| line.split_whitespace().nth(9)).and_then(|number| number.parse().ok());
        sent.expect("the recorder is a network device")
    }

    /// Panics unless exactly these addresses get a packet, and a query for a host name is recorded, too.
    fn check(&self) {
        assert_eq!(self.packets(), 0, "the namespace sends packets by itself");
        let has_ipv6 = std::path::Path::new("/proc/sys/net/ipv6").exists();
        let addresses = &OUTSIDE_ADDRESSES[..if has_ipv6 { 2 } else { 1 }];
        for (n, address) in addresses.iter().enumerate() {
            let local = if address.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
            let socket = UdpSocket::bind(local).expect("a socket");
            socket.send_to(b"x", address).expect("there is a route to the recorder");
            assert_eq!(self.packets(), n as u64 + 1, "{address}");
        }
        let before = self.packets();
        assert!("name.example:80".to_socket_addrs().is_err());
        assert!(self.packets() > before, "a query for a host name is not recorded");
        let host_name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        assert_eq!(host_name, HOST_NAME, "the namespace has a host name of its own");
        let before = self.packets();
        assert!((&*host_name, 80).to_socket_addrs().is_err(), "{host_name} is in a hosts file");
        assert!(self.packets() > before, "a query for the name of this host is not recorded");
    }
}

/// Runs a test in a namespace whose network leads to a recorder. `test` is the name of the calling test in its program,
/// such as `air_gapped::no_packet`. Where the system permits no such namespace, it prints that the test was not made.
///
/// # Panics
/// If the test fails in the namespace, or cannot be made although `DOCWHARF_TEST_NAMESPACES_REQUIRED` is set. It needs
/// `ip` (iproute2) and `veth` devices.
#[track_caller]
pub fn run_in_recorded_network(test: &str, body: impl FnOnce(&PacketRecorder)) {
    let recorder = PacketRecorder(());
    if std::env::var_os(INSIDE).is_some() {
        recorder.check();
        return body(&recorder);
    }
    run_in_namespace(test, "192.0.2.53", RECORDER_SCRIPT);
}

/// Runs a test in a namespace of which these addresses, each with the length of its prefix, are the internet: they are
/// addresses of its loopback device, and the first one is that of the name server. The test listens at them. Nothing
/// else can be reached. Otherwise as [`run_in_recorded_network`].
#[track_caller]
pub fn run_in_own_internet(test: &str, addresses: &[&str], body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let add = |address: &&str| {
        // Otherwise an address of IPv6 may not be usable at once.
        let no_check = if address.contains(':') { " nodad" } else { "" };
        format!("ip address add {address} dev lo{no_check}")
    };
    let commands: Vec<String> = addresses.iter().map(add).collect();
    let name_server = addresses[0].split('/').next().expect("an address");
    run_in_namespace(test, name_server, &commands.join("\n"));
}

/// Runs the calling test again, in a namespace with this name server, whose network `network_script` sets up.
#[track_caller]
fn run_in_namespace(test: &str, name_server: &str, network_script: &str) {
    let script = format!("{}{network_script}\nexec \"$@\"\n", NAMES_SCRIPT.replace("NAME_SERVER", name_server));
    let namespaces: &[&str] = if rustix::process::geteuid().is_root() {
        &["--net", "--mount", "--uts"]
    } else {
        &["--user", "--map-root-user", "--net", "--mount", "--uts"]
    };
    let folder = temporary_folder();
    let enter = || {
        let mut command = Command::new("unshare");
        command.args(namespaces).args(["sh", "-e", "-c", &script, "sh"]).arg(folder.path()).arg(HOST_NAME);
        command
    };
    // Containers may permit namespaces, but no devices or mounts in them.
    let probe = enter().arg("true").output();
    if !probe.as_ref().is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os(REQUIRED).is_none(), "{REQUIRED} is set, and there is no namespace: {probe:?}");
        eprintln!(
            "not tested: this machine permits no network namespace with devices (unshare {}, ip): {probe:?}",
            namespaces.join(" ")
        );
        return;
    }
    let mut command = enter();
    command.arg(std::env::current_exe().expect("a test program knows its own path"));
    command.args(["--exact", test, "--nocapture"]).env(INSIDE, "1");
    // The control asks for two names, which no server answers.
    command.env("RES_OPTIONS", "timeout:1 attempts:1");
    let output = run_with_timeout(&mut command);
    let has_run = output.stdout.contains("running 1 test");
    assert!(output.code == Some(0) && has_run, "{test} in a namespace: {}\n{}", output.stdout, output.stderr);
}

/// Returns a command that runs this program with these arguments and environment where no network namespace is
/// permitted, as in most containers: in a user namespace with a limit of none (`namespaces(7)`). `None`, with a
/// message, if this machine permits no user namespaces.
pub fn without_network_namespaces(command: &Command) -> Option<Command> {
    let forbid = "echo 0 >/proc/sys/user/max_net_namespaces && exec \"$@\"";
    let start = || {
        let mut wrapped = Command::new("unshare");
        wrapped.args(["--user", "--map-root-user", "sh", "-c", forbid, "sh"]);
        wrapped
    };
    let probe = start().arg("true").output();
    if !probe.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("not tested: this machine permits no user namespace: {probe:?}");
        return None;
    }
    let mut wrapped = start();
    wrapped.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        wrapped.current_dir(folder);
    }
    Some(wrapped)
}
