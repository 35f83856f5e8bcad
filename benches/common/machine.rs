//! The machine and the date of a measurement.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::server_setup::version_of;

fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

fn value_of_line(path: &str, start: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(start)).unwrap_or_default();
    line.split_once(':').map_or(line, |(_, value)| value).trim().to_owned()
}

/// The version of wrk, before which its output may have the name of a distribution.
fn wrk_version() -> String {
    let text = Command::new("wrk").arg("-v").output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&text).split(' ').nth(1).map_or_else(String::new, |version| format!("wrk {version}"))
}

pub(crate) fn today() -> String {
    output_of("date", &["-u", "+%Y-%m-%d"])
}

pub(crate) fn describe(pinned: bool) -> Value {
    let kib: f64 = value_of_line("/proc/meminfo", "MemTotal:").trim_end_matches(" kB").parse().unwrap_or(f64::NAN);
    json!({
        "kernel": output_of("uname", &["-sr"]),
        "cpu": value_of_line("/proc/cpuinfo", "model name"),
        "cores": std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default().matches("processor\t").count(),
        "memory_gib": (kib / 1024.0 / 1024.0).round(),
        "congestion_control": output_of("cat", &["/proc/sys/net/ipv4/tcp_congestion_control"]),
        "pinned": pinned,
        "wrk": wrk_version(),
        "h2load": version_of(Path::new("h2load"), &["--version"]).unwrap_or_default(),
    })
}
