//! One of several leads, by a Lease: who holds it renews it, and another takes it once it has not
//! changed for its duration.
//!
//! Clocks of two machines are never compared: a candidate measures with its own how long the Lease
//! has stood still since it saw it. No fencing: who leads writes with uid or resourceVersion as
//! preconditions, for its successor may lead already.
//!
//! Source: `k8s.io/client-go/tools/leaderelection/leaderelection.go` at v1.37.

use std::{future::Future, pin::pin, time::Duration};

use coracle_telemetry::ErrorChain;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// Who stands for what, and how patient everybody is.
#[derive(Debug, Clone)]
pub struct Election {
    /// Name of the Lease, such as `kube-controller-manager`.
    pub lease: String,
    /// Of this candidate alone, such as the host's name and a random part.
    pub identity: String,
    /// How long a Lease must stand still before another takes it.
    pub lease_duration: Duration,
    /// How long a leader tries to renew before it steps down; shorter than `lease_duration`.
    pub renew_deadline: Duration,
    /// Between two tries; shorter than `renew_deadline`.
    pub retry_period: Duration,
}

impl Election {
    /// With upstream's defaults: 15, 10 and 2 seconds.
    #[must_use]
    pub fn new(lease: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            lease: lease.into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    /// One call may take as long that a second fits before the deadline.
    fn call_limit(&self) -> Duration {
        self.renew_deadline / 2
    }
}

/// This candidate leads no more, although it was not told to stop: it could not renew in time, or
/// another has taken the Lease. What it was leading has ended; it may stand again.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{identity} has lost the Lease {lease}")]
pub struct Lost {
    lease: String,
    identity: String,
}

/// Where the Lease is kept: the API, or a test's memory. `replace` fails with 409 if the version
/// given is not the newest.
pub trait Lock: Send + Sync {
    /// The Lease as it is; `None` if there is none.
    fn get(&self, name: &str) -> impl Future<Output = kube::Result<Option<Lease>>> + Send;
    /// Makes the first.
    fn create(&self, lease: &Lease) -> impl Future<Output = kube::Result<Lease>> + Send;
    /// Writes the next version.
    fn replace(
        &self,
        name: &str,
        lease: &Lease,
    ) -> impl Future<Output = kube::Result<Lease>> + Send;
}

impl Lock for Api<Lease> {
    async fn get(&self, name: &str) -> kube::Result<Option<Lease>> {
        self.get_opt(name).await
    }

    async fn create(&self, lease: &Lease) -> kube::Result<Lease> {
        Api::create(self, &PostParams::default(), lease).await
    }

    async fn replace(&self, name: &str, lease: &Lease) -> kube::Result<Lease> {
        Api::replace(self, name, &PostParams::default(), lease).await
    }
}

/// Stands until it leads, then runs `lead` for as long as it does; `lead` ends with the token that
/// it gets. At the end the Lease is given back, so that another need not wait. Where it is lost,
/// `lead` is dropped after `lease_duration` less `renew_deadline`, wherever it is: it must have no
/// tasks of its own that live on.
///
/// # Errors
/// [`Lost`]: stand again.
pub async fn run<L, F>(
    lock: L,
    election: Election,
    stop: CancellationToken,
    lead: impl FnOnce(CancellationToken) -> F,
) -> Result<(), Lost>
where
    L: Lock,
    F: Future<Output = ()>,
{
    let grace = election
        .lease_duration
        .saturating_sub(election.renew_deadline);
    let mut candidate = Candidate {
        lock,
        election,
        observed: None,
    };
    let Some(acquired) = stop.run_until_cancelled(candidate.acquire()).await else {
        // Perhaps a write was under way that has made it the leader.
        candidate.release().await;
        return Ok(());
    };
    tracing::info!(
        lease = candidate.election.lease,
        identity = candidate.election.identity,
        "leads"
    );
    let leading = stop.child_token();
    let mut work = pin!(lead(leading.clone()));
    let lost = tokio::select! {
        () = &mut work => None,
        lost = candidate.renew(acquired) => Some(lost),
    };
    match lost {
        None => {
            candidate.release().await;
            Ok(())
        }
        Some(lost) => {
            leading.cancel();
            // Then another may lead: what has not come to rest is cut off.
            if timeout(grace, work).await.is_err() {
                tracing::warn!(
                    lease = candidate.election.lease,
                    "what was led did not end in time and is cut off"
                );
            }
            Err(lost)
        }
    }
}

/// A Lease as it was first seen in this state.
struct Observed {
    lease: Lease,
    since: Instant,
}

struct Candidate<L> {
    lock: L,
    election: Election,
    observed: Option<Observed>,
}

impl<L: Lock> Candidate<L> {
    /// Returns once it leads, with the time at which the write that made it the leader was sent.
    async fn acquire(&mut self) -> Instant {
        loop {
            let begun = Instant::now();
            if self.attempt().await {
                return begun;
            }
            // Not all at once: up to 2.2 times the period, as upstream.
            let period = self.election.retry_period;
            tokio::time::sleep(period.mul_f64(1.0 + 1.2 * rand::random::<f64>())).await;
        }
    }

