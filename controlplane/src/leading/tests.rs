use std::sync::atomic::{AtomicUsize, Ordering};

use coracle_apiserver::testing;
use coracle_telemetry::spawn;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use kube::api::PostParams;
use tokio::{task::JoinHandle, time::Instant};

use super::*;

/// How many run, and how many ran at most at once.
#[derive(Default)]
struct Count {
    now: AtomicUsize,
    most: AtomicUsize,
    starts: AtomicUsize,
}

/// Counted for as long as it lives, however it ends.
struct Running(Arc<Count>);

impl Running {
    fn begin(count: &Arc<Count>) -> Self {
        let now = 1 + count.now.fetch_add(1, Ordering::SeqCst);
        count.most.fetch_max(now, Ordering::SeqCst);
        count.starts.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Work that ends when it is told to, or never.
fn work(count: &Arc<Count>, hears: bool) -> Vec<Part> {
    let count = Arc::clone(count);
    vec![Part::endless("work", move |stop| {
        let running = Running::begin(&count);
        async move {
            if hears {
                stop.cancelled().await;
            } else {
                std::future::pending::<()>().await;
            }
            drop(running);
        }
    })]
}

async fn lock() -> Api<Lease> {
    let user = UserInfo::new("system:kube-scheduler", &[]);
    Api::namespaced(testing::server().await.client(user), NAMESPACE)
}

fn candidate(
    lock: &Api<Lease>,
    identity: &str,
    parts: Vec<Part>,
    stop: &CancellationToken,
) -> JoinHandle<Result<(), Lost>> {
    let election = Election::new("kube-scheduler", identity);
    let (lock, stop) = (lock.clone(), stop.clone());
    spawn(
        "a candidate",
        stand(lock, election, parts, Health::default(), stop),
    )
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// What another who believes to lead would do.
async fn usurp(lock: &Api<Lease>) {
    let mut lease = lock.get("kube-scheduler").await.unwrap();
    lease.spec = Some(LeaseSpec {
        holder_identity: Some("usurper".to_owned()),
        lease_duration_seconds: Some(15),
        ..LeaseSpec::default()
    });
    lock.replace("kube-scheduler", &PostParams::default(), &lease)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_with_nobody_else_leads_at_once() {
    let (lock, count) = (lock().await, Arc::<Count>::default());
    let stop = CancellationToken::new();
    let begun = Instant::now();
    let candidate = candidate(&lock, "a", work(&count, true), &stop);
    until("it leads", || count.now.load(Ordering::SeqCst) == 1).await;
    assert!(
        begun.elapsed() < Duration::from_millis(100),
        "{:?}",
        begun.elapsed()
    );
    stop.cancel();
    assert_eq!(candidate.await.unwrap(), Ok(()));
    // Given back: the next needs not wait either.
    let begun = Instant::now();
    let stop = CancellationToken::new();
    let _next = self::candidate(&lock, "b", work(&count, true), &stop);
    until("it leads", || count.starts.load(Ordering::SeqCst) == 2).await;
    assert!(
        begun.elapsed() < Duration::from_millis(100),
        "{:?}",
        begun.elapsed()
    );
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn what_is_led_runs_on_one_server_at_a_time() {
    let (lock, count) = (lock().await, Arc::<Count>::default());
    let stops = [
        CancellationToken::new(),
        CancellationToken::new(),
        CancellationToken::new(),
    ];
    let mut candidates = Vec::new();
    for (identity, stop) in ["a", "b", "c"].into_iter().zip(&stops) {
        candidates.push(candidate(&lock, identity, work(&count, true), stop));
    }
    for stopped in 0..stops.len() {
        until("one leads", || {
            count.starts.load(Ordering::SeqCst) > stopped
        })
        .await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(count.now.load(Ordering::SeqCst), 1);
        let holder = lock
            .get("kube-scheduler")
            .await
            .unwrap()
            .spec
            .unwrap()
            .holder_identity;
        let leader = ["a", "b", "c"]
            .iter()
            .position(|one| holder.as_deref() == Some(one));
        stops[leader.unwrap()].cancel();
    }
    assert_eq!(count.most.load(Ordering::SeqCst), 1);
    for candidate in candidates {
        assert_eq!(candidate.await.unwrap(), Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_ends_the_work_and_a_new_election_follows() {
    let (lock, count) = (lock().await, Arc::<Count>::default());
    let stop = CancellationToken::new();
    for hears in [true, false] {
        let leader = candidate(&lock, "a", work(&count, hears), &stop);
        until("it leads", || count.now.load(Ordering::SeqCst) == 1).await;
        usurp(&lock).await;
        let begun = Instant::now();
        assert!(leader.await.unwrap().is_err(), "it has lost the Lease");
        assert_eq!(count.now.load(Ordering::SeqCst), 0, "hears: {hears}");
        // Before another may lead, 15 s after it was renewed last.
        assert!(
            begun.elapsed() < Duration::from_secs(8),
            "{:?}",
            begun.elapsed()
        );
        // The usurper is silent: it stands again, and leads once its Lease has stood still.
    }
    let starts = count.starts.load(Ordering::SeqCst);
    let _again = candidate(&lock, "a", work(&count, true), &stop);
    until("it leads again", || {
        count.starts.load(Ordering::SeqCst) > starts
    })
    .await;
    stop.cancel();
}
