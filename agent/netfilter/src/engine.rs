//! What keeps the kernel's rules equal to a plan.

use std::{collections::BTreeSet, error::Error, net::IpAddr};

use crate::{
    flows::Targets,
    node::{NodePlan, Part},
    service::{ServiceKey, ServiceView},
};

/// Why the kernel's rules could not be read or written: the engine's own error.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct EngineError(Box<dyn Error + Send + Sync>);

impl EngineError {
    /// As the engine has it.
    #[must_use]
    pub fn new(error: impl Error + Send + Sync + 'static) -> Self {
        Self(Box::new(error))
    }
}

/// Keeps a node's own rules equal to a plan. Blocks.
pub trait NodeEngine: Send + std::fmt::Debug {
    /// As people call it.
    fn name(&self) -> &'static str;

    /// Makes the kernel's rules those of the plan, of which `part` is another than at the last
    /// call.
    ///
    /// # Errors
    /// [`EngineError`]; the kernel has what it had.
    fn write(&mut self, plan: &NodePlan, part: Part) -> Result<(), EngineError>;

    /// Compares all of the kernel's rules with the plan, unless nobody has changed any since they
    /// were found to be right, and writes the difference. The first call takes over what another
    /// engine has left. Returns whether there was any.
    ///
    /// # Errors
    /// [`EngineError`]; the next call tries again.
    fn reconcile(&mut self, plan: &NodePlan) -> Result<bool, EngineError>;

    /// Whether somebody has changed any rule of the machine since, as far as looking is cheap.
    fn is_disturbed(&self) -> bool;
}

/// Keeps what goes to an address at which names are asked for, and comes from there, from being a
/// connection to the kernel. Blocks.
pub trait UntrackedEngine: Send + std::fmt::Debug {
    /// As people call it.
    fn name(&self) -> &'static str;

    /// Compares the kernel's rules with those for `address` and writes the difference. The first
    /// call takes over what another engine has left. Returns whether there was any.
    ///
    /// # Errors
    /// [`EngineError`]; the next call tries again.
    fn ensure(&mut self, address: IpAddr) -> Result<bool, EngineError>;

    /// Whether somebody has changed any rule of the machine since, as far as looking is cheap.
    fn is_disturbed(&self) -> bool;
}

/// A Service that the kernel takes no rules of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Which.
    pub service: ServiceKey,
    /// Its `metadata.uid`.
    pub uid: Option<String>,
    /// What the kernel or the engine's tool said.
    pub why: String,
}

/// Keeps the rules of Services as it was told last. Knows what it wrote and writes only
/// differences; one Service that the kernel refuses does not keep the others from theirs. Blocks.
pub trait ServiceEngine: Send + std::fmt::Debug {
    /// As people call it.
    fn name(&self) -> &'static str;

    /// Takes changed Services in (`None`: gone) and writes the difference. Returns whether UDP
    /// endpoints may have changed. The first call takes over what a predecessor left.
    ///
    /// # Errors
    /// [`EngineError`]; the changes are remembered and the next call reconciles.
    fn apply(
        &mut self,
        changes: Vec<(ServiceKey, Option<ServiceView>)>,
    ) -> Result<bool, EngineError>;

    /// Compares the kernel's rules with what they should be and writes the difference. Returns
    /// whether there was any.
    ///
    /// # Errors
    /// [`EngineError`]; the next call tries again.
    fn reconcile(&mut self) -> Result<bool, EngineError>;

    /// Whether the kernel's rules may differ from what was written: nothing was yet, or it failed.
    fn is_suspect(&self) -> bool;

    /// Whether somebody changed any rule of the machine since ours were found to be right. Costs
    /// microseconds. Never true where changes are not counted.
    fn is_disturbed(&self) -> bool;

    /// Where UDP flows may go.
    fn udp_targets(&self) -> Targets;

    /// Services that were refused since the last call.
    fn take_refusals(&mut self) -> Vec<Refusal>;

    /// The Services that have no rules because the kernel refuses them.
    fn refused(&self) -> BTreeSet<ServiceKey>;
}
