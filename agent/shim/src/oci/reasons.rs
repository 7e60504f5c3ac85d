//! Why libcontainer failed, when it failed in a process of its own.
//!
//! It prepares a container in processes that are clones of the helper, and these tell the helper of
//! a failure in one line that leaves the cause out: "failed to prepare rootfs". The cause they only
//! log. So their log is caught: what they log as an error goes into a pipe, which is read when a
//! container could not be made.

use std::{
    fmt::{Debug, Write as _},
    fs::File,
    io::{self, Read, Write as _},
};

use coracle_shim_protocol::START_ERROR_MAX_BYTES;
use nix::{errno::Errno, fcntl::OFlag, unistd::pipe2};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span,
};

/// Between what is logged and its fields.
const SEPARATOR: char = '\t';
/// Longest text of a cause that is not understood.
const OTHER_CAUSE_MAX_BYTES: usize = 300;

/// What was logged by others than this process.
pub(super) struct Reasons {
    log: File,
}

impl Reasons {
    /// Catches from now on, once in the life of a process.
    pub(super) fn catch() -> io::Result<Self> {
        // Who logs does not wait for who reads.
        let (read, write) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        let catcher = Catcher {
            log: write.into(),
            helper: std::process::id(),
        };
        tracing::subscriber::set_global_default(catcher).map_err(io::Error::other)?;
        Ok(Self { log: read.into() })
    }

    /// The error with what is known of its cause.
    pub(super) fn explain(mut self, error: anyhow::Error) -> anyhow::Error {
        let mut log = Vec::new();
        // Ends with `WouldBlock`: the other end is open here.
        let _ = self.log.read_to_end(&mut log);
        let message = super::failure(&error).message;
        match why(&String::from_utf8_lossy(&log), &message) {
            Some(why) => anyhow::anyhow!("{message}: {why}"),
            None => error,
        }
    }
}

/// The cause, from the lines of the log, if they say more than is `known`.
fn why(log: &str, known: &str) -> Option<String> {
    let mut parts: Vec<String> = Vec::new();
    let mut add = |part: String| {
        if !part.is_empty() && !known.contains(&part) && !parts.contains(&part) {
            parts.push(part);
        }
    };
    for line in log.lines() {
        let (message, fields) = line.split_once(SEPARATOR).unwrap_or((line, ""));
        match quoted_after(message, "Mount { destination: ") {
            Some(destination) => add(format!("mount {destination}")),
            // Ends with what is known: says again what another line has said.
            None if known_end(message, known) => {}
            None => add(message.to_owned()),
        }
        add(cause(fields));
    }
    (!parts.is_empty()).then(|| parts.join(": "))
}

fn known_end(message: &str, known: &str) -> bool {
    let last = message.rsplit(": ").next().unwrap_or(message);
    known.contains(last)
}

/// What people call an error whose text for programmers this is.
fn cause(debug: &str) -> String {
    if let Some(message) = quoted_after(debug, "message: ") {
        return message.to_owned();
    }
    let words = debug.split(|c: char| !c.is_ascii_alphanumeric());
    let errno = words.filter(|word| word.starts_with('E')).find_map(errno);
    errno.map_or_else(
        || debug[..debug.floor_char_boundary(OTHER_CAUSE_MAX_BYTES)].to_owned(),
        |errno| errno.desc().to_owned(),
    )
}

fn errno(name: &str) -> Option<Errno> {
    const LAST: i32 = 133;
    let mut all = (1..=LAST).map(Errno::from_raw);
    all.find(|errno| format!("{errno:?}") == name)
}

fn quoted_after<'a>(text: &'a str, before: &str) -> Option<&'a str> {
    let (_, after) = text.split_once(before)?;
    after.strip_prefix('"')?.split('"').next()
}

/// Writes errors that others than the helper log, one line each, as far as there is room.
struct Catcher {
    log: File,
    helper: u32,
}

impl Subscriber for Catcher {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::ERROR)
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        // What happens here is told with the error itself.
        if std::process::id() == self.helper {
            return;
        }
        let mut line = Line::default();
        event.record(&mut line);
        let mut text = format!("{}{SEPARATOR}{}", line.message, line.fields).replace('\n', " ");
        text.truncate(text.floor_char_boundary(START_ERROR_MAX_BYTES - 1));
        text.push('\n');
        let _ = (&self.log).write_all(text.as_bytes());
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = match field.name() {
            "message" => &mut self.message,
            _ => &mut self.fields,
        };
        let between = if text.is_empty() { "" } else { " " };
        let _ = write!(text, "{between}{value:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once_and_in_words() {
        let known = "failed to receive: failed to prepare rootfs";
        let mount = "failed to mount Mount { destination: \"/etc/passwd\", typ: Some(\"bind\") }";
        let again = "failed to initialize container process: failed to prepare rootfs\t";
        let table = [
            (
                format!(
                    "{mount}: syscall\t\nfailed to prepare rootfs\tMount(Syscall(Nix(ENOTDIR)))\n{again}"
                ),
                Some("mount /etc/passwd: Not a directory"),
            ),
            (
                format!(
                    "{mount}: io error\t\nfailed to prepare rootfs\tMount(Io(Os {{ code: 28, kind: StorageFull, \
                     message: \"No space left on device\" }}))\n{again}"
                ),
                Some("mount /etc/passwd: No space left on device"),
            ),
            (
                "failed to set apparmor profile\tOther(\"no such profile\")".to_owned(),
                Some("failed to set apparmor profile: Other(\"no such profile\")"),
            ),
            (again.to_owned(), None),
            (String::new(), None),
        ];
        for (log, expected) in table {
            assert_eq!(why(&log, known).as_deref(), expected, "{log}");
        }
    }
}
