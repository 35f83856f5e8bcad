//! Shows on a terminal how many files and bytes have been processed so far.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use docwharf_base::model::units::{format_count, format_size};
use docwharf_site::seal::SealProgress;

use super::context::CommandContext;

/// Runs `task` and draws its progress; `what` names the task.
pub(super) fn run_with_progress<T>(context: &CommandContext, what: &str, task: impl FnOnce(&SealProgress) -> T) -> T {
    let progress = SealProgress::default();
    if !context.shows_progress() {
        return task(&progress);
    }
    std::thread::scope(|scope| {
        let (done, ended) = channel::<()>();
        let progress = &progress;
        scope.spawn(move || {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                bar.set_style(style);
            }
            while ended.recv_timeout(Duration::from_millis(80)) == Err(RecvTimeoutError::Timeout) {
                bar.set_message(format!(
                    "{what}: {}, {}",
                    format_count(progress.files(), "file"),
                    format_size(progress.bytes())
                ));
                bar.tick();
            }
            bar.finish_and_clear();
        });
        let result = task(progress);
        drop(done);
        result
    })
}
