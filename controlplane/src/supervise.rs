//! Keeping a part alive: started again with a growing pause when it fails, until shutdown.

use std::{error::Error, time::Duration};

use futures::FutureExt as _;
use tokio_util::sync::CancellationToken;

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Runs `part` until `shutdown`.
pub(crate) async fn supervise<F, E>(
    name: &'static str,
    shutdown: CancellationToken,
    part: impl Fn(CancellationToken) -> F,
) where
    F: Future<Output = Result<(), E>>,
    E: Error,
{
    let mut pause = FIRST_PAUSE;
    while !shutdown.is_cancelled() {
        let stop = shutdown.child_token();
        let ended = std::panic::AssertUnwindSafe(part(stop)).catch_unwind().await;
        if shutdown.is_cancelled() {
            return;
        }
        match ended {
            Ok(Ok(())) => tracing::warn!(part = name, "ended; starting it again"),
            Ok(Err(error)) => tracing::error!(part = name, error = chain(&error), "failed; starting it again"),
            Err(_) => tracing::error!(part = name, "panicked; starting it again"),
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
        }
    }
}

/// An error and what caused it.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}
