//! Container logs in CRI's format: `<RFC 3339 with nanoseconds> <stdout|stderr> <F|P> <text>`.
//!
//! A line longer than [`MAX_LINE_BYTES`] comes in parts tagged `P`, its end tagged `F`; what was
//! never ended by a line end is a part. A log that cannot be written (full disk) loses lines and
//! tells how many bytes of log, once it can be written again; it never stops the container. Source:
//! `k8s.io/cri-api`, containerd `internal/cri/io/logger.go`.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
};

/// As containerd's `max_container_log_line_size`.
pub(super) const MAX_LINE_BYTES: usize = 16 * 1024;

/// Which of a container's outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Stdout = 0,
    Stderr = 1,
}

/// An open log file with what is unfinished of each stream's last line.
pub(super) struct Log {
    path: PathBuf,
    file: Option<Box<dyn Write>>,
    unfinished: [Vec<u8>; 2],
    /// The last write ended within an entry: what follows begins on a line of its own.
    torn: bool,
    /// Bytes that could not be written since the last that could.
    lost: u64,
}

impl Log {
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let file: Box<dyn Write> = Box::new(append(&path)?);
        Ok(Self {
            path,
            file: Some(file),
            unfinished: [Vec::new(), Vec::new()],
            torn: false,
            lost: 0,
        })
    }

    /// After rotation: goes on in a new file of the same name.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        self.file = Some(Box::new(append(&self.path)?));
        self.torn = false;
        Ok(())
    }

    /// Takes output as it came; writes all lines and parts that are complete.
    pub(super) fn write(&mut self, stream: Stream, bytes: &[u8], now: u64) {
        let mut out = Vec::with_capacity(bytes.len() + 128);
        split(
            &mut self.unfinished[stream as usize],
            bytes,
            |text, full| entry(&mut out, stream, text, full, now),
        );
        self.put(&out, now);
    }

    /// No more output will come: the unfinished lines are as long as they get, and stay unended.
    pub(super) fn finish(&mut self, now: u64) {
        let mut out = Vec::new();
        for stream in [Stream::Stdout, Stream::Stderr] {
            let rest = std::mem::take(&mut self.unfinished[stream as usize]);
            if !rest.is_empty() {
                entry(&mut out, stream, &rest, false, now);
            }
        }
        self.put(&out, now);
        self.file = None;
    }

    fn put(&mut self, out: &[u8], now: u64) {
        if out.is_empty() {
            return;
        }
        let Some(file) = &mut self.file else { return };
        let mut before = Vec::new();
        if self.torn {
            before.push(b'\n');
        }
        if self.lost > 0 {
            let note = format!("[{} bytes of this log could not be written]", self.lost);
            entry(&mut before, Stream::Stderr, note.as_bytes(), true, now);
        }
        if !before.is_empty() {
            let written = write_some(file, &before);
            self.torn = written > 0 && before[written - 1] != b'\n' || written == 0 && self.torn;
            if written < before.len() {
                self.lost += out.len() as u64;
                return;
            }
            self.lost = 0;
        }
        let written = write_some(file, out);
        self.torn = written > 0 && out[written - 1] != b'\n';
        self.lost += (out.len() - written) as u64;
    }
}

/// Writes as much as can be written; how much that is.
fn write_some(file: &mut dyn Write, bytes: &[u8]) -> usize {
    let mut written = 0;
    while written < bytes.len() {
        match file.write(&bytes[written..]) {
            Ok(0) => break,
            Ok(length) => written += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    written
}

fn append(path: &PathBuf) -> io::Result<File> {
    // A link in its place, made by whoever can write there, would have the shim write to any file
    // of the node.
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o640)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("the log is not a file"))
    }
}

fn split(unfinished: &mut Vec<u8>, mut bytes: &[u8], mut emit: impl FnMut(&[u8], bool)) {
    while !bytes.is_empty() {
        let room = MAX_LINE_BYTES - unfinished.len();
        let window = &bytes[..bytes.len().min(room + 1)];
        match window.iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                if unfinished.is_empty() {
                    emit(&bytes[..end], true);
                } else {
                    unfinished.extend_from_slice(&bytes[..end]);
                    emit(unfinished, true);
                    // Long lines are rare: give their buffer back.
                    *unfinished = Vec::new();
                }
                bytes = &bytes[end + 1..];
            }
            None => {
                let taken = bytes.len().min(room);
                unfinished.extend_from_slice(&bytes[..taken]);
                bytes = &bytes[taken..];
                // A full buffer is a part only if more of the line follows.
                if unfinished.len() == MAX_LINE_BYTES && !bytes.is_empty() {
                    emit(unfinished, false);
                    unfinished.clear();
                }
            }
        }
    }
}

