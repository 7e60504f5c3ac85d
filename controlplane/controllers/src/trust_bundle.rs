//! Publishes whom clients of the API server believe, as a ClusterTrustBundle.
//!
//! Its name ends in a hash of what it says: another authority is another object, and the one before
//! goes once the new one is there.
//!
//! Source: `pkg/controller/certificates/clustertrustbundlepublisher/publisher.go` at v1.37.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::certificates::v1::{ClusterTrustBundle, ClusterTrustBundleSpec};
use kube::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, PostParams},
};
use sha2::{Digest as _, Sha256};

use crate::{
    Manager,
    builder::{Builder, Queue},
    cache::{Cache, Change, Key},
    context::Context,
    controller::{CallContext, Outcome, Reconciler, ignore, ignore_missing, or_event},
    errors::is_already_exists,
    informers::Source,
    writes::Write,
};

/// Whose certificates these are.
const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";
/// How much of the hash is in the name.
const HASH_BYTES: usize = 12;
/// How often it is looked at, beside each change: the first look finds nothing there.
const PERIOD: Duration = Duration::from_secs(600);

/// The controller; its state is in the cache.
pub(crate) struct TrustBundlePublisher {
    client: Client,
    bundles: Arc<Cache<ClusterTrustBundle>>,
    name: String,
    bundle: String,
}

impl TrustBundlePublisher {
    /// Says what it reads and what wakes it.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let name = "kube-apiserver-serving-clustertrustbundle-publisher-controller";
        let queue = "ca_cert_publisher_cluster_trust_bundles";
        let mut controller = Builder::managed_by(manager, name, queue);
        let of_signer = Source::<ClusterTrustBundle>::all();
        controller.select(of_signer.fields(format!("spec.signerName={SIGNER}")));
        let bundle = context.config.root_ca_pem.clone();
        let this = Arc::new(Self {
            client: context.client.clone(),
            bundles: controller.reads(),
            name: name_of(SIGNER, &bundle),
            bundle,
        });
        controller.on_change(&this, Self::changed);
        controller.every(PERIOD, &this, |this, queue| queue.add(this.key()));
        controller.complete(this);
    }

    fn changed(&self, _: &Change<'_, ClusterTrustBundle>, queue: &Queue) {
        queue.add(self.key());
    }

    fn key(&self) -> Key {
        Key::new("", self.name.as_str())
    }
}

impl Reconciler for TrustBundlePublisher {
    async fn reconcile(&self, key: Key) -> Outcome {
        let api: Api<ClusterTrustBundle> = Api::all(self.client.clone());
        match self.bundles.get(&key) {
            None => {
                let created = api.create(&PostParams::default(), &self.wanted()).await;
                ignore(created, is_already_exists).during("create ClusterTrustBundle")?;
            }
            Some(bundle) if bundle.spec.trust_bundle != self.bundle => {
                let wanted = ClusterTrustBundle {
                    spec: self.wanted().spec,
                    ..bundle.as_ref().clone()
                };
                let replaced = api
                    .replace(&self.name, &PostParams::default(), &wanted)
                    .await;
                or_event(ignore_missing(replaced).during("restore ClusterTrustBundle"))?;
            }
            Some(_) => {}
        }
        let others = self.bundles.filter(|bundle| {
            bundle.spec.signer_name.as_deref() == Some(SIGNER)
                && bundle.metadata.name.as_deref() != Some(&self.name)
        });
        for other in others {
            let delete = Write::to(&self.client, &*other, "delete former ClusterTrustBundle");
            delete.delete(DeleteParams::default()).await?;
        }
        Ok(None)
    }
}

impl TrustBundlePublisher {
    fn wanted(&self) -> ClusterTrustBundle {
        ClusterTrustBundle {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                ..ObjectMeta::default()
            },
            spec: ClusterTrustBundleSpec {
                signer_name: Some(SIGNER.to_owned()),
                trust_bundle: self.bundle.clone(),
            },
        }
    }
}

/// Source: `constructBundleName`.
fn name_of(signer: &str, bundle: &str) -> String {
    let hash = Sha256::digest(bundle.as_bytes());
    let hash = hex::encode(&hash[..HASH_BYTES]);
    format!("{}:{hash}", signer.replace('/', ":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_tells_signer_and_content() {
        let name = name_of(SIGNER, "abc");
        assert_eq!(
            name,
            "kubernetes.io:kube-apiserver-serving:ba7816bf8f01cfea414140de"
        );
        assert_ne!(name, name_of(SIGNER, "abd"));
    }
}
