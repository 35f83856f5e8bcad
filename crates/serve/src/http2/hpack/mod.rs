//! HPACK, the encoding of header fields in HTTP/2 (RFC 7541). The decoder supports all of it, because the peer chooses
//! the representations. The encoder uses the static table and string literals only, so that an encoded head is the same
//! on every connection and can be cached. Pure.

mod decode;
pub mod encode;
mod fields;
mod huffman;
mod table;

pub use decode::{HpackDecoder, HpackError};
pub use fields::DecodedFields;
pub(super) use fields::MAX_FIELD_LIST_BYTES;
