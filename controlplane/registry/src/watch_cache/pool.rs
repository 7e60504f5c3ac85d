//! What many objects of one resource have in common, held once: texts, and the models of those that
//! are alike.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use coracle_api::interner::Interner;
use parking_lot::Mutex;

use super::alike::{Models, Tail};

/// Of one resource.
#[derive(Default)]
pub(crate) struct Pool {
    texts: Mutex<Interner<str>>,
    models: Mutex<Models>,
}

impl Pool {
    /// The text as all who have it share it.
    pub(crate) fn share(&self, text: &str) -> Arc<str> {
        self.texts.lock().share_ref(text)
    }

    /// What follows the metadata of the object `name`. Those that are made of one have its name, a
    /// dash and something of their own; as they come to run, all become longer.
    pub(super) fn tail(&self, namespace: &str, name: &str, text: &[u8]) -> Tail {
        const STEP: usize = 1024;
        let made_of = name.rsplit_once('-').map_or("", |(made_of, _)| made_of);
        let mut hasher = DefaultHasher::new();
        (namespace, made_of, text.len() / STEP).hash(&mut hasher);
        self.models.lock().tail(hasher.finish(), text)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.texts.lock().len()
    }
}
