//! The attacker: this program again, as a child process at nice 19 that runs one attack and prints its counters.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::attack::{self, Attack, AttackParameters};

/// The argument that makes this program run as the attacker.
pub(crate) const ARGUMENT: &str = "--attacker";

/// The time limit for the start and the end of the attacker: at nice 19 it waits for a server that uses all cores.
const START_AND_END_TIMEOUT: Duration = Duration::from_mins(1);

/// A running attacker process. It is killed when this is dropped.
pub(crate) struct Attacker {
    child: Child,
    deadline: Instant,
}

impl Attacker {
    pub(crate) fn start(attack: &Attack, parameters: &AttackParameters) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let mut command = Command::new("nice");
        command.args(["-n", "19", "setpriv", "--pdeathsig", "KILL"]).arg(program);
        command.args([ARGUMENT, attack.name, &parameters.to_json().to_string()]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let child = child.map_err(|error| format!("cannot start the attacker: {error}"))?;
        Ok(Self {
            child,
            deadline: Instant::now() + Duration::from_secs_f64(parameters.seconds) + START_AND_END_TIMEOUT,
        })
    }

    pub(crate) fn is_running(&mut self) -> bool {
        if Instant::now() > self.deadline {
            let _ = self.child.kill();
        }
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for the end of the attacker and returns its counters.
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

/// The child process: `ARGUMENT NAME PARAMETERS`, with the parameters as JSON.
pub(crate) fn run_attacker(attacks: impl Iterator<Item = &'static Attack>, arguments: &[String]) -> Result<(), String> {
    let [name, parameters] = arguments else { return Err(format!("{ARGUMENT} takes a name and parameters")) };
    let mut attacks = attacks;
    let attack = attacks.find(|attack| attack.name == name).ok_or_else(|| format!("{name} is no attack"))?;
    println!("{}", attack::run(attack, AttackParameters::from_json(parameters)?)?);
    Ok(())
}
