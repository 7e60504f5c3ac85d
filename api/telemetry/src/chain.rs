//! An error with its causes.

use std::{error::Error, fmt};

/// Prints an error and all that caused it:
/// `use /x: create the directory: Permission denied (os error 13)`.
///
/// For the edge where an error is reported: a log line, an event, an answer, the end of a program.
/// The errors of this house leave their cause out of `Display`, so each is printed once. Others
/// (hyper, kube) repeat it in theirs: a cause that the text before it ends with is not printed
/// again.
///
/// Source: `omicron` `docs/error-types-and-logging.adoc`, `slog-error-chain`.
pub struct ErrorChain<'a>(pub &'a (dyn Error + 'a));

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = self.0.to_string();
        f.write_str(&last)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !last.ends_with(&text) {
                write!(f, ": {text}")?;
                last = text;
            }
            cause = error.source();
        }
        Ok(())
    }
}

impl fmt::Debug for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Failed {
        #[error("use {path}")]
        Use {
            path: &'static str,
            source: Box<Failed>,
        },
        #[error("read the file")]
        Read { source: io::Error },
        #[error("read the file: {source}")]
        Wordy { source: io::Error },
        #[error("the file is read: nothing in it")]
        Empty,
    }

    fn denied() -> io::Error {
        io::Error::from_raw_os_error(13)
    }

    #[test]
    fn each_cause_is_printed_once() {
        let within = |failed| Failed::Use {
            path: "/x",
            source: Box::new(failed),
        };
        let table = [
            (Failed::Empty, "the file is read: nothing in it"),
            (
                within(Failed::Empty),
                "use /x: the file is read: nothing in it",
            ),
            (
                within(Failed::Read { source: denied() }),
                "use /x: read the file: Permission denied (os error 13)",
            ),
            (
                within(Failed::Wordy { source: denied() }),
                "use /x: read the file: Permission denied (os error 13)",
            ),
        ];
        for (error, expected) in table {
            assert_eq!(ErrorChain(&error).to_string(), expected);
        }
    }
}
