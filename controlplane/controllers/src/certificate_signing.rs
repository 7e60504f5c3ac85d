//! Approves and signs the certificates that nodes ask for, and removes old requests.
//!
//! A node's client certificate is approved for who may create
//! `certificatesigningrequests/nodeclient`, unless the name is another machine's ([`node_names`]),
//! or `selfnodeclient` for its own name; its serving certificate for a node that may create
//! `selfnodeserver` and asks for names that are its own ([`own_names`]). By default bootstrap
//! tokens and nodes may; a role binding less, and they ask an administrator. Everything else stays
//! pending until an administrator decides, and is signed then if its signer is ours.
//!
//! ```text
//! pending --judge, review--> approved --sign--> issued --an hour--> deleted
//!    |   \--another machine's name--> denied
//!    |                  \--does not fit its signer--> failed
//!    \--24 hours--> deleted
//! ```
//!
//! Source: `pkg/controller/certificates/{approver,signer,cleaner}/` at v1.37.

use std::{sync::Arc, time::Duration};

use coracle_telemetry::ErrorChain;
use ipnet::IpNet;
use k8s_openapi::{
    ByteString,
    api::{
        authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
        certificates::v1::CertificateSigningRequest,
        core::v1::Node,
    },
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
};
use tracing::{debug, info, warn};

use crate::{
    Manager,
    builder::{Builder, Queue},
    cache::{By, Cache, Change, Index, Key},
    config::ControllersConfig,
    context::Context,
    controller::{CallContext, Outcome, ReconcileError, Reconciler},
    writes::Write,
};

pub(crate) mod authority;
mod conditions;
mod node_names;
mod own_names;
mod request;
#[cfg(test)]
mod tests;

use authority::Authorities;
use conditions::{certificate_of, has_condition, time_left, with_condition};
pub(crate) use node_names::NodeNameCleaner;
use node_names::NodeNames;
use own_names::{NotItsOwn, Surroundings};
use request::{Approval, KUBELET_SERVING, Permission, Profile, Request};

/// Requests worked on at once.
const WORKERS: usize = 2;
/// How often a request is looked at again that waits for its node, or for a right: nothing tells of
/// all that it waits for.
const PENDING_PERIOD: Duration = Duration::from_secs(30);
/// Shortest validity that may be asked for.
const MIN_VALIDITY: Duration = Duration::from_secs(600);

/// The controller; its state is in caches.
pub(crate) struct CertificateController {
    client: Client,
    names: NodeNames,
    authorities: Authorities,
    reserved: Vec<IpNet>,
    has_loopback_nodes: bool,
    validity: Duration,
    requests: Arc<Cache<CertificateSigningRequest>>,
    waiting: By<CertificateSigningRequest>,
    nodes: Arc<Cache<Node>>,
    nodes_by_address: By<Node>,
}

impl CertificateController {
    /// Says what it reads and what wakes it.
    pub(crate) fn setup(manager: &mut Manager, context: &Context, authorities: Authorities) {
        let name = "certificatesigningrequest-controller";
        let mut controller = Builder::managed_by(manager, name, "certificate").workers(WORKERS);
        let this = Arc::new(Self {
            client: context.client.clone(),
            names: NodeNames::new(context.client.clone()),
            authorities,
            reserved: reserved(&context.config),
            has_loopback_nodes: context.config.has_loopback_nodes,
            validity: context.config.certificate_validity,
            requests: controller.for_kind(),
            waiting: controller.index(by_waiting_user()),
            nodes: controller.reads(),
            nodes_by_address: controller.index(own_names::by_address()),
        });
        controller.on_change(&this, Self::node_changed);
        controller.complete(this);
    }

    /// A serving certificate may wait for its node to say which addresses it has.
    fn node_changed(&self, change: &Change<'_, Node>, queue: &Queue) {
        let addresses = |node: &Node| {
            node.status
                .as_ref()
                .and_then(|status| status.addresses.clone())
        };
        let new = match change {
            Change::Added(node) => node,
            Change::Updated { old, new } if addresses(old) != addresses(new) => new,
            _ => return,
        };
        let user = format!(
            "system:node:{}",
            new.metadata.name.as_deref().unwrap_or_default()
        );
        for request in self.waiting.get(&user) {
            queue.add(Key::of(request.as_ref()));
        }
    }
}

