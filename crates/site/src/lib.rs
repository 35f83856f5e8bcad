//! Reads documentation bundles, seals each into one ZIP image, and looks up where an address of the site leads.
//!
//! A *bundle* is a ZIP, a tar (plain, gzip or Zstandard) or a folder with the files of a static site ([`bundle`]).
//! [`seal`] verifies it to its last byte (docs/design/archives.md) and writes a *sealed image*: a standard ZIP with
//! text as DEFLATE, which a server maps into memory and sends without compressing anything ([`image`], [`mapping`]).
//! The [`index`] beside the image has the place, the sizes and the digests of each file. Image and index together are a
//! [`SealedVersion`](sealed_version::SealedVersion).
//!
//! [`lookup`] decides which file of a version answers an address, and [`rules`] add redirects, rewrites and header
//! fields. The remaining modules work on sealed versions: [`coding_file`] (Brotli and Zstandard forms of its texts),
//! [`memfd_arena`] (memory for inflated files), [`link_check`] (broken links), [`external`] (the origins that pages
//! connect to, and security policies made from them), [`own_policy`] (whether a site's own policies allow scripts),
//! [`own_search`] (whether a site brings its own search), [`diff`] (the difference between two versions) and
//! [`extract`] (plain files).
//!
//! ```
//! use docwharf_base::model::limits::BundleLimits;
//! use docwharf_site::index::ImageIndex;
//! use docwharf_site::lookup::{LookupResult, Slashes, resolve_address};
//! use docwharf_site::mapping;
//! use docwharf_site::seal::{ImageTarget, SealOptions, SealProgress, seal};
//! use docwharf_site::sealed_version::SealedVersion;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! std::fs::write(folder.path().join("index.html"), "<h1>Start</h1>")?;
//! std::fs::write(folder.path().join("guide.html"), "<h1>Guide</h1>")?;
//!
//! // Verify the bundle and write its image to a file without a name.
//! let target = ImageTarget::Unlinked(std::env::temp_dir());
//! let sealed = seal(folder.path(), &target, &SealOptions::new(BundleLimits::default()), &SealProgress::default())?;
//!
//! // Map the image and open the version.
//! let id = sealed.verified.id;
//! let index = ImageIndex::decode(sealed.verified.encode_index(sealed.image_len), sealed.image_len, id)?;
//! let site = SealedVersion::new(id, mapping::map_image(sealed.image)?, index);
//!
//! assert!(matches!(resolve_address(&site, b"guide", Slashes::Serve), LookupResult::File(_)));
//! assert_eq!(resolve_address(&site, b"missing", Slashes::Serve), LookupResult::NotFound);
//! # Ok(())
//! # }
//! ```

pub mod bundle;
pub mod coding_file;
pub mod diff;
pub mod external;
pub mod extract;
pub mod image;
pub mod index;
pub mod link_check;
pub mod links;
pub mod lookup;
#[allow(unsafe_code)] // memory mappings and glibc calls; the rules are in the module's documentation
pub mod mapping;
pub mod media_types;
#[allow(unsafe_code)] // one block; its SAFETY comment gives the reason
pub mod memfd_arena;
pub mod own_policy;
pub mod own_search;
mod path_table;
pub mod rules;
pub mod seal;
pub mod sealed_version;
