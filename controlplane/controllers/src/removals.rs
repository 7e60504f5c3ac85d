//! Who is told of what goes, of any kind: the collector alone sees it all.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;

use crate::builder::{Builder, Queue};

type Handler = Box<dyn Fn(Gone<'_>) + Send + Sync>;

/// Where something has gone.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Gone<'a> {
    /// In this namespace.
    In(&'a str),
    /// Nobody knows where, or whether: a kind was listed, and what came and went before, or between
    /// the end of its watch and then, was never seen.
    Unseen,
}

/// The handlers. Clones are one.
#[derive(Clone, Default)]
pub(crate) struct Removals(Arc<Mutex<Vec<Handler>>>);

impl Removals {
    /// Calls `handler` with where each object goes, and the queue of `controller`; it must be
    /// quick.
    pub(crate) fn on_removed<T: Send + Sync + 'static>(
        &self,
        controller: &Builder<'_>,
        this: &Arc<T>,
        handler: fn(&T, Gone<'_>, &Queue),
    ) {
        let (this, queue) = (this.clone(), controller.queue());
        let handler = move |gone: Gone<'_>| handler(&this, gone, &queue);
        self.0.lock().push(Box::new(handler));
    }

    /// An object has gone, or may have.
    pub(crate) fn tell(&self, gone: Gone<'_>) {
        self.0.lock().iter().for_each(|handler| handler(gone));
    }
}

impl fmt::Debug for Removals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Removals")
            .field(&self.0.lock().len())
            .finish()
    }
}
