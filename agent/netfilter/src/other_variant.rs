//! The variant of iptables that is not the machine's own, beside an engine over the other one.
//!
//! Packets pass both. So what an earlier run has left there goes, and only the permission to be
//! forwarded comes, where that variant decides on it (`iptables-legacy -P FORWARD DROP`, as an
//! older Docker writes it): see [`crate::nftables::beside`].

use std::collections::BTreeSet;

use crate::{
    engine::{EngineError, NodeEngine, Refusal, ServiceEngine},
    flows::Targets,
    iptables::{Iptables, NodeRules, Writer},
    nftables::{Iptabled, NodeBeside, ServicesBeside},
    node::{NodePlan, Part},
    service::{ServiceKey, ServiceNetwork, ServiceView},
};

/// The engine for a node's own rules in one variant, and what they need in the other.
#[derive(Debug)]
pub(crate) struct NodeVariants {
    engine: NodeRules,
    other: Iptabled,
}

impl NodeVariants {
    pub(crate) fn new(engine: NodeRules, iptables: &Iptables) -> Self {
        let other = Iptabled::other_than(iptables);
        Self { engine, other }
    }
}

impl NodeEngine for NodeVariants {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn write(&mut self, plan: &NodePlan, part: Part) -> Result<(), EngineError> {
        self.engine.write(plan, part)?;
        if part == Part::Masquerade {
            self.other.ensure(&NodeBeside(plan));
        }
        Ok(())
    }

    fn reconcile(&mut self, plan: &NodePlan) -> Result<bool, EngineError> {
        let wrote = self.engine.reconcile(plan)?;
        Ok(wrote | self.other.ensure(&NodeBeside(plan)))
    }

    fn is_disturbed(&self) -> bool {
        self.engine.is_disturbed()
    }
}

/// The same of Services.
#[derive(Debug)]
pub(crate) struct ServiceVariants {
    engine: Writer,
    other: Iptabled,
    beside: ServicesBeside,
}

impl ServiceVariants {
    pub(crate) fn new(engine: Writer, iptables: &Iptables, network: ServiceNetwork) -> Self {
        Self {
            engine,
            other: Iptabled::other_than(iptables),
            beside: ServicesBeside::new(network),
        }
    }
}

impl ServiceEngine for ServiceVariants {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn apply(
        &mut self,
        changes: Vec<(ServiceKey, Option<ServiceView>)>,
    ) -> Result<bool, EngineError> {
        // Which Services there are changes nothing in the other variant.
        let is_first = self.engine.is_suspect();
        let applied = self.engine.apply(changes)?;
        if is_first {
            self.other.ensure(&self.beside);
        }
        Ok(applied)
    }

    fn reconcile(&mut self) -> Result<bool, EngineError> {
        let wrote = self.engine.reconcile()?;
        Ok(wrote | self.other.ensure(&self.beside))
    }

    fn is_suspect(&self) -> bool {
        self.engine.is_suspect()
    }

    fn is_disturbed(&self) -> bool {
        self.engine.is_disturbed()
    }

    fn udp_targets(&self) -> Targets {
        self.engine.udp_targets()
    }

    fn take_refusals(&mut self) -> Vec<Refusal> {
        self.engine.take_refusals()
    }

    fn refused(&self) -> BTreeSet<ServiceKey> {
        self.engine.refused()
    }
}
