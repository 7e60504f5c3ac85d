//! What time it is for controllers that go by the calendar: Jobs, what is left of them, CronJobs.
//!
//! What they wait for is a moment of the wall clock: their queues notice when that is set, or has
//! stood still with the machine ([`coracle_client::work_queue`]).

use std::{fmt, sync::Arc};

use k8s_openapi::jiff::Timestamp;

/// The wall clock, or one that a test sets.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// One that shows what `now` says.
    pub fn of(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.0)()
    }
}

/// The machine's.
impl Default for Clock {
    fn default() -> Self {
        Self::of(Timestamp::now)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}
