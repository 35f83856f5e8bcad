//! The admin side of a running daemon: the control socket in the store, on which the verbs of the command line arrive, and
//! the routes that tell how it is (`/livez`, `/readyz`, `/status`, `/metrics`), there and on `admin.listen`, for requests that
//! name one of its [`hosts`]. The version that waits to become active is served elsewhere ([`staged_site`]).
//!
//! What a verb does and says is the same with and without a daemon: [`verbs`] does it, [`wire`] carries what it says.

pub mod client;
pub mod hosts;
pub mod live;
pub mod metrics;
pub mod routes;
pub mod socket;
pub mod staged_site;
pub mod status;
pub mod verbs;
pub mod wire;
