//! Requests that took long: a line of the log each, with where the time went.
//!
//! What a request does is in many hands; each notes what it took of the time, and nobody passes it
//! on: the notes belong to the task that answers. Watches, logs and streams are meant to last and
//! are not told of; what a client takes to read its answer is not counted.
//!
//! Source: `k8s.io/utils/trace` and its use in `k8s.io/apiserver/pkg/endpoints/handlers` at v1.37.

use std::{cell::Cell, fmt, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

/// As upstream: what takes longer is told.
const LONG: Duration = Duration::from_millis(500);
/// Between two lines. What comes meanwhile is counted: a log is no place for what a slow disk does
/// to every request.
const PAUSE: Duration = Duration::from_secs(1);

/// What a request waits for or is busy with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Who asks.
    Authentication,
    /// Whether they may.
    Authorization,
    /// The client sends its object.
    Body,
    /// Others are before it.
    Queue,
    /// The plugins, and the turn at the namespace's quotas.
    Admission,
    /// The store, where the watch cache is not enough.
    Read,
    /// The store, to the end of its fdatasync.
    Commit,
}

/// In the order of a request; [`Step`] counts them.
const NAMES: [&str; 7] = [
    "authentication",
    "authorization",
    "body",
    "queue",
    "admission",
    "read",
    "commit",
];

tokio::task_local! {
    static SPENT: Spent;
}

/// What each step of one request has taken.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spent(Cell<[Duration; NAMES.len()]>);

impl Spent {
    fn add(&self, step: Step, time: Duration) {
        let mut all = self.0.get();
        all[step as usize] += time;
        self.0.set(all);
    }
}

/// Those that took a millisecond and more: `admission=612ms commit=3ms`.
impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = NAMES.iter().zip(self.0.get());
        for (index, (name, time)) in all.filter(|(_, time)| time.as_millis() > 0).enumerate() {
            let space = if index > 0 { " " } else { "" };
            write!(f, "{space}{name}={}ms", time.as_millis())?;
        }
        Ok(())
    }
}

/// Does `work` for one request, and says what its steps have taken.
pub(crate) async fn noted<T>(work: impl Future<Output = T>) -> (T, Spent) {
    SPENT
        .scope(Spent::default(), async {
            let done = work.await;
            (done, SPENT.with(Spent::clone))
        })
        .await
}

/// A step under way, over when it is dropped.
pub(crate) struct Timing {
    step: Step,
    started: Instant,
}

impl Timing {
    pub(crate) fn of(step: Step) -> Self {
        Self {
            step,
            started: Instant::now(),
        }
    }
}

impl Drop for Timing {
    fn drop(&mut self) {
        // Nobody's: the server works for itself, or the request was given up.
        let _ = SPENT.try_with(|spent| spent.add(self.step, self.started.elapsed()));
    }
}

/// A request that has been answered.
pub(crate) struct Answered<'a> {
    pub(crate) verb: &'a str,
    /// Without the query: it may hold a command.
    pub(crate) path: &'a str,
    /// `pods` or `pods/binding`; empty for what is no resource.
    pub(crate) resource: String,
    /// Empty for who was not recognized.
    pub(crate) user: &'a str,
    pub(crate) code: u32,
    pub(crate) duration: Duration,
    pub(crate) spent: &'a Spent,
}

/// Whether a request of that duration is worth a line.
pub(crate) fn is_long(duration: Duration) -> bool {
    duration > LONG
}

/// The lines of one server.
#[derive(Debug, Default)]
pub(crate) struct SlowRequests(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    last: Option<Instant>,
    left_out: u64,
}

impl SlowRequests {
    /// Tells of a request that took long, unless one was told of a moment ago.
    pub(crate) fn tell(&self, request: &Answered<'_>) {
        let Some(left_out) = self.turn() else {
            return;
        };
        // What strangers chose goes in as text, which is told quoted.
        tracing::info!(
            verb = request.verb,
            path = request.path,
            resource = request.resource,
            user = request.user,
            code = request.code,
            duration_ms = u64::try_from(request.duration.as_millis()).unwrap_or(u64::MAX),
            steps = %request.spent,
            left_out,
            "a request took long"
        );
    }

    /// How many were left out since the last line; `None` if this one is, too.
    fn turn(&self) -> Option<u64> {
        let (now, mut told) = (Instant::now(), self.0.lock());
        if told.last.is_some_and(|last| now < last + PAUSE) {
            told.left_out += 1;
            return None;
        }
        told.last = Some(now);
        Some(std::mem::take(&mut told.left_out))
    }
}
