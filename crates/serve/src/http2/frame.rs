//! Frames (RFC 9113, sections 4 and 6): parsing, frame headers and error codes. Pure.

/// The length of a frame header in bytes.
pub(super) const HEADER_BYTES: usize = 9;
/// The initial `SETTINGS_MAX_FRAME_SIZE` (RFC 9113, section 6.5.2): the largest payload, in bytes, of a received frame,
/// because this server does not raise it; of a sent HEADERS or CONTINUATION frame; and of DATA until the peer raises
/// it.
pub(super) const INITIAL_MAX_FRAME_SIZE: usize = 16_384;

// The frame types (RFC 9113, section 6).
pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

// The settings in a SETTINGS frame (RFC 9113, section 6.5.2; the last one: RFC 9218, section 2.1).
pub(super) const SETTINGS_ENABLE_PUSH: u16 = 2;
pub(super) const SETTINGS_MAX_CONCURRENT_STREAMS: u16 = 3;
pub(super) const SETTINGS_INITIAL_WINDOW_SIZE: u16 = 4;
pub(super) const SETTINGS_MAX_FRAME_SIZE: u16 = 5;
pub(super) const SETTINGS_MAX_HEADER_LIST_SIZE: u16 = 6;
pub(super) const SETTINGS_NO_RFC7540_PRIORITIES: u16 = 9;

// The flags of frames.
pub(super) const ACK: u8 = 0x1;
pub(super) const END_STREAM: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
const PADDED_FLAG: u8 = 0x8;
const PRIORITY_FLAG: u8 = 0x20;

/// An error code (RFC 9113, section 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum ErrorCode {
    NoError = 0,
    Protocol = 1,
    Internal = 2,
    FlowControl = 3,
    StreamClosed = 5,
    FrameSize = 6,
    RefusedStream = 7,
    Compression = 9,
    EnhanceYourCalm = 11,
}

/// An error of the peer: a connection error or a stream error (RFC 9113, section 5.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Http2Error {
    /// An error that ends the connection.
    Connection(ErrorCode),
    /// An error that ends the stream with this id.
    Stream(u32, ErrorCode),
}

/// A frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHeader {
    /// The length of the payload in bytes.
    pub(super) len: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl FrameHeader {
    /// Parses the frame at the start of `bytes`, and returns its header and payload; `None` if it is not complete.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<(FrameHeader, &[u8])>, Http2Error> {
        let Some((head, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        if len > INITIAL_MAX_FRAME_SIZE {
            return Err(Http2Error::Connection(ErrorCode::FrameSize));
        }
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
        Ok(rest.get(..len).map(|payload| (FrameHeader { len, kind: head[3], flags: head[4], stream }, payload)))
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Returns the payload of a DATA or HEADERS frame without its padding and, for HEADERS, without its priority.
    pub(super) fn content<'a>(&self, mut payload: &'a [u8]) -> Result<&'a [u8], Http2Error> {
        let mut padding = 0;
        if self.has(PADDED_FLAG) {
            let (&first, rest) = payload.split_first().ok_or(Http2Error::Connection(ErrorCode::FrameSize))?;
            (padding, payload) = (usize::from(first), rest);
        }
        if self.kind == HEADERS && self.has(PRIORITY_FLAG) {
            payload = payload.get(5..).ok_or(Http2Error::Connection(ErrorCode::FrameSize))?;
        }
        let len = payload.len().checked_sub(padding).ok_or(Http2Error::Connection(ErrorCode::Protocol))?;
        Ok(&payload[..len])
    }
}

/// Reads a big-endian number of up to four bytes.
pub(super) fn read_be(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u32::from(byte))
}

/// Encodes the header of a frame with a payload of `len` bytes.
pub(super) fn encode_header(len: usize, kind: u8, flags: u8, stream: u32) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..3].copy_from_slice(&(len as u32).to_be_bytes()[1..]);
    (bytes[3], bytes[4]) = (kind, flags);
    bytes[5..].copy_from_slice(&stream.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_when_it_is_whole() {
        let mut bytes = encode_header(3, DATA, END_STREAM, 5).to_vec();
        bytes.extend_from_slice(b"abcd");
        for end in 0..12 {
            assert_eq!(FrameHeader::parse(&bytes[..end]), Ok(None));
        }
        let frame = FrameHeader { len: 3, kind: DATA, flags: END_STREAM, stream: 5 };
        assert_eq!(FrameHeader::parse(&bytes), Ok(Some((frame, &b"abc"[..]))));
        bytes[5] |= 0x80;
        assert_eq!(FrameHeader::parse(&bytes).unwrap().unwrap().0.stream, 5, "the reserved bit is ignored");
        let long = Err(Http2Error::Connection(ErrorCode::FrameSize));
        assert_eq!(FrameHeader::parse(&encode_header(INITIAL_MAX_FRAME_SIZE + 1, DATA, 0, 1)), long);
        assert_eq!(FrameHeader::parse(&encode_header(INITIAL_MAX_FRAME_SIZE, DATA, 0, 1)), Ok(None));
    }

    #[test]
    fn padding_and_priority_fields_are_removed_from_a_frame_payload() {
        let frame = |kind, flags| FrameHeader { len: 0, kind, flags, stream: 1 };
        assert_eq!(frame(DATA, 0).content(b"abc"), Ok(&b"abc"[..]));
        assert_eq!(frame(DATA, PADDED_FLAG).content(b"\x01abc"), Ok(&b"ab"[..]));
        assert_eq!(frame(DATA, PADDED_FLAG).content(b"\x03abc"), Ok(&b""[..]));
        assert_eq!(frame(DATA, PADDED_FLAG).content(b"\x04abc"), Err(Http2Error::Connection(ErrorCode::Protocol)));
        assert_eq!(frame(DATA, PADDED_FLAG).content(b""), Err(Http2Error::Connection(ErrorCode::FrameSize)));
        assert_eq!(frame(HEADERS, PRIORITY_FLAG).content(b"pppppabc"), Ok(&b"abc"[..]));
        assert_eq!(frame(HEADERS, PRIORITY_FLAG | PADDED_FLAG).content(b"\x02pppppabc"), Ok(&b"a"[..]));
        assert_eq!(frame(HEADERS, PRIORITY_FLAG).content(b"pppp"), Err(Http2Error::Connection(ErrorCode::FrameSize)));
        assert_eq!(frame(DATA, PRIORITY_FLAG).content(b"pppp"), Ok(&b"pppp"[..]));
    }
}
