//! The attacker: this program again, as a child process at nice 19 that runs one attack and prints what it has sent.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::attack::{self, Attack, Orders};

/// The argument that makes this program the attacker.
pub(crate) const ARGUMENT: &str = "--attacker";

/// What the attacker may take beyond its time to start and to end: at nice 19 it waits for a server that takes all
/// cores.
const SLACK: Duration = Duration::from_mins(1);

/// A running attacker; killed when dropped.
pub(crate) struct Attacker {
    child: Child,
    until: Instant,
}

impl Attacker {
    pub(crate) fn start(attack: &Attack, orders: &Orders) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let mut command = Command::new("nice");
        command.args(["-n", "19", "setpriv", "--pdeathsig", "KILL"]).arg(program);
        command.args([ARGUMENT, attack.name, &orders.to_json().to_string()]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let child = child.map_err(|error| format!("cannot start the attacker: {error}"))?;
        Ok(Self { child, until: Instant::now() + Duration::from_secs_f64(orders.seconds) + SLACK })
    }

    pub(crate) fn is_running(&mut self) -> bool {
        if Instant::now() > self.until {
            let _ = self.child.kill();
        }
        matches!(self.child.try_wait(), Ok(None))
    }

    /// What it has sent, once it has ended.
    pub(crate) fn report(&mut self) -> Result<Value, String> {
        while self.is_running() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut text = String::new();
        if let Some(out) = &mut self.child.stdout {
            let _ = out.read_to_string(&mut text);
        }
        serde_json::from_str(&text).map_err(|_| format!("the attacker has failed: {}", text.trim()))
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the child does: `ARGUMENT NAME COMMANDS_PATH`.
pub(crate) fn work(all: impl Iterator<Item = &'static Attack>, arguments: &[String]) -> Result<(), String> {
    let [name, orders] = arguments else { return Err(format!("{ARGUMENT} takes a name and orders")) };
    let mut all = all;
    let attack = all.find(|attack| attack.name == name).ok_or_else(|| format!("{name} is no attack"))?;
    println!("{}", attack::run(attack, Orders::from_json(orders)?)?);
    Ok(())
}
