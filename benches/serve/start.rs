//! The duration of a start: from just before the process is created to the first complete front page.

use serde_json::{Value, json};

use crate::contenders::Contender;
use crate::options::Options;
use crate::site::Site;

/// Milliseconds of each start of each server. The servers take turns; the first start of each does not count.
pub(crate) fn start(options: &Options, site: &Site, contenders: &[Contender]) -> Result<Value, String> {
    let runs = if options.quick { 3 } else { 15 };
    let mut times_of_all: Vec<Vec<f64>> = vec![Vec::new(); contenders.len()];
    for run in 0..=runs {
        for (contender, times_ms) in contenders.iter().zip(&mut times_of_all) {
            let duration = contender.time_to_start(site)?;
            if run > 0 {
                times_ms.push(duration.as_secs_f64() * 1e3);
            }
        }
    }
    eprintln!("{}: {runs} starts of each server", site.name);
    let cells = contenders
        .iter()
        .zip(times_of_all)
        .map(|(contender, times_ms)| (contender.name.to_owned(), json!({ "ms": times_ms })));
    Ok(Value::Object(cells.collect()))
}
