//! `StopContainer`: the stop signal, the grace period, SIGKILL; returns once it has exited.

use std::{sync::Arc, time::Duration};

use coracle_shim_protocol::Request;
use nix::sys::signal::Signal;

use super::{ContainerId, ContainerState, RuntimeError, entries::Container, local::Inner};

const CALL_LIMIT: Duration = Duration::from_secs(10);

/// SIGKILL works at once unless the kernel holds the process.
const DEATH_LIMIT: Duration = Duration::from_secs(30);

pub(super) async fn stop(
    inner: &Arc<Inner>,
    id: &ContainerId,
    grace: Duration,
) -> Result<(), RuntimeError> {
    let Ok(container) = inner.container(id) else {
        return Ok(());
    };
    if container.has_exited() {
        return Ok(());
    }
    // A container that waits to be started is libcontainer's process and heeds no signal but one.
    let running = matches!(
        *container.state.borrow(),
        Some(ContainerState::Running { .. })
    );
    if running && !grace.is_zero() {
        signal(&container, container.checkpoint.stop_signal, false).await?;
        if tokio::time::timeout(grace, exit(&container)).await.is_ok() {
            return Ok(());
        }
    }
    signal(&container, Signal::SIGKILL as i32, true).await?;
    tokio::time::timeout(DEATH_LIMIT, exit(&container))
        .await
        .map_err(|_| RuntimeError::Timeout {
            operation: format!("kill container {}", container.checkpoint.config.name),
            limit: DEATH_LIMIT,
        })
}

async fn signal(container: &Container, signal: i32, all: bool) -> Result<(), RuntimeError> {
    let client = container.sandbox.client("signal container")?;
    let request = Request::Signal {
        container: container.id.0.clone(),
        signal,
        all,
    };
    let answer = client.call(request, &[], CALL_LIMIT).await;
    answer
        .map(drop)
        .map_err(|error| client.error("signal container", &container.checkpoint.config.name, error))
}

/// Waits for its end.
pub(super) async fn exit(container: &Container) {
    let mut state = container.state.subscribe();
    // The sender lives in the container, which is borrowed here.
    let _ = state
        .wait_for(|state| matches!(state, Some(ContainerState::Exited { .. })))
        .await;
}
