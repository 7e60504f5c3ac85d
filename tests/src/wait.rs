//! Waiting for a condition with a deadline: on the state, never on an edge, never for a fixed time.

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

/// Between two looks. Short: tests measure latencies with it.
const PAUSE: Duration = Duration::from_millis(20);

/// Looks until `look` gives `Ok`.
///
/// # Panics
/// After `limit`, with `what` and the last `Err`.
pub fn until<T, E: Debug>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Result<T, E>,
) -> T {
    let deadline = Instant::now() + limit;
    loop {
        match look() {
            Ok(value) => return value,
            Err(last) => {
                assert!(
                    Instant::now() < deadline,
                    "{what}: not within {limit:?}; last: {last:?}"
                );
                pause();
            }
        }
    }
}

/// As [`until`], but gives `None` when the time is over: for tear-down, which must not panic.
pub fn quietly<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        match look() {
            Some(value) => return Some(value),
            None if Instant::now() >= deadline => return None,
            None => pause(),
        }
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "the one pause of polling; every other wait is on a condition"
)]
fn pause() {
    std::thread::sleep(PAUSE);
}
