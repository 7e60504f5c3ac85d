//! Asking a registry again that may well answer the next time.
//!
//! Only for what passes by itself ([`RegistryError::is_transient`]), so often and so long; then the
//! pull fails, and the pod's back-off decides. A registry that says when it wants to be asked again
//! is asked then, or not by this pull if that is too far away: asking earlier would count against
//! the node once more.
//!
//! Source: containerd `core/remotes/docker/resolver.go` and `resolver_429_test.go` (main): five
//! requests, pauses of 0.5 s doubled up to 5 s, `Retry-After` up to 60 s.

use std::time::Duration;

use coracle_telemetry::{ErrorChain, ExponentialBackoff};
use http::{HeaderMap, header};
use k8s_openapi::jiff::{Timestamp, fmt::rfc2822};
use tokio::time::Instant;

use super::super::error::RegistryError;

/// The longest wait that a registry may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// How often, and how long.
#[derive(Debug, Clone, Copy)]
pub(in crate::image) struct Retries {
    requests: u32,
    pauses: ExponentialBackoff,
    /// No pause ends later than this.
    within: Duration,
}

impl Retries {
    /// Where nobody else can be asked.
    pub(in crate::image) const STANDARD: Self = Self {
        requests: 5,
        pauses: ExponentialBackoff::new(Duration::from_millis(500), Duration::from_secs(5)),
        within: Duration::from_secs(120),
    };

    /// For an endpoint that others come behind: asking those is the better retry.
    pub(in crate::image) const NONE: Self = Self {
        requests: 1,
        ..Self::STANDARD
    };

    /// As ever, in no time.
    #[cfg(test)]
    pub(in crate::image) const QUICK: Self = Self {
        pauses: ExponentialBackoff::new(Duration::from_millis(1), Duration::from_millis(5)),
        ..Self::STANDARD
    };

    /// The time begins now.
    pub(super) fn begin(self) -> Tries {
        Tries {
            retries: self,
            began: Instant::now(),
            failures: 0,
        }
    }
}

/// One thing that is tried until it is there.
pub(super) struct Tries {
    retries: Retries,
    began: Instant,
    failures: u32,
}

impl Tries {
    /// Carries `work` out until it succeeds.
    ///
    /// # Errors
    /// The last one, when it is enough.
    pub(super) async fn run<T, W: Future<Output = Result<T, RegistryError>>>(
        &mut self,
        work: impl Fn() -> W,
    ) -> Result<T, RegistryError> {
        self.failures = 0;
        loop {
            match work().await {
                Ok(done) => return Ok(done),
                Err(error) => self.wait(error, RegistryError::is_transient).await?,
            }
        }
    }

