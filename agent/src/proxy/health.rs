//! Whether Service rules can be written: for whoever asks the node (`/healthz/service-rules`).

use std::sync::{Arc, Mutex, PoisonError};

/// The last word on Service rules. Cheap to clone: the state is shared.
#[derive(Debug, Clone, Default)]
pub(crate) struct RulesView(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Why nothing can be written.
    failing: Option<String>,
    /// Services that the kernel refuses.
    refused: usize,
}

impl RulesView {
    /// Everything is written, but for so many Services. Returns whether it was otherwise before.
    pub(crate) fn written(&self, refused: usize) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.refused = refused;
        state.failing.take().is_some()
    }

    /// Nothing can be written. Returns whether it could before.
    pub(crate) fn failing(&self, why: String) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .failing
            .replace(why)
            .is_none()
    }

    /// One line for people.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn report(&self) -> Result<(), String> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (&state.failing, state.refused) {
            (Some(why), _) => Err(format!("no Service can be changed on this node: {why}")),
            (None, 0) => Ok(()),
            (None, count) => Err(format!(
                "{count} Services have no rules on this node: their events say why"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told_until_it_is_right() {
        let view = RulesView::default();
        assert_eq!(view.report(), Ok(()));
        assert!(view.failing("no iptables".into()) && !view.failing("no iptables".into()));
        assert!(view.report().unwrap_err().contains("no iptables"));
        assert!(view.written(2) && !view.written(2));
        assert!(view.report().unwrap_err().contains("2 Services"));
        assert!(!view.written(0));
        assert_eq!(view.report(), Ok(()));
    }
}
