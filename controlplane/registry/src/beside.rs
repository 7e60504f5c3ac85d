//! What takes long without a pause, such as rules that cost much and large documents: done beside
//! the runtime's threads, as many at once as there are cores to spare, so that who asks for
//! something else does not wait.

use std::{sync::LazyLock, thread::available_parallelism};

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::Semaphore,
    task::block_in_place,
};

static TURNS: LazyLock<Semaphore> = LazyLock::new(|| {
    let cores = available_parallelism().map_or(1, usize::from);
    Semaphore::new(cores.saturating_sub(1).max(1))
});

/// Does `work` when it is its turn. As many wait as there are requests under way.
pub fn beside<T>(work: impl FnOnce() -> T) -> T {
    let Ok(runtime) = Handle::try_current() else {
        return work();
    };
    match runtime.runtime_flavor() {
        RuntimeFlavor::MultiThread => block_in_place(|| {
            // Never closed.
            let _turn = runtime.block_on(TURNS.acquire());
            work()
        }),
        // One thread alone, as in tests: there is nothing beside it.
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::beside;

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
}
