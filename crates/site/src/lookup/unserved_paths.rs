//! The paths of a bundle that are not served: hidden files, files of rules, and the reserved folder.

use docwharf_base::model::site_path::is_hidden;

/// The folder at the root that is reserved for docwharf. Nothing is served below it.
pub const RESERVED_FOLDER: &[u8] = b"_docwharf";
/// The name of the file with redirects in a site.
pub const REDIRECTS_FILE: &str = "_redirects";
/// The name of the file with header fields in a site.
pub const HEADERS_FILE: &str = "_headers";

/// Whether the file at this address is never served. The address has no leading slash.
pub(crate) fn is_never_served(address: &[u8]) -> bool {
    is_hidden(address)
        || is_rules_file(address)
        || address.strip_prefix(RESERVED_FOLDER).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Whether an address is that of a file with rules for the server.
fn is_rules_file(address: &[u8]) -> bool {
    address == REDIRECTS_FILE.as_bytes() || address == HEADERS_FILE.as_bytes()
}
