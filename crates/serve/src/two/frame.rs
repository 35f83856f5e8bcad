//! Frames (RFC 9113, 4 and 6) and what is wrong with them. Pure.

/// Bytes that a frame begins with.
pub(super) const HEAD: usize = 9;
/// A longer payload is taken by nobody who has not said so (RFC 9113, 6.5.2); we do not.
pub(super) const LONGEST: usize = 16_384;

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

pub(super) const ACK: u8 = 0x1;
pub(super) const END_STREAM: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const WITH_PRIORITY: u8 = 0x20;

/// Why something ends (RFC 9113, 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Code {
    None = 0,
    Protocol = 1,
    Internal = 2,
    FlowControl = 3,
    StreamClosed = 5,
    FrameSize = 6,
    Refused = 7,
    Compression = 9,
    Calm = 11,
}

/// What has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// All of it.
    Connection(Code),
    /// This stream.
    Stream(u32, Code),
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    /// Bytes of its payload.
    pub(super) len: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl Frame {
    /// The frame at the beginning of `bytes`, and its payload; none if it is not whole.
    pub(super) fn first(bytes: &[u8]) -> Result<Option<(Frame, &[u8])>, Fault> {
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else { return Ok(None) };
        let len = number(&[0, head[0], head[1], head[2]]) as usize;
        if len > LONGEST {
            return Err(Fault::Connection(Code::FrameSize));
        }
        let stream = number(&head[5..]) & 0x7fff_ffff;
        Ok(rest.get(..len).map(|payload| (Frame { len, kind: head[3], flags: head[4], stream }, payload)))
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The payload of a frame of DATA or HEADERS without what pads it and, of the latter, without its priority.
    pub(super) fn content<'a>(&self, mut payload: &'a [u8]) -> Result<&'a [u8], Fault> {
        let mut padding = 0;
        if self.has(PADDED) {
            let (&first, rest) = payload.split_first().ok_or(Fault::Connection(Code::FrameSize))?;
            (padding, payload) = (usize::from(first), rest);
        }
        if self.kind == HEADERS && self.has(WITH_PRIORITY) {
            payload = payload.get(5..).ok_or(Fault::Connection(Code::FrameSize))?;
        }
        let len = payload.len().checked_sub(padding).ok_or(Fault::Connection(Code::Protocol))?;
        Ok(&payload[..len])
    }
}

/// A number of up to four bytes.
pub(super) fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u32::from(byte))
}

/// The head of a frame with so many bytes.
pub(super) fn head(len: usize, kind: u8, flags: u8, stream: u32) -> [u8; HEAD] {
    let mut bytes = [0; HEAD];
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
        let mut bytes = head(3, DATA, END_STREAM, 5).to_vec();
        bytes.extend_from_slice(b"abcd");
        for end in 0..12 {
            assert_eq!(Frame::first(&bytes[..end]), Ok(None));
        }
        let frame = Frame { len: 3, kind: DATA, flags: END_STREAM, stream: 5 };
        assert_eq!(Frame::first(&bytes), Ok(Some((frame, &b"abc"[..]))));
        bytes[5] |= 0x80;
        assert_eq!(Frame::first(&bytes).unwrap().unwrap().0.stream, 5, "one bit is reserved");
        let long = Err(Fault::Connection(Code::FrameSize));
        assert_eq!(Frame::first(&head(LONGEST + 1, DATA, 0, 1)), long);
        assert_eq!(Frame::first(&head(LONGEST, DATA, 0, 1)), Ok(None));
    }

    #[test]
    fn padding_and_priority_are_no_content() {
        let frame = |kind, flags| Frame { len: 0, kind, flags, stream: 1 };
        assert_eq!(frame(DATA, 0).content(b"abc"), Ok(&b"abc"[..]));
        assert_eq!(frame(DATA, PADDED).content(b"\x01abc"), Ok(&b"ab"[..]));
        assert_eq!(frame(DATA, PADDED).content(b"\x03abc"), Ok(&b""[..]));
        assert_eq!(frame(DATA, PADDED).content(b"\x04abc"), Err(Fault::Connection(Code::Protocol)));
        assert_eq!(frame(DATA, PADDED).content(b""), Err(Fault::Connection(Code::FrameSize)));
        assert_eq!(frame(HEADERS, WITH_PRIORITY).content(b"pppppabc"), Ok(&b"abc"[..]));
        assert_eq!(frame(HEADERS, WITH_PRIORITY | PADDED).content(b"\x02pppppabc"), Ok(&b"a"[..]));
        assert_eq!(frame(HEADERS, WITH_PRIORITY).content(b"pppp"), Err(Fault::Connection(Code::FrameSize)));
        assert_eq!(frame(DATA, WITH_PRIORITY).content(b"pppp"), Ok(&b"pppp"[..]));
    }
}
