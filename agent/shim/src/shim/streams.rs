//! A container's streams: its outputs to the log and to whoever is attached, attached input to its
//! stdin.
//!
//! Bounded everywhere: input is read only when the last of it is delivered (back-pressure); an
//! attached reader that falls more than [`MAX_BACKLOG_BYTES`] behind is cut off, because it must
//! stall neither the container nor its log.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    unistd::{read, write},
};

use super::log::{Log, Stream};

/// How far behind an attached reader may be.
const MAX_BACKLOG_BYTES: usize = 256 * 1024;

/// What one wake-up reads at most.
pub(super) const READ_BYTES: usize = 16 * 1024;

/// A destination of output that may be slow.
pub(super) struct Sink {
    fd: OwnedFd,
    backlog: Vec<u8>,
}

/// One attached client.
#[derive(Default)]
pub(super) struct Attached {
    pub(super) input: Option<OwnedFd>,
    pub(super) outputs: [Option<Sink>; 2],
}

/// The container's end of stdin.
struct Stdin {
    fd: OwnedFd,
    pending: Vec<u8>,
}

/// What becomes of a container's stdin when whoever attached to it has ended his input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum AfterInput {
    /// It waits for the next.
    #[default]
    Stay,
    /// It ends, too.
    Close,
}

impl AfterInput {
    pub(super) fn of(stdin_once: bool) -> Self {
        match stdin_once {
            true => Self::Close,
            false => Self::Stay,
        }
    }
}

/// All streams of one container.
#[derive(Default)]
pub(super) struct Streams {
    stdin: Option<Stdin>,
    after_input: AfterInput,
    outputs: [Option<OwnedFd>; 2],
    attached: Vec<Attached>,
    is_closed: bool,
}

/// What to wait for, and what it is when it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Port {
    Output(Stream),
    Stdin,
    AttachedInput(usize),
    AttachedOutput(usize, Stream),
}

impl Streams {
    /// `outputs` are the read ends of stdout and stderr, or the terminal's master alone.
    pub(super) fn new(
        stdin: Option<OwnedFd>,
        after_input: AfterInput,
        outputs: [Option<OwnedFd>; 2],
    ) -> io::Result<Self> {
        for fd in stdin.iter().chain(outputs.iter().flatten()) {
            set_nonblocking(fd.as_fd())?;
        }
        let stdin = stdin.map(|fd| Stdin {
            fd,
            pending: Vec::new(),
        });
        Ok(Self {
            stdin,
            after_input,
            outputs,
            ..Self::default()
        })
    }

    pub(super) fn attach(&mut self, attached: Attached) -> io::Result<()> {
        for fd in attached
            .input
            .iter()
            .chain(attached.outputs.iter().flatten().map(|sink| &sink.fd))
        {
            set_nonblocking(fd.as_fd())?;
        }
        self.attached.push(attached);
        Ok(())
    }

    /// Whether all output has been read.
    pub(super) fn drained(&self) -> bool {
        self.outputs.iter().all(Option::is_none)
    }

