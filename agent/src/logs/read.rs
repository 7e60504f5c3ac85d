//! Reads and follows a container's log as `kubectl logs` wants it.
//!
//! [`LogReader`] is synchronous and reads a bounded piece at a time; [`stream`] drives it off the
//! async threads and, when following, waits for more until the container has ended. A log that is
//! rotated meanwhile is read to its end, then the new file from its start. Older, rotated files are
//! not read, as upstream has it.

use std::{
    fs::File,
    future::Future,
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use coracle_telemetry::ErrorChain;
use tokio::sync::mpsc;

use super::line;

/// Read at once.
const PIECE: usize = 64 * 1024;
/// A line longer than this is cut: the shim never writes one.
const MAX_LINE: usize = 1024 * 1024;
/// How often a followed log is looked at.
const POLL: Duration = Duration::from_millis(100);

/// What of the log is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) follow: bool,
    /// The last so many lines; all when absent.
    pub(crate) tail_lines: Option<usize>,
    pub(crate) since: Option<SystemTime>,
    pub(crate) timestamps: bool,
    /// At most so many bytes of output.
    pub(crate) limit_bytes: Option<u64>,
    /// Only this stream: `Some(true)` is stderr.
    pub(crate) only_stderr: Option<bool>,
}

/// Reads one log.
pub(crate) struct LogReader {
    path: PathBuf,
    file: File,
    options: Options,
    pending: Vec<u8>,
    written: u64,
    /// The next piece of text continues a line.
    continued: bool,
}

impl LogReader {
    /// Opens the log and goes to where reading begins.
    pub(crate) fn open(path: PathBuf, options: Options) -> io::Result<Self> {
        let mut file = super::open(&path)?;
        if let Some(lines) = options.tail_lines {
            let start = tail_start(&mut file, lines)?;
            file.seek(SeekFrom::Start(start))?;
        }
        Ok(Self {
            path,
            file,
            options,
            pending: Vec::new(),
            written: 0,
            continued: false,
        })
    }

    /// The next piece of output; `None` at the end of what there is now.
    pub(crate) fn next_piece(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if self.is_full() {
                return Ok(None);
            }
            let mut piece = vec![0; PIECE];
            let read = self.file.read(&mut piece)?;
            if read == 0 {
                if self.reopen_rotated()? {
                    continue;
                }
                return Ok(None);
            }
            self.pending.extend_from_slice(&piece[..read]);
            let out = self.format_pending();
            if !out.is_empty() {
                return Ok(Some(Bytes::from(out)));
            }
        }
    }

    /// As much as was asked for has been read.
    pub(crate) fn is_full(&self) -> bool {
        self.options
            .limit_bytes
            .is_some_and(|limit| self.written >= limit)
    }

    /// Goes on with the file that has taken this one's place.
    fn reopen_rotated(&mut self) -> io::Result<bool> {
        let Ok(now) = std::fs::metadata(&self.path) else {
            return Ok(false);
        };
        let own = self.file.metadata()?;
        if (now.ino(), now.dev()) == (own.ino(), own.dev()) {
            return Ok(false);
        }
        self.file = super::open(&self.path)?;
        self.pending.clear();
        Ok(true)
    }

    fn format_pending(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut start = 0;
        while let Some(length) = self.pending[start..].iter().position(|&byte| byte == b'\n') {
            let raw = start..start + length;
            start += length + 1;
            let Some(line) = line::parse(&self.pending[raw]) else {
                continue;
            };
            let wanted = self.options.since.is_none_or(|since| line.is_since(since))
                && self
                    .options
                    .only_stderr
                    .is_none_or(|stderr| stderr == line.stderr);
            if !wanted {
                continue;
            }
            // A long line comes in parts and has one time, that of its first.
            if self.options.timestamps && !self.continued {
                out.extend_from_slice(line.time.as_bytes());
                out.push(b' ');
            }
            out.extend_from_slice(line.text);
            if !line.partial {
                out.push(b'\n');
            }
            self.continued = line.partial;
        }
        self.pending.drain(..start);
        if self.pending.len() > MAX_LINE {
            self.pending.clear();
        }
        if let Some(limit) = self.options.limit_bytes {
            let left = usize::try_from(limit.saturating_sub(self.written)).unwrap_or(usize::MAX);
            out.truncate(left);
        }
        self.written += u64::try_from(out.len()).unwrap_or(u64::MAX);
        out
    }
}

/// Where the last `lines` lines begin.
fn tail_start(file: &mut File, lines: usize) -> io::Result<u64> {
    let end = file.metadata()?.len();
    if lines == 0 {
        return Ok(end);
    }
    let mut position = end;
    let mut found = 0;
    let mut piece = vec![0; PIECE];
    while position > 0 {
        let size = position.min(u64::try_from(PIECE).unwrap_or(u64::MAX));
        position -= size;
        file.seek(SeekFrom::Start(position))?;
        let piece = &mut piece[..usize::try_from(size).unwrap_or(PIECE)];
        file.read_exact(piece)?;
        for (index, _) in piece
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, byte)| **byte == b'\n')
        {
            let at = position + u64::try_from(index).unwrap_or(0);
            // The line end at the very end closes the last line.
            if at + 1 == end {
                continue;
            }
            found += 1;
            if found == lines {
                return Ok(at + 1);
            }
        }
    }
    Ok(0)
}

