//! Watches of the API that are soon back when the API is.
//!
//! kube-rs's watcher resumes what breaks; here is how long it waits. The back-off is capped at [`RETRY_MAX`], and whoever
//! hears from the API again ([`Pulse::answered`], by the Lease) wakes all that wait: after a partition the node knows
//! within seconds what it has to run, and whereto to send.

use std::{fmt::Debug, time::Duration};

use coracle_telemetry::Backoff;
use futures::{Stream, StreamExt, stream::unfold};
use kube::{
    Api, Resource,
    runtime::watcher::{Config, Error, Event, watcher},
};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Tells of the API's return. Clones are one.
#[derive(Debug, Clone)]
pub struct Pulse(watch::Sender<u64>);

impl Default for Pulse {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Pulse {
    /// The API has answered again, after it had not.
    pub(crate) fn answered(&self) {
        self.0.send_modify(|count| *count += 1);
    }

    /// Changes at each return.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

/// Everything that happens to the objects that `config` selects, for ever.
pub(crate) fn events<K>(
    api: Api<K>,
    config: Config,
    pulse: &Pulse,
) -> impl Stream<Item = Result<Event<K>, Error>> + Send + use<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    patient(watcher(api, config), pulse.subscribe(), RETRY_MIN, RETRY_MAX)
}

/// Waits after each error before it asks the stream for more: twice as long each time, until something comes or the API
/// is back.
fn patient<T, E>(
    stream: impl Stream<Item = Result<T, E>> + Send,
    pulse: watch::Receiver<u64>,
    least: Duration,
    most: Duration,
) -> impl Stream<Item = Result<T, E>> + Send {
    let state = (Box::pin(stream), pulse, Backoff::new(least, most), false);
    unfold(state, move |(mut stream, mut pulse, mut retry, failed)| async move {
        if failed {
            let pause = retry.pause();
            match tokio::time::timeout(pause, pulse.changed()).await {
                Ok(Ok(())) => retry.reset(),
                // Nobody is left to tell of a return.
                Ok(Err(_)) => tokio::time::sleep(pause).await,
                Err(_) => {}
            }
        }
        let item = stream.next().await?;
        let failed = item.is_err();
        if !failed {
            retry.reset();
        }
        Some((item, (stream, pulse, retry, failed)))
    })
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::stream;
    use tokio::time::Instant;

    use super::*;

    fn broken() -> impl Stream<Item = Result<(), ()>> + Send {
        stream::repeat_with(|| Err(()))
    }

    #[tokio::test]
    async fn a_watch_that_breaks_waits_twice_as_long_each_time() {
        let pulse = Pulse::default();
        let least = Duration::from_millis(40);
        let mut events = pin!(patient(broken(), pulse.subscribe(), least, least * 4));
        let began = Instant::now();
        for _ in 0..5 {
            let _ = events.next().await;
        }
        // The first error at once, then half to the whole of 1, 2, 4 and 4 times that.
        assert!(began.elapsed() >= least * 11 / 2, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn all_that_wait_are_woken_when_the_api_is_back() {
        const NEVER: Duration = Duration::from_secs(3600);
        let pulse = Pulse::default();
        let waiting = (0..3).map(|_| {
            let mut events = Box::pin(patient(broken(), pulse.subscribe(), NEVER, NEVER));
            async move {
                let _ = events.next().await;
                events.next().await
            }
        });
        let waiting =
            coracle_telemetry::spawn("task of a test", futures::future::join_all(waiting.collect::<Vec<_>>()));
        tokio::task::yield_now().await;
        pulse.answered();
        let woken = tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("woken").expect("no panic");
        assert_eq!(woken.len(), 3);
    }
}
