//! What is wrong with a client's bytes.

/// Why a client's bytes are no SPDY, or more than is taken. The connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum FrameError {
    /// A control frame of another version.
    #[error("SPDY version {0} instead of 3")]
    Version(u16),
    /// A control frame of a type that there is not.
    #[error("unknown type of control frame {0}")]
    UnknownType(u16),
    /// A control frame that is too long.
    #[error("control frame of {0} bytes")]
    ControlTooLarge(usize),
    /// A control frame that is too short for its type.
    #[error("control frame is cut short")]
    Cut,
    /// Stream 0, or one that clients cannot open.
    #[error("stream {0} cannot be opened by a client")]
    StreamId(u32),
    /// Headers that inflate to too much.
    #[error("headers are too large")]
    HeadersTooLarge,
    /// Headers whose lengths do not fit.
    #[error("malformed headers")]
    Headers,
    /// Headers that are no zlib stream.
    #[error("headers cannot be inflated")]
    Compression,
    /// Headers compressed with another dictionary.
    #[error("headers are compressed with an unknown dictionary")]
    WrongDictionary,
}
