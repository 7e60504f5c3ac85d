//! Deciding among the other tasks of a runtime.

use std::sync::{Mutex, mpsc};

use coracle_client::event_recorder;
use futures::{FutureExt, future::BoxFuture};
use kube::client::Body;

use super::*;
use crate::{
    framework::{Framework, NodeNames, Plugin, PluginName, PreBind, PreFilter},
    snapshot::Snapshot,
    testing::{node, pod},
};

/// How often the other task has its turn during one attempt.
const TURNS: usize = 3;
/// When it has none.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes an attempt last until another task of the runtime has answered [`TURNS`] times.
struct Lasting {
    asks: tokio::sync::mpsc::UnboundedSender<()>,
    answers: Mutex<mpsc::Receiver<()>>,
}

impl Plugin for Lasting {
    fn name(&self) -> PluginName {
        PluginName::Test
    }
}

impl PreFilter for Lasting {
    fn pre_filter(
        &self,
        _: &mut CycleState,
        _: &PodInfo,
        _: &Snapshot<'_>,
    ) -> (Option<NodeNames>, Status) {
        let answers = self.answers.lock().unwrap();
        let is_answered = |_| self.asks.send(()).is_ok() && answers.recv_timeout(PATIENCE).is_ok();
        let status = match (0..TURNS).all(is_answered) {
            true => Status::SUCCESS,
            false => Status::error("the other task had no turn"),
        };
        (None, status)
    }
}

fn scheduler(framework: Framework) -> Scheduler {
    let silent = tower::service_fn(|_: http::Request<Body>| {
        std::future::pending::<Result<http::Response<Body>, kube::Error>>()
    });
    let client = Client::new(silent, "default");
    let (recorder, _) = event_recorder::channel(client.clone(), None, Duration::ZERO);
    let profiles = Profiles::from(Arc::new(framework));
    let waits = ExponentialBackoff::new(Duration::from_secs(1), Duration::from_secs(10));
    Scheduler {
        queue: SchedulingQueue::new(profiles.clone(), waits, Instant::now()),
        algorithm: Algorithm::new(profiles.clone()),
        profiles,
        ..Scheduler::new(
            client,
            SchedulerConfig::default(),
            recorder,
            CancellationToken::new(),
        )
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn other_tasks_have_their_turns_during_a_long_attempt() {
    let (asks, mut asked) = tokio::sync::mpsc::unbounded_channel();
    let (answer, answers) = mpsc::channel();
    let lasting = Lasting {
        asks,
        answers: Mutex::new(answers),
    };
    let mut scheduler = scheduler(Framework {
        pre_filter: vec![Box::new(lasting)],
        ..Framework::default()
    });
    scheduler.cache.set_node(&node("n", "4"));
    scheduler.queue.add(pod("p", "100m"), Instant::now());
    let other = coracle_telemetry::spawn("the other task", async move {
        while asked.recv().await.is_some() {
            answer.send(()).unwrap();
        }
    });
    // Both are on the runtime's only worker.
    let deciding = coracle_telemetry::spawn("the scheduler", async move {
        scheduler.decide();
        scheduler.bindings.len()
    });
    assert_eq!(deciding.await.unwrap(), 1, "the attempt has gone wrong");
    other.await.unwrap();
}

/// What it has to do before a pod is bound does not end.
struct Endless;

impl Plugin for Endless {
    fn name(&self) -> PluginName {
        PluginName::Test
    }
}

impl PreBind for Endless {
    fn has_work(&self, _: &CycleState) -> bool {
        true
    }

    fn pre_bind<'a>(
        &'a self,
        _: &'a CycleState,
        _: &'a PodInfo,
        _: &'a str,
    ) -> BoxFuture<'a, Status> {
        std::future::pending().boxed()
    }
}

#[tokio::test]
async fn pods_that_wait_before_they_are_bound_hold_up_nobody() {
    let mut scheduler = scheduler(Framework {
        pre_bind: vec![Box::new(Endless)],
        ..Framework::default()
    });
    scheduler.cache.set_node(&node("n", "4"));
    let many = BINDINGS_IN_FLIGHT + 1;
    for number in 0..many {
        let pod = pod(&format!("p{number}"), "1m");
        scheduler.queue.add(pod, Instant::now());
    }
    while scheduler.decide() {}
    assert_eq!(
        (scheduler.waiting.len(), scheduler.bindings.len()),
        (many, 0)
    );
    // Beyond any measure they are tried again later.
    for number in many..=WAITING_BINDINGS {
        let pod = pod(&format!("p{number}"), "1m");
        scheduler.queue.add(pod, Instant::now());
    }
    while scheduler.decide() {}
    assert_eq!(scheduler.waiting.len(), WAITING_BINDINGS);
    assert_eq!(scheduler.queue.lengths().backoff, 1);
}
