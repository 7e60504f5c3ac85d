//! Which machine a node's name belongs to.
//!
//! A bootstrap token says that its holder may join, but not as whom: two machines of one host name
//! would be one node, and break each other's pods. So a name belongs to the machine that asked for
//! it first. The Secret `NODE.node-key.coracle.dev` in `kube-system` holds hashes of the public
//! keys that the node's client certificates were made for; who asks by token shows that it has one
//! of these keys, for every request is signed with the key that it asks for. It is written before
//! the request is approved, so of two machines that ask at once one has it, and a machine that is
//! killed on its way asks again with the same key.
//!
//! A name is free again when its Node is deleted, and when nobody has become its Node for
//! [`RESERVATION`].
//!
//! Not here: nodes that renew their certificate with the one they have, and requests that an
//! administrator approves. Their keys are noted and not judged.
//!
//! Source: k3s does so with a password (`pkg/nodepassword/nodepassword.go` at v1.34); a key need
//! not be sent.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::{
    ByteString,
    api::core::v1::{Node, Secret},
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, PostParams, Preconditions},
};

use crate::{
    Manager,
    builder::{Builder, Queue},
    cache::{Change, Key},
    context::Context,
    controller::{CallContext, Outcome, ReconcileError, Reconciler, ignore_missing},
};

const NAMESPACE: &str = "kube-system";
const SUFFIX: &str = ".node-key.coracle.dev";
const TYPE: &str = "coracle.dev/node-key";
/// Hashes, one a line, the oldest first.
const KEYS: &str = "keys";
/// A node that is killed while it stores a renewed certificate still has the key before.
const MAX_KEYS: usize = 4;
/// How long a machine that has the name may take to register its Node.
const RESERVATION: Duration = Duration::from_secs(600);

/// Why a machine does not get the name of a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Taken {
    #[error(
        "node {node:?} exists, and this machine does not have its key: give this machine another --node-name; if it takes that one's place, first delete the node (kubectl delete node {node})"
    )]
    Exists { node: String },
    #[error(
        "another machine has asked to be node {node:?} a moment ago: give this machine another --node-name; if it is the same one with its data deleted, first delete its key (kubectl -n {NAMESPACE} delete secret {node}{SUFFIX})"
    )]
    Reserved { node: String },
}

/// What becomes of the name.
#[derive(Debug, PartialEq, Eq)]
enum Claim {
    /// It is the machine's already.
    Own,
    /// Nobody's: the machine gets it.
    Take,
    /// Of a machine that is gone: the machine gets it.
    Replace,
    Refuse(Taken),
}

/// Reads and writes whose a name is. Asks the API server each time: a watch may not show yet what
/// another machine has become.
pub(super) struct NodeNames {
    secrets: Api<Secret>,
    nodes: Api<Node>,
}

impl NodeNames {
    pub(super) fn new(client: Client) -> Self {
        Self {
            secrets: Api::namespaced(client.clone(), NAMESPACE),
            nodes: Api::all(client),
        }
    }

    /// Gives the name to the machine with this key, unless it is another's.
    pub(super) async fn claim(
        &self,
        node: &str,
        key: &str,
    ) -> Result<Result<(), Taken>, ReconcileError> {
        let known = self.read(node).await?;
        let has_node = self.has_node(node).await?;
        match judge(node, known.as_ref(), has_node, key, Timestamp::now()) {
            Claim::Own => return Ok(Ok(())),
            Claim::Refuse(taken) => return Ok(Err(taken)),
            Claim::Take => {}
            Claim::Replace => {
                if let Some(known) = &known {
                    self.delete(known).await?;
                }
            }
        }
        // Fails if another was quicker: then it is judged anew.
        self.create(node, key).await.map(Ok)
    }

    /// Adds the key to those of the node, for it is about to get a certificate for it.
    pub(super) async fn note(&self, node: &str, key: &str) -> Result<(), ReconcileError> {
        let Some(mut known) = self.read(node).await? else {
            return self.create(node, key).await;
        };
        let mut keys = keys_of(&known);
        if keys.iter().any(|one| one == key) {
            return Ok(());
        }
        keys.push(key.to_owned());
        keys.drain(..keys.len().saturating_sub(MAX_KEYS));
        known.data = Some(data(&keys));
        let (name, params) = (secret_name(node), PostParams::default());
        // Of the version that was read: nobody's key is lost.
        let written = self.secrets.replace(&name, &params, &known);
        written.await.during("note a node's key").map(drop)
    }

