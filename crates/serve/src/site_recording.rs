//! The functions by which the program turns on the recording of what the readers of a [`Site`] do.

use std::sync::Arc;

use arc_swap::Guard;

use super::recording::Recorder;
use super::site::Site;

impl Site {
    /// Records what readers do from the next request on; with `None`, nothing is recorded.
    pub fn set_recorder(&self, recorder: Option<Arc<Recorder>>) {
        self.recorder.store(recorder);
        // Whether `_docwharf/events` is not found depends on it.
        self.invalidate_responses();
    }

    /// Returns the recorder of what readers do, if that is recorded.
    pub(super) fn recorder(&self) -> Option<Arc<Recorder>> {
        self.recorder.load_full()
    }

    /// Returns the recorder for the duration of one response. Cheaper than [`Site::recorder`].
    pub(super) fn load_recorder(&self) -> Guard<Option<Arc<Recorder>>> {
        self.recorder.load()
    }
}
