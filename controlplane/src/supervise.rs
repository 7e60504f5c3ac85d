//! Keeping a part alive: started again with a growing pause when it fails, until shutdown. Meanwhile, and until it has run
//! for a while, it counts as failed: a part that dies again and again is not well between two deaths.

use std::{error::Error, future::Future, pin::pin, time::Duration};

use coracle_telemetry::Chain;
use futures::FutureExt as _;
use tokio_util::sync::CancellationToken;

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// After this long a part that was started again is believed to be well.
const STEADY: Duration = Duration::from_secs(10);

/// Runs `part` until `shutdown`; tells `health` whether it is well, which it is at first.
pub(crate) async fn supervise<F, E>(
    name: &'static str,
    shutdown: CancellationToken,
    health: impl Fn(bool),
    part: impl Fn(CancellationToken) -> F,
) where
    F: Future<Output = Result<(), E>>,
    E: Error,
{
    let mut pause = FIRST_PAUSE;
    while !shutdown.is_cancelled() {
        let mut run = pin!(std::panic::AssertUnwindSafe(part(shutdown.child_token())).catch_unwind());
        let ended = tokio::select! {
            ended = &mut run => ended,
            () = tokio::time::sleep(STEADY) => {
                health(true);
                pause = FIRST_PAUSE;
                run.await
            }
        };
        // It was told to end: no failure.
        if shutdown.is_cancelled() {
            return;
        }
        health(false);
        match ended {
            Ok(Ok(())) => tracing::warn!(part = name, "ended; starting it again"),
            Ok(Err(error)) => tracing::error!(part = name, error = %Chain(&error), "failed; starting it again"),
            Err(_) => tracing::error!(part = name, "panicked; starting it again"),
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::time::Instant;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("a task has died")]
    struct Died;

    #[tokio::test(start_paused = true)]
    async fn a_part_that_dies_is_started_again_and_unwell_until_it_is_steady() {
        let (shutdown, start) = (CancellationToken::new(), Instant::now());
        let told = Mutex::new(Vec::new());
        let note = |what: String| told.lock().unwrap().push((start.elapsed().as_millis(), what));
        let lives = Mutex::new([0, 0, 60, 3600].into_iter());
        let run = supervise(
            "the part",
            shutdown.clone(),
            |well| note(format!("well: {well}")),
            |stop| {
                note("start".to_owned());
                let life = lives.lock().unwrap().next().map(Duration::from_secs);
                async move {
                    tokio::select! {
                        () = stop.cancelled() => Ok(()),
                        () = tokio::time::sleep(life.unwrap_or_default()) => Err(Died),
                    }
                }
            },
        );
        let end = async {
            tokio::time::sleep(Duration::from_secs(100)).await;
            shutdown.cancel();
        };
        tokio::join!(run, end);
        let told: Vec<(u128, String)> = told.into_inner().unwrap();
        let told: Vec<(u128, &str)> = told.iter().map(|(at, what)| (*at, what.as_str())).collect();
        assert_eq!(
            told,
            [
                (0, "start"),
                (0, "well: false"),
                (500, "start"),
                (500, "well: false"),
                (1_500, "start"),
                (11_500, "well: true"),
                (61_500, "well: false"),
                (62_000, "start"),
                (72_000, "well: true"),
            ]
        );
    }
}
