//! One question for all who ask at a time.

use std::{future::Future, sync::Arc};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use parking_lot::Mutex;

/// Sends one question at a time. Who comes while one is under way shares the next one with all
/// others who do: an answer is never older than the question of anybody who gets it.
pub(crate) struct Coalesced<T> {
    /// Not sent yet.
    next: Arc<Mutex<Option<Asked<T>>>>,
    /// Held by the one that is under way.
    turn: Arc<tokio::sync::Mutex<()>>,
}

type Asked<T> = Shared<BoxFuture<'static, T>>;

impl<T> Default for Coalesced<T> {
    fn default() -> Self {
        Self {
            next: Arc::default(),
            turn: Arc::default(),
        }
    }
}

impl<T: Clone + Send + Sync + 'static> Coalesced<T> {
    /// The answer to a question that was sent after this was called. Cancel-safe.
    pub(crate) async fn ask<F>(&self, send: impl FnOnce() -> F + Send + 'static) -> T
    where
        F: Future<Output = T> + Send + 'static,
    {
        let asked = {
            let mut next = self.next.lock();
            next.get_or_insert_with(|| {
                let (slot, turn) = (Arc::clone(&self.next), Arc::clone(&self.turn));
                let question = async move {
                    let _turn = turn.lock().await;
                    let no_more_join = slot.lock().take();
                    drop(no_more_join);
                    send().await
                };
                question.boxed().shared()
            })
            .clone()
        };
        asked.await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;

    use super::*;

    struct Asker {
        questions: Coalesced<usize>,
        sent: Arc<AtomicUsize>,
        answers: Arc<Semaphore>,
    }

    impl Asker {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                questions: Coalesced::default(),
                sent: Arc::default(),
                answers: Arc::new(Semaphore::new(0)),
            })
        }

        fn ask(self: &Arc<Self>) -> BoxFuture<'static, usize> {
            let asker = Arc::clone(self);
            async move {
                let (sent, answers) = (Arc::clone(&asker.sent), Arc::clone(&asker.answers));
                let send = move || async move {
                    let number = sent.fetch_add(1, Ordering::Relaxed) + 1;
                    if let Ok(answer) = answers.acquire().await {
                        answer.forget();
                    }
                    number
                };
                asker.questions.ask(send).await
            }
            .boxed()
        }
    }

    #[tokio::test]
    async fn who_asks_while_one_is_under_way_shares_the_next() {
        let asker = Asker::new();
        let mut first = asker.ask();
        assert!(futures::poll!(&mut first).is_pending());
        let mut later: Vec<_> = (0..10).map(|_| asker.ask()).collect();
        for one in &mut later {
            assert!(futures::poll!(one).is_pending());
        }
        assert_eq!(asker.sent.load(Ordering::Relaxed), 1);
        asker.answers.add_permits(2);
        assert_eq!(first.await, 1);
        assert_eq!(futures::future::join_all(later).await, [2; 10]);
        assert_eq!(asker.sent.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn one_who_goes_away_takes_nobody_along() {
        let asker = Asker::new();
        let mut first = asker.ask();
        assert!(futures::poll!(&mut first).is_pending());
        let mut second = asker.ask();
        assert!(futures::poll!(&mut second).is_pending());
        // The one under way, and the one that holds the place of the next.
        drop((first, second));
        asker.answers.add_permits(1);
        assert_eq!(asker.ask().await, 2);
    }
}
