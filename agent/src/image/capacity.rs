//! What pulls may take of the node, all together: layers at a time, and memory to decompress them.
//!
//! Every author of a pod chooses images, so a bound for one image or one frame is none for the
//! node. Two fair queues are: a layer waits for one of [`LAYERS`] places before it is downloaded,
//! and a zstd frame for as much of [`MEMORY`] as its header asks for before it is decoded. gzip
//! takes some 50 KiB and is covered by the places.
//!
//! ```text
//! place --> download --> frame header --> memory --> decode --> next frame: memory anew
//! ```
//! Nobody waits for memory while holding any, and who holds some waits for the network and the
//! disk alone, so the queues always move. How fast they move is for registries to say: while
//! somebody waits, [`super::progress`] asks for more than a drip. Who waits goes away with the pull
//! that it is for, and after [`WAIT`] in any case.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

/// Layers downloaded and unpacked at a time: more than the three of one image, so that a slow
/// registry does not hold up the others' images at once.
const LAYERS: usize = 8;
/// For windows of zstd frames, in [`UNIT`]s: two of the largest, or all layers with what zstd
/// chooses by itself (8 MiB at most).
const MEMORY: usize = 256;
/// Windows are counted by the mebibyte; what a decoder has beside its window is less.
const UNIT: u64 = 1 << 20;
/// Longest wait for either.
const WAIT: Duration = Duration::from_secs(30 * 60);

/// The node's share for pulls. Clones share it.
#[derive(Clone)]
pub(super) struct Capacity {
    layers: Arc<Semaphore>,
    memory: Arc<Semaphore>,
    memory_total: u64,
    waiting: Arc<AtomicUsize>,
}

impl Default for Capacity {
    fn default() -> Self {
        Self::new(LAYERS, MEMORY)
    }
}

impl Capacity {
    /// Of so many layers and so many [`UNIT`]s of memory.
    pub(super) fn new(layers: usize, memory: usize) -> Self {
        Self {
            layers: Arc::new(Semaphore::new(layers)),
            memory: Arc::new(Semaphore::new(memory)),
            memory_total: memory as u64 * UNIT,
            waiting: Arc::default(),
        }
    }

    /// A place for one layer, for as long as what is returned lives. Cancel-safe.
    ///
    /// # Errors
    /// None came free: how long that was waited for.
    pub(super) async fn place(&self) -> Result<OwnedSemaphorePermit, Duration> {
        if let Ok(place) = self.layers.clone().try_acquire_owned() {
            return Ok(place);
        }
        let _waiting = Waiting::new(&self.waiting);
        match timeout(WAIT, self.layers.clone().acquire_owned()).await {
            Ok(Ok(place)) => Ok(place),
            _ => Err(WAIT),
        }
    }

    /// Whether a layer waits for what others hold.
    pub(super) fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

/// Counted for as long as it lives.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One decoder's part of the memory, and whether anybody still wants what it makes.
pub(super) struct Claim {
    capacity: Capacity,
    given_up: CancellationToken,
    held: Option<(u64, OwnedSemaphorePermit)>,
}

impl Claim {
    pub(super) fn new(capacity: Capacity, given_up: CancellationToken) -> Self {
        Self {
            capacity,
            given_up,
            held: None,
        }
    }

    /// For one decoder beside all pulls: the administrator's files, and tests.
    pub(super) fn alone() -> Self {
        Self::new(Capacity::default(), CancellationToken::new())
    }

    /// Cancelled when nobody wants the outcome any more.
    pub(super) fn given_up(&self) -> CancellationToken {
        self.given_up.clone()
    }

    /// Largest window that may be decoded now.
    pub(super) fn window(&self) -> u64 {
        self.held.as_ref().map_or(0, |(bytes, _)| *bytes)
    }

    /// Waits for memory for a window of so many bytes, in the place of what is held. The decoder
    /// that used that is gone. Blocking; wants a runtime's thread if it has to wait.
    ///
    /// # Errors
    /// It is more than there is, none came free within [`WAIT`], or nobody wants it any more.
    pub(super) fn take(&mut self, window: u64) -> io::Result<()> {
        self.held = None;
        let total = self.capacity.memory_total;
        // As the decoder's ring of output grows.
        let bytes = window.max(UNIT).checked_next_power_of_two();
        let Some(bytes) = bytes.filter(|bytes| *bytes <= total) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a window of {window} bytes does not fit into {total}, all that pulls get"),
            ));
        };
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX);
        let memory = &self.capacity.memory;
        let permit = match memory.clone().try_acquire_many_owned(units) {
            Ok(permit) => permit,
            Err(_) => Handle::current().block_on(self.wait(units))?,
        };
        self.held = Some((bytes, permit));
        Ok(())
    }

    async fn wait(&self, units: u32) -> io::Result<OwnedSemaphorePermit> {
        let _waiting = Waiting::new(&self.capacity.waiting);
        let permit = self.capacity.memory.clone().acquire_many_owned(units);
        tokio::select! {
            () = self.given_up.cancelled() => Err(given_up()),
            permit = timeout(WAIT, permit) => permit.ok().and_then(Result::ok).ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!(
                        "waited {} min for {units} MiB of memory to decompress it",
                        WAIT.as_secs() / 60
                    ),
                )
            }),
        }
    }
}

