//! `Attach`: joins a container's own streams. The shim copies between the container's pipes and
//! ours.

use std::{os::fd::AsFd, sync::Arc, time::Duration};

use coracle_shim_protocol::Request;
use tokio::sync::mpsc;

use super::{
    ContainerId, ContainerState, ExecRequest, RuntimeError, StreamSession, container_stop,
    local::Inner, shim_client::ShimClient, streams,
};

const LIMIT: Duration = Duration::from_secs(10);

/// Resizes that a terminal is behind at most.
const RESIZES: usize = 4;

pub(super) async fn attach(
    inner: &Arc<Inner>,
    id: &ContainerId,
    request: &ExecRequest,
) -> Result<StreamSession, RuntimeError> {
    let container = inner.container(id)?;
    let client = container.sandbox.client("attach")?;
    let config = &container.checkpoint.config;
    let io = |source| RuntimeError::Shim {
        id: container.sandbox.id.clone(),
        operation: "attach",
        source,
    };
    let input = (request.stdin && config.stdin)
        .then(streams::input_pipe)
        .transpose()
        .map_err(io)?;
    let output = request
        .stdout
        .then(streams::output_pipe)
        .transpose()
        .map_err(io)?;
    let errors = (request.stderr && !config.tty)
        .then(streams::output_pipe)
        .transpose()
        .map_err(io)?;
    let given: Vec<_> = input
        .iter()
        .map(|(_, theirs)| theirs.as_fd())
        .chain(
            output
                .iter()
                .chain(&errors)
                .map(|(_, theirs)| theirs.as_fd()),
        )
        .collect();
    let call = Request::Attach {
        container: id.0.clone(),
        stdin: input.is_some(),
        stdout: output.is_some(),
        stderr: errors.is_some(),
    };
    client
        .call(call, &given, LIMIT)
        .await
        .map_err(|error| client.error("attach to container", &config.name, error))?;

    let drained = streams::Drained::new();
    let watched = drained.clone();
    Ok(StreamSession {
        stdin: input.map(|(ours, _)| Box::new(ours) as _),
        stdout: output.map(|(ours, _)| Box::new(drained.watch(ours)) as _),
        stderr: errors.map(|(ours, _)| Box::new(drained.watch(ours)) as _),
        resize: resizer(client, id.0.clone()),
        exit: Box::pin(async move {
            container_stop::exit(&container).await;
            // The exit code ends the session: what the container said last is still in the pipes.
            let _ = tokio::time::timeout(LIMIT, watched.wait()).await;
            match &*container.state.borrow() {
                Some(ContainerState::Exited { exit_code, .. }) => Ok(*exit_code),
                _ => Ok(0),
            }
        }),
    })
}

/// Takes the terminal's sizes for as long as somebody sends them.
fn resizer(client: Arc<ShimClient>, container: String) -> mpsc::Sender<(u16, u16)> {
    let (resize, mut sizes) = mpsc::channel(RESIZES);
    coracle_telemetry::spawn("resize a terminal", async move {
        while let Some((columns, rows)) = sizes.recv().await {
            client.post(Request::Resize {
                container: container.clone(),
                columns,
                rows,
            });
        }
    });
    resize
}
