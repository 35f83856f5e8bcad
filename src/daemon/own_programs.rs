//! The network of the programs of docwharf that a daemon starts: of the [encoder process](super::encoder_process) and
//! of the [index process](super::index_process).

use crate::admin::daemon_state::DaemonState;
use docwharf_base::child_network::ChildNetwork;

/// Returns the network of docwharf's child programs under the configuration in force. The daemon sets the first
/// configuration before it starts any task.
pub(super) fn own_program_network(daemon_state: &DaemonState) -> ChildNetwork {
    let sync_settings = daemon_state.snapshot().sync_settings;
    sync_settings
        .map_or(ChildNetwork::NoSockets, |sync_settings| ChildNetwork::for_own_program(&sync_settings.network.outbound))
}