    async fn has_node(&self, node: &str) -> Result<HasNode, ReconcileError> {
        let found = self.nodes.get_metadata_opt(node).await;
        let found = found.during("read whether there is a node")?;
        Ok(if found.is_some() {
            HasNode::Yes
        } else {
            HasNode::No
        })
    }

    async fn read(&self, node: &str) -> Result<Option<Secret>, ReconcileError> {
        let read = self.secrets.get_opt(&secret_name(node)).await;
        read.during("read whose a node's name is")
    }

    async fn create(&self, node: &str, key: &str) -> Result<(), ReconcileError> {
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(secret_name(node)),
                ..ObjectMeta::default()
            },
            type_: Some(TYPE.to_owned()),
            data: Some(data(&[key.to_owned()])),
            ..Secret::default()
        };
        let created = self.secrets.create(&PostParams::default(), &secret).await;
        created.during("note whose a node's name is").map(drop)
    }

    async fn delete(&self, secret: &Secret) -> Result<(), ReconcileError> {
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: secret.metadata.uid.clone(),
            resource_version: None,
        });
        let name = secret.metadata.name.as_deref().unwrap_or_default();
        let deleted = self.secrets.delete(name, &params).await;
        ignore_missing(deleted)
            .during("give a node's name free")
            .map(drop)
    }
}

/// Whether there is a Node of the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HasNode {
    Yes,
    No,
}

fn judge(
    node: &str,
    known: Option<&Secret>,
    has_node: HasNode,
    key: &str,
    now: Timestamp,
) -> Claim {
    let is_own = known.is_some_and(|secret| keys_of(secret).iter().any(|one| one == key));
    let node = node.to_owned();
    match (known, has_node) {
        _ if is_own => Claim::Own,
        (_, HasNode::Yes) => Claim::Refuse(Taken::Exists { node }),
        (None, HasNode::No) => Claim::Take,
        (Some(secret), HasNode::No) if is_reserved(secret, now) => {
            Claim::Refuse(Taken::Reserved { node })
        }
        (Some(_), HasNode::No) => Claim::Replace,
    }
}

fn is_reserved(secret: &Secret, now: Timestamp) -> bool {
    let made = secret.metadata.creation_timestamp.as_ref();
    let end = made.and_then(|made| made.0.checked_add(RESERVATION).ok());
    end.is_some_and(|end| now < end)
}

fn secret_name(node: &str) -> String {
    format!("{node}{SUFFIX}")
}

fn keys_of(secret: &Secret) -> Vec<String> {
    let bytes = secret.data.as_ref().and_then(|data| data.get(KEYS));
    let text = bytes.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned());
    text.iter()
        .flat_map(|text| text.lines())
        .map(str::to_owned)
        .collect()
}

fn data(keys: &[String]) -> BTreeMap<String, ByteString> {
    let text = keys.join("\n");
    BTreeMap::from([(KEYS.to_owned(), ByteString(text.into_bytes()))])
}

/// Gives a name free when its Node is deleted.
pub(crate) struct NodeNameCleaner {
    names: NodeNames,
}

impl NodeNameCleaner {
    /// Says what it reads and what wakes it.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let mut controller = Builder::managed_by(manager, "node-name-controller", "node_name");
        let this = Arc::new(Self {
            names: NodeNames::new(context.client.clone()),
        });
        controller.on_change(&this, Self::node_changed);
        controller.complete(this);
    }

    fn node_changed(&self, change: &Change<'_, Node>, queue: &Queue) {
        if let Change::Deleted(node) = change {
            queue.add(Key::of(node.as_ref()));
        }
    }
}

impl Reconciler for NodeNameCleaner {
    async fn reconcile(&self, key: Key) -> Outcome {
        // A machine that runs has registered itself again: it keeps its name.
        if self.names.has_node(&key.name).await? == HasNode::Yes {
            return Ok(None);
        }
        if let Some(secret) = self.names.read(&key.name).await? {
            self.names.delete(&secret).await?;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
