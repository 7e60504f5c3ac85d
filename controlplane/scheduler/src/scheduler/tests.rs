//! Deciding among the other tasks of a runtime.

use std::sync::{Mutex, mpsc};

use coracle_client::event_recorder;
use kube::client::Body;

use super::*;
use crate::{
    framework::{NodeNames, Plugin, PluginName, PreFilter},
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
    let framework = Arc::new(framework);
    Scheduler {
        queue: SchedulingQueue::new(framework.clone(), Instant::now()),
        algorithm: Algorithm::new(framework.clone()),
        framework,
        ..Scheduler::new(client, SchedulerConfig::default(), recorder)
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
