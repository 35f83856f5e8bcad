//! Child processes without a network, for an air-gapped deployment.
//!
//! Such a program is started in a network namespace of its own (`network_namespaces(7)`). The namespace has one
//! interface, a loopback that is down. So the program, and all processes that it starts, reach no host, no name server,
//! no port of this machine and none of its abstract Unix sockets. Unix sockets with a path are not separated, and
//! neither are sockets between virtual machines (vsock(7)): a program that connects to a service of this machine by one
//! of them has the network that the service uses for it. A process with `CAP_SYS_ADMIN` may create the namespace, and
//! could return from it. Others may if they create a user namespace with it (`user_namespaces(7)`); the program then
//! has no capabilities, and the files that it writes belong to the same user as before.
//!
//! Containers and hardened services often permit neither. Programs of docwharf that need no socket then get a filter of
//! system calls (seccomp(2)), which is stricter: with it, no process can create a socket of any kind. Any process may
//! set such a filter for itself. Other programs are not started. Programs of docwharf get no user namespace if they run
//! as root, who could not read the files of other users in it.
//!
//! [`ChildNetwork::command`] is the one way to start a program: `clippy.toml` disallows the method of the standard
//! library, so that each caller decides about the network.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::model::deployment::OutboundPolicy;

/// The network of a child process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ChildNetwork {
    /// That of this process.
    #[default]
    Inherited,
    /// An empty network namespace. Without it, the program does not start.
    EmptyNamespace,
    /// An empty network namespace. Where the system permits none, a filter refuses every new socket. For programs that
    /// need no socket.
    NoSockets,
}

/// A function that takes the network from the calling process. It returns whether the system permits it. Only
/// async-signal-safe functions may be called in it (signal-safety(7)), because it runs between fork and exec.
type IsolationMethod = fn() -> bool;

/// The error number by which the parent recognizes that no method has worked. `execve` and the other calls of a start
/// return it for no reason.
const NOT_ISOLATED: i32 = libc::ENONET;

impl ChildNetwork {
    /// Returns the network of a program of docwharf that needs no socket.
    pub fn for_own_program(policy: &OutboundPolicy) -> ChildNetwork {
        if policy.is_air_gapped() { ChildNetwork::NoSockets } else { ChildNetwork::Inherited }
    }

    /// Returns the network of another program.
    pub fn for_other_program(policy: &OutboundPolicy) -> ChildNetwork {
        if policy.is_air_gapped() { ChildNetwork::EmptyNamespace } else { ChildNetwork::Inherited }
    }

    /// Returns the command that runs a program with this network.
    pub fn command(self, program: impl AsRef<OsStr>) -> Command {
        #[allow(clippy::disallowed_methods)] // the one way to start a program
        let mut command = Command::new(program);
        match self {
            ChildNetwork::Inherited => {}
            ChildNetwork::EmptyNamespace => {
                isolate(&mut command, &[create_namespace, create_user_and_network_namespace]);
            }
            ChildNetwork::NoSockets => {
                isolate(&mut command, &[create_namespace, create_namespaces_unless_root, refuse_sockets]);
            }
        }
        command
    }
}

/// Replaces the error of a child that could not be isolated by one with the cause and the remedy. Returns other errors
/// unchanged.
pub fn explain_start_error(error: io::Error) -> io::Error {
    if error.raw_os_error() != Some(NOT_ISOLATED) {
        return error;
    }
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        "a program of an air-gapped deployment runs without a network, and this system permits it no network \
         namespace; permit user namespaces to this user (unshare --user --net must work)",
    )
}

/// Tries these methods in the child, until one works. If none does, the program is not run.
fn isolate(command: &mut Command, methods: &'static [IsolationMethod]) {
    let try_methods = || {
        let is_isolated = methods.iter().any(|method| method());
        if is_isolated { Ok(()) } else { Err(io::Error::from_raw_os_error(NOT_ISOLATED)) }
    };
    // SAFETY: between fork and exec, the closure only makes system calls on constants and on memory of its own stack.
    // It allocates nothing and takes no lock: an `io::Error` of a number is that number.
    unsafe {
        command.pre_exec(try_methods);
    }
}

fn create_namespace() -> bool {
    // SAFETY: a plain system call. The child has one thread, and shares no state with others that depends on it.
    unsafe { libc::unshare(libc::CLONE_NEWNET) == 0 }
}

fn create_user_and_network_namespace() -> bool {
    // SAFETY: as in `create_namespace`.
    unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) == 0 }
}

/// A user namespace takes the capabilities of root, and with them its access to the files of other users.
fn create_namespaces_unless_root() -> bool {
    !rustix::process::geteuid().is_root() && create_user_and_network_namespace()
}