    /// Renews for as long as it can. `renewed` is when the last write was sent: others may count
    /// from then on, and an answer that took its time is no reason to lead for longer.
    async fn renew(&mut self, mut renewed: Instant) -> Lost {
        loop {
            tokio::time::sleep(self.election.retry_period).await;
            let deadline = renewed + self.election.renew_deadline;
            let begun = Instant::now();
            if tokio::time::timeout_at(deadline, self.attempt())
                .await
                .unwrap_or(false)
            {
                renewed = begun;
            } else if Instant::now() + self.election.retry_period >= deadline || self.is_anothers()
            {
                let Election {
                    lease, identity, ..
                } = self.election.clone();
                return Lost { lease, identity };
            }
        }
    }

    /// One try to take or renew the Lease; whether it is this candidate's now.
    async fn attempt(&mut self) -> bool {
        match timeout(self.election.call_limit(), self.try_once()).await {
            Ok(Ok(leads)) => leads,
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                // Another was quicker: what was seen is outdated.
                tracing::debug!(
                    lease = self.election.lease,
                    "the Lease was changed by another"
                );
                false
            }
            Ok(Err(error)) => {
                tracing::warn!(lease = self.election.lease, error = %ErrorChain(&error), "cannot take or renew the Lease");
                false
            }
            Err(_) => {
                tracing::warn!(
                    lease = self.election.lease,
                    "the API server does not answer for the Lease"
                );
                false
            }
        }
    }

    async fn try_once(&mut self) -> kube::Result<bool> {
        let Some(found) = self.lock.get(&self.election.lease).await? else {
            let lease = Lease {
                spec: Some(self.spec(None)),
                metadata: self.metadata(),
            };
            let made = self.lock.create(&lease).await?;
            self.observe(made);
            return Ok(true);
        };
        self.observe(found);
        let Some(observed) = self.observed.as_ref().filter(|_| self.may_take()) else {
            return Ok(false);
        };
        let lease = Lease {
            spec: Some(self.spec(observed.lease.spec.as_ref())),
            ..observed.lease.clone()
        };
        let written = self.lock.replace(&self.election.lease, &lease).await?;
        self.observe(written);
        Ok(true)
    }

    /// Gives the Lease back if it is this candidate's; best effort.
    async fn release(&mut self) {
        let release = async {
            let Some(mut lease) = self.lock.get(&self.election.lease).await? else {
                return Ok(());
            };
            let Some(spec) = lease
                .spec
                .as_mut()
                .filter(|spec| holder(spec) == self.election.identity)
            else {
                return Ok(());
            };
            // As upstream: nobody, for one second.
            (spec.holder_identity, spec.lease_duration_seconds) = (Some(String::new()), Some(1));
            spec.renew_time = Some(MicroTime(Timestamp::now()));
            self.lock
                .replace(&self.election.lease, &lease)
                .await
                .map(drop)
        };
        match timeout(self.election.call_limit(), release).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::debug!(lease = self.election.lease, error = %ErrorChain(&error as &kube::Error), "the Lease was not given back");
            }
            Err(_) => tracing::debug!(
                lease = self.election.lease,
                "the Lease was not given back in time"
            ),
        }
    }

    /// Notes when the Lease has changed last, by this machine's clock.
    fn observe(&mut self, lease: Lease) {
        if self
            .observed
            .as_ref()
            .is_none_or(|observed| observed.lease.spec != lease.spec)
        {
            self.observed = Some(Observed {
                lease,
                since: Instant::now(),
            });
        } else if let Some(observed) = &mut self.observed {
            // Others may write labels: the version changes, the claim does not.
            observed.lease = lease;
        }
    }

    fn may_take(&self) -> bool {
        let Some(Observed { lease, since }) = &self.observed else {
            return true;
        };
        let Some(spec) = &lease.spec else { return true };
        let holder = holder(spec);
        let seconds =
            u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or_default();
        holder.is_empty()
            || holder == self.election.identity
            || since.elapsed() >= Duration::from_secs(seconds)
    }

    fn is_anothers(&self) -> bool {
        let spec = self
            .observed
            .as_ref()
            .and_then(|observed| observed.lease.spec.as_ref());
        spec.is_some_and(|spec| !holder(spec).is_empty() && holder(spec) != self.election.identity)
    }

    fn metadata(&self) -> ObjectMeta {
        ObjectMeta {
            name: Some(self.election.lease.clone()),
            ..ObjectMeta::default()
        }
    }

    /// The claim that follows `present`.
    fn spec(&self, present: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let renewed = present.filter(|present| holder(present) == self.election.identity);
        let transitions = present
            .and_then(|present| present.lease_transitions)
            .unwrap_or_default();
        LeaseSpec {
            holder_identity: Some(self.election.identity.clone()),
            lease_duration_seconds: i32::try_from(self.election.lease_duration.as_secs()).ok(),
            acquire_time: renewed
                .and_then(|renewed| renewed.acquire_time.clone())
                .or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(match (present, renewed) {
                (None, _) => 0,
                (Some(_), Some(_)) => transitions,
                (Some(_), None) => transitions.saturating_add(1),
            }),
            ..LeaseSpec::default()
        }
    }
}

fn holder(spec: &LeaseSpec) -> &str {
    spec.holder_identity.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests;
