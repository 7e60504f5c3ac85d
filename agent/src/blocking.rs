//! Work that blocks (files, mounts, locks, other processes), away from the threads that serve
//! everything else.

/// Runs `work` where it may block, and to its end even if the caller goes away.
///
/// A panic in it goes on in the caller, as if it had been called there. A pool that starts nothing
/// any more belongs to an ending process: the caller, which goes with it, waits for that.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => std::future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    #[should_panic(expected = "of the work")]
    async fn a_panic_goes_on_in_the_caller() {
        blocking(|| panic!("of the work")).await
    }

    #[tokio::test]
    async fn work_outlives_its_caller() {
        let (begun, beginning) = tokio::sync::oneshot::channel();
        let (go, gone) = std::sync::mpsc::channel();
        let (ended, end) = tokio::sync::oneshot::channel();
        let work = blocking(move || {
            let _ = begun.send(());
            let _ = gone.recv();
            let _ = ended.send(());
        });
        tokio::select! {
            () = work => panic!("nobody let it end"),
            begun = beginning => begun.expect("begun"),
        }
        // The caller has gone with the `select!`.
        go.send(()).expect("still there");
        end.await.expect("an end");
    }
}
