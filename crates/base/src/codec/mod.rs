//! Compression formats, without I/O: a DEFLATE decoder and encoder, the gzip frame, encoders for Brotli and Zstandard,
//! and streams to which content is added.
//!
//! The DEFLATE decoder is written here rather than taken from a library because verification needs two things that no
//! library reports: the bit at which a stream ends and the bit at which its last block begins. The DEFLATE encoder is
//! zlib-rs.

pub mod content_coding;
pub mod continuation;
pub mod crc32_suffix;
pub mod deflate;
pub mod gzip;
mod huffman;
pub mod inflate;