/// The architecture of system calls (`AUDIT_ARCH_…` of linux/audit.h), where it is known.
const ARCHITECTURE: Option<u32> = if cfg!(target_arch = "x86_64") {
    Some(0xc000_003e)
} else if cfg!(target_arch = "aarch64") {
    Some(0xc000_00b7)
} else {
    None
};
/// The first number of the system calls of x32, the other calling convention of `x86_64`. No other number is as large.
const FIRST_X32_CALL: u32 = 0x4000_0000;
/// The offsets in `struct seccomp_data` of the number of the call and of its architecture.
const CALL_OFFSET: u32 = 0;
const ARCHITECTURE_OFFSET: u32 = 4;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Refuses the calls that create a socket: `socket`, the operations of `io_uring`, and all calls of another
/// architecture. `socketpair` is permitted: its sockets are connected to each other only. Jumps are counted from the
/// next instruction.
const SOCKET_FILTER: [libc::sock_filter; 8] = [
    instruction(LOAD, ARCHITECTURE_OFFSET, 0, 0),
    instruction(
        IF_EQUAL,
        match ARCHITECTURE {
            Some(architecture) => architecture,
            None => 0,
        },
        0,
        5,
    ),
    instruction(LOAD, CALL_OFFSET, 0, 0),
    instruction(IF_AT_LEAST, FIRST_X32_CALL, 3, 0),
    instruction(IF_EQUAL, libc::SYS_socket as u32, 2, 0),
    instruction(IF_EQUAL, libc::SYS_io_uring_setup as u32, 1, 0),
    instruction(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
    instruction(RETURN, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0, 0),
];

const fn instruction(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// Sets [`SOCKET_FILTER`] for this process and all that it starts. They cannot remove it.
fn refuse_sockets() -> bool {
    if ARCHITECTURE.is_none() {
        return false;
    }
    let mut filter = SOCKET_FILTER;
    let program = libc::sock_fprog { len: SOCKET_FILTER.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: plain system calls. The kernel copies the filter, which lives until after the second call.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // a test shows that sockets are refused
mod tests {
    use std::net::UdpSocket;

    use super::*;

    fn network_of_child(methods: &'static [IsolationMethod]) -> io::Result<String> {
        let mut command = Command::new("readlink");
        isolate(command.arg("/proc/self/ns/net"), methods);
        Ok(String::from_utf8_lossy(&command.output()?.stdout).trim().to_owned())
    }

    #[test]
    fn a_child_without_a_network_is_in_another_namespace_with_an_unused_loopback_only() {
        let methods: &[IsolationMethod] = &[create_namespace, create_user_and_network_namespace];
        let network = match network_of_child(methods) {
            Ok(network) => network,
            Err(error) => return eprintln!("skipped: {}", explain_start_error(error)),
        };
        assert!(network.starts_with("net:["), "{network}");
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        assert_ne!(network, own.to_str().unwrap());
        let mut command = ChildNetwork::EmptyNamespace.command("cat");
        let output = String::from_utf8(command.arg("/proc/self/net/dev").output().unwrap().stdout).unwrap();
        let interfaces: Vec<&str> =
            output.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim()).collect();
        // A kernel may add interfaces of tunnels, which lead nowhere, to each namespace.
        assert!(interfaces.contains(&"lo") && !interfaces.iter().any(|name| name.starts_with('e')), "{output}");
    }

    #[test]
    fn a_program_that_cannot_be_isolated_is_not_run_and_the_error_says_so() {
        let error = network_of_child(&[|| false]).unwrap_err();
        let text = explain_start_error(error).to_string();
        assert!(text.contains("air-gapped") && text.contains("network namespace"), "{text}");
        let other = explain_start_error(io::Error::from_raw_os_error(libc::ENOENT));
        assert_eq!(other.kind(), io::ErrorKind::NotFound);
        // The methods are tried in turn.
        assert!(network_of_child(&[|| false, || true]).is_ok());
    }

    /// The variable by which a test recognizes that it runs in the process which it has started.
    const INSIDE: &str = "DOCWHARF_TEST_INSIDE";

    /// Returns a command, below `launcher`, that runs the test of this name in another process.
    fn rerun(mut launcher: Command, test: &str, inside: &std::ffi::OsStr) -> Command {
        launcher.args(["--exact", &format!("child_network::tests::{test}")]).env(INSIDE, inside);
        launcher
    }

    /// Runs the process of [`rerun`]. Returns whether the test has passed, and the output.
    fn has_passed(command: &mut Command) -> (bool, String) {
        let output = command.output().unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(text.contains("running 1 test"), "{text}");
        (output.status.success(), text)
    }

    #[test]
    fn the_filter_refuses_every_socket_where_no_namespace_is_permitted() {
        let test = "the_filter_refuses_every_socket_where_no_namespace_is_permitted";
        if std::env::var_os(INSIDE).is_some() {
            for address in ["127.0.0.1:0", "[::1]:0"] {
                let error = UdpSocket::bind(address).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            }
            assert!(std::os::unix::net::UnixDatagram::unbound().is_err());
            assert!(std::os::unix::net::UnixStream::pair().is_ok());
            return;
        }
        let passes_after = |methods: &'static [IsolationMethod]| {
            let mut command = rerun(Command::new(std::env::current_exe().unwrap()), test, "1".as_ref());
            isolate(&mut command, methods);
            has_passed(&mut command)
        };
        let (has_no_socket, output) = passes_after(&[|| true]);
        assert!(!has_no_socket, "{output}");
        let (has_no_socket, output) = passes_after(&[|| false, refuse_sockets]);
        assert!(has_no_socket, "{output}");
    }

    // Regression: in a user namespace, which this process may create without capabilities, root is no privileged user.
    #[test]
    fn a_program_of_root_without_sockets_reads_files_of_other_users_where_root_has_no_cap_sys_admin() {
        let test = "a_program_of_root_without_sockets_reads_files_of_other_users_where_root_has_no_cap_sys_admin";
        if let Some(path) = std::env::var_os(INSIDE) {
            let output = ChildNetwork::NoSockets.command("cat").arg(path).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), "text", "{output:?}");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "text").unwrap();
        let owner = Some(65534);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&file, mode).unwrap();
        if !rustix::process::geteuid().is_root() || std::os::unix::fs::chown(&file, owner, owner).is_err() {
            return eprintln!("skipped: only root can do this test");
        }
        let mut launcher = Command::new("setpriv");
        launcher.args(["--inh-caps=-sys_admin", "--bounding-set=-sys_admin", "--"]);
        launcher.arg(std::env::current_exe().unwrap());
        let (reads_file, output) = has_passed(&mut rerun(launcher, test, file.as_ref()));
        assert!(reads_file, "{output}");
    }
}
