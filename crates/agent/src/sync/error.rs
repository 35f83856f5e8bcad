//! Errors of a sync or an import, with advice.

use std::path::PathBuf;
use std::time::Duration;

use crate::api::calls::ApiCall;
use crate::store::StoreError;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::units::format_duration;
use docwharf_base::model::version::VersionId;
use docwharf_base::net::client::ClientError;
use docwharf_base::net::request_error::{RequestError, RequestErrorCause};
use docwharf_site::bundle::refusal::BundleFault;
use docwharf_site::seal::SealError;

use super::{BUNDLE_URL_FILE_KEY, BUNDLE_URL_KEY};

/// An error of a sync or an import.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The bundle cannot be read.
    #[error("cannot read the bundle {} ({key}); put a bundle there, or correct the path", path.display())]
    Missing {
        /// The bundle's path.
        path: PathBuf,
        /// The key of the configuration that has the path.
        key: &'static str,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The bundle is a folder.
    #[error("the bundle {} is a folder; {key} names an archive, `docwharf import` takes folders", path.display())]
    IsFolder {
        /// The folder's path.
        path: PathBuf,
        /// The key of the configuration that has the path.
        key: &'static str,
    },
    /// A setting or a file that the sync needs is missing, unreadable or invalid.
    #[error("{0}")]
    UnusableSetting(String),
    /// The HTTP client cannot be built.
    #[error("cannot create the HTTP client")]
    Client(#[from] ClientError),
    /// The SHA-256 of the archive is not the demanded one.
    #[error(
        "{name}: its SHA-256 is {found}, not the {demanded} that staticExport.sha256 demands; correct staticExport.sha256, or get the right bundle"
    )]
    WrongDigest {
        /// The bundle's name.
        name: String,
        /// The archive's SHA-256.
        found: Digest,
        /// The demanded SHA-256.
        demanded: Digest,
    },
    /// The bundle was refused at the last check and has not changed.
    #[error("the bundle has not changed since it was refused: {0}")]
    StillRefused(String),
    /// The bundle was refused, but it has changed meanwhile.
    #[error("the bundle {} is still being written; it is checked again when it does not change any more", path.display())]
    Changing {
        /// The bundle's path.
        path: PathBuf,
        /// The reason of the refusal.
        #[source]
        source: Box<SyncError>,
    },
    /// A call to the API has failed.
    #[error("cannot {doing}: {request_error}{}", .call.advice(.request_error))]
    Upstream {
        /// The operation: "start the export of …".
        doing: String,
        /// The call.
        call: ApiCall,
        /// The cause.
        request_error: RequestError,
    },
    /// The bundle could not be downloaded from its link.
    #[error("cannot download {link}: {request_error}{}", link_advice(*.signed, .request_error, *.key))]
    Download {
        /// The link, without its query.
        link: String,
        /// Whether the link has a query, as signed links have.
        signed: bool,
        /// The cause.
        request_error: RequestError,
        /// The key of the configuration that has the link; `None` if the API created it and can create another.
        key: Option<&'static str>,
    },
    /// The export job failed.
    #[error("the export job {id} failed: {reason}; check the project's build, then sync again")]
    JobFailed {
        /// The job's id.
        id: String,
        /// The reason, as the API reports it.
        reason: String,
    },
    /// The API does not know the export job any more.
    #[error("the export job {id} does not exist any more: {request_error}; the next sync starts another")]
    JobVanished {
        /// The job's id.
        id: String,
        /// The API's response.
        request_error: RequestError,
    },
    /// The export job has exceeded its timeout.
    #[error("the export job {id} is not done after {} (sync.jobTimeout); its last state was {state}{}; raise sync.jobTimeout, or check the project's build", format_duration(*.after), describe_stall(*.still))]
    JobTimeout {
        /// The job's id.
        id: String,
        /// The timeout.
        after: Duration,
        /// The job's last state.
        state: String,
        /// The time for which the job had made no progress when the timeout passed.
        still: Duration,
    },
    /// The bundle could not be verified or sealed.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// A store operation failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A version in the store cannot be opened.
    #[error("cannot open version {}", id.short())]
    Open {
        /// The version's id.
        id: VersionId,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The content of a stored version does not match its id.
    #[error("version {} in the store is damaged; import its bundle again to repair it", id.short())]
    DamagedVersion {
        /// The version's id.
        id: VersionId,
        /// The damage, if the image was read up to it.
        #[source]
        source: Option<SealError>,
    },
    /// A bug in docwharf.
    #[error("the sync was aborted: {0}; this is a bug in docwharf, please report it")]
    Bug(String),
    /// No thread could be started for the sync.
    #[error("cannot start a thread for the sync")]
    Thread(#[source] std::io::Error),
    /// The sync was cancelled: the program ends, the configuration has changed, or a command takes precedence.
    #[error("the sync was cancelled")]
    Cancelled,
}

impl SyncError {
    /// Whether the bundle itself was refused now, so that a retry is useless. [`SyncError::StillRefused`], which
    /// repeats an earlier refusal, does not count.
    pub fn is_refusal(&self) -> bool {
        match self {
            SyncError::WrongDigest { .. } | SyncError::Seal(SealError::Refused { .. }) => true,
            SyncError::Download { request_error, .. } => request_error.cause == RequestErrorCause::TooLarge,
            _ => false,
        }
    }

    /// Whether the bundle is truncated, as one that is still being copied.
    pub fn is_truncated(&self) -> bool {
        matches!(self, SyncError::Seal(SealError::Refused { source, .. }) if matches!(source.fault, BundleFault::Truncated(_)))
    }

    /// Returns advice for the person who has the bundle, if it was refused for a fault that has one.
    pub fn refusal_advice(&self) -> Option<&'static str> {
        match self {
            SyncError::Seal(SealError::Refused { source, .. }) => source.fault.advice(),
            _ => None,
        }
    }

    /// Whether a file or a setting that the sync needs is missing.
    pub fn is_absence(&self) -> bool {
        matches!(
            self,
            SyncError::Missing { .. }
                | SyncError::IsFolder { .. }
                | SyncError::UnusableSetting(_)
                | SyncError::Client(_)
        )
    }

    /// The upstream's Retry-After.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            SyncError::Upstream { request_error, .. } | SyncError::Download { request_error, .. } => {
                request_error.retry_after
            }
            _ => None,
        }
    }
}

