//! What policies look at, as the API shows it, and what of it has changed since last asked. No I/O.

use std::{collections::BTreeSet, sync::Arc};

use coracle_client::{
    cache::{Cache, Change, Key},
    feed::Feed,
};
use coracle_policy::objects::PodKey;
use tokio::sync::watch;

use super::{peers::SeenPod, plan::PolicyPlan};
use crate::{
    informers::{Informers, SeenNamespace, SeenPeer, SeenPolicy},
    inquiries::Inquiries,
};

/// Reads the informers. Clones are one: what one takes the others do not see.
#[derive(Debug, Clone)]
pub(crate) struct Sources {
    policies: Arc<Cache<SeenPolicy>>,
    namespaces: Arc<Cache<SeenNamespace>>,
    peers: Arc<Cache<SeenPeer>>,
    changed_policies: Feed,
    changed_namespaces: Feed,
    changed_peers: Feed,
    /// Asks for the pods of the cluster, which nobody follows before there is a policy.
    wanted: watch::Sender<bool>,
    inquiries: Inquiries<PolicyPlan>,
}

impl Sources {
    /// Before the informers run.
    pub(crate) fn new(informers: &mut Informers) -> Self {
        let (mut changed_policies, mut changed_namespaces, mut changed_peers) =
            (Feed::default(), Feed::default(), Feed::default());
        changed_policies.follow(&mut informers.policies, |change| {
            news(change, |old, new| old.part != new.part)
        });
        changed_namespaces.follow(&mut informers.namespaces, |change| {
            news(change, |old, new| old.part != new.part)
        });
        changed_peers.follow(&mut informers.peers, |change| {
            news(change, |old, new| old.part != new.part)
        });
        Self {
            policies: informers.policies.cache(),
            namespaces: informers.namespaces.cache(),
            peers: informers.peers.cache(),
            changed_policies,
            changed_namespaces,
            changed_peers,
            wanted: informers.peers_wanted.clone(),
            inquiries: Inquiries::default(),
        }
    }

    /// Who asks the keeper what it knows.
    pub(crate) fn inquiries(&self) -> &Inquiries<PolicyPlan> {
        &self.inquiries
    }

    /// Returns once it is known whether there are policies. Cancel-safe.
    pub(super) async fn policies_listed(&self) {
        self.changed_policies.listed().await;
    }

    /// Returns once all is known that policies look at; asks for it. Cancel-safe.
    pub(super) async fn all_listed(&self) {
        self.changed_policies.listed().await;
        self.wanted.send_replace(true);
        self.changed_namespaces.listed().await;
        self.changed_peers.listed().await;
    }

    /// Whether there is any policy.
    pub(super) fn has_policies(&self) -> bool {
        !self.policies.all().is_empty()
    }

    /// Returns once something has changed. Cancel-safe.
    pub(super) async fn changed(&self) {
        tokio::select! {
            () = self.changed_policies.changed() => {}
            () = self.changed_namespaces.changed() => {}
            () = self.changed_peers.changed() => {}
        }
    }

    /// Policies that have changed.
    pub(super) fn take_policies(&self) -> Vec<(Key, Option<Arc<SeenPolicy>>)> {
        taken(&self.changed_policies, &self.policies)
    }

    /// Namespaces that have changed.
    pub(super) fn take_namespaces(&self) -> Vec<(Key, Option<Arc<SeenNamespace>>)> {
        taken(&self.changed_namespaces, &self.namespaces)
    }

    /// Pods that have changed.
    pub(super) fn take_peers(&self) -> BTreeSet<Key> {
        self.changed_peers.take()
    }

    /// The pod as the API shows it.
    pub(super) fn peer(&self, key: &PodKey) -> Option<SeenPod> {
        let peer = self.peers.get(&Key::new(&*key.namespace, &*key.name))?;
        Some(SeenPod {
            uid: peer.metadata.uid.clone(),
            view: peer.part.view.clone()?,
        })
    }
}

fn news<K: kube::Resource>(
    change: &Change<'_, K>,
    differs: impl FnOnce(&K, &K) -> bool,
) -> Option<Key> {
    let is_news = match change {
        Change::Updated { old, new } => differs(old, new),
        Change::Added(_) | Change::Deleted(_) => true,
    };
    is_news.then(|| Key::of(change.latest().as_ref()))
}

fn taken<K: kube::Resource>(feed: &Feed, cache: &Cache<K>) -> Vec<(Key, Option<Arc<K>>)> {
    let look = |key: Key| {
        let object = cache.get(&key);
        (key, object)
    };
    feed.take().into_iter().map(look).collect()
}
