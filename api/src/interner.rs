//! Values that many objects have in common, each held once.

use std::{collections::HashSet, hash::Hash, sync::Arc};

/// The values, each once. What nobody has any more goes when it would grow.
#[derive(Debug, Clone)]
pub struct Interner<T: ?Sized>(HashSet<Arc<T>>);

impl<T: ?Sized> Default for Interner<T> {
    fn default() -> Self {
        Self(HashSet::new())
    }
}

impl<T: ?Sized + Hash + Eq> Interner<T> {
    /// The value as all who have it share it.
    pub fn share(&mut self, value: Arc<T>) -> Arc<T> {
        self.find(&value).unwrap_or_else(|| self.insert(value))
    }

    /// As [`Interner::share`], where nothing is allocated for what is there already.
    pub fn share_ref<'a>(&mut self, value: &'a T) -> Arc<T>
    where
        Arc<T>: From<&'a T>,
    {
        self.find(value)
            .unwrap_or_else(|| self.insert(value.into()))
    }

    /// How many values there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn find(&self, value: &T) -> Option<Arc<T>> {
        self.0.get(value).cloned()
    }

    fn insert(&mut self, value: Arc<T>) -> Arc<T> {
        let capacity = self.0.capacity();
        if self.0.len() == capacity {
            self.0.retain(|value| Arc::strong_count(value) > 1);
            // Room for as many again, or the next few would look through all of them each.
            if self.0.len() > capacity / 2 {
                self.0.reserve(capacity);
            }
        }
        self.0.insert(Arc::clone(&value));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_held_once_and_go_with_their_last_owner() {
        let mut texts = Interner::<str>::default();
        let (first, again) = (texts.share_ref("a"), texts.share("a".into()));
        assert!(Arc::ptr_eq(&first, &again));
        for number in 0..1000 {
            drop(texts.share_ref(&number.to_string()));
        }
        assert!(texts.len() < 100, "{}", texts.len());
        assert!(Arc::ptr_eq(&first, &texts.share_ref("a")));
    }
}
