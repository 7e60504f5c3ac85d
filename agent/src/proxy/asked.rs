//! The proxy's answer to who asks for its plan.

use super::{Proxy, owned::Owned};

impl Proxy {
    /// What nobody else knows.
    pub(super) fn owned(&self) -> Owned {
        let engine = self.engine.as_ref();
        Owned {
            engine: engine.map_or("", |engine| engine.name()),
            network: self.ranges.network(),
            external: self.turns.external(),
            waiting: self.turns.waiting(),
            refused: engine.map(|engine| engine.refused()).unwrap_or_default(),
            is_failing: self.retry_delay.is_some(),
        }
    }
}
