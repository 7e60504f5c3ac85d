//! Deletes Secrets of type `kubernetes.io/service-account-token` whose account does not exist, or
//! is another by now.
//!
//! The API server fills such a Secret when it is made; what it holds is worth nothing without the
//! account.
//!
//! Source: `pkg/controller/serviceaccount/tokens_controller.go` at v1.37.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::{Api, Client, api::DeleteParams};

use crate::{
    Manager,
    builder::{Builder, Queue},
    cache::{By, Cache, Change, Index, Key},
    context::Context,
    controller::{CallContext, Outcome, Reconciler},
    informers::Source,
    writes::Write,
};

/// The only type that is watched.
const SECRET_TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
/// Secrets worked on at once.
const WORKERS: usize = 2;

/// The controller; its state is in caches.
pub(crate) struct TokenSecretsController {
    client: Client,
    secrets: Arc<Cache<Secret>>,
    by_account: By<Secret>,
}

impl TokenSecretsController {
    /// Says what it reads and what wakes it.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let name = "serviceaccount-token-controller";
        let mut controller =
            Builder::managed_by(manager, name, "serviceaccount_tokens_secret").workers(WORKERS);
        controller.select(Source::<Secret>::all().fields(format!("type={SECRET_TYPE}")));
        let this = Arc::new(Self {
            client: context.client.clone(),
            secrets: controller.for_kind(),
            by_account: controller.index(Index::by_key("account", account_of)),
        });
        controller.on_change(&this, Self::account_changed);
        controller.complete(this);
    }

    fn account_changed(&self, change: &Change<'_, ServiceAccount>, queue: &Queue) {
        if let Change::Deleted(account) = change {
            let secrets = self.by_account.get(&Key::of(account.as_ref()).to_string());
            secrets
                .iter()
                .for_each(|secret| queue.add(Key::of(secret.as_ref())));
        }
    }
}

impl Reconciler for TokenSecretsController {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(secret) = self.secrets.get(&key) else {
            return Ok(None);
        };
        let Some(name) = annotation(&secret, ACCOUNT) else {
            return Ok(None);
        };
        // Asked of the server itself: a Secret may come before the account that is made with it is
        // seen here.
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &key.namespace);
        let account = accounts
            .get_metadata_opt(name)
            .await
            .during("get the ServiceAccount of a token")?;
        let uid = annotation(&secret, ACCOUNT_UID);
        if account.is_some_and(|account| {
            uid.is_none_or(|uid| account.metadata.uid.as_deref() == Some(uid))
        }) {
            return Ok(None);
        }
        let call = "delete a token without its ServiceAccount";
        let delete = Write::to(&self.client, &*secret, call).if_unchanged();
        delete.delete(DeleteParams::default()).await?;
        Ok(None)
    }
}

fn account_of(secret: &Secret) -> Option<Key> {
    let namespace = secret.metadata.namespace.as_deref().unwrap_or_default();
    annotation(secret, ACCOUNT).map(|account| Key::new(namespace, account))
}

fn annotation<'a>(secret: &'a Secret, name: &str) -> Option<&'a str> {
    secret
        .metadata
        .annotations
        .as_ref()?
        .get(name)
        .map(String::as_str)
        .filter(|value| !value.is_empty())
}
