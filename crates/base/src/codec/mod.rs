//! Codings of bytes, without I/O: DEFLATE in and out, the gzip frame, CRC-32.
//!
//! Decoding is written here rather than taken from a library because proving needs what no library tells: where a
//! stream ends to the bit, and where its last block begins. Encoding is zlib-rs.

pub mod deflate;
pub mod dense;
pub mod gzip;
pub mod inflate;
mod tables;
