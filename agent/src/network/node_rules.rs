//! The node's own rules for its network: one plan, and the engine that keeps the kernel equal to
//! it.
//!
//! Who knows a part of the plan tells it; what the engine does not take is not in the plan either.
//! The engine is chosen with the first rule that is written, and stays until the agent ends.
//! Blocks.

use std::path::Path;

use coracle_netfilter::{
    ProxyMode,
    engine::{EngineError, NodeEngine},
    host_port::PodPorts,
    masquerade::Masquerade,
    node::{NodePlan, Overlay, Part},
    node_engine,
};
use coracle_telemetry::ErrorChain;
use parking_lot::Mutex;

use super::overlay_record::OverlayRecord;

/// Whoever has it writes; one at a time, so that two transactions never carry different plans.
#[derive(Debug)]
pub(crate) struct NodeRules {
    mode: ProxyMode,
    overlay: OverlayRecord,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    plan: NodePlan,
    engine: Option<Box<dyn NodeEngine>>,
    /// Somebody has told of the overlay, and its rules are written.
    is_overlay_told: bool,
}

impl Kept {
    fn engine(&mut self, mode: ProxyMode) -> Result<&mut dyn NodeEngine, EngineError> {
        if self.engine.is_none() {
            let engine = node_engine(mode)?;
            tracing::info!(engine = engine.name(), "keeps host ports and masquerade");
            self.engine = Some(engine);
        }
        Ok(&mut **self.engine.as_mut().expect("it was just made"))
    }
}

impl NodeRules {
    /// Begins with what an earlier run remembered, of the overlay in `dir`. Writes nothing.
    pub(crate) fn new(mode: ProxyMode, dir: &Path, mut remembered: NodePlan) -> Self {
        let overlay = OverlayRecord::in_dir(dir);
        remembered.overlay = overlay.load();
        let kept = Kept {
            plan: remembered,
            ..Kept::default()
        };
        Self {
            mode,
            overlay,
            kept: Mutex::new(kept),
        }
    }

    /// Publishes these ports and no others.
    pub(crate) fn set_host_ports(&self, ports: Vec<PodPorts>) -> Result<(), EngineError> {
        self.change(Part::HostPorts, |plan| plan.host_ports = ports)
    }

    pub(crate) fn set_masquerade(&self, masquerade: Masquerade) -> Result<(), EngineError> {
        self.change(Part::Masquerade, |plan| plan.masquerade = Some(masquerade))
    }

    /// Costs nothing if it is known.
    pub(crate) fn set_overlay(&self, overlay: Overlay) -> Result<(), EngineError> {
        let kept = self.kept.lock();
        if kept.is_overlay_told && kept.plan.overlay == overlay {
            return Ok(());
        }
        drop(kept);
        self.change(Part::Overlay, |plan| plan.overlay = overlay.clone())?;
        // A full disk is no reason to cut nodes off: the rules stand.
        if let Err(error) = self.overlay.store(&overlay) {
            tracing::warn!(error = %ErrorChain(&error), "the next agent may not know of the overlay before a server tells it");
        }
        self.kept.lock().is_overlay_told = true;
        Ok(())
    }

    /// As it was told last.
    pub(crate) fn overlay(&self) -> Overlay {
        self.kept.lock().plan.overlay.clone()
    }

    /// Writes again what others removed. Returns whether there was anything.
    pub(crate) fn repair(&self) -> Result<bool, EngineError> {
        let mut kept = self.kept.lock();
        let plan = kept.plan.clone();
        kept.engine(self.mode)?.reconcile(&plan)
    }

    /// Whether others may have removed something; also before anybody has looked. Costs
    /// microseconds.
    pub(crate) fn is_disturbed(&self) -> bool {
        let kept = self.kept.lock();
        let engine = kept.engine.as_ref();
        engine.is_none_or(|engine| engine.is_disturbed())
    }

    /// Another network has followed: nobody is kept from an overlay any more.
    pub(crate) fn forget_overlay(&self) -> Result<(), EngineError> {
        self.overlay.store(&Overlay::None).map_err(EngineError::new)
    }

    fn change(&self, part: Part, edit: impl FnOnce(&mut NodePlan)) -> Result<(), EngineError> {
        let mut kept = self.kept.lock();
        let mut plan = kept.plan.clone();
        edit(&mut plan);
        kept.engine(self.mode)?.write(&plan, part)?;
        kept.plan = plan;
        Ok(())
    }
}
