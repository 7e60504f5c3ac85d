//! The lists of every built-in kind that is served: those that are written, and those that only
//! show some of another kind.
//!
//! A folder a group, a strategy a file. Routing, discovery, OpenAPI and the generic registry all go
//! by these lists; what else names a kind is about that kind.

pub mod admissionregistration;
pub mod apiextensions;
pub mod apps;
pub mod autoscaling;
pub mod batch;
pub mod certificates;
pub mod coordination;
pub mod core;
pub mod discovery;
pub mod dra;
pub mod events;
pub mod flowcontrol;
pub mod net;
pub mod networking;
pub mod node;
pub mod podspec;
pub mod policy;
pub mod rbac;
pub mod scheduling;
pub mod storage;
mod workload;

use self::admissionregistration as admission;
use crate::strategy::{BuiltIn, Projection};

static ALL: &[&dyn BuiltIn] = &[
    &core::configmap::ConfigMap,
    &core::endpoints::Endpoints,
    &core::event::Event,
    &core::limitrange::LimitRange,
    &core::namespace::Namespace,
    &core::node::Node,
    &core::persistentvolume::PersistentVolume,
    &core::persistentvolumeclaim::PersistentVolumeClaim,
    &core::pod::Pod,
    &core::podtemplate::PodTemplate,
    &core::replicationcontroller::ReplicationController,
    &core::resourcequota::ResourceQuota,
    &core::secret::Secret,
    &core::serviceaccount::ServiceAccount,
    &core::service::Service,
    &admission::mutatingadmissionpolicybinding::MutatingAdmissionPolicyBinding,
    &admission::mutatingadmissionpolicy::MutatingAdmissionPolicy,
    &admission::mutatingwebhookconfiguration::MutatingWebhookConfiguration,
    &admission::validatingadmissionpolicybinding::ValidatingAdmissionPolicyBinding,
    &admission::validatingadmissionpolicy::ValidatingAdmissionPolicy,
    &admission::validatingwebhookconfiguration::ValidatingWebhookConfiguration,
    &apiextensions::customresourcedefinition::CustomResourceDefinition,
    &apps::controllerrevision::ControllerRevision,
    &apps::daemonset::DaemonSet,
    &apps::deployment::Deployment,
    &apps::replicaset::ReplicaSet,
    &apps::statefulset::StatefulSet,
    &autoscaling::horizontalpodautoscaler::HorizontalPodAutoscaler,
    &autoscaling::horizontalpodautoscaler_v1::HorizontalPodAutoscalerV1,
    &batch::cronjob::CronJob,
    &batch::job::Job,
    &certificates::certificatesigningrequest::CertificateSigningRequest,
    &certificates::clustertrustbundle::ClusterTrustBundle,
    &certificates::podcertificaterequest::PodCertificateRequest,
    &dra::deviceclass::DeviceClass,
    &dra::devicetaintrule::DeviceTaintRule,
    &dra::resourceclaim::ResourceClaim,
    &dra::resourceclaimtemplate::ResourceClaimTemplate,
    &dra::resourceslice::ResourceSlice,
    &flowcontrol::flowschema::FlowSchema,
    &flowcontrol::prioritylevelconfiguration::PriorityLevelConfiguration,
    &networking::ingressclass::IngressClass,
    &networking::ingress::Ingress,
    &networking::ipaddress::IpAddress,
    &networking::networkpolicy::NetworkPolicy,
    &networking::servicecidr::ServiceCidr,
    &policy::poddisruptionbudget::PodDisruptionBudget,
    &rbac::clusterrolebinding::ClusterRoleBinding,
    &rbac::clusterrole::ClusterRole,
    &rbac::rolebinding::RoleBinding,
    &rbac::role::Role,
    &storage::csidriver::CsiDriver,
    &storage::csinode::CsiNode,
    &storage::csistoragecapacity::CsiStorageCapacity,
    &storage::storageclass::StorageClass,
    &storage::volumeattachment::VolumeAttachment,
    &storage::volumeattributesclass::VolumeAttributesClass,
    &scheduling::priorityclass::PriorityClass,
    &coordination::lease::Lease,
    &node::runtimeclass::RuntimeClass,
    &discovery::endpointslice::EndpointSlice,
    &events::event::Event,
];

static PROJECTIONS: &[&dyn Projection] = &[&net::podpeer::PodPeer];

/// Every kind that clients write, grouped by API group as discovery shows them.
#[must_use]
pub fn all() -> &'static [&'static dyn BuiltIn] {
    ALL
}

/// Every kind that is only read, because its objects are some of another kind's. Discovery shows
/// them after the others.
#[must_use]
pub fn projections() -> &'static [&'static dyn Projection] {
    PROJECTIONS
}

/// The kind that serves `/apis/GROUP/VERSION/PLURAL`.
#[must_use]
pub fn by_resource(group: &str, version: &str, plural: &str) -> Option<&'static dyn BuiltIn> {
    all().iter().copied().find(|strategy| {
        let info = strategy.resource();
        info.group == group && info.version == version && info.plural == plural
    })
}

#[cfg(test)]
mod tests;
