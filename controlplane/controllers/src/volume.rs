//! Claims, the volumes for them, and what keeps both from going while they are used.
//!
//! | module | does |
//! |---|---|
//! | `binder` | gives volumes to claims and takes them back: phases, reclaim policies |
//! | `local_path` | makes volumes of directories of nodes, for claims that the scheduler has given a node |
//! | `ephemeral` | a claim for each volume of a pod that lives with it |
//! | `attach_detach` | has CSI drivers attach volumes to nodes |
//! | `expand` | says who is waited for where a claim has grown |
//! | `claim_protection`, `volume_protection`, `attributes_protection` | the finalizers of what is used |
//! | `latest` | objects as they are after own writes that the informer does not show yet |
//!
//! What a volume and a claim say of each other is [`coracle_api::volume`]'s, which the scheduler
//! and the nodes share.

mod attach_detach;
mod attributes_protection;
mod binder;
mod claim_protection;
mod ephemeral;
mod expand;
mod latest;
mod local_path;
mod volume_protection;

use crate::{Manager, context::Context};

/// All of them.
pub(crate) fn setup(manager: &mut Manager, context: &Context) {
    let of = |account| context.of(account);
    binder::BinderController::setup(manager, &of("persistent-volume-binder"));
    local_path::LocalPathController::setup(manager, &of("local-path-provisioner"));
    claim_protection::ClaimProtection::setup(manager, &of("pvc-protection-controller"));
    volume_protection::VolumeProtection::setup(manager, &of("pv-protection-controller"));
    let account = "volumeattributesclass-protection-controller";
    attributes_protection::AttributesProtection::setup(manager, &of(account));
    ephemeral::EphemeralController::setup(manager, &of("ephemeral-volume-controller"));
    attach_detach::AttachDetachController::setup(manager, &of("attachdetach-controller"));
    expand::ExpandController::setup(manager, &of("expand-controller"));
}