    /// The terminal's master, if that is what the output is.
    pub(super) fn terminal(&self) -> Option<BorrowedFd<'_>> {
        self.outputs[0].as_ref().map(AsFd::as_fd)
    }

    /// Hangs up on everybody; on who is behind once it has caught up.
    pub(super) fn close(&mut self) {
        *self = Self {
            attached: std::mem::take(&mut self.attached),
            is_closed: true,
            ..Self::default()
        };
        for attached in &mut self.attached {
            attached.input = None;
            for output in &mut attached.outputs {
                output.take_if(|sink| sink.backlog.is_empty());
            }
        }
        self.sweep();
    }

    /// Descriptors to wait for: `(descriptor, for writing, what it is)`.
    pub(super) fn ports(&self) -> impl Iterator<Item = (BorrowedFd<'_>, bool, Port)> {
        let outputs = [Stream::Stdout, Stream::Stderr]
            .into_iter()
            .filter_map(|stream| {
                Some((
                    self.outputs[stream as usize].as_ref()?.as_fd(),
                    false,
                    Port::Output(stream),
                ))
            });
        let full = self
            .stdin
            .as_ref()
            .filter(|stdin| !stdin.pending.is_empty());
        let stdin = full.map(|stdin| (stdin.fd.as_fd(), true, Port::Stdin));
        let may_read = full.is_none();
        let attached = self
            .attached
            .iter()
            .enumerate()
            .flat_map(move |(number, attached)| {
                let input = attached
                    .input
                    .as_ref()
                    .filter(|_| may_read)
                    .map(|fd| (fd.as_fd(), false, Port::AttachedInput(number)));
                let behind =
                    [Stream::Stdout, Stream::Stderr]
                        .into_iter()
                        .filter_map(move |stream| {
                            let sink = attached.outputs[stream as usize]
                                .as_ref()
                                .filter(|sink| !sink.backlog.is_empty())?;
                            Some((sink.fd.as_fd(), true, Port::AttachedOutput(number, stream)))
                        });
                input.into_iter().chain(behind)
            });
        outputs.chain(stdin).chain(attached)
    }

    /// Does what a ready descriptor allows.
    pub(super) fn ready(&mut self, port: Port, log: &mut Log, scratch: &mut [u8], now: u64) {
        match port {
            Port::Output(stream) => self.pump_output(stream, log, scratch, now),
            Port::Stdin => self.flush_stdin(),
            Port::AttachedInput(number) => self.pump_input(number, scratch),
            Port::AttachedOutput(number, stream) => {
                if let Some(slot) = self
                    .attached
                    .get_mut(number)
                    .map(|attached| &mut attached.outputs[stream as usize])
                {
                    let alive = slot.as_mut().is_some_and(|sink| sink.push(&[]));
                    let is_owed = slot.as_ref().is_some_and(|sink| !sink.backlog.is_empty());
                    if !alive || (self.is_closed && !is_owed) {
                        *slot = None;
                    }
                }
            }
        }
    }

    /// Drops clients of which nothing is left. Apart from [`Streams::ready`], because ports name
    /// them by position.
    pub(super) fn sweep(&mut self) {
        self.attached.retain(|attached| {
            attached.input.is_some() || attached.outputs.iter().any(Option::is_some)
        });
    }

    fn pump_output(&mut self, stream: Stream, log: &mut Log, scratch: &mut [u8], now: u64) {
        let Some(fd) = &self.outputs[stream as usize] else {
            return;
        };
        match read(fd, scratch) {
            Ok(length) if length > 0 => {
                let bytes = &scratch[..length];
                log.write(stream, bytes, now);
                for slot in self
                    .attached
                    .iter_mut()
                    .map(|attached| &mut attached.outputs[stream as usize])
                {
                    if slot.as_mut().is_some_and(|sink| !sink.push(bytes)) {
                        *slot = None;
                    }
                }
            }
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            // A terminal without processes answers EIO.
            _ => self.outputs[stream as usize] = None,
        }
    }

    fn pump_input(&mut self, number: usize, scratch: &mut [u8]) {
        let Some(slot) = self
            .attached
            .get_mut(number)
            .map(|attached| &mut attached.input)
        else {
            return;
        };
        let Some(fd) = slot.as_ref() else { return };
        match read(fd, scratch) {
            Ok(length) if length > 0 => {
                if let Some(stdin) = &mut self.stdin {
                    stdin.pending.extend_from_slice(&scratch[..length]);
                    self.flush_stdin();
                }
            }
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            _ => {
                *slot = None;
                if self.after_input == AfterInput::Close {
                    self.stdin = None;
                }
            }
        }
    }

    fn flush_stdin(&mut self) {
        let Some(stdin) = &mut self.stdin else { return };
        while !stdin.pending.is_empty() {
            match write(&stdin.fd, &stdin.pending) {
                Ok(length) => drop(stdin.pending.drain(..length)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return,
                Err(_) => {
                    self.stdin = None;
                    return;
                }
            }
        }
    }
}

impl Sink {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self {
            fd,
            backlog: Vec::new(),
        }
    }

    /// Delivers as much as goes; false when the reader is gone or too far behind.
    fn push(&mut self, bytes: &[u8]) -> bool {
        self.backlog.extend_from_slice(bytes);
        while !self.backlog.is_empty() {
            match write(&self.fd, &self.backlog) {
                Ok(length) => drop(self.backlog.drain(..length)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return self.backlog.len() <= MAX_BACKLOG_BYTES,
                Err(_) => return false,
            }
        }
        self.backlog = Vec::new();
        true
    }
}

fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = OFlag::from_bits_truncate(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Read as _};

    use nix::unistd::pipe;

    use super::*;

    #[test]
    fn attached_reader_that_is_behind_gets_the_last_bytes_of_an_ended_container() {
        let (out, container) = pipe().unwrap();
        let (ours, theirs) = pipe().unwrap();
        let mut streams = Streams::new(None, AfterInput::Stay, [Some(out), None]).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::open(dir.path().join("log")).unwrap();
        let mut scratch = vec![0; READ_BYTES];
        streams
            .attach(Attached {
                input: None,
                outputs: [Some(Sink::new(theirs)), None],
            })
            .unwrap();
        let mut said = 0;
        // More than the pipe to the reader holds.
        for _ in 0..20 {
            said += write(&container, &[7; READ_BYTES]).unwrap();
            streams.ready(Port::Output(Stream::Stdout), &mut log, &mut scratch, 0);
        }
        drop(container);
        streams.ready(Port::Output(Stream::Stdout), &mut log, &mut scratch, 0);
        assert!(streams.drained());
        streams.close();
        assert_eq!(streams.ports().count(), 1, "somebody is behind");
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            File::from(ours).read_to_end(&mut got).map(|_| got.len())
        });
        while !streams.attached.is_empty() {
            streams.ready(
                Port::AttachedOutput(0, Stream::Stdout),
                &mut log,
                &mut scratch,
                0,
            );
            streams.sweep();
            std::thread::yield_now();
        }
        assert_eq!(reader.join().unwrap().unwrap(), said);
    }
}
