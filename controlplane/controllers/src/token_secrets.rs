//! Deletes Secrets of type `kubernetes.io/service-account-token` whose account does not exist, or is another by now.
//!
//! The API server fills such a Secret when it is made; what it holds is worth nothing without the account.
//!
//! Source: `pkg/controller/serviceaccount/tokens_controller.go` at v1.37.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::{
    Api, Client,
    api::{DeleteParams, Preconditions},
};
use tokio_util::sync::CancellationToken;

use crate::{
    cache::{By, Cache, Change, Index, Key},
    context::Context,
    controller::{self, CallContext, Outcome, ignore_missing},
    informer::Informer,
    work_queue::WorkQueue,
};

/// The only type that is watched.
pub(crate) const SECRET_TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
/// Secrets worked on at once.
const WORKERS: usize = 2;

/// The controller; its state is in caches and its queue.
pub(crate) struct TokenSecretsController {
    client: Client,
    secrets: Arc<Cache<Secret>>,
    by_account: By<Secret>,
    queue: Arc<WorkQueue<Key>>,
}

/// What a Secret says of its account is all that is looked at.
pub(crate) fn trim(secret: &mut Secret) {
    secret.data = None;
    secret.metadata.managed_fields = None;
}

impl TokenSecretsController {
    /// Registers with the informers; nothing happens before [`TokenSecretsController::run`].
    pub(crate) fn new(
        context: &Context,
        secrets: &mut Informer<Secret>,
        accounts: &mut Informer<ServiceAccount>,
    ) -> Arc<Self> {
        let this = Arc::new(Self {
            client: context.client.clone(),
            secrets: secrets.cache(),
            by_account: secrets.index(Index::new("account", |secret, put| {
                if let Some(account) = annotation(secret, ACCOUNT) {
                    put(&Key::new(secret.metadata.namespace.as_deref().unwrap_or_default(), account).to_string());
                }
            })),
            queue: context.queue("serviceaccount_tokens_secret"),
        });
        let queue = this.queue.clone();
        secrets.on_change(move |change| queue.add(Key::of(change.latest().as_ref())));
        let controller = this.clone();
        accounts.on_change(move |change| {
            if matches!(change, Change::Deleted(_)) {
                controller.account_gone(change.latest());
            }
        });
        this
    }

    /// Reconciles until `shutdown`.
    pub(crate) async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let queue = self.queue.clone();
        controller::run("token-secrets", queue, WORKERS, shutdown, move |key| {
            let this = self.clone();
            async move { this.reconcile(key).await }
        })
        .await;
    }

    fn account_gone(&self, account: &ServiceAccount) {
        let namespace = account.metadata.namespace.as_deref().unwrap_or_default();
        let name = account.metadata.name.as_deref().unwrap_or_default();
        for secret in self.by_account.get(&Key::new(namespace, name).to_string()) {
            self.queue.add(Key::of(secret.as_ref()));
        }
    }

    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(secret) = self.secrets.get(&key) else { return Ok(None) };
        let Some(name) = annotation(&secret, ACCOUNT) else { return Ok(None) };
        // Asked of the server itself: a Secret may come before the account that is made with it is seen here.
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &key.namespace);
        let account = accounts.get_metadata_opt(name).await.during("get the ServiceAccount of a token")?;
        let uid = annotation(&secret, ACCOUNT_UID);
        if account.is_some_and(|account| uid.is_none_or(|uid| account.metadata.uid.as_deref() == Some(uid))) {
            return Ok(None);
        }
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &key.namespace);
        let same = Preconditions {
            uid: secret.metadata.uid.clone(),
            resource_version: secret.metadata.resource_version.clone(),
        };
        let deleted = api.delete(&key.name, &DeleteParams::default().preconditions(same)).await;
        ignore_missing(deleted).during("delete a token without its ServiceAccount")?;
        Ok(None)
    }
}

fn annotation<'a>(secret: &'a Secret, name: &str) -> Option<&'a str> {
    secret.metadata.annotations.as_ref()?.get(name).map(String::as_str).filter(|value| !value.is_empty())
}
