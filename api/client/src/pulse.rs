//! Tells everybody who waits for the API server that it has answered again.
//!
//! After a partition a client knows within seconds what has happened meanwhile: whoever asks most
//! often, as the Lease does, wakes all that are in their back-off.

use std::time::Duration;

use tokio::sync::watch;

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
    pub fn answered(&self) {
        self.0.send_modify(|count| *count += 1);
    }

    /// Changes at each return.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

/// Waits for `pause`, or until the API is back; whether it is.
pub(crate) async fn pause_or_return(pulse: &mut watch::Receiver<u64>, pause: Duration) -> bool {
    match tokio::time::timeout(pause, pulse.changed()).await {
        Ok(Ok(())) => true,
        // Nobody is left to tell of a return.
        Ok(Err(_)) => {
            tokio::time::sleep(pause).await;
            false
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_that_wait_are_woken_when_the_api_is_back() {
        const NEVER: Duration = Duration::from_secs(3600);
        let pulse = Pulse::default();
        let mut receivers = [pulse.subscribe(), pulse.subscribe(), pulse.subscribe()];
        let waiting =
            futures::future::join_all(receivers.iter_mut().map(|one| pause_or_return(one, NEVER)));
        let tell = async {
            tokio::task::yield_now().await;
            pulse.answered();
        };
        let begun = tokio::time::Instant::now();
        let (woken, ()) = tokio::join!(waiting, tell);
        assert_eq!((woken, begun.elapsed()), (vec![true; 3], Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn without_anybody_to_tell_of_it_the_pause_is_kept() {
        let mut receiver = Pulse::default().subscribe();
        let begun = tokio::time::Instant::now();
        assert!(!pause_or_return(&mut receiver, Duration::from_secs(5)).await);
        assert_eq!(begun.elapsed(), Duration::from_secs(5));
    }
}
