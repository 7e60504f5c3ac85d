//! `RemovePodSandbox`: what stopping left goes too: records, writable layers, directories. Logs
//! stay.

use std::sync::Arc;

use super::{RuntimeError, SandboxId, erase::erase, local::Inner, sandbox_stop};

pub(super) async fn remove(inner: &Arc<Inner>, id: &SandboxId) -> Result<(), RuntimeError> {
    let Ok(sandbox) = inner.sandbox(id) else {
        return Ok(());
    };
    let _one_at_a_time = sandbox.ending.lock().await;
    sandbox_stop::end(inner, &sandbox).await?;
    erase(inner, &sandbox).await?;
    inner.tell(&sandbox.pod().uid);
    Ok(())
}
