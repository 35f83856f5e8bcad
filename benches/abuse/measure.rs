//! One attack on one server: what the attacker has sent, what it cost the server, and what a bystander saw meanwhile.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::attack::{Attack, Listener, Orders, Pace};
use crate::attacker::Attacker;
use crate::bystander::{Bystander, Question};
use crate::common::machine;
use crate::common::process::{Server, anonymous_of};
use crate::servers::Target;
use crate::site::{SMALL, Site};
use crate::tls;

/// How long the server is watched with the bystander alone, so that what it costs can be taken off.
pub(crate) const QUIET: Duration = Duration::from_secs(1);
/// How long a server is attacked to find out what saturates a core.
const CALIBRATION_SECONDS: f64 = 1.0;
/// A server that takes less CPU than this for the calibration is not loaded by whatever the attack can send.
const LEAST_CPU_SECONDS: f64 = 0.02;
/// A server that takes less than this share of a core beyond what it took before has done its work.
const CALIBRATED_SHARE: f64 = 0.1;
const CALIBRATION_LOOK: Duration = Duration::from_millis(250);
const CALIBRATION_TIMEOUT: Duration = Duration::from_secs(20);
const SAMPLE: Duration = Duration::from_millis(100);
/// Within this much of idle, in KiB, memory has come back.
pub(crate) const BACK_KIB: u64 = 16 * 1024;
/// By then it must have.
const BACK: Duration = Duration::from_secs(30);

pub(crate) fn question(target: &Target, listener: Listener, site: &Site, root: &Path) -> Result<Question, String> {
    let tls = match listener {
        Listener::Tls => Some(Arc::new(tls::client(root, rustls::ALL_VERSIONS)?)),
        // A bystander of HTTP/2 asks where both protocols are spoken, or on the same processes' other port.
        Listener::Clear | Listener::Http2 => None,
    };
    let address = target.address(if tls.is_some() { Listener::Tls } else { Listener::Clear });
    let (path, fields) = (SMALL.to_owned(), "Accept-Encoding: identity\r\n".to_owned());
    Ok(Question { address, tls, path, fields, body: Some(site.small.clone()) })
}

/// Memory of a server while something goes on.
pub(crate) struct Watch {
    tree: Vec<u32>,
    pub peak: u64,
}

impl Watch {
    pub(crate) fn new(tree: Vec<u32>) -> Self {
        Self { tree, peak: 0 }
    }

    /// KiB now.
    pub(crate) fn look(&mut self) -> u64 {
        let now = anonymous_of(&self.tree);
        self.peak = self.peak.max(now);
        now
    }

    /// Looks again and again while the attacker runs; what it has sent.
    pub(crate) fn during(&mut self, attacker: &mut Attacker) -> Result<Value, String> {
        while attacker.is_running() {
            self.look();
            std::thread::sleep(SAMPLE);
        }
        attacker.report()
    }

    /// Waits until memory is back near `idle`, for as long as it may take: KiB then, and seconds.
    pub(crate) fn settle(&mut self, idle: u64) -> (u64, f64) {
        let begun = Instant::now();
        loop {
            let now = self.look();
            if now <= idle + BACK_KIB || begun.elapsed() > BACK {
                return (now, begun.elapsed().as_secs_f64());
            }
            std::thread::sleep(SAMPLE);
        }
    }
}

/// Units a second that take half of one core; `quiet` is what the server takes without the attack.
pub(crate) fn calibrate(attack: &Attack, orders: &Orders, server: &Server, quiet: f64) -> Result<Option<f64>, String> {
    let (before, begun) = (server.times(), Instant::now());
    let short = Orders { seconds: CALIBRATION_SECONDS, ..orders.clone() };
    let report = Attacker::start(attack, &short)?.report()?;
    // What it was asked to do may take longer than the asking, and belongs to it.
    let until = Instant::now() + CALIBRATION_TIMEOUT;
    loop {
        let (last, looked) = (server.times(), Instant::now());
        std::thread::sleep(CALIBRATION_LOOK);
        let busy = server.times().since(&last) / looked.elapsed().as_secs_f64();
        if busy < quiet + CALIBRATED_SHARE || Instant::now() > until {
            break;
        }
    }
    let cpu = server.times().since(&before) - quiet * begun.elapsed().as_secs_f64();
    let units = report["units"].as_f64().unwrap_or(0.0);
    Ok((cpu > LEAST_CPU_SECONDS && units > 0.0).then(|| units / cpu / 2.0))
}

pub(crate) fn measure(
    attack: &Attack,
    target: &Target,
    site: &Site,
    root: &Path,
    seconds: f64,
) -> Result<Value, String> {
    let mut server = target.start(site)?;
    let mut watch = Watch::new(server.tree());
    let idle = watch.look();
    let bystander = Bystander::start(question(target, attack.on, site, root)?, target.admin)?;
    let (before, begun) = (server.times(), Instant::now());
    std::thread::sleep(QUIET);
    let quiet = server.times().since(&before) / begun.elapsed().as_secs_f64();
    let address = target.address(attack.on);
    let mut orders = Orders { address, seconds, rate: None, root: root.to_path_buf(), key: String::new(), crawled: 0 };
    if attack.pace == Pace::Half {
        orders.rate = calibrate(attack, &orders, &server, quiet)?;
    }
    let (before, begun) = (server.times(), Instant::now());
    let sent = watch.during(&mut Attacker::start(attack, &orders)?)?;
    let ended = Instant::now();
    let cpu = server.times().since(&before) - quiet * (ended - begun).as_secs_f64();
    let seen = bystander.stop()?.between(begun, ended);
    let (after, back) = watch.settle(idle);
    let over = |kib: u64| kib.saturating_sub(idle);
    let log = target.log();
    Ok(json!({
        "sent": sent, "rate": orders.rate, "cpu_s": cpu.max(0.0), "bystander": seen, "idle_kib": idle,
        "peak_kib": over(watch.peak), "after_kib": over(after), "back_s": back, "is_running": server.is_running(),
        "date": machine::today(), "seconds": seconds,
        "log": if log.contains("panicked") { json!(log) } else { Value::Null },
    }))
}