fn entry(out: &mut Vec<u8>, stream: Stream, text: &[u8], full: bool, now: u64) {
    write_timestamp(out, now);
    out.extend_from_slice(match stream {
        Stream::Stdout => b" stdout ",
        Stream::Stderr => b" stderr ",
    });
    out.extend_from_slice(if full { b"F " } else { b"P " });
    out.extend_from_slice(text);
    out.push(b'\n');
}

/// `2026-01-02T03:04:05.000000006Z`, 30 bytes.
pub(super) fn write_timestamp(out: &mut Vec<u8>, nanoseconds: u64) {
    let seconds = nanoseconds / 1_000_000_000;
    let (year, month, day) = civil(seconds / 86_400);
    let of_day = seconds % 86_400;
    let _ = write!(
        out,
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:09}Z",
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60,
        nanoseconds % 1_000_000_000,
    );
}

/// Days since 1970-01-01 to a date. Source: Howard Hinnant, `civil_from_days`, for days after the
/// epoch.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 {
        month_index + 3
    } else {
        month_index - 9
    };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(chunks: &[&[u8]]) -> (Vec<(String, bool)>, usize) {
        let (mut unfinished, mut out) = (Vec::new(), Vec::new());
        for chunk in chunks {
            split(&mut unfinished, chunk, |text, full| {
                out.push((String::from_utf8_lossy(text).into_owned(), full))
            });
        }
        (out, unfinished.len())
    }

    #[test]
    fn lines_are_put_together_from_chunks() {
        let (out, rest) = lines(&[b"a", b"b\nc\n", b"\nd"]);
        assert_eq!(
            out,
            [
                ("ab".to_owned(), true),
                ("c".to_owned(), true),
                (String::new(), true)
            ]
        );
        assert_eq!(rest, 1);
    }

    /// A disk with room for so many bytes.
    struct Disk(std::rc::Rc<std::cell::RefCell<(Vec<u8>, usize)>>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (text, room) = &mut *self.0.borrow_mut();
            let taken = bytes.len().min(*room);
            if taken == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            text.extend_from_slice(&bytes[..taken]);
            *room -= taken;
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_costs_lines_but_no_line_is_glued_to_another() {
        for room in [0, 5, 30, 47, 48, 49, 60] {
            let disk = std::rc::Rc::new(std::cell::RefCell::new((Vec::new(), room)));
            let mut log = Log {
                path: PathBuf::new(),
                file: Some(Box::new(Disk(disk.clone()))),
                unfinished: [Vec::new(), Vec::new()],
                torn: false,
                lost: 0,
            };
            log.write(Stream::Stdout, b"first line\n", 0);
            log.write(Stream::Stdout, b"second line\n", 0);
            disk.borrow_mut().1 = 1000;
            log.write(Stream::Stdout, b"third\n", 0);
            log.write(Stream::Stdout, b"fourth", 0);
            log.finish(0);
            let text = String::from_utf8(disk.borrow().0.clone()).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            let whole = |end: &str| {
                lines.iter().any(|line| {
                    line.starts_with("1970-01-01T00:00:00.000000000Z std") && line.ends_with(end)
                })
            };
            assert!(
                whole(" stdout F third") && whole(" stdout P fourth"),
                "{room}: {text}"
            );
            assert!(
                whole("bytes of this log could not be written]"),
                "{room}: {text}"
            );
            assert_eq!(
                text.matches("could not be written").count(),
                1,
                "{room}: {text}"
            );
        }
    }

    #[test]
    fn long_line_comes_in_parts_that_add_up() {
        for length in [
            MAX_LINE_BYTES - 1,
            MAX_LINE_BYTES,
            MAX_LINE_BYTES + 1,
            3 * MAX_LINE_BYTES,
        ] {
            let mut text = vec![b'x'; length];
            text.push(b'\n');
            let (out, rest) = lines(&[&text]);
            assert_eq!(
                out.iter().map(|(text, _)| text.len()).sum::<usize>(),
                length
            );
            assert!(
                out.iter().all(|(text, _)| text.len() <= MAX_LINE_BYTES),
                "{length}"
            );
            let tags: Vec<bool> = out.iter().map(|(_, full)| *full).collect();
            assert_eq!(tags.iter().filter(|full| **full).count(), 1, "{length}");
            assert_eq!(tags.last(), Some(&true));
            assert_eq!(rest, 0);
        }
    }

    #[test]
    fn timestamps_are_rfc3339() {
        let table = [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_400_000_000_001, "2000-02-29T00:00:00.000000001Z"),
            (1_798_761_599_999_999_999, "2026-12-31T23:59:59.999999999Z"),
        ];
        for (now, expected) in table {
            let mut out = Vec::new();
            write_timestamp(&mut out, now);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
