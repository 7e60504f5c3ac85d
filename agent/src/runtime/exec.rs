//! `ExecSync` and `Exec`: one more process in a container, its streams straight to the agent.
//!
//! The shim only starts it and reports its end; the bytes go through pipes (or a terminal) that
//! both ends of the stream hold themselves, so back-pressure is the kernel's.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use coracle_shim_protocol::{Exec, Reply, Request};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{
    ContainerId, ExecRequest, ExecResult, RuntimeError, StreamSession,
    entries::Container,
    local::Inner,
    shim_client::{Answer, ShimClient},
    streams::{self, Drained, Terminal},
};

/// Starting a process takes milliseconds.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Kept of each stream of `exec_sync`.
const MAX_OUTPUT_BYTES: usize = 16 << 20;

/// How long after its end a process's output is waited for: descendants may hold it open.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// "No timeout", bounded all the same.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Resizes that a terminal is behind at most.
const RESIZES: usize = 4;

/// Kills the process when dropped, unless it has ended.
struct Running {
    client: Arc<ShimClient>,
    exec: u64,
    ended: bool,
}

impl Running {
    fn kill(&self) {
        self.client.post(Request::KillExec { exec: self.exec });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            self.kill();
        }
    }
}

struct Started {
    running: Running,
    exit: oneshot::Receiver<i32>,
    terminal: Option<OwnedFd>,
}

