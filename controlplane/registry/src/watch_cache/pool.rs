//! Texts that many objects of one resource have in common, each held once.

use std::sync::Arc;

use coracle_api::interner::Interner;
use parking_lot::Mutex;

/// The texts of one resource.
#[derive(Default)]
pub(crate) struct Pool(Mutex<Interner<str>>);

impl Pool {
    /// The text as all who have it share it.
    pub(crate) fn share(&self, text: &str) -> Arc<str> {
        self.0.lock().share_ref(text)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }
}
