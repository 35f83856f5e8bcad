//! The record of a file in an index, and the reason why an index is refused.

use docwharf_base::model::digest::Digest;

/// The compression method of a file in the image. `bundle::zip::CompressionMethod` is its counterpart for the entries
/// of a received ZIP, from which `seal::adopt` converts; its comment says why the two are separate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryCompression {
    /// Not compressed.
    Stored,
    /// A DEFLATE stream (RFC 1951).
    Deflate,
}

/// The record of one file of the site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    /// The compression method.
    pub compression: EntryCompression,
    /// The offset of the file's data in the image.
    pub offset: u64,
    /// The compressed size in bytes.
    pub compressed_len: u64,
    /// The size of the content in bytes.
    pub len: u64,
    /// The CRC-32 of the content.
    pub crc: u32,
    /// The SHA-256 of the content.
    pub content: Digest,
    /// The CRC-32 of the compressed bytes, which distinguishes two compressed forms of one content; 0 for a stored
    /// file.
    pub compressed_crc: u32,
    /// The bit offset of the header of the last DEFLATE block.
    pub last_block_bit: u64,
    /// The number of bits of the last compressed byte that do not belong to the stream.
    pub spare_bits: u8,
    /// Last-Modified of the file, in seconds since 1970. Until the version is dated (by the agent's `sync::file_dates`,
    /// or by the origin for a preview), it is the modification time in a folder, and 0 in an archive.
    pub modified: i64,
}

/// The reason why an index is refused. The remedy is always to write it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the index does not match its image ({0})")]
pub struct IndexFault(pub(super) &'static str);
