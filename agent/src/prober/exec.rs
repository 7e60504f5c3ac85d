//! Probes that run a command in the container.

use std::time::Duration;

use coracle_telemetry::ErrorChain;

use super::Outcome;
use crate::runtime::{RuntimeError, RuntimeService, types::ContainerId};

/// What of the output goes into the event.
const MAX_OUTPUT: usize = 10 * 1024;

pub(super) async fn probe(
    runtime: &dyn RuntimeService,
    id: &ContainerId,
    command: &[String],
    limit: Duration,
) -> Outcome {
    match runtime.exec_sync(id, command, limit).await {
        Ok(result) if result.exit_code == 0 => Outcome::Success,
        Ok(result) => {
            let mut output = result.stdout;
            output.extend_from_slice(&result.stderr);
            output.truncate(MAX_OUTPUT);
            Outcome::Failure(String::from_utf8_lossy(&output).into_owned())
        }
        Err(RuntimeError::Timeout { .. }) => Outcome::Failure(format!(
            "command timed out: {:?} timed out after {}s",
            command.join(" "),
            limit.as_secs()
        )),
        Err(error) => Outcome::Unknown(ErrorChain(&error).to_string()),
    }
}
