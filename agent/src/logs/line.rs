//! One line of a log (pure).

use std::time::SystemTime;

use k8s_openapi::jiff::Timestamp;

/// A line of a log file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// As written.
    pub(crate) time: &'a str,
    /// Written to stderr.
    pub(crate) stderr: bool,
    /// The container's line goes on in the next one.
    pub(crate) partial: bool,
    /// Without the line end.
    pub(crate) text: &'a [u8],
}

impl Line<'_> {
    /// Whether it was written at `since` or later.
    pub(crate) fn is_since(&self, since: SystemTime) -> bool {
        self.time
            .parse::<Timestamp>()
            .is_ok_and(|time| SystemTime::from(time) >= since)
    }
}

/// Parses a line; `None` if it is not one.
pub(crate) fn parse(raw: &[u8]) -> Option<Line<'_>> {
    let raw = raw.strip_suffix(b"\n").unwrap_or(raw);
    let mut parts = raw.splitn(4, |&byte| byte == b' ');
    let time = std::str::from_utf8(parts.next()?)
        .ok()
        .filter(|time| !time.is_empty())?;
    let stderr = match parts.next()? {
        b"stdout" => false,
        b"stderr" => true,
        _ => return None,
    };
    let partial = parts.next()?.split(|&byte| byte == b':').next() == Some(b"P");
    Some(Line {
        time,
        stderr,
        partial,
        text: parts.next().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed() {
        let time = "2026-11-21T10:00:00.5Z";
        let line = |stderr, partial, text: &'static str| {
            Some(Line {
                time,
                stderr,
                partial,
                text: text.as_bytes(),
            })
        };
        let cases = [
            (
                "2026-11-21T10:00:00.5Z stdout F hello world\n",
                line(false, false, "hello world"),
            ),
            (
                "2026-11-21T10:00:00.5Z stderr P part",
                line(true, true, "part"),
            ),
            ("2026-11-21T10:00:00.5Z stdout F \n", line(false, false, "")),
            ("2026-11-21T10:00:00.5Z stdout F", line(false, false, "")),
            ("garbage", None),
            ("2026-11-21T10:00:00.5Z stdin F x", None),
            ("", None),
        ];
        for (raw, expected) in cases {
            assert_eq!(parse(raw.as_bytes()), expected, "{raw}");
        }
    }
}