impl Reconciler for CertificateController {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(csr) = self.requests.get(&key) else {
            return Ok(None);
        };
        let left = time_left(&csr, Timestamp::now());
        if left.is_zero() {
            let call = "delete old CertificateSigningRequest";
            let delete = Write::to(&self.client, &*csr, call);
            delete.delete(DeleteParams::default()).await?;
            return Ok(None);
        }
        if certificate_of(&csr).is_some()
            || has_condition(&csr, "Denied")
            || has_condition(&csr, "Failed")
        {
            return Ok(Some(left));
        }
        let again = self.advance(&key, &csr).await?;
        Ok(Some(again.map_or(left, |again| again.min(left))))
    }
}

impl CertificateController {
    /// One step on the way; when to look again at one that waits for what nobody tells.
    async fn advance(
        &self,
        key: &Key,
        csr: &CertificateSigningRequest,
    ) -> Result<Option<Duration>, ReconcileError> {
        let approved = has_condition(csr, "Approved");
        let checked = Request::parse(&csr.spec.request.0)
            .map(|request| (request::check(&csr.spec, &request), request));
        let (profile, request) = match checked {
            Ok((None, _)) => return Ok(None),
            Ok((Some(Ok(profile)), request)) => (profile, request),
            Ok((Some(Err(error)), _)) | Err(error) => {
                debug!(request = %key, error = %ErrorChain(&error), "a certificate request does not fit its signer");
                // An administrator approved what cannot be signed: that has to show.
                return if approved {
                    self.fail(csr, &error.to_string()).await.map(|()| None)
                } else {
                    Ok(None)
                };
            }
        };
        if approved {
            return self.issue(csr, profile, &request).await.map(|()| None);
        }
        let permissions = match self.judge(profile, csr, &request) {
            Approval::Ask(permissions) => permissions,
            Approval::LeaveAlone => return Ok(None),
            Approval::Wait(why @ NotItsOwn::NotReported(_)) => {
                debug!(request = %key, %why, "a serving certificate waits for its node");
                return Ok(Some(PENDING_PERIOD));
            }
            Approval::Wait(why) => {
                warn!(request = %key, subject = %request.common_name, %why, "a serving certificate is not approved");
                return Ok(Some(PENDING_PERIOD));
            }
        };
        for permission in permissions {
            if self.is_allowed(csr, permission).await? {
                if let Err(taken) = self.claim(profile, csr, &request).await? {
                    warn!(request = %key, user = csr.spec.username.as_deref().unwrap_or_default(), %taken, "a machine does not get the name of another");
                    let denied = with_condition(csr, "Denied", "NodeNameTaken", &taken.to_string());
                    return self.decide(&denied).await.map(|_| None);
                }
                let approved = with_condition(csr, "Approved", "AutoApproved", permission.message);
                let approved = self.decide(&approved).await?;
                return self
                    .issue(&approved, profile, &request)
                    .await
                    .map(|()| None);
            }
        }
        debug!(request = %key, user = csr.spec.username.as_deref().unwrap_or_default(), "nobody's right to be approved");
        Ok(Some(PENDING_PERIOD))
    }

    fn judge(
        &self,
        profile: Profile,
        csr: &CertificateSigningRequest,
        request: &Request,
    ) -> Approval {
        let node = request
            .node_name()
            .and_then(|name| self.nodes.get(&Key::new("", name)));
        let addresses: Vec<String> = request.addresses().map(|one| one.to_string()).collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let nodes = self.nodes_by_address.get_any(&addresses);
        let surroundings = Surroundings {
            node: node.as_deref(),
            nodes: &nodes,
            reserved: &self.reserved,
            has_loopback_nodes: self.has_loopback_nodes,
        };
        request::judge(profile, &csr.spec, request, &surroundings)
    }

