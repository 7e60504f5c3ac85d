use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use super::*;

/// A Lease in memory that compares versions.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    lease: Option<Lease>,
    version: u64,
    is_down: bool,
    /// Between a write and its answer.
    slowness: Duration,
}

impl Memory {
    fn fail(code: u16) -> kube::Error {
        let mut status = kube::core::Status::failure("no", "Test");
        status.code = code;
        kube::Error::Api(Box::new(status))
    }

    fn write(&self, lease: &Lease, is_new: bool) -> kube::Result<Lease> {
        let mut state = self.0.lock();
        if state.is_down {
            return Err(Self::fail(503));
        }
        let present = state
            .lease
            .as_ref()
            .map(|lease| lease.metadata.resource_version.clone());
        let is_right = match present {
            None => is_new,
            Some(version) => !is_new && version == lease.metadata.resource_version,
        };
        if !is_right {
            return Err(Self::fail(409));
        }
        state.version += 1;
        let mut lease = lease.clone();
        lease.metadata.resource_version = Some(state.version.to_string());
        state.lease = Some(lease.clone());
        Ok(lease)
    }

    async fn answer(&self, written: kube::Result<Lease>) -> kube::Result<Lease> {
        let slowness = self.0.lock().slowness;
        tokio::time::sleep(slowness).await;
        written
    }

    fn spec(&self) -> LeaseSpec {
        self.0
            .lock()
            .lease
            .clone()
            .and_then(|lease| lease.spec)
            .expect("a Lease")
    }
}

impl Lock for Memory {
    async fn get(&self, _: &str) -> kube::Result<Option<Lease>> {
        let state = self.0.lock();
        if state.is_down {
            Err(Self::fail(503))
        } else {
            Ok(state.lease.clone())
        }
    }

    async fn create(&self, lease: &Lease) -> kube::Result<Lease> {
        self.answer(self.write(lease, true)).await
    }

    async fn replace(&self, _: &str, lease: &Lease) -> kube::Result<Lease> {
        self.answer(self.write(lease, false)).await
    }
}

/// Who leads at the moment, in order of coming to power.
type Leaders = Arc<Mutex<Vec<&'static str>>>;

fn stand(
    memory: &Memory,
    identity: &'static str,
    leaders: &Leaders,
    stop: &CancellationToken,
) -> AbortOnDropHandle<Result<(), Lost>> {
    let (memory, leaders, stop) = (memory.clone(), leaders.clone(), stop.clone());
    let running = async move {
        run(
            memory,
            Election::new("the-lease", identity),
            stop,
            |leading| async move {
                leaders.lock().push(identity);
                leading.cancelled().await;
                leaders.lock().retain(|other| *other != identity);
            },
        )
        .await
    };
    AbortOnDropHandle::new(coracle_telemetry::spawn("a candidate", running))
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_the_next_only_once_the_lease_has_stood_still() {
    let (memory, leaders, stop) = (
        Memory::default(),
        Leaders::default(),
        CancellationToken::new(),
    );
    let first = stand(&memory, "a", &leaders, &stop);
    pass(1).await;
    let _second = stand(&memory, "b", &leaders, &stop);
    pass(60).await;
    assert_eq!(*leaders.lock(), ["a"]);
    let taken = memory.spec();
    assert_eq!(
        (taken.lease_transitions, taken.lease_duration_seconds),
        (Some(0), Some(15))
    );
    assert!(
        taken.acquire_time < taken.renew_time,
        "renewed, and the beginning kept: {taken:?}"
    );
    // It vanishes without a word.
    drop(first);
    leaders.lock().clear();
    pass(12).await;
    assert!(leaders.lock().is_empty());
    pass(13).await;
    assert_eq!(*leaders.lock(), ["b"]);
    assert_eq!(memory.spec().lease_transitions, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stops_gives_the_lease_back() {
    let (memory, leaders) = (Memory::default(), Leaders::default());
    let (stop_first, stop) = (CancellationToken::new(), CancellationToken::new());
    let first = stand(&memory, "a", &leaders, &stop_first);
    pass(1).await;
    let _second = stand(&memory, "b", &leaders, &stop);
    stop_first.cancel();
    assert_eq!(first.await.unwrap(), Ok(()));
    assert_eq!(memory.spec().holder_identity.as_deref(), Some(""));
    pass(5).await;
    assert_eq!(*leaders.lock(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_steps_down_before_another_may_lead() {
    let (memory, leaders, stop) = (
        Memory::default(),
        Leaders::default(),
        CancellationToken::new(),
    );
    let first = stand(&memory, "a", &leaders, &stop);
    pass(1).await;
    memory.0.lock().is_down = true;
    let begun = Instant::now();
    let lost = first.await.unwrap().unwrap_err();
    assert_eq!(lost.to_string(), "a has lost the Lease the-lease");
    assert!(leaders.lock().is_empty());
    let after = begun.elapsed();
    assert!(
        after >= Duration::from_secs(6) && after <= Duration::from_secs(10),
        "{after:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_another_has_taken_steps_down_at_once() {
    let (memory, leaders, stop) = (
        Memory::default(),
        Leaders::default(),
        CancellationToken::new(),
    );
    let first = stand(&memory, "a", &leaders, &stop);
    pass(1).await;
    if let Some(spec) = memory
        .0
        .lock()
        .lease
        .as_mut()
        .and_then(|lease| lease.spec.as_mut())
    {
        spec.holder_identity = Some("thief".to_owned());
    }
    let begun = Instant::now();
    first.await.unwrap().unwrap_err();
    assert!(
        begun.elapsed() <= Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(
        memory.spec().holder_identity.as_deref(),
        Some("thief"),
        "not given back: it is another's"
    );
}

#[tokio::test(start_paused = true)]
async fn the_deadline_counts_from_before_the_write() {
    let (memory, leaders, stop) = (
        Memory::default(),
        Leaders::default(),
        CancellationToken::new(),
    );
    let first = stand(&memory, "a", &leaders, &stop);
    pass(1).await;
    memory.0.lock().slowness = Duration::from_secs(4);
    let written = memory.0.lock().version;
    while memory.0.lock().version == written {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Another may have seen this write, and counts from now on; the answer is still to come.
    let renewed = Instant::now();
    memory.0.lock().is_down = true;
    first.await.unwrap().unwrap_err();
    assert!(
        renewed.elapsed() <= Duration::from_secs(10),
        "{:?}",
        renewed.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_led_is_cut_off_before_another_may_lead() {
    let (memory, stop) = (Memory::default(), CancellationToken::new());
    let lock = memory.clone();
    let leading = async move {
        run(lock, Election::new("the-lease", "a"), stop, |_| {
            std::future::pending::<()>()
        })
        .await
    };
    let first = AbortOnDropHandle::new(coracle_telemetry::spawn("a candidate", leading));
    pass(1).await;
    memory.0.lock().is_down = true;
    let begun = Instant::now();
    first.await.unwrap().unwrap_err();
    assert!(
        begun.elapsed() <= Duration::from_secs(15),
        "{:?}",
        begun.elapsed()
    );
}
