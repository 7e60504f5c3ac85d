//! The tasks of all informers and controllers: they live and end together.
//!
//! A dead informer would leave its controllers with a picture that no longer changes, and a dead controller its objects to
//! themselves: the first task that ends ends all, and the caller starts them anew.

use std::collections::HashMap;

use futures::future::try_join_all;
use tokio::{
    sync::watch,
    task::{self, JoinSet},
};
use tokio_util::sync::CancellationToken;

use crate::manager::RunError;

/// All tasks, by name, and the token that ends them.
pub(crate) struct Tasks {
    set: JoinSet<()>,
    names: HashMap<task::Id, &'static str>,
    pub(crate) shutdown: CancellationToken,
}

impl Tasks {
    pub(crate) fn new(shutdown: CancellationToken) -> Self {
        Self { set: JoinSet::new(), names: HashMap::new(), shutdown }
    }

    pub(crate) fn add(&mut self, name: &'static str, run: impl Future<Output = ()> + Send + 'static) {
        let id = self.set.spawn(run).id();
        self.names.insert(id, name);
    }

    /// Waits for `shutdown`, or for the first task that ends before it.
    pub(crate) async fn watch_over(mut self) -> Result<(), RunError> {
        let mut result = Ok(());
        while let Some(ended) = self.set.join_next_with_id().await {
            if self.shutdown.is_cancelled() {
                continue;
            }
            let id = ended.as_ref().map_or_else(tokio::task::JoinError::id, |(id, ())| *id);
            let task = self.names.get(&id).copied().unwrap_or("a controller");
            result = match ended {
                Ok(_) => Err(RunError::TaskEnded { task }),
                Err(source) => Err(RunError::TaskDied { task, source }),
            };
            self.shutdown.cancel();
        }
        result
    }

    /// Runs a controller once the caches it reads are complete.
    pub(crate) fn spawn<F, Fut>(&mut self, name: &'static str, synced: Vec<watch::Receiver<bool>>, run: F)
    where
        F: FnOnce(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let shutdown = self.shutdown.clone();
        self.add(name, async move {
            let complete = try_join_all(
                synced.into_iter().map(|mut synced| async move { synced.wait_for(|done| *done).await.map(drop) }),
            );
            let complete = tokio::select! {
                () = shutdown.cancelled() => return,
                complete = complete => complete,
            };
            match complete {
                Ok(_) => run(shutdown).await,
                // An informer has died; the part is about to end.
                Err(_) => shutdown.cancelled().await,
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_task_that_dies_ends_the_others_and_is_named() {
        let shutdown = CancellationToken::new();
        let mut tasks = Tasks::new(shutdown.child_token());
        let stop = tasks.shutdown.clone();
        tasks.add("the patient one", async move { stop.cancelled().await });
        tasks.add("the informer of Pods", async { panic!("a handler has a bug") });
        let error = tasks.watch_over().await.unwrap_err();
        assert_eq!(error.to_string(), "the informer of Pods has died");
        assert!(!shutdown.is_cancelled());
    }

    #[tokio::test]
    async fn tasks_that_end_as_told_are_no_failure() {
        let shutdown = CancellationToken::new();
        let mut tasks = Tasks::new(shutdown.child_token());
        let stop = tasks.shutdown.clone();
        tasks.add("one", async move { stop.cancelled().await });
        shutdown.cancel();
        tasks.watch_over().await.unwrap();
        let mut tasks = Tasks::new(CancellationToken::new());
        tasks.add("one", async {});
        assert_eq!(tasks.watch_over().await.unwrap_err().to_string(), "one has ended");
    }
}
