//! The turn of the processes that work on the served version: at most one of them runs at a time. The search index of a
//! version comes before its Brotli and Zstandard forms, because readers wait for it: if it needs the turn, a process
//! that makes such forms is ended. Under load that process is suspended, and the index would wait without end.

use std::sync::Arc;

use docwharf_base::locks::Mutex;
use docwharf_base::model::version::VersionId;

/// The turn, shared by the tasks that start processes.
#[derive(Debug)]
pub(super) struct BuildTurn {
    /// Whether there is a task that builds search indexes.
    has_index_task: bool,
    state: Mutex<TurnState>,
}

#[derive(Debug, Default)]
struct TurnState {
    is_taken: bool,
    /// Whether the index waits for the turn. It gets the next one.
    is_index_waiting: bool,
    /// The version whose index needs no turn now: it exists, or its build has failed.
    finished_index: Option<VersionId>,
}

/// The turn of one process. It ends when the guard is dropped.
#[derive(Debug)]
pub(super) struct TurnGuard(Arc<BuildTurn>);

impl Drop for TurnGuard {
    fn drop(&mut self) {
        self.0.state.lock().is_taken = false;
    }
}

impl BuildTurn {
    /// Creates the turn. Without `has_index_task`, the forms of a version do not wait for an index.
    pub(super) fn new(has_index_task: bool) -> Arc<BuildTurn> {
        Arc::new(BuildTurn { has_index_task, state: Mutex::default() })
    }

    /// Takes the turn for a search index, unless another process has it. The index then has the next turn.
    pub(super) fn take_for_index(self: &Arc<BuildTurn>) -> Option<TurnGuard> {
        let mut state = self.state.lock();
        state.is_index_waiting = state.is_taken;
        if state.is_taken {
            return None;
        }
        state.is_taken = true;
        Some(TurnGuard(Arc::clone(self)))
    }

    /// Takes the turn for forms of the version `id`, unless another process has it, or an index must come first.
    pub(super) fn take_for_forms(self: &Arc<BuildTurn>, id: VersionId) -> Option<TurnGuard> {
        let mut state = self.state.lock();
        let is_index_first = self.has_index_task && (state.is_index_waiting || state.finished_index != Some(id));
        if state.is_taken || is_index_first {
            return None;
        }
        state.is_taken = true;
        Some(TurnGuard(Arc::clone(self)))
    }

    /// Returns whether an index waits until the turn ends.
    pub(super) fn is_index_waiting(&self) -> bool {
        self.state.lock().is_index_waiting
    }

    /// Records that the index of the version `id` needs no turn now.
    pub(super) fn finish_index(&self, id: VersionId) {
        let mut state = self.state.lock();
        state.finished_index = Some(id);
        state.is_index_waiting = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use docwharf_base::model::digest::Digest;

    fn id(n: u8) -> VersionId {
        VersionId(Digest::compute(&[n]))
    }

    #[test]
    fn one_process_runs_at_a_time_and_the_index_of_a_version_comes_first() {
        let turn = BuildTurn::new(true);
        assert!(turn.take_for_forms(id(1)).is_none(), "its index does not exist yet");
        let index = turn.take_for_index().unwrap();
        turn.finish_index(id(1));
        assert!(turn.take_for_forms(id(1)).is_none(), "the process still runs");
        drop(index);
        let forms = turn.take_for_forms(id(1)).unwrap();
        assert!(!turn.is_index_waiting());
        assert!(turn.take_for_index().is_none());
        assert!(turn.is_index_waiting());
        drop(forms);
        assert!(turn.take_for_forms(id(1)).is_none(), "the index waits");
        drop(turn.take_for_index().unwrap());
        assert!(!turn.is_index_waiting());
        drop(turn.take_for_forms(id(1)).unwrap());
        assert!(turn.take_for_forms(id(2)).is_none(), "another version");
    }

    #[test]
    fn an_index_that_does_not_wait_any_more_keeps_no_turn() {
        let turn = BuildTurn::new(true);
        turn.finish_index(id(1));
        let forms = turn.take_for_forms(id(1)).unwrap();
        assert!(turn.take_for_index().is_none());
        drop(forms);
        turn.finish_index(id(1));
        assert!(turn.take_for_forms(id(1)).is_some());
    }

    #[test]
    fn without_an_index_task_forms_wait_for_each_other_only() {
        let turn = BuildTurn::new(false);
        let forms = turn.take_for_forms(id(1)).unwrap();
        assert!(turn.take_for_forms(id(1)).is_none());
        drop(forms);
        assert!(turn.take_for_forms(id(2)).is_some());
    }
}
