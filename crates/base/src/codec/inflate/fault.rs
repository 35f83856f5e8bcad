//! The faults of a DEFLATE stream.

/// The fault of a DEFLATE stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InflateFault {
    /// The input ends before the stream does.
    #[error("the compressed data is cut short")]
    Truncated,
    /// The data violates the format; the text says how.
    #[error("the compressed data is damaged ({0})")]
    Damaged(&'static str),
}