    /// Whether who made the request may create such requests.
    async fn is_allowed(
        &self,
        csr: &CertificateSigningRequest,
        permission: &Permission,
    ) -> Result<bool, ReconcileError> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: csr.spec.username.clone(),
                uid: csr.spec.uid.clone(),
                groups: csr.spec.groups.clone(),
                extra: csr.spec.extra.clone(),
                resource_attributes: Some(ResourceAttributes {
                    group: Some("certificates.k8s.io".into()),
                    version: Some("*".into()),
                    resource: Some("certificatesigningrequests".into()),
                    subresource: Some(permission.subresource.into()),
                    verb: Some("create".into()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = api
            .create(&PostParams::default(), &review)
            .await
            .during("review the right to a certificate")?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }

    /// Takes the name of a node for who asks to become that node.
    async fn claim(
        &self,
        profile: Profile,
        csr: &CertificateSigningRequest,
        request: &Request,
    ) -> Result<Result<(), node_names::Taken>, ReconcileError> {
        let is_own = csr.spec.username.as_deref() == Some(&request.common_name);
        let Some(node) = request.node_name() else {
            return Ok(Ok(()));
        };
        if profile != Profile::NodeClient || is_own {
            return Ok(Ok(()));
        }
        self.names.claim(node, &request.key_hash).await
    }

    /// Writes that it is approved or denied.
    async fn decide(
        &self,
        decided: &CertificateSigningRequest,
    ) -> Result<CertificateSigningRequest, ReconcileError> {
        let api: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        let name = decided.metadata.name.as_deref().unwrap_or_default();
        api.replace_subresource("approval", name, &PostParams::default(), decided)
            .await
            .during("decide about a certificate request")
    }

    async fn issue(
        &self,
        csr: &CertificateSigningRequest,
        profile: Profile,
        request: &Request,
    ) -> Result<(), ReconcileError> {
        let asked = csr
            .spec
            .expiration_seconds
            .map(|seconds| Duration::from_secs(seconds.unsigned_abs().into()));
        let validity = asked.map_or(self.validity, |asked| {
            asked.clamp(MIN_VALIDITY.min(self.validity), self.validity)
        });
        let key_encipherment = csr
            .spec
            .usages
            .iter()
            .flatten()
            .any(|usage| usage == "key encipherment");
        let pem = match self.authorities.sign(
            profile,
            request,
            key_encipherment,
            validity,
            Timestamp::now(),
        ) {
            Ok(pem) => pem,
            Err(error) => return self.fail(csr, &error.to_string()).await,
        };
        // Before it has the certificate: by this key it is known from then on.
        if let (Profile::NodeClient, Some(node)) = (profile, request.node_name()) {
            self.names.note(node, &request.key_hash).await?;
        }
        let issue = Write::to(&self.client, csr, "issue certificate");
        let issued = issue.status(|csr| {
            csr.status.get_or_insert_default().certificate = Some(ByteString(pem.into_bytes()));
        });
        if issued.await?.is_some() {
            info!(request = %Key::of(csr), subject = %request.common_name, "certificate issued");
        }
        Ok(())
    }

    async fn fail(
        &self,
        csr: &CertificateSigningRequest,
        message: &str,
    ) -> Result<(), ReconcileError> {
        let fail = Write::to(&self.client, csr, "fail certificate request");
        let failed = fail.status(|csr| {
            *csr = with_condition(csr, "Failed", "SignerValidationFailure", message);
        });
        failed.await.map(drop)
    }
}

/// Ranges that no node has an address of.
fn reserved(config: &ControllersConfig) -> Vec<IpNet> {
    let services = config.service_cidr.into_iter();
    services.chain([config.cluster_cidr.into()]).collect()
}

/// Requests for serving certificates that have none yet, by the user who asks.
fn by_waiting_user() -> Index<CertificateSigningRequest> {
    Index::new("waiting", |csr: &CertificateSigningRequest, put| {
        if csr.spec.signer_name == KUBELET_SERVING && certificate_of(csr).is_none() {
            csr.spec.username.as_deref().into_iter().for_each(put);
        }
    })
}
