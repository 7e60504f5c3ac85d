//! Crash and image-pull back-off: 10 s, doubling to 5 min, forgotten after 10 min of peace.
//!
//! Semantics of client-go's `flowcontrol.Backoff` as kubelet uses it. No clock inside: the caller
//! says what time it is, by the clock that nobody sets.

use std::{collections::HashMap, time::Duration};

use coracle_telemetry::ExponentialBackoff;
use tokio::time::Instant;

/// First delay.
const INITIAL: Duration = Duration::from_secs(10);
/// Longest delay.
const MAX: Duration = Duration::from_secs(300);

/// As `kubectl describe` and everybody who waits knows them: no jitter.
const DELAYS: ExponentialBackoff = ExponentialBackoff::new(INITIAL, MAX);

struct Entry {
    /// Tries before the last.
    tries: u32,
    last_update: Instant,
}

/// Delays by key. Owned by one pod worker.
#[derive(Default)]
pub(crate) struct RestartBackoff {
    entries: HashMap<String, Entry>,
}

impl RestartBackoff {
    /// How long `key` must still wait after what happened at `event`; `None` when it may go on now.
    pub(crate) fn remaining(
        &self,
        key: &str,
        event: Instant,
        now: Instant,
    ) -> Option<(Duration, Duration)> {
        let entry = self.entries.get(key)?;
        if has_expired(event, entry.last_update) {
            return None;
        }
        let since = now.saturating_duration_since(event);
        let delay = DELAYS.after(entry.tries);
        delay
            .checked_sub(since)
            .filter(|left| !left.is_zero())
            .map(|left| (left, delay))
    }

    /// Counts one more try, made now because of what happened at `event`.
    pub(crate) fn next(&mut self, key: &str, event: Instant, now: Instant) {
        let tries = match self.entries.get(key) {
            Some(entry) if !has_expired(event, entry.last_update) => entry.tries.saturating_add(1),
            _ => 0,
        };
        self.entries
            .retain(|_, entry| !has_expired(now, entry.last_update));
        self.entries.insert(
            key.to_owned(),
            Entry {
                tries,
                last_update: now,
            },
        );
    }

    /// Forgets a key.
    pub(crate) fn reset(&mut self, key: &str) {
        self.entries.remove(key);
    }
}

fn has_expired(event: Instant, last_update: Instant) -> bool {
    event.saturating_duration_since(last_update) > MAX * 2
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    static START: LazyLock<Instant> = LazyLock::new(Instant::now);

    fn at(seconds: u64) -> Instant {
        *START + Duration::from_secs(seconds)
    }

    #[test]
    fn first_restart_is_immediate() {
        assert_eq!(RestartBackoff::default().remaining("a", at(0), at(0)), None);
    }

    #[test]
    fn delay_doubles_to_five_minutes() {
        let mut backoff = RestartBackoff::default();
        let mut now = 1000;
        let mut delays = Vec::new();
        for _ in 0..7 {
            backoff.next("a", at(now), at(now));
            let (left, _) = backoff
                .remaining("a", at(now), at(now))
                .expect("in back-off");
            delays.push(left.as_secs());
            now += left.as_secs();
        }
        assert_eq!(delays, [10, 20, 40, 80, 160, 300, 300]);
    }

    #[test]
    fn ten_quiet_minutes_reset_it() {
        let mut backoff = RestartBackoff::default();
        backoff.next("a", at(0), at(0));
        backoff.next("a", at(10), at(10));
        assert_eq!(backoff.remaining("a", at(700), at(700)), None);
        backoff.next("a", at(700), at(700));
        assert_eq!(
            backoff
                .remaining("a", at(700), at(700))
                .map(|(left, _)| left.as_secs()),
            Some(10)
        );
    }
}
