//! How long a start takes: from just before the process is made to the first complete front page.

use serde_json::{Value, json};

use crate::field::Contender;
use crate::options::Options;
use crate::site::Site;

/// Milliseconds of each start of each server; in turns, the first of each not counted.
pub(crate) fn start(options: &Options, site: &Site, field: &[Contender]) -> Result<Value, String> {
    let runs = if options.quick { 3 } else { 15 };
    let mut all: Vec<Vec<f64>> = vec![Vec::new(); field.len()];
    for run in 0..=runs {
        for (contender, times) in field.iter().zip(&mut all) {
            let took = contender.time_to_start(site)?;
            if run > 0 {
                times.push(took.as_secs_f64() * 1e3);
            }
        }
    }
    eprintln!("{}: {runs} starts of each server", site.name);
    let cells = field.iter().zip(all).map(|(contender, times)| (contender.name.to_owned(), json!({ "ms": times })));
    Ok(Value::Object(cells.collect()))
}