/// What ends a layer's work when its pull has gone. Not of kind `Interrupted`, after which readers
/// try again.
pub(super) fn given_up() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the pull was given up")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_secs(5);

    fn claim(capacity: &Capacity) -> Claim {
        Claim::new(capacity.clone(), CancellationToken::new())
    }

    /// What comes of waiting for `window` bytes, on a thread that may block.
    fn taking(
        capacity: &Capacity,
        given_up: &CancellationToken,
        window: u64,
    ) -> tokio::task::JoinHandle<io::Result<Claim>> {
        let mut claim = Claim::new(capacity.clone(), given_up.clone());
        tokio::task::spawn_blocking(move || claim.take(window).map(|()| claim))
    }

    async fn until_awaited(capacity: &Capacity) {
        let awaited = async {
            while !capacity.is_awaited() {
                tokio::task::yield_now().await;
            }
        };
        timeout(SHORT, awaited).await.expect("somebody waits");
    }

    #[test]
    fn a_window_is_counted_as_the_ring_that_holds_it() {
        let capacity = Capacity::new(1, 16);
        for (window, held, left) in [
            (0, 1, 15),
            (1 << 10, 1, 15),
            (1 << 20, 1, 15),
            ((1 << 20) + 1, 2, 14),
            (9 << 20, 16, 0),
        ] {
            let mut claim = claim(&capacity);
            claim.take(window).expect("free");
            assert_eq!(claim.window(), held << 20, "{window}");
            assert_eq!(capacity.memory.available_permits(), left, "{window}");
        }
        assert_eq!(capacity.memory.available_permits(), 16);
        for window in [(16 << 20) + 1, u64::MAX] {
            let error = claim(&capacity).take(window).expect_err("too large");
            assert_eq!(
                error.to_string(),
                format!(
                    "a window of {window} bytes does not fit into 16777216, all that pulls get"
                )
            );
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn decoders_wait_for_memory_and_get_it() {
        let (capacity, wanted) = (Capacity::new(1, 4), CancellationToken::new());
        let mut first = claim(&capacity);
        first.take(4 << 20).expect("free");
        let second = taking(&capacity, &wanted, 2 << 20);
        until_awaited(&capacity).await;
        assert!(!second.is_finished());
        drop(first);
        let second = timeout(SHORT, second).await.expect("in time");
        assert_eq!(second.expect("ends").expect("memory").window(), 2 << 20);
        assert!(!capacity.is_awaited());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn nobody_waits_for_a_pull_that_was_given_up() {
        let (capacity, wanted) = (Capacity::new(1, 1), CancellationToken::new());
        let mut first = claim(&capacity);
        first.take(1).expect("free");
        let second = taking(&capacity, &wanted, 1);
        until_awaited(&capacity).await;
        wanted.cancel();
        let second = timeout(SHORT, second).await.expect("in time");
        let error = second.expect("ends").err().expect("given up");
        assert_eq!(error.to_string(), "the pull was given up");
        assert!(!capacity.is_awaited());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_for_a_place_is_told_of_and_ends() {
        let capacity = Capacity::new(1, 1);
        let first = capacity.place().await.expect("free");
        let waited = capacity.place().await.expect_err("taken");
        assert_eq!(waited, Duration::from_secs(30 * 60));
        let mut second = Box::pin(capacity.place());
        assert!(futures::poll!(&mut second).is_pending());
        assert!(capacity.is_awaited());
        drop(first);
        drop(second.await.expect("a place"));
        assert!(!capacity.is_awaited());
        // One that went away while it waited waits no more.
        let _first = capacity.place().await.expect("free");
        let mut gone = Box::pin(capacity.place());
        assert!(futures::poll!(&mut gone).is_pending());
        drop(gone);
        assert!(!capacity.is_awaited());
    }
}
