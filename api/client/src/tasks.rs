//! Starting who reads caches once these are complete.
//!
//! Informers and their readers are one group of tasks: a dead informer would leave its readers with a picture that no longer
//! changes, and a dead controller its objects to themselves. The first that ends ends all, and the caller starts them anew.

use coracle_telemetry::Tasks;
use futures::future::try_join_all;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Runs a controller once the caches it reads are complete.
pub fn spawn_synced<F, Fut>(tasks: &mut Tasks, name: &'static str, synced: Vec<watch::Receiver<bool>>, run: F)
where
    F: FnOnce(CancellationToken) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let shutdown = tasks.stop();
    tasks.add(name, async move {
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