    /// Waits until it is time for the next request.
    ///
    /// # Errors
    /// `error`, if it `passes` not or it is enough.
    pub(super) async fn wait(
        &mut self,
        error: RegistryError,
        passes: fn(&RegistryError) -> bool,
    ) -> Result<(), RegistryError> {
        let retry_after = error.retry_after();
        let Some(pause) = passes(&error).then(|| self.pause(retry_after)).flatten() else {
            return Err(error);
        };
        tracing::info!(
            error = %ErrorChain(&error),
            pause_ms = pause.as_millis(),
            "a registry is asked again"
        );
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// Counts a failure. `None`: that was the last request.
    fn pause(&mut self, retry_after: Option<Duration>) -> Option<Duration> {
        let own = self.retries.pauses.jittered_after(self.failures);
        let pause = own.max(retry_after.unwrap_or_default());
        self.failures += 1;
        let may = self.failures < self.retries.requests
            && retry_after.is_none_or(|after| after <= RETRY_AFTER_MAX)
            && self.began.elapsed() + pause < self.retries.within;
        may.then_some(pause)
    }

    /// Some of it has come: from here on both count anew.
    pub(super) fn progressed(&mut self) {
        self.failures = 0;
        self.began = Instant::now();
    }
}

/// When to come again: a number of seconds, or a date.
///
/// Source: RFC 9110, 10.2.3.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(secs) = text.parse() {
        return Some(Duration::from_secs(secs));
    }
    let date = rfc2822::parse(text).ok()?.timestamp();
    let left = date.duration_since(Timestamp::now());
    Some(Duration::try_from(left).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use http::{HeaderValue, StatusCode};

    use super::{super::super::error::Said, *};

    const SECOND: Duration = Duration::from_secs(1);

    fn unwell(retry_after: Option<u64>) -> RegistryError {
        RegistryError::Unwell {
            status: StatusCode::SERVICE_UNAVAILABLE,
            retry_after: retry_after.map(Duration::from_secs),
            said: Said::default(),
        }
    }

    /// Fails so as to say `error`, `failures` times. How many requests were made, in how many
    /// seconds, and whether it succeeded.
    async fn tried(
        retries: Retries,
        failures: u32,
        error: impl Fn() -> RegistryError,
    ) -> (u32, u64, bool) {
        let (made, began) = (Cell::new(0), Instant::now());
        let outcome = retries
            .begin()
            .run(|| {
                made.set(made.get() + 1);
                let outcome = if made.get() > failures {
                    Ok(())
                } else {
                    Err(error())
                };
                std::future::ready(outcome)
            })
            .await;
        (made.get(), began.elapsed().as_secs(), outcome.is_ok())
    }

    #[tokio::test(start_paused = true)]
    async fn five_requests_are_made_and_no_more() {
        let (made, secs, done) = tried(Retries::STANDARD, 4, || unwell(None)).await;
        // 0.5 + 1 + 2 + 4 s, or down to half of it.
        assert!(
            made == 5 && (3..=7).contains(&secs) && done,
            "{made} {secs}"
        );
        assert!(!tried(Retries::STANDARD, 5, || unwell(None)).await.2);
        assert_eq!(
            tried(Retries::NONE, 1, || unwell(None)).await,
            (1, 0, false)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_registry_says_when_it_is_asked_again() {
        let asks = |secs| move || unwell(Some(secs));
        let table = [
            (0, (2, 0, true)),
            (30, (2, 30, true)),
            (60, (2, 60, true)),
            (61, (1, 0, false)),
            (u64::MAX, (1, 0, false)),
        ];
        for (secs, expected) in table {
            let found = tried(Retries::STANDARD, 1, asks(secs)).await;
            assert_eq!(found, expected, "{secs} s");
        }
        // The second pause would end behind the two minutes.
        let found = tried(Retries::STANDARD, 4, asks(60)).await;
        assert_eq!(found, (2, 60, false));
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_pass_is_not_asked_again() {
        let denied = || RegistryError::Denied {
            said: Said::default(),
        };
        let found = tried(Retries::STANDARD, 1, denied).await;
        assert_eq!(found, (1, 0, false));
        let of_realm = || RegistryError::Authorize(Box::new(unwell(Some(7))));
        let found = tried(Retries::STANDARD, 1, of_realm).await;
        assert_eq!(found, (2, 7, true), "a realm is a registry's part");
    }

    #[tokio::test(start_paused = true)]
    async fn progress_gives_the_tries_back() {
        let mut tries = Retries::STANDARD.begin();
        for _ in 0..100 {
            for _ in 0..4 {
                tries
                    .wait(unwell(None), RegistryError::is_transient)
                    .await
                    .expect("again");
            }
            tries.progressed();
        }
    }

    #[test]
    fn seconds_and_dates_are_understood() {
        let read = |text: &str| {
            let value = HeaderValue::from_str(text).expect("a value");
            retry_after(&HeaderMap::from_iter([(header::RETRY_AFTER, value)]))
        };
        for (text, expected) in [
            ("120", Some(120 * SECOND)),
            (" 5 ", Some(5 * SECOND)),
            ("0", Some(Duration::ZERO)),
            ("Wed, 21 Oct 2015 07:28:00 GMT", Some(Duration::ZERO)),
            ("-10", None),
            ("120s", None),
            ("99999999999999999999999", None),
            ("", None),
        ] {
            assert_eq!(read(text), expected, "{text:?}");
        }
        let far = read("Tue, 01 Jan 2999 00:00:00 GMT").expect("a date");
        assert!(far > RETRY_AFTER_MAX, "{far:?}");
    }
}