async fn start(
    container: &Container,
    command: &[String],
    tty: bool,
    streams: &[BorrowedFd<'_>],
    limit: Duration,
) -> Result<Started, RuntimeError> {
    let client = container.sandbox.client("exec")?;
    let request = Exec {
        container: container.id.0.clone(),
        args: command.to_vec(),
        tty,
        timeout_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
    };
    let name = &container.checkpoint.config.name;
    // The shim's own limit comes first: only it can clean up.
    let answer = client
        .call(
            Request::Exec(request),
            streams,
            limit + Duration::from_secs(2),
        )
        .await;
    match answer.map_err(|error| client.error("exec in container", name, error))? {
        Answer {
            reply: Reply::Executing { exec, .. },
            mut descriptors,
            exit: Some(exit),
        } => Ok(Started {
            running: Running {
                client,
                exec,
                ended: false,
            },
            exit,
            terminal: descriptors.pop(),
        }),
        _ => Err(RuntimeError::Oci {
            operation: format!("exec in container {name}"),
            message: "unexpected answer".to_owned(),
        }),
    }
}

pub(super) async fn exec_sync(
    inner: &Arc<Inner>,
    id: &ContainerId,
    command: &[String],
    timeout: Duration,
) -> Result<ExecResult, RuntimeError> {
    let container = inner.container(id)?;
    let timeout = if timeout.is_zero() { LONGEST } else { timeout };
    let deadline = Instant::now() + timeout;
    let late = || RuntimeError::Timeout {
        operation: format!("command {:?}", command.join(" ")),
        limit: timeout,
    };
    let io = |source| RuntimeError::Shim {
        id: container.sandbox.id.clone(),
        operation: "exec",
        source,
    };
    let (stdout, theirs_out) = streams::output_pipe().map_err(io)?;
    let (stderr, theirs_err) = streams::output_pipe().map_err(io)?;
    let null = streams::null().map_err(io)?;
    let given = [null.as_fd(), theirs_out.as_fd(), theirs_err.as_fd()];
    let Started {
        mut running, exit, ..
    } = start(&container, command, false, &given, timeout.min(START_LIMIT)).await?;
    drop((null, theirs_out, theirs_err));

    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut output = Box::pin(async {
        tokio::join!(collect(stdout, &mut out), collect(stderr, &mut err));
    });
    let mut drained = false;
    let mut exit = exit;
    let code = loop {
        tokio::select! {
            code = &mut exit => break code,
            () = &mut output, if !drained => drained = true,
            // Dropping `running` kills it with what it left behind.
            () = tokio::time::sleep_until(deadline) => return Err(late()),
        }
    };
    let exit_code = code.map_err(|_| io(std::io::ErrorKind::ConnectionReset.into()))?;
    if !drained
        && tokio::time::timeout_at(deadline, &mut output)
            .await
            .is_err()
    {
        // A descendant holds the streams: it goes, the result stands.
        running.kill();
    }
    running.ended = true;
    drop(output);
    Ok(ExecResult {
        exit_code,
        stdout: out,
        stderr: err,
    })
}

/// Reads to the end, keeps the beginning.
async fn collect(mut reader: impl AsyncRead + Unpin, into: &mut Vec<u8>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = reader.read(&mut buffer).await {
        let room = MAX_OUTPUT_BYTES - into.len();
        into.extend_from_slice(&buffer[..length.min(room)]);
    }
}

pub(super) async fn exec(
    inner: &Arc<Inner>,
    id: &ContainerId,
    request: &ExecRequest,
) -> Result<StreamSession, RuntimeError> {
    let container = inner.container(id)?;
    if request.tty {
        exec_terminal(&container, request).await
    } else {
        exec_pipes(&container, request).await
    }
}

async fn exec_pipes(
    container: &Container,
    request: &ExecRequest,
) -> Result<StreamSession, RuntimeError> {
    let io = |source| RuntimeError::Shim {
        id: container.sandbox.id.clone(),
        operation: "exec",
        source,
    };
    let null = streams::null().map_err(io)?;
    let input = request
        .stdin
        .then(streams::input_pipe)
        .transpose()
        .map_err(io)?;
    let output = request
        .stdout
        .then(streams::output_pipe)
        .transpose()
        .map_err(io)?;
    let errors = request
        .stderr
        .then(streams::output_pipe)
        .transpose()
        .map_err(io)?;
    // The shim takes three: who asks for no stream still gets something to read or write.
    let given = [
        input
            .as_ref()
            .map_or(null.as_fd(), |(_, theirs)| theirs.as_fd()),
        output
            .as_ref()
            .map_or(null.as_fd(), |(_, theirs)| theirs.as_fd()),
        errors
            .as_ref()
            .map_or(null.as_fd(), |(_, theirs)| theirs.as_fd()),
    ];
    let started = start(container, &request.command, false, &given, START_LIMIT).await?;
    let drained = Drained::new();
    Ok(StreamSession {
        stdin: input.map(|(ours, _)| Box::new(ours) as _),
        stdout: output.map(|(ours, _)| Box::new(drained.watch(ours)) as _),
        stderr: errors.map(|(ours, _)| Box::new(drained.watch(ours)) as _),
        // Without a terminal nothing is resized: whoever sends finds nobody there.
        resize: mpsc::channel(1).0,
        exit: exit(container, started.running, started.exit, drained),
    })
}

async fn exec_terminal(
    container: &Container,
    request: &ExecRequest,
) -> Result<StreamSession, RuntimeError> {
    let io = |source| RuntimeError::Shim {
        id: container.sandbox.id.clone(),
        operation: "exec",
        source,
    };
    let started = start(container, &request.command, true, &[], START_LIMIT).await?;
    let master = started
        .terminal
        .ok_or_else(|| io(std::io::ErrorKind::UnexpectedEof.into()))?;
    let terminal = Terminal::new(master).map_err(io)?;
    let drained = Drained::new();
    let (resize, mut sizes) = mpsc::channel::<(u16, u16)>(RESIZES);
    let resized = terminal.clone();
    coracle_telemetry::spawn("resize a terminal", async move {
        while let Some((columns, rows)) = sizes.recv().await {
            resized.resize(columns, rows);
        }
    });
    Ok(StreamSession {
        stdin: request.stdin.then(|| Box::new(terminal.clone()) as _),
        // Always read, wanted or not: a terminal that nobody reads stops its writer.
        stdout: Some(Box::new(drained.watch(terminal))),
        stderr: None,
        resize,
        exit: exit(container, started.running, started.exit, drained),
    })
}

fn exit(
    container: &Container,
    running: Running,
    exit: oneshot::Receiver<i32>,
    drained: Drained,
) -> futures::future::BoxFuture<'static, Result<i32, RuntimeError>> {
    let id = container.sandbox.id.clone();
    Box::pin(async move {
        // Whole: a closure captures fields, and a part of it would leave the rest to be dropped,
        // and the process killed.
        let mut running = running;
        let code = exit.await;
        running.ended = true;
        let _ = tokio::time::timeout(DRAIN_LIMIT, drained.wait()).await;
        code.map_err(|_| RuntimeError::Shim {
            id,
            operation: "exec",
            source: std::io::ErrorKind::ConnectionReset.into(),
        })
    })
}
