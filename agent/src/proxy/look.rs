//! When to look whether others changed rules: when the kernel tells of a change, and now and then.
//!
//! Looking costs microseconds, and a comparison follows only if the count of changes is not ours.
//! Whoever changes rules all the time does not have them compared all the time.

use std::time::Duration;

use coracle_telemetry::Backoff;
use tokio::time::{Instant, sleep_until};

use crate::notices::Notices;

/// How often it is looked where the kernel tells of no change.
const INTERVAL: Duration = Duration::from_secs(1);
/// And where it does.
const INTERVAL_TOLD: Duration = Duration::from_secs(10);
/// After a look, what is told waits so long: who changes much does it step by step.
const SETTLE: Duration = Duration::from_millis(20);
/// A comparison may be followed by the next after so many times its own length.
const PAUSE: u32 = 20;

/// Says when to look.
pub(super) struct Look {
    notices: Notices,
    /// At the latest.
    at: Instant,
    /// Whatever is told, not before this.
    not_before: Instant,
    repairs: Backoff,
}

impl Look {
    pub(super) fn new(repair_interval: Duration) -> Self {
        let now = Instant::now();
        let mut look = Self {
            notices: Notices::listen(),
            at: now,
            not_before: now,
            repairs: Backoff::new(INTERVAL * 4, repair_interval),
        };
        look.at += look.interval();
        look
    }

    fn interval(&self) -> Duration {
        match self.notices.are_told() {
            true => INTERVAL_TOLD,
            false => INTERVAL,
        }
    }

    /// Waits until it is time. Loses nothing when it is dropped.
    pub(super) async fn due(&mut self) {
        loop {
            tokio::select! {
                () = sleep_until(self.at) => return,
                () = self.notices.next(), if self.at > self.not_before => {
                    self.at = self.at.min(self.not_before.max(Instant::now()));
                }
            }
        }
    }

    /// It was looked, from this time on, and what came of it: `None` if nobody had changed
    /// anything, else whether there was something to repair.
    pub(super) fn looked(&mut self, started: Instant, repaired: Option<bool>) {
        // Somebody who removes rules again and again, or an iptables that prints them otherwise
        // than they were written, gets no more than the regular comparison in the end.
        let pause = match repaired {
            Some(true) => self.repairs.pause().max(INTERVAL),
            Some(false) => {
                self.repairs.reset();
                SETTLE
            }
            None => SETTLE,
        };
        let now = Instant::now();
        self.not_before = now + pause.max(started.elapsed() * PAUSE);
        self.at = self.not_before.max(now + self.interval());
    }
}
