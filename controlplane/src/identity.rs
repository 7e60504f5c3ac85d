//! Which API servers there are, for whoever asks the API: a Lease for each in kube-system, renewed
//! for as long as it serves. The leader removes those of servers that are no more.
//!
//! Nothing here goes by these Leases: who may write Leases there could make one. Servers know each
//! other by [`crate::alive`].
//!
//! Source: `pkg/controlplane/apiserver/server.go`, `pkg/controlplane/controller/apiserverleasegc`
//! and `k8s.io/component-helpers/apimachinery/lease` at v1.37.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use coracle_apiserver::UserInfo;
use coracle_telemetry::ErrorChain;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::{SignedDuration, Timestamp},
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams, Preconditions},
};
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

const LABEL: &str = "apiserver.kubernetes.io/identity";
const KUBE_APISERVER: &str = "kube-apiserver";
const HOSTNAME: &str = "kubernetes.io/hostname";
const DURATION_SECS: i32 = 3600;
const RENEW: Duration = Duration::from_secs(10);
/// After one that failed.
const RENEW_AGAIN: Duration = Duration::from_secs(1);
/// How often it is looked for Leases that nobody renews.
const LOOK: Duration = Duration::from_secs(3600);
/// For one call.
const DEADLINE: Duration = Duration::from_secs(5);

/// Who writes these Leases: the API server for itself.
pub(crate) fn user() -> UserInfo {
    UserInfo::new("system:apiserver", &["system:masters"])
}

/// The Lease's name for the server on `host`.
pub(crate) fn name(host: &str) -> String {
    let mut hash = Sha256::new();
    for part in [host, KUBE_APISERVER] {
        let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
        hash.update(length.to_be_bytes());
        hash.update(part);
    }
    format!("apiserver-{}", base32(&hash.finalize()[..16]))
}

/// RFC 4648 in lower case and without padding.
fn base32(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let bits: Vec<u8> = bytes
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1))
        .collect();
    bits.chunks(5)
        .map(|group| {
            let padded = group.iter().copied().chain([0; 4]).take(5);
            let value = padded.fold(0, |value, bit| value << 1 | bit);
            char::from(ALPHABET[usize::from(value)])
        })
        .collect()
}

/// A server, as it tells of itself.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    /// The machine's name.
    pub(crate) host: String,
    /// The process.
    pub(crate) holder: String,
    /// Where it is reached, if it is by others than this machine.
    pub(crate) address: Option<SocketAddr>,
}

/// Keeps the Lease of a server until `stop`. It stays after that, as upstream: whoever reads it
/// sees when the server was there last.
pub(crate) async fn renew(leases: Api<Lease>, identity: Identity, stop: CancellationToken) {
    let mut known = None;
    loop {
        let renewed = tokio::time::timeout(DEADLINE, renew_once(&leases, &identity, known));
        known = match stop.run_until_cancelled(renewed).await {
            None => return,
            Some(Ok(Ok(lease))) => Some(lease),
            Some(Ok(Err(error))) => {
                tracing::warn!(
                    host = identity.host,
                    error = %ErrorChain(&error),
                    "cannot renew the Lease of this API server: no other server may have its host name"
                );
                None
            }
            Some(Err(_)) => {
                tracing::warn!("cannot renew the Lease of this API server in time");
                None
            }
        };
        let pause = if known.is_some() { RENEW } else { RENEW_AGAIN };
        if stop
            .run_until_cancelled(tokio::time::sleep(pause))
            .await
            .is_none()
        {
            return;
        }
    }
}

/// Writes it on top of what is known, or of what is there.
async fn renew_once(
    leases: &Api<Lease>,
    identity: &Identity,
    known: Option<Lease>,
) -> kube::Result<Lease> {
    let name = name(&identity.host);
    let found = match known {
        Some(lease) => Some(lease),
        None => leases.get_opt(&name).await?,
    };
    let is_new = found.is_none();
    let mut lease = found.unwrap_or_default();
    lease.metadata.name = Some(name.clone());
    lease.metadata.managed_fields = None;
    let labels = lease.metadata.labels.get_or_insert_default();
    labels.extend(self::labels(&identity.host));
    lease.spec = Some(spec(&identity.holder));
    match is_new {
        true => leases.create(&PostParams::default(), &lease).await,
        false => leases.replace(&name, &PostParams::default(), &lease).await,
    }
}

fn servers() -> ListParams {
    ListParams::default().labels(&format!("{LABEL}={KUBE_APISERVER}"))
}

fn labels(host: &str) -> BTreeMap<String, String> {
    [(LABEL, KUBE_APISERVER), (HOSTNAME, host)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

fn spec(holder: &str) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(DURATION_SECS),
        renew_time: Some(MicroTime(Timestamp::now())),
        ..LeaseSpec::default()
    }
}

/// Removes those that nobody has renewed for their duration, now and then until `stop`.
pub(crate) async fn forget_old(leases: Api<Lease>, stop: CancellationToken) {
    while stop
        .run_until_cancelled(tokio::time::sleep(LOOK))
        .await
        .is_some()
    {
        match stop
            .run_until_cancelled(sweep(&leases, Timestamp::now()))
            .await
        {
            None => return,
            Some(Ok(())) => {}
            Some(Err(error)) => {
                tracing::warn!(error = %ErrorChain(&error), "cannot remove the Leases of API servers that are no more");
            }
        }
    }
}

async fn sweep(leases: &Api<Lease>, now: Timestamp) -> kube::Result<()> {
    for lease in leases.list(&servers()).await? {
        let Some(name) = lease
            .metadata
            .name
            .as_deref()
            .filter(|_| is_over(&lease, now))
        else {
            continue;
        };
        // Renewed meanwhile: it stays.
        let seen = Preconditions {
            uid: lease.metadata.uid.clone(),
            resource_version: lease.metadata.resource_version.clone(),
        };
        let options = DeleteParams {
            preconditions: Some(seen),
            ..DeleteParams::default()
        };
        match leases.delete(name, &options).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// One without a time or a duration is nobody's.
fn is_over(lease: &Lease, now: Timestamp) -> bool {
    let until = lease.spec.as_ref().and_then(|spec| {
        let duration = SignedDuration::from_secs(spec.lease_duration_seconds?.into());
        spec.renew_time.as_ref()?.0.checked_add(duration).ok()
    });
    until.is_none_or(|until| until < now)
}

#[cfg(test)]
mod tests;
