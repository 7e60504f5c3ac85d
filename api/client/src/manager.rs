//! What runs together: the informers of one process, and the controllers that read them.
//!
//! They are one group of tasks: a dead informer would leave its readers with a picture that no
//! longer changes, and a dead controller its objects to themselves. The first that ends ends all,
//! and the caller starts them anew.
//!
//! The names are those of `sigs.k8s.io/controller-runtime` (`Manager`, `Builder`, `Reconciler`),
//! and so is the way they go together.

use std::{fmt, time::Duration};

use coracle_telemetry::{TaskEnded, Tasks, metrics::MetricsRegistry};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::informers::{Informers, listed};

/// See the module. Nothing runs before [`Manager::run`].
pub struct Manager {
    /// What the controllers read.
    pub informers: Informers,
    pub(crate) metrics: MetricsRegistry,
    tasks: Tasks,
}

impl Manager {
    /// Without controllers. What they count goes to `metrics`; all ends with `shutdown`.
    #[must_use]
    pub fn new(
        informers: Informers,
        metrics: MetricsRegistry,
        shutdown: &CancellationToken,
    ) -> Self {
        // A child: it ends with the tasks that it stops as well.
        Self {
            informers,
            metrics,
            tasks: Tasks::new(shutdown.child_token()),
        }
    }

    /// Something else that runs until it is told to stop.
    pub fn add<F>(&mut self, name: &'static str, run: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.add(name, run(self.tasks.stop()));
    }

    /// What runs once all of `synced` are true.
    pub(crate) fn add_synced<F>(
        &mut self,
        name: &'static str,
        synced: Vec<watch::Receiver<bool>>,
        run: impl FnOnce(CancellationToken) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        self.add(name, |shutdown| async move {
            if shutdown.run_until_cancelled(listed(synced)).await.is_some() {
                run(shutdown).await;
            }
        });
    }

    /// Runs all of it until it is told to stop, or until one task has died. Each cuts off what it
    /// does then and ends at once; together they get `stop_timeout`.
    ///
    /// # Errors
    /// Which task has died.
    pub async fn run(self, stop_timeout: Duration) -> Result<(), TaskEnded> {
        let Self {
            informers,
            mut tasks,
            ..
        } = self;
        drop(informers.spawn(&mut tasks));
        let ended = tasks.watch().await;
        tasks.finish(stop_timeout).await;
        ended
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager")
            .field("informers", &self.informers)
            .finish_non_exhaustive()
    }
}
