//! What every namespace gets: the ServiceAccount `default` and the ConfigMap `kube-root-ca.crt`.
//!
//! Both come back when they are deleted, and the ConfigMap when it is changed, as long as the
//! namespace lives.
//!
//! Source: `pkg/controller/serviceaccount/serviceaccounts_controller.go` and
//! `pkg/controller/certificates/rootcacertpublisher/publisher.go` at v1.37.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::{
    Api, Client, Resource,
    api::{ObjectMeta, PostParams},
};

use crate::{
    Manager,
    builder::{Builder, Queue},
    cache::{Cache, Change, Key},
    context::Context,
    controller::{
        CallContext, Outcome, ReconcileError, Reconciler, ignore, ignore_missing, or_event,
    },
    errors::{is_already_exists, is_namespace_terminating, is_not_found},
    informers::Source,
};

/// Namespaces worked on at once.
const WORKERS: usize = 4;
const DEFAULT_ACCOUNT: &str = "default";
const ROOT_CA: &str = "kube-root-ca.crt";
const ROOT_CA_KEY: &str = "ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
const DESCRIPTION_TEXT: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
     endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across \
     distributions of Kubernetes clusters.";

/// The controller; its state is in caches.
pub(crate) struct NamespaceContentController {
    account_client: Client,
    root_ca_client: Client,
    root_ca: String,
    namespaces: Arc<Cache<Namespace>>,
    accounts: Arc<Cache<ServiceAccount>>,
    config_maps: Arc<Cache<ConfigMap>>,
}

impl NamespaceContentController {
    /// Says what it reads and what wakes it.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let mut controller =
            Builder::managed_by(manager, "namespace-content", "serviceaccount").workers(WORKERS);
        controller.select(Source::<ConfigMap>::all().fields(format!("metadata.name={ROOT_CA}")));
        let this = Arc::new(Self {
            account_client: context.of("service-account-controller").client,
            root_ca_client: context.of("root-ca-cert-publisher").client,
            root_ca: context.config.root_ca_pem.clone(),
            namespaces: controller.for_kind(),
            accounts: controller.reads(),
            config_maps: controller.reads(),
        });
        controller.watches(namespace_of::<ConfigMap>);
        controller.on_change(&this, Self::account_changed);
        controller.complete(this);
    }

    fn account_changed(&self, change: &Change<'_, ServiceAccount>, queue: &Queue) {
        if let Change::Deleted(account) = change {
            namespace_of(account.as_ref())
                .into_iter()
                .for_each(|key| queue.add(key));
        }
    }
}

impl Reconciler for NamespaceContentController {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(namespace) = self.namespaces.get(&key) else {
            return Ok(None);
        };
        let phase = namespace
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        if namespace.metadata.deletion_timestamp.is_some() || phase == Some("Terminating") {
            return Ok(None);
        }
        let (account, root_ca) = tokio::join!(
            self.ensure_account(&key.name),
            self.ensure_root_ca(&key.name)
        );
        account.and(root_ca).map(|()| None)
    }
}

impl NamespaceContentController {
    async fn ensure_account(&self, namespace: &str) -> Result<(), ReconcileError> {
        if self
            .accounts
            .get(&Key::new(namespace, DEFAULT_ACCOUNT))
            .is_some()
        {
            return Ok(());
        }
        let account = ServiceAccount {
            metadata: named(namespace, DEFAULT_ACCOUNT),
            ..ServiceAccount::default()
        };
        let api: Api<ServiceAccount> = Api::namespaced(self.account_client.clone(), namespace);
        let created = api.create(&PostParams::default(), &account).await;
        let created = ignore(created, is_tolerable);
        created.during("create default ServiceAccount").map(drop)
    }

    async fn ensure_root_ca(&self, namespace: &str) -> Result<(), ReconcileError> {
        let api: Api<ConfigMap> = Api::namespaced(self.root_ca_client.clone(), namespace);
        match self.config_maps.get(&Key::new(namespace, ROOT_CA)) {
            None => {
                let mut metadata = named(namespace, ROOT_CA);
                metadata.annotations =
                    Some([(DESCRIPTION.to_owned(), DESCRIPTION_TEXT.to_owned())].into());
                let data = Some([(ROOT_CA_KEY.to_owned(), self.root_ca.clone())].into());
                let bundle = ConfigMap {
                    metadata,
                    data,
                    ..ConfigMap::default()
                };
                let created = api.create(&PostParams::default(), &bundle).await;
                let created = ignore(created, is_tolerable);
                created.during("create kube-root-ca.crt").map(drop)
            }
            Some(bundle) if self.is_right(&bundle) => Ok(()),
            Some(bundle) => {
                // Other keys are none of ours, as upstream has it only this one stays: replace the
                // whole data.
                let data = Some([(ROOT_CA_KEY.to_owned(), self.root_ca.clone())].into());
                let wanted = ConfigMap {
                    data,
                    ..bundle.as_ref().clone()
                };
                let replaced = api.replace(ROOT_CA, &PostParams::default(), &wanted).await;
                let replaced = ignore_missing(replaced).during("restore kube-root-ca.crt");
                or_event(replaced).map(drop)
            }
        }
    }

    fn is_right(&self, bundle: &ConfigMap) -> bool {
        bundle
            .data
            .as_ref()
            .is_some_and(|data| data.len() == 1 && data.get(ROOT_CA_KEY) == Some(&self.root_ca))
    }
}

fn namespace_of<K: Resource>(object: &K) -> Option<Key> {
    let namespace = object.meta().namespace.as_deref()?;
    Some(Key::new("", namespace))
}

fn named(namespace: &str, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.into()),
        namespace: Some(namespace.into()),
        ..ObjectMeta::default()
    }
}

/// Somebody else made it, or the namespace goes away: both are fine.
fn is_tolerable(error: &kube::Error) -> bool {
    is_already_exists(error) || is_namespace_terminating(error) || is_not_found(error)
}
