//! The agent's side of a shim's socket: calls with deadlines, and news.
//!
//! One connection a shim, kept for the sandbox's life. A reader task matches replies to calls and
//! hands events on, in the order in which the shim sent them. It ends with the connection, and says
//! so once.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use coracle_shim_protocol::{
    Call, Event, Failure, FailureKind, Message, Reply, Request, layout, socket,
};
use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket},
};
use parking_lot::Mutex;
use tokio::{io::unix::AsyncFd, sync::oneshot};

use super::{RuntimeError, SandboxId, streams};

/// What hears the shim's news.
pub(super) trait Listener: Send + Sync + 'static {
    /// A container of the sandbox has ended.
    fn container_exited(
        &self,
        sandbox: &SandboxId,
        container: &str,
        exit: &coracle_shim_protocol::Exit,
    );
    /// The shim has gone or hung up: no more news from this client.
    fn shim_closed(&self, sandbox: &SandboxId, client: &Arc<ShimClient>);
}

/// A reply with what came along.
pub(super) struct Answer {
    pub(super) reply: Reply,
    pub(super) descriptors: Vec<OwnedFd>,
    /// With [`Reply::Executing`]: resolves with the exit code.
    pub(super) exit: Option<oneshot::Receiver<i32>>,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("the shim refused")]
    Refused(#[from] Failure),
    #[error("the shim is gone")]
    Broken(#[source] io::Error),
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
}

type Waiting = HashMap<u64, oneshot::Sender<Result<Answer, Failure>>>;

/// See the module's description.
pub(super) struct ShimClient {
    id: SandboxId,
    socket: AsyncFd<OwnedFd>,
    /// `None` once the connection is closed.
    calls: Mutex<Option<Waiting>>,
    execs: Mutex<HashMap<u64, oneshot::Sender<i32>>>,
    last_call: AtomicU64,
}

impl ShimClient {
    /// Serves an open connection.
    pub(super) fn start(
        id: SandboxId,
        socket: OwnedFd,
        listener: Weak<dyn Listener>,
    ) -> io::Result<Arc<Self>> {
        fcntl(&socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let client = Arc::new(Self {
            id,
            socket: streams::register(socket)?,
            calls: Mutex::new(Some(HashMap::new())),
            execs: Mutex::default(),
            last_call: AtomicU64::new(0),
        });
        coracle_telemetry::spawn("read from a shim", Arc::clone(&client).read(listener));
        Ok(client)
    }

    /// Connects to a shim that another agent started.
    pub(super) fn connect(
        id: SandboxId,
        directory: &Path,
        listener: Weak<dyn Listener>,
    ) -> io::Result<Arc<Self>> {
        let handle = std::fs::File::open(directory)?;
        let socket = socket(
            AddressFamily::Unix,
            SockType::SeqPacket,
            SockFlag::SOCK_CLOEXEC,
            None,
        )?;
        // A socket's path is limited to 108 bytes; the detour by descriptor keeps it short.
        let short = format!("/proc/self/fd/{}/{}", handle.as_raw_fd(), layout::SOCKET);
        connect(socket.as_raw_fd(), &UnixAddr::new(short.as_str())?)?;
        Self::start(id, socket, listener)
    }

    /// Asks and waits. Cancel-safe: an abandoned call's reply is dropped with what came along.
    pub(super) async fn call(
        &self,
        request: Request,
        descriptors: &[BorrowedFd<'_>],
        limit: Duration,
    ) -> Result<Answer, CallError> {
        let id = self.last_call.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, receiver) = oneshot::channel();
        // Before it is sent: the answer may be read before `send` returns.
        match &mut *self.calls.lock() {
            Some(calls) => drop(calls.insert(id, sender)),
            None => return Err(CallError::Broken(io::ErrorKind::NotConnected.into())),
        }
        let bytes = socket::encode(&Call { id, request }).map_err(CallError::Broken)?;
        let exchange = async {
            self.send(&bytes, descriptors)
                .await
                .map_err(CallError::Broken)?;
            match receiver.await {
                Ok(outcome) => outcome.map_err(CallError::Refused),
                Err(_) => Err(CallError::Broken(io::ErrorKind::ConnectionReset.into())),
            }
        };
        let outcome = tokio::time::timeout(limit, exchange)
            .await
            .unwrap_or(Err(CallError::Late(limit)));
        if outcome.is_err()
            && let Some(calls) = &mut *self.calls.lock()
        {
            calls.remove(&id);
        }
        outcome
    }

    /// Asks without waiting for the answer; best effort.
    pub(super) fn post(&self, request: Request) {
        let id = self.last_call.fetch_add(1, Ordering::Relaxed) + 1;
        let _ = socket::send(self.socket.get_ref().as_fd(), &Call { id, request }, &[]);
    }

    async fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        loop {
            let mut ready = self.socket.writable().await?;
            let attempt = ready
                .try_io(|socket| socket::send_bytes(socket.get_ref().as_fd(), bytes, descriptors));
            if let Ok(outcome) = attempt {
                return outcome;
            }
        }
    }

    async fn read(self: Arc<Self>, listener: Weak<dyn Listener>) {
        // Small until a message needs more; kept only while messages come.
        loop {
            let message = {
                let Ok(mut ready) = self.socket.readable().await else {
                    break;
                };
                let mut buffer = Vec::new();
                match ready.try_io(|socket| {
                    socket::receive::<Message>(socket.get_ref().as_fd(), &mut buffer)
                }) {
                    Ok(Ok(Some(message))) => message,
                    Ok(Ok(None) | Err(_)) => break,
                    Err(_) => continue,
                }
            };
            let Some(listener) = listener.upgrade() else {
                break;
            };
            self.handle(message, &*listener);
        }
        *self.calls.lock() = None;
        self.execs.lock().clear();
        if let Some(listener) = listener.upgrade() {
            listener.shim_closed(&self.id, &self);
        }
    }

    fn handle(&self, (message, descriptors): (Message, Vec<OwnedFd>), listener: &dyn Listener) {
        match message {
            Message::Reply { id, result } => {
                let Some(waiting) = self
                    .calls
                    .lock()
                    .as_mut()
                    .and_then(|calls| calls.remove(&id))
                else {
                    return;
                };
                let answer = result.map(|reply| {
                    // Here and not by the caller: its end may be the very next message.
                    let exit = match &reply {
                        Reply::Executing { exec, .. } => {
                            let (sender, receiver) = oneshot::channel();
                            self.execs.lock().insert(*exec, sender);
                            Some(receiver)
                        }
                        _ => None,
                    };
                    Answer {
                        reply,
                        descriptors,
                        exit,
                    }
                });
                if let Err(Ok(Answer {
                    reply: Reply::Executing { exec, .. },
                    ..
                })) = waiting.send(answer)
                {
                    self.execs.lock().remove(&exec);
                    self.post(Request::KillExec { exec });
                }
            }
            Message::Event(Event::ContainerExited { container, exit }) => {
                listener.container_exited(&self.id, &container, &exit);
            }
            Message::Event(Event::ExecExited { exec, exit_code }) => {
                if let Some(waiting) = self.execs.lock().remove(&exec) {
                    let _ = waiting.send(exit_code);
                }
            }
        }
    }

    /// As the runtime reports it.
    pub(super) fn error(
        &self,
        operation: &'static str,
        subject: &str,
        error: CallError,
    ) -> RuntimeError {
        match error {
            CallError::Refused(Failure {
                kind: FailureKind::Invalid,
                message,
            }) => RuntimeError::InvalidConfig { message },
            CallError::Refused(Failure {
                kind: FailureKind::NotFound,
                ..
            }) => RuntimeError::NotFound {
                kind: "container",
                id: subject.to_owned(),
            },
            CallError::Refused(Failure { message, .. }) => RuntimeError::Oci {
                operation: format!("{operation} {subject}").trim_end().to_owned(),
                message,
            },
            CallError::Broken(source) => RuntimeError::Shim {
                id: self.id.clone(),
                operation,
                source,
            },
            CallError::Late(limit) => RuntimeError::Timeout {
                operation: format!("{operation} {subject}"),
                limit,
            },
        }
    }
}
