//! Fields of HTTP/2 as they go over the wire: HPACK (RFC 7541). What comes is decoded with the whole of it, because the peer
//! chooses; what goes out uses the table that never changes and strings, so that a head that was made once is the same bytes
//! on every connection. Pure.

mod decode;
pub mod encode;
mod fields;
mod huffman;
mod table;

pub use decode::{Decoder, Fault};
pub use fields::Fields;
pub(super) use fields::MOST as MOST_FIELDS;
