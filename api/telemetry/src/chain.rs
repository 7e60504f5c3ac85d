//! An error with its causes.

use std::{error::Error, fmt};

/// Prints an error and all that caused it:
/// `use /x: create the directory: Permission denied (os error 13)`.
///
/// For the edge where an error is reported: a log line, an event, an answer, the end of a program.
/// The errors of this house leave their cause out of `Display`, so each is printed once. Others
/// (hyper, kube) repeat it in theirs: a cause that the text before it ends with is not printed
/// again, nor what it looks like to a programmer, nor a type's name before it.
///
/// Source: `omicron` `docs/error-types-and-logging.adoc`, `slog-error-chain`.
pub struct ErrorChain<'a>(pub &'a (dyn Error + 'a));

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = text(self.0);
        f.write_str(&last)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let text = text(error);
            if !last.ends_with(&text) {
                write!(f, ": {text}")?;
                last = text;
            }
            cause = error.source();
        }
        Ok(())
    }
}

/// What an error says. kube's are `ApiError: CAUSE (the cause's fields)`: of these only the cause.
fn text(error: &dyn Error) -> String {
    let text = error.to_string();
    let Some(cause) = error.source() else {
        return text;
    };
    let said = cause.to_string();
    let before = text
        .strip_suffix(&format!("{said} ({cause:?})"))
        .or_else(|| text.strip_suffix(&said));
    match before {
        Some(before) if is_type_name(before) => self::text(cause),
        Some(before) => format!("{before}{said}"),
        None => text,
    }
}

/// Such as `ServiceError: `.
fn is_type_name(text: &str) -> bool {
    text.strip_suffix("Error: ")
        .is_some_and(|name| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric()))
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
        // As kube has them.
        #[error("ApiError: {0} ({0:?})")]
        Api(#[source] Answer),
        #[error("ServiceError: {0}")]
        Service(#[source] Box<Failed>),
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{message}: {reason}")]
    struct Answer {
        message: &'static str,
        reason: &'static str,
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
        let forbidden = || {
            Failed::Api(Answer {
                message: "pods \"late\" is forbidden: no",
                reason: "Forbidden",
            })
        };
        let table = [
            (forbidden(), "pods \"late\" is forbidden: no: Forbidden"),
            (
                within(forbidden()),
                "use /x: pods \"late\" is forbidden: no: Forbidden",
            ),
            (
                Failed::Service(Box::new(Failed::Read { source: denied() })),
                "read the file: Permission denied (os error 13)",
            ),
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
