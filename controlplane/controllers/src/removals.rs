//! Who is told of what goes, of any kind: the collector alone sees it all.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;

use crate::builder::{Builder, Queue};

type Handler = Box<dyn Fn(&str) + Send + Sync>;

/// The handlers. Clones are one.
#[derive(Clone, Default)]
pub(crate) struct Removals(Arc<Mutex<Vec<Handler>>>);

impl Removals {
    /// Calls `handler` with the namespace of every object that goes, and the queue of
    /// `controller`; it must be quick.
    pub(crate) fn on_removed<T: Send + Sync + 'static>(
        &self,
        controller: &Builder<'_>,
        this: &Arc<T>,
        handler: fn(&T, &str, &Queue),
    ) {
        let (this, queue) = (this.clone(), controller.queue());
        let handler = move |namespace: &str| handler(&this, namespace, &queue);
        self.0.lock().push(Box::new(handler));
    }

    /// An object of `namespace` has gone.
    pub(crate) fn tell(&self, namespace: &str) {
        self.0.lock().iter().for_each(|handler| handler(namespace));
    }
}

impl fmt::Debug for Removals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Removals")
            .field(&self.0.lock().len())
            .finish()
    }
}
