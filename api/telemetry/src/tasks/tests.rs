use std::{io, sync::Arc};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::*;

const LONG: Duration = Duration::from_secs(3600);
const PAUSES: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(500), Duration::from_secs(30));

fn group() -> Tasks {
    Tasks::new(CancellationToken::new())
}

#[tokio::test]
async fn one_task_that_dies_ends_the_others_and_is_named() {
    let shared = CancellationToken::new();
    let mut tasks = Tasks::new(shared.child_token());
    let stop = tasks.stop();
    tasks.add("the patient one", async move { stop.cancelled().await });
    tasks.add("the informer of Pods", async {
        panic!("a handler has a bug")
    });
    let error = tasks.watch().await.unwrap_err();
    assert_eq!(error.to_string(), "the informer of Pods has died");
    tasks.finish(LONG).await;
    assert!(tasks.stop().is_cancelled() && !shared.is_cancelled());
}

#[tokio::test]
async fn tasks_that_end_as_told_are_no_failure() {
    let mut tasks = group();
    let stop = tasks.stop();
    tasks.add("one", async move { stop.cancelled().await });
    tasks.stop().cancel();
    tasks.watch().await.unwrap();
    tasks.finish(LONG).await;
    let mut tasks = group();
    tasks.add("one", async {});
    assert_eq!(
        tasks.watch().await.unwrap_err().to_string(),
        "one has ended"
    );
}

#[tokio::test]
async fn those_that_work_for_others_outlive_the_first_that_ends() {
    let mut tasks = group();
    let stop = tasks.stop();
    tasks.add(
        "the writer of statuses",
        async move { stop.cancelled().await },
    );
    tasks.add("the writer of events", async { panic!("a bug") });
    assert_eq!(
        tasks.first_end().await.unwrap_err().to_string(),
        "the writer of events has died"
    );
    assert!(!tasks.stop().is_cancelled());
    tasks.finish(LONG).await;
}

#[tokio::test(start_paused = true)]
async fn what_does_not_end_in_time_is_cut_off() {
    let mut tasks = group();
    let (told, heard) = tokio::sync::oneshot::channel::<()>();
    tasks.add("the deaf one", async move {
        std::future::pending::<()>().await;
        drop(told);
    });
    tasks.finish(Duration::from_secs(1)).await;
    heard.await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_cut_off_is_left() {
    let mut tasks = group();
    let (release, stuck) = std::sync::mpsc::channel::<()>();
    tasks.add("the stuck one", async move {
        let _ = stuck.recv();
    });
    // Without a bound it would wait for what is released only afterwards.
    tasks.finish(Duration::from_millis(10)).await;
    drop(release);
}

#[tokio::test]
async fn the_holder_of_a_task_sees_its_panic() {
    assert_eq!(spawn("good", async { 7 }).await.unwrap(), 7);
    let died = spawn("bad", async { panic!("a bug") }).await.unwrap_err();
    assert!(died.is_panic());
}

#[tokio::test]
async fn a_panic_in_a_set_is_told_with_the_name_of_its_task() {
    let told = Told::default();
    let listening = tracing::subscriber::set_default(told.clone());
    let (mut set, tracker) = (JoinSet::new(), TaskTracker::new());
    spawn_in(&mut set, "serve a connection", async { panic!("one bug") });
    assert!(set.join_next().await.unwrap().unwrap_err().is_panic());
    let tracked = spawn_tracked(&tracker, "run a pod", async { panic!("{} bugs", 2) });
    assert!(tracked.await.unwrap_err().is_panic());
    drop(listening);
    assert_eq!(
        *told.0.lock(),
        [
            "message=panicked task=\"serve a connection\" panic=\"one bug\"",
            "message=panicked task=\"run a pod\" panic=\"2 bugs\"",
        ]
    );
}

/// The fields of every event, in their order.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Told {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.0.lock().push(fields.0.join(" "));
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[derive(Default)]
struct Fields(Vec<String>);

impl tracing::field::Visit for Fields {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
        self.0.push(format!("{}={value:?}", field.name()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_kept_is_started_again_and_unwell_until_it_is_steady() {
    let (mut tasks, begun, health) = (group(), Instant::now(), Health::default());
    let told = Arc::new(Mutex::new(Vec::new()));
    let lives = Mutex::new([Some(0), None, Some(60), Some(3600)].into_iter());
    let starts = Arc::clone(&told);
    tasks.keep("the part", PAUSES, &health, move |stop| {
        starts.lock().push(begun.elapsed());
        let life = lives.lock().next().expect("not more often");
        async move {
            tokio::select! {
                () = stop.cancelled() => Ok(()),
                () = tokio::time::sleep(Duration::from_secs(life.expect("a panic"))) => Err(io::Error::other("a bug")),
            }
        }
    });
    let seen = async |after: u64| {
        tokio::time::sleep(Duration::from_millis(after)).await;
        (told.lock().len(), health.unwell().is_empty())
    };
    // Dead at once, dead again after half a second at most, alive after another second at most.
    assert_eq!(seen(10).await, (1, false));
    assert_eq!(seen(2_000).await, (3, false));
    assert_eq!(seen(9_600).await, (3, true), "steady");
    // Dead after a minute; the pause is as short as the first.
    assert_eq!(seen(50_500).await, (4, false));
    assert_eq!(seen(10_000).await, (4, true));
    tasks.finish(LONG).await;
    let told = told.lock();
    let between = |a: usize, b: usize| (told[b] - told[a]).as_millis();
    assert!(
        (250..=501).contains(&between(0, 1)),
        "the first pause: {told:?}"
    );
    assert!(
        (500..=1001).contains(&between(1, 2)),
        "twice that: {told:?}"
    );
    assert!(
        (60_250..=60_501).contains(&between(2, 3)),
        "as at first, it had been well: {told:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_task_that_panics_before_it_waits_for_anything_is_kept_as_well() {
    let (mut tasks, health) = (group(), Health::default());
    let starts = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&starts);
    tasks.keep("the part", PAUSES, &health, move |stop| {
        *counted.lock() += 1;
        assert!(*counted.lock() > 1, "a bug");
        async move { stop.cancelled().await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(*starts.lock(), 2);
    tasks.finish(LONG).await;
}

#[test]
fn parts_that_are_unwell_are_named() {
    let health = Health::default();
    health.tell("b", false);
    health.clone().tell("a", true);
    assert_eq!(health.parts(), [("a", true), ("b", false)]);
    assert_eq!(health.unwell(), ["b"]);
}
