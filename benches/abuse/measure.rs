//! One attack on one server: the attacker's counters, the cost for the server, and the responses to a bystander.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::attack::{Attack, AttackParameters, Listener, Pace};
use crate::attacker::Attacker;
use crate::bystander::{Bystander, BystanderRequest};
use crate::common::machine;
use crate::common::process::{Server, anonymous_kib};
use crate::servers::Target;
use crate::site::{SMALL, Site};
use crate::tls;

/// The time with the bystander alone, whose cost is subtracted.
pub(crate) const IDLE_TIME: Duration = Duration::from_secs(1);
/// The duration of the calibration, which measures the rate that saturates one core.
const CALIBRATION_SECONDS: f64 = 1.0;
/// If a server uses less CPU time for the calibration, the attack cannot load it, and its rate is not limited.
const MIN_CPU_SECONDS: f64 = 0.02;
/// A server that uses less than this share of a core, above its idle use, has finished its work.
const IDLE_SHARE: f64 = 0.1;
const CALIBRATION_INTERVAL: Duration = Duration::from_millis(250);
const CALIBRATION_TIMEOUT: Duration = Duration::from_secs(20);
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// Memory counts as returned if it is at most so many KiB above idle.
pub(crate) const RETURNED_KIB: u64 = 16 * 1024;
/// The time limit for the return of memory.
const RETURN_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn bystander_request(
    target: &Target,
    listener: Listener,
    site: &Site,
    root: &Path,
) -> Result<BystanderRequest, String> {
    let tls = match listener {
        Listener::Tls => Some(Arc::new(tls::client_config(root, rustls::ALL_VERSIONS)?)),
        // A bystander of an HTTP/2 attack uses HTTP/1.1, on the same port or on another port of the same processes.
        Listener::Clear | Listener::Http2 => None,
    };
    let address = target.address(if tls.is_some() { Listener::Tls } else { Listener::Clear });
    let (path, fields) = (SMALL.to_owned(), "Accept-Encoding: identity\r\n".to_owned());
    Ok(BystanderRequest { address, tls, path, fields, body: Some(site.small.clone()) })
}

/// Measures memory of a server's processes over time.
pub(crate) struct MemoryWatch {
    tree: Vec<u32>,
    pub peak: u64,
}

impl MemoryWatch {
    pub(crate) fn new(tree: Vec<u32>) -> Self {
        Self { tree, peak: 0 }
    }

    /// The current memory in KiB.
    pub(crate) fn sample(&mut self) -> u64 {
        let now = anonymous_kib(&self.tree);
        self.peak = self.peak.max(now);
        now
    }

    /// Samples memory while the attacker runs. Returns the attacker's counters.
    pub(crate) fn sample_while_running(&mut self, attacker: &mut Attacker) -> Result<Value, String> {
        while attacker.is_running() {
            self.sample();
            std::thread::sleep(SAMPLE_INTERVAL);
        }
        attacker.report()
    }

    /// Waits until memory has returned to nearly `idle`, or for the time limit. Returns KiB and seconds.
    pub(crate) fn wait_until_returned(&mut self, idle: u64) -> (u64, f64) {
        let started = Instant::now();
        loop {
            let now = self.sample();
            if now <= idle + RETURNED_KIB || started.elapsed() > RETURN_TIMEOUT {
                return (now, started.elapsed().as_secs_f64());
            }
            std::thread::sleep(SAMPLE_INTERVAL);
        }
    }
}

/// The units a second that use half of one core. `idle_cpu` is the server's CPU use without the attack.
pub(crate) fn calibrate(
    attack: &Attack,
    parameters: &AttackParameters,
    server: &Server,
    idle_cpu: f64,
) -> Result<Option<f64>, String> {
    let (before, started) = (server.cpu_times(), Instant::now());
    let format_number = AttackParameters { seconds: CALIBRATION_SECONDS, ..parameters.clone() };
    let report = Attacker::start(attack, &format_number)?.report()?;
    // The server may work on requests after the attack has ended. This work counts.
    let until = Instant::now() + CALIBRATION_TIMEOUT;
    loop {
        let (last, sampled) = (server.cpu_times(), Instant::now());
        std::thread::sleep(CALIBRATION_INTERVAL);
        let busy = server.cpu_times().since(&last) / sampled.elapsed().as_secs_f64();
        if busy < idle_cpu + IDLE_SHARE || Instant::now() > until {
            break;
        }
    }
    let cpu = server.cpu_times().since(&before) - idle_cpu * started.elapsed().as_secs_f64();
    let units = report["units"].as_f64().unwrap_or(0.0);
    Ok((cpu > MIN_CPU_SECONDS && units > 0.0).then(|| units / cpu / 2.0))
}

pub(crate) fn measure(
    attack: &Attack,
    target: &Target,
    site: &Site,
    root: &Path,
    seconds: f64,
) -> Result<Value, String> {
    let mut server = target.start(site)?;
    let mut watch = MemoryWatch::new(server.process_tree());
    let idle = watch.sample();
    let bystander = Bystander::start(bystander_request(target, attack.listener, site, root)?, target.admin)?;
    let (before, started) = (server.cpu_times(), Instant::now());
    std::thread::sleep(IDLE_TIME);
    let idle_cpu = server.cpu_times().since(&before) / started.elapsed().as_secs_f64();
    let address = target.address(attack.listener);
    let mut parameters =
        AttackParameters { address, seconds, rate: None, root: root.to_path_buf(), key: String::new(), crawled: 0 };
    if attack.pace == Pace::HalfCore {
        parameters.rate = calibrate(attack, &parameters, &server, idle_cpu)?;
    }
    let (before, started) = (server.cpu_times(), Instant::now());
    let sent = watch.sample_while_running(&mut Attacker::start(attack, &parameters)?)?;
    let ended = Instant::now();
    let cpu = server.cpu_times().since(&before) - idle_cpu * (ended - started).as_secs_f64();
    let bystander_report = bystander.stop()?.summarize(started, ended);
    let (after, return_seconds) = watch.wait_until_returned(idle);
    let above_idle = |kib: u64| kib.saturating_sub(idle);
    let log = target.log();
    Ok(json!({
        "sent": sent, "rate": parameters.rate, "cpu_s": cpu.max(0.0), "bystander": bystander_report, "idle_kib": idle,
        "peak_kib": above_idle(watch.peak), "after_kib": above_idle(after), "back_s": return_seconds,
        "is_running": server.is_running(),
        "date": machine::today(), "seconds": seconds,
        "log": if log.contains("panicked") { json!(log) } else { Value::Null },
    }))
}
