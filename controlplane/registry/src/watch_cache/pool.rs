//! Texts that many objects of one resource have in common, each held once.

use std::{collections::HashSet, sync::Arc};

use parking_lot::Mutex;

/// The texts, each once. What nobody has any more goes when the pool would grow.
#[derive(Default)]
pub(crate) struct Pool(Mutex<HashSet<Arc<str>>>);

impl Pool {
    /// The text as all who have it share it.
    pub(crate) fn share(&self, text: &str) -> Arc<str> {
        let mut texts = self.0.lock();
        if let Some(known) = texts.get(text) {
            return Arc::clone(known);
        }
        let capacity = texts.capacity();
        if texts.len() == capacity {
            texts.retain(|text| Arc::strong_count(text) > 1);
            // Room for as many again, or the next few would look through all of them each.
            if texts.len() > capacity / 2 {
                texts.reserve(capacity);
            }
        }
        let text: Arc<str> = text.into();
        texts.insert(Arc::clone(&text));
        text
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }
}
