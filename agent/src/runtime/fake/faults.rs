//! What happens to the fake runtime from outside: calls that hang, and the machine's end.

use super::*;

impl FakeRuntime {
    /// The next call of this verb panics.
    pub fn panic_next(&self, verb: &'static str) {
        self.state.lock().panics.insert(verb);
    }

    /// The next container that is started has a program that cannot be executed.
    pub fn refuse_next_start(&self, message: &str) {
        let mut state = self.state.lock();
        state.refused_starts.push_back(message.to_owned());
    }

    pub(super) fn refused(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let Some(message) = self.state.lock().refused_starts.pop_front() else {
            return Ok(());
        };
        self.end_with(id, 128, None, "StartError", message.clone());
        Err(RuntimeError::Oci {
            operation: format!("start container {}", self.name_of(id)),
            message,
        })
    }

    /// Calls of this verb are noted but wait until what is returned is dropped.
    pub fn hold(&self, verb: &'static str) -> tokio_util::sync::DropGuard {
        let release = tokio_util::sync::CancellationToken::new();
        self.state.lock().held.insert(verb, release.clone());
        release.drop_guard()
    }

    pub(super) async fn released(&self, verb: &'static str) {
        let held = self.state.lock().held.get(verb).cloned();
        if let Some(held) = held {
            held.cancelled().await;
        }
    }

    /// Ends everything, and keeps the records or loses them, as a reboot does.
    pub fn reboot(&self, keep_records: bool) {
        let mut state = self.state.lock();
        if !keep_records {
            state.sandboxes.clear();
            state.containers.clear();
        }
        for (_, sandbox) in state.sandboxes.values_mut() {
            sandbox.state = SandboxState::NotReady;
        }
        for (_, container) in state.containers.values_mut() {
            let started_at = match container.state {
                ContainerState::Exited { .. } => continue,
                ContainerState::Running { started_at, .. } => started_at,
                ContainerState::Created => container.created_at,
            };
            container.state = checkpoint::unknown(started_at);
        }
    }
}
