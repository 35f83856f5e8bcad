//! Shows on a terminal how many files and bytes have been processed so far.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use docwharf_base::model::units::{count_noun, show_size};
use docwharf_site::seal::SealProgress;

use super::context::CommandContext;

/// Runs `work` and draws its progress; `what` names the work.
pub(super) fn with_meter<T>(context: &CommandContext, what: &str, work: impl FnOnce(&SealProgress) -> T) -> T {
    let meter = SealProgress::default();
    if !context.shows_progress() {
        return work(&meter);
    }
    std::thread::scope(|scope| {
        let (done, ended) = channel::<()>();
        let meter = &meter;
        scope.spawn(move || {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                bar.set_style(style);
            }
            while ended.recv_timeout(Duration::from_millis(80)) == Err(RecvTimeoutError::Timeout) {
                bar.set_message(format!("{what}: {}, {}", count_noun(meter.files(), "file"), show_size(meter.bytes())));
                bar.tick();
            }
            bar.finish_and_clear();
        });
        let result = work(meter);
        drop(done);
        result
    })
}
