//! Building blocks without knowledge of sites, bundles or the agent. Every other crate of docwharf depends on this one.
//!
//! - Files: [`directory`] (access through an open directory, which no other user can redirect), [`durable`]
//!   (replacement that survives a crash, and the lock of one writer), [`regular_file`] (bounded reads of files that a
//!   user has named), [`key_file`] (files with one key), [`growing_file`] (how many bytes of a file can be read while
//!   it is still being written), [`mapped_files`] (files that this process has mapped into memory).
//! - Data: [`model`] (paths, digests, version ids, limits, units), [`codec`] (DEFLATE, gzip, Brotli, Zstandard),
//!   [`little_endian`] (reads numbers) and [`bounded_list`] (lists in JSON of any length). None of them does I/O.
//! - Network: [`net`] (HTTP client, errors of upstreams, retry rules), [`backoff`] (waits between retries),
//!   [`encode_sets`] (percent-encoding) and [`tcp_options`] (options of TCP sockets).
//! - Process: [`runtime`] (construction of Tokio runtimes), [`clock`], [`locks`], [`processors`], [`thread_priority`],
//!   [`accounts`] (users and groups by name), [`child_network`] (child processes without a network).
//! - Output: [`error_chain`] (an error and its causes on one line), [`secret`] (values that no message shows),
//!   [`metrics_format`] (formats of metrics).
//!
//! ```
//! use docwharf_base::durable;
//! use docwharf_base::secret::SafeUrl;
//!
//! // A crash leaves either the old or the new content of the file.
//! let directory = tempfile::tempdir()?;
//! durable::replace(directory.path(), "state.json", b"{}")?;
//!
//! // A message shows a signed link without its signature.
//! let link = SafeUrl::parse("https://bucket.example/site.zip?X-Amz-Signature=0123456789abcdef")?;
//! assert_eq!(link.to_string(), "https://bucket.example/site.zip?***");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod accounts;
pub mod backoff;
pub mod bounded_list;
#[allow(unsafe_code)] // system calls between fork and exec; their SAFETY comments give the reasons
pub mod child_network;
pub mod clock;
pub mod codec;
pub mod directory;
pub mod durable;
pub mod encode_sets;
pub mod error_chain;
pub mod growing_file;
pub mod key_file;
pub mod little_endian;
pub mod locks;
pub mod mapped_files;
pub mod metrics_format;
pub mod model;
pub mod net;
pub mod processors;
pub mod regular_file;
pub mod runtime;
pub mod secret;
#[allow(unsafe_code)] // one block; its SAFETY comment gives the reason
pub mod tcp_options;
pub mod thread_priority;
