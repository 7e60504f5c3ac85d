//! What takes long without a pause, such as rules that cost much and large documents: done beside
//! the runtime's threads, as many at once as there are cores to spare, so that who asks for
//! something else does not wait.

use std::{
    cell::Cell,
    sync::{
        LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::available_parallelism,
    time::{Duration, Instant},
};

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::Semaphore,
    task::block_in_place,
};

static TURNS: LazyLock<Semaphore> = LazyLock::new(|| {
    let cores = available_parallelism().map_or(1, usize::from);
    Semaphore::new(cores.saturating_sub(1).max(1))
});

thread_local! {
    /// Whether this thread has a turn.
    static HAS_TURN: Cell<bool> = const { Cell::new(false) };
}

/// Until this is dropped the thread has a turn.
struct Turn;

impl Turn {
    fn begin() -> Self {
        HAS_TURN.set(true);
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        HAS_TURN.set(false);
    }
}

/// Does `work` when it is its turn. As many wait as there are requests under way. A part of such
/// work takes no second turn: it would wait for the first.
pub fn beside<T>(work: impl FnOnce() -> T) -> T {
    let Ok(runtime) = Handle::try_current() else {
        return work();
    };
    if HAS_TURN.get() {
        return work();
    }
    match runtime.runtime_flavor() {
        RuntimeFlavor::MultiThread => block_in_place(|| {
            // Never closed.
            let _place = runtime.block_on(TURNS.acquire());
            let _turn = Turn::begin();
            work()
        }),
        // One thread alone, as in tests: there is nothing beside it.
        _ => work(),
    }
}

/// How long others may wait for a thread.
const AT_HAND: Duration = Duration::from_millis(1);

/// How long something takes that is done over and over: what took long once is done beside from
/// then on.
#[derive(Debug, Default)]
pub struct Weight(AtomicBool);

impl Weight {
    /// Does `work` where it belongs by what it took before.
    pub fn place<T>(&self, work: impl FnOnce() -> T) -> T {
        if self.0.load(Ordering::Relaxed) {
            return beside(work);
        }
        let begun = Instant::now();
        let made = work();
        if begun.elapsed() > AT_HAND {
            self.0.store(true, Ordering::Relaxed);
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc,
        time::{Duration, Instant},
    };

    use super::{AT_HAND, Weight, beside};

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_go_on_meanwhile() {
        let (tell, told) = mpsc::channel();
        let long = coracle_telemetry::spawn("work", async move {
            beside(|| told.recv_timeout(Duration::from_secs(20)))
        });
        let other = coracle_telemetry::spawn("go on", async move { tell.send(1) });
        assert_eq!(long.await.unwrap(), Ok(1));
        other.await.unwrap().unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_part_of_such_work_is_done_in_its_turn() {
        fn nested(levels: usize) -> usize {
            beside(|| {
                if levels == 0 {
                    0
                } else {
                    1 + nested(levels - 1)
                }
            })
        }
        let work = coracle_telemetry::spawn("work", async { nested(64) });
        let done = tokio::time::timeout(Duration::from_secs(20), work).await;
        assert_eq!(done.unwrap().unwrap(), 64);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn what_took_long_once_holds_nobody_up_again() {
        let (tell, told) = mpsc::channel();
        let long = coracle_telemetry::spawn("work", async move {
            let weight = Weight::default();
            let begun = Instant::now();
            weight.place(|| while begun.elapsed() < 2 * AT_HAND {});
            weight.place(|| told.recv_timeout(Duration::from_secs(20)))
        });
        let other = coracle_telemetry::spawn("go on", async move { tell.send(1) });
        assert_eq!(long.await.unwrap(), Ok(1));
        other.await.unwrap().unwrap();
    }
}
