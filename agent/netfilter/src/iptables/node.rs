//! The engine for a node's own rules over iptables: see [`crate::node`].
//!
//! Each part has rules of its own, which are read and compared whenever it changes. Knows nothing
//! between two calls but when all was found to be right.

use coracle_telemetry::ErrorChain;

use super::{Iptables, IptablesError, envelopes, host_ports, masquerade};
use crate::{
    engine::{EngineError, NodeEngine},
    node::{NodePlan, Overlay, Part},
};

/// What takes away the rules of another engine that these have followed: those of the overlay only
/// if it is known.
pub type NodeRemoval = fn(&Overlay) -> Result<(), EngineError>;

/// Keeps them.
#[derive(Debug)]
pub struct NodeRules {
    iptables: Iptables,
    /// The kernel's count of changes when all was right: see [`Iptables::generation`].
    verified: Option<u32>,
    /// Takes away what an engine that is no iptables has left.
    other_engine: NodeRemoval,
    /// It has left nothing.
    alone: bool,
}

impl NodeRules {
    /// Has written nothing yet. What another engine has left is removed once these rules stand.
    #[must_use]
    pub fn new(iptables: Iptables, other_engine: NodeRemoval) -> Self {
        Self {
            iptables,
            verified: None,
            other_engine,
            alone: false,
        }
    }

    fn ensure(&self, plan: &NodePlan, part: Part) -> Result<bool, IptablesError> {
        match part {
            Part::HostPorts => host_ports::ensure(&self.iptables, &plan.host_ports),
            Part::Masquerade => match &plan.masquerade {
                Some(wanted) => masquerade::ensure(&self.iptables, wanted),
                None => Ok(false),
            },
            Part::Overlay => match &plan.overlay {
                Overlay::Unknown => Ok(false),
                Overlay::None => envelopes::ensure(&self.iptables, None),
                Overlay::Port(wanted) => envelopes::ensure(&self.iptables, Some(wanted)),
            },
        }
    }

    fn ensure_all(&mut self, plan: &NodePlan) -> Result<bool, IptablesError> {
        let generation = self.iptables.generation();
        if self.alone && generation.is_some() && self.verified == generation {
            return Ok(false);
        }
        let mut wrote = self.ensure(plan, Part::Masquerade)?;
        wrote |= self.ensure(plan, Part::HostPorts)?;
        // Without an overlay its rules went when it did: looking for them would load modules.
        if matches!(plan.overlay, Overlay::Port(_)) {
            wrote |= self.ensure(plan, Part::Overlay)?;
        }
        // Read before the rules were: what was written since counts as a change and is looked at
        // once more.
        self.verified = generation;
        if !self.alone {
            let removed = (self.other_engine)(&plan.overlay)
                .inspect_err(|error| {
                    tracing::warn!(error = %ErrorChain(error), "cannot remove the node's rules that another engine has left");
                })
                .is_ok();
            self.alone = removed && plan.overlay != Overlay::Unknown;
        }
        Ok(wrote)
    }
}

impl NodeEngine for NodeRules {
    fn name(&self) -> &'static str {
        "iptables"
    }

    fn write(&mut self, plan: &NodePlan, part: Part) -> Result<(), EngineError> {
        self.ensure(plan, part).map(drop).map_err(EngineError::new)
    }

    fn reconcile(&mut self, plan: &NodePlan) -> Result<bool, EngineError> {
        self.ensure_all(plan).map_err(EngineError::new)
    }

    fn is_disturbed(&self) -> bool {
        // A comparison executes three programs: whoever keeps Services tells when it is due.
        false
    }
}
