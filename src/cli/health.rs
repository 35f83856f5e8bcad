//! `docwharf health`: checks whether the daemon on this store is alive and ready, for a container's HEALTHCHECK.

use clap::Args;
use http::StatusCode;
use serde_json::json;

use crate::admin::control_client::{ControlClient, get_over_tcp};
use docwharf_base::net::connect::OutboundError;

use super::context::CommandContext;
use super::failure::CommandFailure;
use super::write_command::{block_on_daemon, explain_silent_daemon};

#[derive(Debug, Args)]
pub(super) struct HealthCommand {
    /// Check only whether it is alive; it may have no version to serve yet
    #[arg(long)]
    live: bool,
}

impl HealthCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let config = context.config().ok();
        let store = config.as_ref().map_or_else(|| context.store(), |config| Ok(config.store.clone()))?;
        let admin = config.as_ref().and_then(|config| config.admin.first().copied());
        let outbound = config.map(|config| config.sync_settings.network.outbound).unwrap_or_default();
        let get = async |path: &str| match (ControlClient::find(&store).await, admin) {
            (Some(daemon), _) => daemon.get(path).await,
            // Another user may not use the control socket, but may use the admin listener.
            (None, Some(address)) => get_over_tcp(address, path, &outbound).await,
            (None, None) => Err(std::io::ErrorKind::NotConnected.into()),
        };
        let unhealthy = |why: String| CommandFailure::Unhealthy(format!("the daemon on {} {why}", store.display()));
        let paths: &[&str] = if self.live { &["/livez"] } else { &["/livez", "/readyz"] };
        for path in paths {
            let (status, body) = block_on_daemon(get(path))?.map_err(|error| match explain_silent_daemon(&store) {
                _ if is_not_permitted(&error) => CommandFailure::Usage(format!("cannot query admin.listen: {error}")),
                Some(why) => unhealthy(format!("cannot be queried: {why}")),
                None => unhealthy(format!("does not answer: {error}; `docwharf run` starts it")),
            })?;
            if status != StatusCode::OK {
                return Err(unhealthy(format!("is unhealthy: {}", String::from_utf8_lossy(&body).trim())));
            }
        }
        let result = if self.live { "live" } else { "ready" };
        context.print_outcome(&json!({ "schemaVersion": 1, "result": result }), &format!("{result}\n"))
    }
}

/// Returns whether the deployment does not permit the connection.
fn is_not_permitted(error: &std::io::Error) -> bool {
    error.get_ref().and_then(|inner| inner.downcast_ref::<OutboundError>()).is_some()
}
