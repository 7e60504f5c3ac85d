//! Which parts of the process are unwell, for whoever is asked: `/healthz`.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

/// The parts of a process and whether they are well. Clones are one.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<Mutex<BTreeMap<&'static str, bool>>>);

impl Health {
    /// A part is well, or is not. One that nobody has told of is not shown.
    pub fn tell(&self, part: &'static str, well: bool) {
        self.0.lock().insert(part, well);
    }

    /// All parts, by name.
    #[must_use]
    pub fn parts(&self) -> Vec<(&'static str, bool)> {
        self.0
            .lock()
            .iter()
            .map(|(part, well)| (*part, *well))
            .collect()
    }

    /// The parts that are not well.
    #[must_use]
    pub fn unwell(&self) -> Vec<&'static str> {
        self.0
            .lock()
            .iter()
            .filter(|(_, well)| !**well)
            .map(|(part, _)| *part)
            .collect()
    }
}
