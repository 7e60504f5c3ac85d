//! What a plugin is: a name, what it is about, and two looks at a write.
//!
//! | [`Operation`] | object | old |
//! |---|---|---|
//! | `Create` | what is made, also below an object (Eviction, Binding, TokenRequest) or only to be answered (reviews) | |
//! | `Update` | the object as it will be, whatever part of it is written | the present one |
//! | `Delete` | null | what goes |
//! | `Connect` | the options: PodExecOptions, PodProxyOptions | |
//!
//! Source: `k8s.io/apiserver/pkg/admission/interfaces.go` at v1.37.

use async_trait::async_trait;
use coracle_api::status::Status;
use coracle_registry::api_resource::ApiResource;

use crate::attributes::{Attributes, Operation};

/// One rule of admission.
///
/// Both looks may wait: for the cache, or for somebody outside. They hold no lock meanwhile, and
/// what they see may be old by the time it is written: a write that loses its race comes through
/// all of the chain again.
#[async_trait]
pub trait Plugin: Send + Sync {
    /// Upstream's name, such as `LimitRanger`.
    fn name(&self) -> &'static str;

    /// Whether such writes are its matter at all. Asked for every write: fast.
    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool;

    /// Changes a write, before it is validated. What it adds has no field manager.
    ///
    /// A plugin may refuse here already, and those do whose refusal must not depend on the object
    /// being valid: who may not (a node, a namespace that goes) is told so before what is wrong,
    /// and the plugins after it need not understand what will not be written. What a refusal here
    /// has seen may still change: a rule about what is stored in the end belongs in
    /// [`Plugin::validate`].
    ///
    /// # Errors
    /// Why the object may not be written.
    async fn mutate(&self, _attributes: &mut Attributes<'_>) -> Result<(), Status> {
        Ok(())
    }

    /// Looks at what will be written unless somebody refuses it: complete, valid, with the
    /// addresses that a Service has been given.
    ///
    /// # Errors
    /// Why the object may not be written.
    async fn validate(&self, _attributes: &Attributes<'_>) -> Result<(), Status> {
        Ok(())
    }
}
