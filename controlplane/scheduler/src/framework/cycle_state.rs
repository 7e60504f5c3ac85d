//! What the plugins of one attempt to place one pod keep for one another: each writes its own type
//! and reads it back.
//!
//! Source: `k8s.io/kube-scheduler/framework/cycle_state.go` at v1.37; there by name, here by type.

use std::any::{Any, TypeId};

use super::plugin_name::{PluginName, PluginSet};

/// What plugins keep during one attempt, by type. Costs nothing as long as nobody writes: most
/// pods need nothing in it.
#[derive(Default)]
pub(crate) struct CycleState {
    /// A handful at most: looked through faster than hashed.
    data: Vec<(TypeId, Box<dyn Any + Send + Sync>)>,
    /// Those whose PreFilter has nothing to say about the pod.
    pub(super) skip_filter: PluginSet,
    /// Those whose PreScore has nothing to say about the pod.
    pub(super) skip_score: PluginSet,
}

impl CycleState {
    /// Keeps `value`, in place of one of the same type.
    pub(crate) fn write<T: Any + Send + Sync>(&mut self, value: T) {
        let (id, value) = (TypeId::of::<T>(), Box::new(value));
        match self.data.iter_mut().find(|(known, _)| *known == id) {
            Some((_, slot)) => *slot = value,
            None => self.data.push((id, value)),
        }
    }

    /// What was written of this type.
    pub(crate) fn read<T: Any>(&self) -> Option<&T> {
        let id = TypeId::of::<T>();
        self.data
            .iter()
            .find(|(known, _)| *known == id)
            .and_then(|(_, value)| value.downcast_ref())
    }

    /// Whether a plugin's Filter has nothing to do.
    pub(crate) fn skips_filter(&self, name: PluginName) -> bool {
        self.skip_filter.contains(name)
    }

    /// Whether a plugin's Score has nothing to do.
    pub(crate) fn skips_score(&self, name: PluginName) -> bool {
        self.skip_score.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_is_kept_once() {
        let mut cycle = CycleState::default();
        assert_eq!(cycle.read::<u8>(), None);
        cycle.write(1_u8);
        cycle.write("text".to_owned());
        cycle.write(2_u8);
        assert_eq!(
            (
                cycle.read::<u8>(),
                cycle.read::<String>().map(String::as_str)
            ),
            (Some(&2), Some("text"))
        );
    }
}
