//! How often a status is put right that somebody else writes as well: another load balancer puts
//! right what is written here, as fast as the API answers.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use crate::cache::Key;

/// The same is not written twice within this time...
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// ...then within twice that, up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// What lasted so many pauses was no contest.
const PEACE: u32 = 4;
/// With this pause it is one.
const CONTESTED: Duration = Duration::from_secs(8);

struct Last {
    status: Value,
    at: Instant,
    pause: Duration,
}

/// What was written last.
#[derive(Default)]
pub(super) struct Contests(Mutex<HashMap<Key, Last>>);

impl Contests {
    /// How long to wait before `status` is written, if it was written a short time ago.
    pub(super) fn wait(&self, key: &Key, status: &Value) -> Option<Duration> {
        let all = self.0.lock();
        let last = all.get(key).filter(|last| last.status == *status)?;
        let left = (last.at + last.pause).saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// It is written. Returns whether it is known by now that somebody else writes it: once.
    pub(super) fn written(&self, key: &Key, status: Value) -> bool {
        let mut all = self.0.lock();
        let now = Instant::now();
        let again = all.get(key).filter(|last| last.status == status);
        let again = again.filter(|last| now < last.at + last.pause * PEACE);
        let pause = again.map_or(FIRST_PAUSE, |last| (last.pause * 2).min(LONGEST_PAUSE));
        let at = now;
        all.insert(key.clone(), Last { status, at, pause });
        pause == CONTESTED
    }

    /// The Service is gone.
    pub(super) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_status_that_others_write_is_put_right_ever_less_often() {
        let (contests, key, ours) = (Contests::default(), Key::new("ns", "a"), json!("ours"));
        let started = Instant::now();
        let (mut written, mut told) = (0, 0);
        while started.elapsed() < Duration::from_secs(3_600) {
            if let Some(wait) = contests.wait(&key, &ours) {
                tokio::time::advance(wait).await;
            }
            told += u32::from(contests.written(&key, ours.clone()));
            written += 1;
        }
        assert!((10..25).contains(&written), "{written}");
        assert_eq!(told, 1);
        let other = json!("other");
        assert_eq!(
            contests.wait(&key, &other),
            None,
            "what is new is written at once"
        );
        contests.written(&key, other.clone());
        assert_eq!(contests.wait(&key, &other), Some(FIRST_PAUSE));
        contests.forget(&key);
        assert_eq!(contests.wait(&key, &other), None);
    }
}
