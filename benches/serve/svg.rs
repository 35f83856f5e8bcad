//! A plot for light and dark backgrounds. It can be read without colours: each bar has its name and number.

use std::fmt::Write as _;

use serde_json::Value;

use crate::docwharf::NAME;
use crate::peers::PEERS;
use crate::report::{Cell, title};
use crate::rows::Row;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 234.0;
const BAR_HEIGHT: f64 = 13.0;
const GAP: f64 = 14.0;
const TOP: f64 = 58.0;
/// Longer bars are cut. Their number shows the ratio.
const MAX_RATIO: f64 = 4.0;
const PIXELS_PER_RATIO: f64 = (WIDTH - LEFT - 30.0) / MAX_RATIO;

const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#1f2328}.head{font-weight:600}\
.title{font-size:15px;font-weight:600}\
.soft{fill:#59636e}.back{fill:#fff}.peer{fill:#a3adb8}.ours{fill:#0969da}.line{stroke:#0969da;stroke-dasharray:3 3}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.soft{fill:#9198a1}.back{fill:#0d1117}.peer{fill:#59636e}\
.ours{fill:#4493f8}.line{stroke:#4493f8}}";

/// Writes name, ratio and time in columns, and the bar after them.
fn bar(out: &mut String, y: f64, name: &str, relative: f64, cpu: f64) {
    let (class, length) = (if name == NAME { "ours" } else { "peer" }, relative.min(MAX_RATIO) * PIXELS_PER_RATIO);
    let middle = y + BAR_HEIGHT - 3.0;
    let _ = writeln!(
        out,
        "<text class=\"soft\" x=\"120\" y=\"{middle:.1}\" text-anchor=\"end\">{name}</text>\
         <text x=\"158\" y=\"{middle:.1}\" text-anchor=\"end\">{relative:.2}</text>\
         <text class=\"soft\" x=\"222\" y=\"{middle:.1}\" text-anchor=\"end\">{cpu:.1} µs</text>\
         <rect class=\"{class}\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{:.1}\" rx=\"1.5\"/>",
        BAR_HEIGHT - 2.0,
    );
    if relative > MAX_RATIO {
        let _ = writeln!(out, "<text x=\"{:.1}\" y=\"{middle:.1}\">»</text>", LEFT + length + 4.0);
    }
}

/// The CPU time per request of each server in each row, relative to docwharf.
pub(crate) fn plot(results: &Value) -> String {
    let mut body = String::new();
    let mut y = TOP;
    for &row in Row::ALL {
        let Some(docwharf_cpu) = Cell::of_server(results, row, NAME).cpu() else { continue };
        let _ = writeln!(body, "<text class=\"head\" x=\"{LEFT}\" y=\"{:.1}\">{}</text>", y + 14.0, row.title());
        y += 20.0;
        let start = y;
        for name in std::iter::once(NAME).chain(PEERS.iter().map(|peer| peer.name)) {
            if let Some(cpu) = Cell::of_server(results, row, name).cpu() {
                bar(&mut body, y, name, cpu / docwharf_cpu, cpu);
                y += BAR_HEIGHT;
            }
        }
        let x = LEFT + PIXELS_PER_RATIO;
        let _ = writeln!(body, "<line class=\"line\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{start:.1}\" y2=\"{y:.1}\"/>");
        y += GAP;
    }
    let heading = format!("{}: CPU a request, relative to docwharf (shorter is better)", title(results));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y}\" width=\"{WIDTH}\" height=\"{y}\" \
         role=\"img\" aria-label=\"{heading}\">\n<style>{STYLE}</style>\n<rect class=\"back\" width=\"100%\" height=\"100%\"/>\n\
         <text class=\"title\" x=\"16\" y=\"26\">{heading}</text>\n\
         <text class=\"soft\" x=\"16\" y=\"44\">Medians. One worker a server, on one core; the load on \
         another. Bars beyond {MAX_RATIO} are cut (»).</text>\n\
         {body}</svg>\n"
    )
}