/// Sends the log into `out`; when following, until `ended` resolves to true after the last byte was
/// read.
///
/// Ends early when the receiver is dropped.
pub(crate) async fn stream<F>(
    mut reader: LogReader,
    out: mpsc::Sender<Bytes>,
    ended: impl Fn() -> F,
) where
    F: Future<Output = bool>,
{
    let follow = reader.options.follow;
    let mut last_round = false;
    loop {
        let step = tokio::task::spawn_blocking(move || {
            let piece = reader.next_piece();
            (reader, piece)
        });
        let piece;
        (reader, piece) = match step.await {
            Ok(step) => step,
            Err(_) => return,
        };
        match piece {
            Ok(Some(piece)) => {
                if out.send(piece).await.is_err() {
                    return;
                }
            }
            Ok(None) if !follow || last_round || reader.is_full() => return,
            Ok(None) => {
                // What was written between the last read and the container's end is read in one
                // more round.
                last_round = ended().await;
                if !last_round {
                    tokio::select! {
                        () = out.closed() => return,
                        () = tokio::time::sleep(POLL) => {}
                    }
                }
            }
            Err(error) => {
                tracing::warn!(path = %reader.path.display(), error = %ErrorChain(&error), "cannot read a log");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const LOG: &str = "2026-11-21T10:00:00.000000000Z stdout F one\n\
                       2026-11-21T10:00:01.000000000Z stderr F two\n\
                       2026-11-21T10:00:02.000000000Z stdout P thr\n\
                       2026-11-21T10:00:02.500000000Z stdout F ee\n\
                       2026-11-21T10:00:03.000000000Z stdout F four\n";

    fn check(options: Options, expected: &str) {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("0.log");
        std::fs::write(&path, LOG).expect("write");
        let mut reader = LogReader::open(path, options.clone()).expect("open");
        let mut got = Vec::new();
        while let Some(piece) = reader.next_piece().expect("read") {
            got.extend_from_slice(&piece);
        }
        assert_eq!(String::from_utf8_lossy(&got), expected, "{options:?}");
    }

    #[test]
    fn options_choose_what_is_shown() {
        let since = "2026-11-21T10:00:02.2Z"
            .parse::<k8s_openapi::jiff::Timestamp>()
            .expect("time")
            .into();
        let all = Options::default();
        check(all.clone(), "one\ntwo\nthree\nfour\n");
        check(
            Options {
                tail_lines: Some(2),
                ..all.clone()
            },
            "ee\nfour\n",
        );
        check(
            Options {
                tail_lines: Some(0),
                ..all.clone()
            },
            "",
        );
        check(
            Options {
                tail_lines: Some(99),
                ..all.clone()
            },
            "one\ntwo\nthree\nfour\n",
        );
        check(
            Options {
                since: Some(since),
                ..all.clone()
            },
            "ee\nfour\n",
        );
        check(
            Options {
                limit_bytes: Some(6),
                ..all.clone()
            },
            "one\ntw",
        );
        check(
            Options {
                only_stderr: Some(true),
                ..all.clone()
            },
            "two\n",
        );
        check(
            Options {
                timestamps: true,
                tail_lines: Some(3),
                ..all
            },
            "2026-11-21T10:00:02.000000000Z three\n2026-11-21T10:00:03.000000000Z four\n",
        );
    }

    #[test]
    fn rotated_log_is_followed_into_the_new_file() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("0.log");
        std::fs::write(&path, "t stdout F old\n").expect("write");
        let mut reader = LogReader::open(path.clone(), Options::default()).expect("open");
        assert_eq!(
            reader.next_piece().expect("read").as_deref(),
            Some(b"old\n".as_slice())
        );
        std::fs::rename(&path, dir.path().join("0.log.1")).expect("rotate");
        let mut file = File::create(&path).expect("create");
        file.write_all(b"t stdout F new\n").expect("write");
        assert_eq!(
            reader.next_piece().expect("read").as_deref(),
            Some(b"new\n".as_slice())
        );
    }

    #[tokio::test]
    async fn following_ends_with_the_container() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("0.log");
        std::fs::write(&path, LOG).expect("write");
        let reader = LogReader::open(
            path,
            Options {
                follow: true,
                ..Options::default()
            },
        )
        .expect("open");
        let (out, mut pieces) = mpsc::channel(4);
        let streaming =
            coracle_telemetry::spawn("task of a test", stream(reader, out, || async { true }));
        let mut got = Vec::new();
        while let Some(piece) = pieces.recv().await {
            got.extend_from_slice(&piece);
        }
        streaming.await.expect("ends");
        assert_eq!(String::from_utf8_lossy(&got), "one\ntwo\nthree\nfour\n");
    }
}
