//! Deletes PodCertificateRequests that are older than anybody waits for one.
//!
//! Source: `pkg/controller/certificates/cleaner/pcrcleaner.go` at v1.37.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::certificates::v1::PodCertificateRequest, apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use kube::{Client, api::DeleteParams};

use crate::{
    Manager,
    builder::Builder,
    cache::{Cache, Key},
    context::Context,
    controller::{Outcome, Reconciler},
    writes::Write,
};

/// All that is done with one is done by then, whatever comes of it.
const AGE: Duration = Duration::from_secs(15 * 60);

/// The controller; its state is in the cache.
pub(crate) struct PodCertificateRequestCleaner {
    client: Client,
    requests: Arc<Cache<PodCertificateRequest>>,
}

impl PodCertificateRequestCleaner {
    /// Says what it reads and what wakes it.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let name = "podcertificaterequest-cleaner-controller";
        let mut controller = Builder::managed_by(manager, name, "podcertificaterequest_cleaner");
        let this = Self {
            client: context.client.clone(),
            requests: controller.for_kind(),
        };
        controller.complete(Arc::new(this));
    }
}

impl Reconciler for PodCertificateRequestCleaner {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(request) = self.requests.get(&key) else {
            return Ok(None);
        };
        let created = request.metadata.creation_timestamp.as_ref();
        let left = left(created, Timestamp::now());
        if !left.is_zero() {
            return Ok(Some(left));
        }
        let delete = Write::to(&self.client, &*request, "delete old PodCertificateRequest");
        delete.delete(DeleteParams::default()).await?;
        Ok(None)
    }
}

/// How long it stays.
fn left(created: Option<&Time>, now: Timestamp) -> Duration {
    let age = created.map(|created| now.duration_since(created.0));
    let age = age.map_or(AGE, |age| Duration::try_from(age).unwrap_or_default());
    AGE.saturating_sub(age)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_stays_for_a_quarter_of_an_hour() {
        let created = Timestamp::now();
        let after = |seconds| {
            let now = created.checked_add(Duration::from_secs(seconds)).unwrap();
            left(Some(&Time(created)), now).as_secs()
        };
        assert_eq!([0, 60, 899, 900, 5000].map(after), [900, 840, 1, 0, 0]);
        let ahead = created.checked_sub(Duration::from_secs(60)).unwrap();
        assert_eq!(
            left(Some(&Time(created)), ahead),
            AGE,
            "a clock that is behind"
        );
    }
}
