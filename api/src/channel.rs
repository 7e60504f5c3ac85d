//! The channels of exec and attach in WebSockets: the first byte of every message says which.
//!
//! | channel | carries |
//! |---|---|
//! | 0 | stdin |
//! | 1, 2 | stdout, stderr |
//! | 3 | the `Status` at the end |
//! | 4 | terminal sizes: `{"Width": 80, "Height": 24}` |
//! | 255 (v5) | the end of the channel that the next byte names |
//!
//! Source: `k8s.io/apimachinery/pkg/util/remotecommand/constants.go` at v1.37.

use serde_json::Value;

/// Input of the command.
pub const STDIN: u8 = 0;
/// Its output, or the terminal's.
pub const STDOUT: u8 = 1;
/// Its other output.
pub const STDERR: u8 = 2;
/// How it ended.
pub const STATUS: u8 = 3;
/// The size of its terminal.
pub const RESIZE: u8 = 4;
/// The end of another channel.
pub const CLOSE: u8 = 255;

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Bytes of a channel.
    Data(u8, &'a [u8]),
    /// The end of a channel.
    End(u8),
}

impl<'a> Frame<'a> {
    /// Reads a message; `None` for one without a channel.
    #[must_use]
    pub fn read(message: &'a [u8]) -> Option<Self> {
        match message.split_first()? {
            (&CLOSE, rest) => rest.first().map(|channel| Self::End(*channel)),
            (&channel, rest) => Some(Self::Data(channel, rest)),
        }
    }

    /// The message.
    #[must_use]
    pub fn write(self) -> Vec<u8> {
        match self {
            Self::Data(channel, bytes) => {
                let mut message = Vec::with_capacity(bytes.len() + 1);
                message.push(channel);
                message.extend_from_slice(bytes);
                message
            }
            Self::End(channel) => vec![CLOSE, channel],
        }
    }
}

/// Columns and rows of a message on [`RESIZE`]; `None` for what is none. As Go reads it: the case
/// of names does not matter, and clients make use of that.
#[must_use]
pub fn terminal_size(json: &[u8]) -> Option<(u16, u16)> {
    let value: Value = serde_json::from_slice(json).ok()?;
    let side = |name: &str| {
        let (_, side) = value
            .as_object()?
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))?;
        u16::try_from(side.as_u64()?).ok()
    };
    Some((side("width")?, side("height")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_their_channel() {
        let check = |message: &[u8], expect: Option<Frame<'_>>| {
            assert_eq!(Frame::read(message), expect, "{message:?}");
            if let Some(frame) = expect {
                assert_eq!(frame.write(), message);
            }
        };
        check(b"", None);
        check(&[1], Some(Frame::Data(1, b"")));
        check(b"\x00abc", Some(Frame::Data(0, b"abc")));
        check(&[255, 0], Some(Frame::End(0)));
        check(&[255], None);
    }

    #[test]
    fn sizes_are_parsed() {
        for good in [
            r#"{"Width":80,"Height":24}"#,
            r#"{"height":24,"width":80}"#,
            r#"{"WIDTH":80,"hEIGHT":24}"#,
        ] {
            assert_eq!(terminal_size(good.as_bytes()), Some((80, 24)), "{good}");
        }
        for bad in [
            "{}",
            "",
            r#"{"Width":80}"#,
            r#"{"Width":70000,"Height":24}"#,
            r#"{"Width":-1,"Height":24}"#,
        ] {
            assert_eq!(terminal_size(bad.as_bytes()), None, "{bad}");
        }
    }
}
