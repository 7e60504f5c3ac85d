//! `StartContainer` and `ReopenContainerLog`: one short call each.

use std::{sync::Arc, time::Duration};

use coracle_shim_protocol::{FailureKind, Reply, Request};

use super::{
    ContainerId, ContainerState, RuntimeError, checkpoint, entries::Container, local::Inner, past,
    shim_client::CallError,
};
use crate::blocking::blocking;

const LIMIT: Duration = Duration::from_secs(10);

pub(super) async fn start(inner: &Arc<Inner>, id: &ContainerId) -> Result<(), RuntimeError> {
    let container = inner.container(id)?;
    if matches!(
        *container.state.borrow(),
        Some(ContainerState::Running { .. })
    ) {
        return Ok(());
    }
    let client = container.sandbox.client("start container")?;
    // First: whatever happens from here on, it has been started.
    let started = Arc::clone(&container);
    blocking(move || past::note_start(&started)).await?;
    let request = Request::Start {
        container: id.0.clone(),
    };
    let name = &container.checkpoint.config.name;
    let answer = match client.call(request, &[], LIMIT).await {
        Ok(answer) => answer,
        Err(error) => {
            if matches!(&error, CallError::Refused(failure) if failure.kind == FailureKind::Start) {
                ended(&container).await;
            }
            return Err(client.error("start container", name, error));
        }
    };
    if let Reply::Started { started_at, pid } = answer.reply {
        container.state.send_if_modified(|state| {
            // It may have ended already: that news comes by another way.
            let waiting = matches!(state, Some(ContainerState::Created));
            if waiting {
                *state = Some(ContainerState::Running {
                    started_at: checkpoint::time(started_at),
                    pid,
                });
            }
            waiting
        });
    }
    inner.tell(&container.sandbox.pod().uid);
    container.syncs.soon(container.writable.clone());
    Ok(())
}

/// Its end comes as news of its own. Waited for: whoever hears that the start has failed finds a
/// container that has ended, not one that could still be started.
async fn ended(container: &Container) {
    let mut state = container.state.subscribe();
    let end = state.wait_for(|state| matches!(state, Some(ContainerState::Exited { .. })));
    let _ = tokio::time::timeout(LIMIT, end).await;
}

pub(super) async fn reopen_log(inner: &Arc<Inner>, id: &ContainerId) -> Result<(), RuntimeError> {
    let container = inner.container(id)?;
    if container.has_exited() {
        return Ok(());
    }
    let client = container.sandbox.client("reopen the log")?;
    let request = Request::ReopenLog {
        container: id.0.clone(),
    };
    let answer = client.call(request, &[], LIMIT).await;
    answer.map(drop).map_err(|error| {
        client.error(
            "reopen the log of",
            &container.checkpoint.config.name,
            error,
        )
    })
}
