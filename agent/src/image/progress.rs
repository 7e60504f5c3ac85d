//! Ends a download that makes too little progress: a registry that says nothing, or drips byte by
//! byte, would hold a pull (and the layers that wait behind it) for as long as it likes.
//!
//! More is asked for while other layers wait for the place or the memory that this one holds
//! ([`super::capacity`]): still little, so that eight honest ones at once go over a line of 1
//! Mbit/s.
//!
//! Only the time that is spent waiting for the network counts: a slow disk is not the registry's
//! fault. There is no limit for a download as a whole, which may be large. The precedent is
//! dockershim's `image-pull-progress-deadline`.

use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use tokio::time::{Instant, timeout};

use super::error::RegistryError;

/// How long is waited for [`LEAST_BYTES`].
const WINDOW: Duration = Duration::from_secs(60);
/// 1 KiB/s: a hundred of them at once go over a slow line.
const LEAST_BYTES: u64 = 60 << 10;
/// The same while others wait: 16 KiB/s.
const LEAST_BYTES_AWAITED: u64 = 16 * LEAST_BYTES;

/// `blob`, with [`RegistryError::NoProgress`] at its end once fewer than [`LEAST_BYTES`] came
/// within [`WINDOW`], or fewer than [`LEAST_BYTES_AWAITED`] and `is_awaited` says at its end that
/// others wait.
pub(super) fn bounded(
    blob: impl Stream<Item = Result<Bytes, RegistryError>> + Unpin,
    is_awaited: impl Fn() -> bool,
) -> impl Stream<Item = Result<Bytes, RegistryError>> {
    let start = Some((blob, Progress::default(), is_awaited));
    stream::unfold(start, async |state| {
        let (mut blob, mut progress, is_awaited) = state?;
        loop {
            let began = Instant::now();
            let chunk = timeout(WINDOW.saturating_sub(progress.waited), blob.next()).await;
            progress.waited += began.elapsed();
            match chunk {
                Ok(chunk) => {
                    let chunk = chunk?;
                    progress.bytes += chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
                    return Some((chunk, Some((blob, progress, is_awaited))));
                }
                Err(_) => match progress.too_little(is_awaited()) {
                    None => progress = Progress::default(),
                    Some(error) => return Some((Err(error), None)),
                },
            }
        }
    })
}

/// What came in the current window.
#[derive(Default)]
struct Progress {
    waited: Duration,
    bytes: u64,
}

impl Progress {
    fn too_little(&self, is_awaited: bool) -> Option<RegistryError> {
        let (least, when) = if is_awaited {
            (LEAST_BYTES_AWAITED, " while other layers wait")
        } else {
            (LEAST_BYTES, "")
        };
        (self.bytes < least).then_some(RegistryError::NoProgress {
            bytes: self.bytes,
            least,
            window: WINDOW,
            when,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many chunks of a size, each after a pause; then nothing, for ever or at the end.
    fn dripping(
        chunks: usize,
        size: usize,
        pause: Duration,
        ends: bool,
    ) -> impl Stream<Item = Result<Bytes, RegistryError>> + Unpin {
        let chunks = stream::iter(0..chunks).then(move |_| async move {
            tokio::time::sleep(pause).await;
            Ok(Bytes::from(vec![0; size]))
        });
        let rest = if ends {
            stream::empty().left_stream()
        } else {
            stream::pending().right_stream()
        };
        Box::pin(chunks.chain(rest))
    }

    /// How many bytes came, after how long, and the error at the end.
    async fn read(
        blob: impl Stream<Item = Result<Bytes, RegistryError>> + Unpin,
        rest: Duration,
    ) -> (usize, u64, Option<String>) {
        read_awaited(blob, rest, false).await
    }

    async fn read_awaited(
        blob: impl Stream<Item = Result<Bytes, RegistryError>> + Unpin,
        rest: Duration,
        is_awaited: bool,
    ) -> (usize, u64, Option<String>) {
        let (began, mut bytes) = (Instant::now(), 0);
        let mut blob = std::pin::pin!(bounded(blob, || is_awaited));
        while let Some(chunk) = blob.next().await {
            match chunk {
                Ok(chunk) => bytes += chunk.len(),
                Err(error) => {
                    assert!(matches!(error, RegistryError::NoProgress { .. }));
                    assert!(blob.next().await.is_none(), "nothing comes behind an error");
                    return (bytes, began.elapsed().as_secs(), Some(error.to_string()));
                }
            }
            tokio::time::sleep(rest).await;
        }
        (bytes, began.elapsed().as_secs(), None)
    }

    fn too_little(bytes: u64) -> Option<String> {
        Some(format!(
            "no progress: {bytes} bytes within 60 s, at least 61440 are needed"
        ))
    }

    #[tokio::test(start_paused = true)]
    async fn a_registry_that_is_silent_or_drips_is_left() {
        let second = Duration::from_secs(1);
        assert_eq!(
            read(dripping(0, 0, second, false), Duration::ZERO).await,
            (0, 60, too_little(0))
        );
        assert_eq!(
            read(dripping(1000, 1, second * 7, true), Duration::ZERO).await,
            (8, 60, too_little(8))
        );
        // A good start does not buy time: the minute after it counts by itself.
        assert_eq!(
            read(dripping(1, 1 << 20, second, false), Duration::ZERO).await,
            (1 << 20, 120, too_little(0))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_line_is_slow_for_as_long_as_it_takes() {
        let (second, hour) = (Duration::from_secs(1), 3600);
        let found = read(dripping(hour, 2048, second, true), Duration::ZERO).await;
        assert_eq!(found, (hour * 2048, 3600, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_drip_holds_nothing_that_others_wait_for() {
        let (second, minutes) = (Duration::from_secs(1), 600);
        let slow = || dripping(minutes, 10 << 10, second, true);
        let found = read_awaited(slow(), Duration::ZERO, false).await;
        assert_eq!(found, (minutes * (10 << 10), 600, None));
        let (_, secs, error) = read_awaited(slow(), Duration::ZERO, true).await;
        let error = error.expect("too slow");
        assert!(
            secs == 60 && error.ends_with("at least 983040 are needed while other layers wait")
        );
        let fair = dripping(minutes, 20 << 10, second, true);
        let found = read_awaited(fair, Duration::ZERO, true).await;
        assert_eq!(found, (minutes * (20 << 10), 600, None));
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_the_reader_does_not_count() {
        let found = read(
            dripping(100, 10, Duration::from_millis(100), true),
            Duration::from_secs(30),
        )
        .await;
        assert_eq!(found, (1000, 3010, None));
    }
}
