//! Advice for failures whose cause a person can remove.

use std::borrow::Cow;
use std::io;

use crate::daemon::DaemonError;
use docwharf_base::accounts::describe_user;
use docwharf_site::bundle::refusal::BundleRefusal;

/// Returns advice for an I/O error, a refused bundle or a refused port in the chain of causes. It begins with "; ", or
/// is empty.
pub(super) fn advice_for(error: &(dyn std::error::Error + 'static)) -> Cow<'static, str> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(DaemonError::Bind { address, source }) = error.downcast_ref::<DaemonError>()
            && source.kind() == io::ErrorKind::PermissionDenied
            && address.port() < 1024
        {
            return "; only root may use ports below 1024: choose one from 1024 on, let systemd open it \
                    (systemctl enable --now docwharf.socket), or grant CAP_NET_BIND_SERVICE \
                    (AmbientCapabilities= in the unit)"
                .into();
        }
        if let Some(refusal) = error.downcast_ref::<BundleRefusal>() {
            return refusal.fault.advice().map_or(Cow::Borrowed(""), |advice| format!("; {advice}").into());
        }
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return match error.kind() {
                io::ErrorKind::AddrInUse => "; choose another port, or stop the program that uses it",
                io::ErrorKind::AddrNotAvailable => "; this machine does not have that address",
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free some space and try again",
                io::ErrorKind::PermissionDenied => {
                    let user = describe_user(rustix::process::geteuid().as_raw());
                    return format!("; check owner and mode for {user}, or use another user or folder").into();
                }
                io::ErrorKind::ReadOnlyFilesystem => {
                    "; it is mounted read-only, or read-only for this service (ReadWritePaths= in its unit): use another folder"
                }
                _ => "",
            }
            .into();
        }
        cause = error.source();
    }
    Cow::Borrowed("")
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind::{
        AddrInUse, AddrNotAvailable, NotFound, PermissionDenied, ReadOnlyFilesystem, StorageFull,
    };

    use super::super::sample_errors::{bind, io, path};
    use super::*;
    use docwharf_agent::store::StoreError;
    use docwharf_agent::sync::SyncError;
    use docwharf_base::model::site_path::EntryNameFault;
    use docwharf_site::bundle::refusal::BundleFault;
    use docwharf_site::seal::SealError;

    #[test]
    fn error_with_a_known_remedy_includes_advice() {
        let user = describe_user(rustix::process::geteuid().as_raw());
        let owner_and_mode = format!("; check owner and mode for {user}, or use");
        for (kind, expected) in [
            (AddrInUse, "; choose another port"),
            (AddrNotAvailable, "; this machine does not have"),
            (StorageFull, "; free some space"),
            (std::io::ErrorKind::QuotaExceeded, "; free some space"),
            (PermissionDenied, &owner_and_mode),
            (ReadOnlyFilesystem, "; it is mounted read-only"),
        ] {
            assert!(advice_for(&io(kind)).starts_with(expected), "{kind:?}");
            // Also from deeper in the chain of causes.
            let error = StoreError::Io { doing: "write", path: path(), source: io(kind) };
            assert!(advice_for(&SyncError::Store(error)).starts_with(expected), "{kind:?}");
        }
        assert!(advice_for(&io(NotFound)).is_empty() && advice_for(&StoreError::NoPrevious).is_empty());
        for (fault, expected) in [
            (BundleFault::Truncated("no ZIP end record"), "; it was not copied or downloaded completely"),
            (BundleFault::Name(EntryNameFault::DotDot), "; do not use this bundle, and ask who made it"),
            (BundleFault::Duplicate, ""),
        ] {
            let refused = SealError::Refused { path: path(), source: BundleRefusal { entry: None, fault } };
            let advice = advice_for(&refused).into_owned();
            assert!(advice.starts_with(expected) && advice.is_empty() == expected.is_empty(), "{advice}");
        }
        for (port, kind, expected) in [
            (1023, PermissionDenied, "; only root may use ports below 1024"),
            (1024, PermissionDenied, "; check owner and mode"),
            (80, AddrInUse, "; choose another port"),
        ] {
            assert!(advice_for(&bind(port, kind)).starts_with(expected), "{port} {kind:?}");
        }
    }
}