fn describe_stall(still: Duration) -> String {
    if still < Duration::from_mins(1) {
        return String::new();
    }
    format!(" and had made no progress for {}", format_duration(Duration::from_secs(still.as_secs())))
}

/// Upper bound of the links for one bundle that are requested in a row without success.
pub const MAX_LINK_REQUESTS: u32 = 4;

/// Whether a response means that the link is not valid any more, and not that the server has a fault.
pub fn is_unusable_link(request_error: &RequestError) -> bool {
    match request_error.cause {
        RequestErrorCause::Status(401 | 403 | 404 | 410) => true,
        // S3 reports an expired token with status 400.
        RequestErrorCause::Status(400) => {
            request_error.code().is_some_and(|code| code.contains("Expired") || code.contains("Token"))
        }
        _ => false,
    }
}

fn link_advice(signed: bool, request_error: &RequestError, key: Option<&'static str>) -> String {
    let place =
        if key == Some(BUNDLE_URL_FILE_KEY) { "the file of staticExport.bundleUrlFile" } else { BUNDLE_URL_KEY };
    match request_error.cause {
        RequestErrorCause::Disk => "; free some space, or check the store's owner and mode".to_owned(),
        RequestErrorCause::TooLarge => "; raise limits.archive if you trust the source".to_owned(),
        RequestErrorCause::NotConnected => "; check the network and proxies".to_owned(),
        _ if is_unusable_link(request_error) && key.is_none() => {
            "; fresh links from the API failed, too; run `docwharf doctor`, then ask the vendor".to_owned()
        }
        RequestErrorCause::Status(404 | 410) => format!("; check {place}"),
        _ if is_unusable_link(request_error) && signed => format!(
            "; the link has probably expired and cannot be renewed: put a fresh one in {place}, or set [api], which \
             creates links"
        ),
        _ if is_unusable_link(request_error) => format!("; the server denies access: check {place}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;
    use docwharf_base::secret::SecretRedactor;
    use docwharf_site::bundle::refusal::BundleRefusal;

    fn refused(fault: BundleFault) -> SyncError {
        SyncError::Seal(SealError::Refused { path: "b.zip".into(), source: BundleRefusal { entry: None, fault } })
    }

    fn missing() -> std::io::Error {
        std::io::ErrorKind::NotFound.into()
    }

    fn download(request_error: RequestError, signed: bool, renewable: bool) -> SyncError {
        let key = (!renewable).then_some(BUNDLE_URL_KEY);
        SyncError::Download { link: "https://b.example/b.zip".to_owned(), signed, request_error, key }
    }

    fn request_error(cause: RequestErrorCause) -> RequestError {
        RequestError::new(cause, "x")
    }

    #[test]
    fn errors_are_classified_as_refusal_truncation_absence_or_other() {
        let digest = Digest::compute(b"x");
        let read = || SealError::Read { path: "b.zip".into(), source: missing() };
        let upstream = |cause| SyncError::Upstream {
            doing: String::new(),
            call: ApiCall::PollExport,
            request_error: request_error(cause),
        };
        // Whether it is a refusal, a truncation, an absence.
        let cases = [
            (SyncError::WrongDigest { name: String::new(), found: digest, demanded: digest }, [true, false, false]),
            (refused(BundleFault::Duplicate), [true, false, false]),
            (refused(BundleFault::Truncated("x")), [true, true, false]),
            (SyncError::Seal(read()), [false; 3]),
            (download(request_error(RequestErrorCause::TooLarge), false, false), [true, false, false]),
            (download(request_error(RequestErrorCause::Disk), false, false), [false; 3]),
            (download(request_error(RequestErrorCause::Status(404)), false, false), [false; 3]),
            (upstream(RequestErrorCause::TooLarge), [false; 3]),
            (SyncError::StillRefused(String::new()), [false; 3]),
            (
                SyncError::Changing { path: "b.zip".into(), source: Box::new(refused(BundleFault::Truncated("x"))) },
                [false; 3],
            ),
            (SyncError::Missing { path: "b.zip".into(), key: BUNDLE_URL_KEY, source: missing() }, [false, false, true]),
            (SyncError::IsFolder { path: "b.zip".into(), key: BUNDLE_URL_KEY }, [false, false, true]),
            (SyncError::UnusableSetting(String::new()), [false, false, true]),
            (SyncError::Client(ClientError::Read { path: "ca.pem".into(), source: missing() }), [false, false, true]),
            (SyncError::Store(StoreError::NoPrevious), [false; 3]),
            (SyncError::Bug(String::new()), [false; 3]),
            (SyncError::Cancelled, [false; 3]),
        ];
        for (error, expected) in cases {
            assert_eq!([error.is_refusal(), error.is_truncated(), error.is_absence()], expected, "{error:?}");
            assert_eq!(error.retry_after(), None, "{error:?}");
        }
        let rate_limited = || {
            let mut error = request_error(RequestErrorCause::Status(429));
            error.retry_after = Some(Duration::from_secs(7));
            error
        };
        let upstream_error =
            SyncError::Upstream { doing: String::new(), call: ApiCall::PollExport, request_error: rate_limited() };
        for error in [download(rate_limited(), false, false), upstream_error] {
            assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
        }
    }

    fn response(status: u16, body: &str) -> RequestError {
        RequestError::from_response(status, &HeaderMap::new(), body.as_bytes(), &SecretRedactor::default())
    }

    #[test]
    fn link_is_expired_after_401_403_404_410_or_an_expiry_code_but_no_server_error() {
        for (status, is_expired) in [
            (200, false),
            (400, false),
            (401, true),
            (402, false),
            (403, true),
            (404, true),
            (409, false),
            (410, true),
            (429, false),
            (500, false),
            (503, false),
        ] {
            assert_eq!(is_unusable_link(&response(status, "")), is_expired, "{status}");
        }
        let body = |code: &str| format!("<Error><Code>{code}</Code></Error>");
        for (code, is_expired) in
            [("ExpiredToken", true), ("InvalidToken", true), ("RequestExpired", true), ("Busy", false)]
        {
            assert_eq!(is_unusable_link(&response(400, &body(code))), is_expired, "{code}");
            assert!(!is_unusable_link(&response(500, &body(code))), "{code}");
        }
        for cause in [
            RequestErrorCause::NotConnected,
            RequestErrorCause::NoUsableResponse,
            RequestErrorCause::TooLarge,
            RequestErrorCause::Disk,
            RequestErrorCause::Unreadable,
        ] {
            assert!(!is_unusable_link(&request_error(cause)), "{cause:?}");
        }
    }

    #[test]
    fn download_error_has_advice_for_its_cause_and_kind_of_link() {
        // Whether the link is signed, whether it can be renewed.
        let kinds = [(false, false), (true, false), (false, true), (true, true)];
        let fresh = "fresh links from the API failed";
        let (check, expired) = ("check staticExport.bundleUrl", "put a fresh one in staticExport.bundleUrl");
        let cases = [
            (request_error(RequestErrorCause::Disk), ["free some space"; 4]),
            (request_error(RequestErrorCause::TooLarge), ["raise limits.archive"; 4]),
            (request_error(RequestErrorCause::NotConnected), ["check the network"; 4]),
            (response(404, ""), [check, check, fresh, fresh]),
            (response(410, ""), [check, check, fresh, fresh]),
            (response(403, ""), ["denies access", expired, fresh, fresh]),
            (response(401, ""), ["denies access", expired, fresh, fresh]),
            (request_error(RequestErrorCause::NoUsableResponse), [""; 4]),
            (response(500, ""), [""; 4]),
        ];
        for (request_error, advice_texts) in cases {
            for ((signed, renewable), advice) in kinds.into_iter().zip(advice_texts) {
                let text = download(request_error.clone(), signed, renewable).to_string();
                let begin = format!("cannot download https://b.example/b.zip: {request_error}");
                let rest = text.strip_prefix(&begin).unwrap_or_else(|| panic!("{text}"));
                assert!(rest.contains(advice) && rest.is_empty() == advice.is_empty(), "{signed} {renewable} {text}");
            }
        }
        let late = |still| SyncError::JobTimeout {
            id: "j".to_owned(),
            after: Duration::from_mins(30),
            state: "queued".to_owned(),
            still: Duration::from_secs(still),
        };
        for (still, is_reported) in [(0, false), (59, false), (60, true), (90, true)] {
            assert_eq!(late(still).to_string().contains("had made no progress"), is_reported, "{still}");
        }
    }
}
