//! Errors for the tests of messages, advice and exit codes.

use std::io;
use std::path::PathBuf;

use crate::daemon::DaemonError;
use docwharf_agent::api::calls::ApiCall;
use docwharf_agent::sync::SyncError;
use docwharf_base::net::request_error::{RequestError, RequestErrorCause};
use docwharf_site::bundle::refusal::{BundleFault, BundleRefusal};
use docwharf_site::seal::SealError;

/// The path in the samples.
pub(super) fn path() -> PathBuf {
    PathBuf::from("/x")
}

/// An I/O error.
pub(super) fn io(kind: io::ErrorKind) -> io::Error {
    io::Error::from(kind)
}

/// A refused bundle.
pub(super) fn refused() -> SealError {
    SealError::Refused { path: path(), source: BundleRefusal { entry: None, fault: BundleFault::Duplicate } }
}

/// A failure to read.
pub(super) fn read(kind: io::ErrorKind) -> SealError {
    SealError::Read { path: path(), source: io(kind) }
}

/// A failed call of the API.
pub(super) fn upstream(call: ApiCall, cause: RequestErrorCause) -> SyncError {
    SyncError::Upstream { doing: "ask".to_owned(), call, request_error: RequestError::new(cause, "x") }
}

/// An address that cannot be bound.
pub(super) fn bind(port: u16, kind: io::ErrorKind) -> DaemonError {
    DaemonError::Bind { address: ([127, 0, 0, 1], port).into(), source: io(kind) }
}

/// A record that cannot be read.
pub(super) fn damaged() -> serde_json::Error {
    serde_json::from_str::<u8>("x").unwrap_err()
}
