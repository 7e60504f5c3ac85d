use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering::SeqCst},
    },
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};

use super::*;
use crate::{
    cache::Cache,
    framework::{Diagnosis, plugin::Plugin, status::Reason},
    testing::{Nodes, info, node, pod},
};

/// Says at each point what it is told to say, and writes down that it was asked.
#[derive(Clone)]
struct Spy {
    name: PluginName,
    says: fn() -> Status,
    asked: Arc<Mutex<Vec<&'static str>>>,
    reserved: Arc<AtomicI64>,
}

impl Spy {
    fn new(says: fn() -> Status) -> Self {
        Self {
            name: PluginName::Test,
            says,
            asked: Arc::default(),
            reserved: Arc::default(),
        }
    }

    fn answer(&self, point: &'static str) -> Status {
        self.asked.lock().expect("no panic").push(point);
        (self.says)()
    }

    fn asked(&self) -> Vec<&'static str> {
        self.asked.lock().expect("no panic").clone()
    }
}

impl Plugin for Spy {
    fn name(&self) -> PluginName {
        self.name
    }
}

impl Reserve for Spy {
    fn reserve(&self, _: &mut CycleState, _: &PodInfo, _: &NodeInfo) -> Status {
        self.reserved.fetch_add(1, SeqCst);
        self.answer("Reserve")
    }

    fn unreserve(&self, _: &mut CycleState, _: &PodInfo, _: &str) {
        self.reserved.store(0, SeqCst);
    }
}

impl Permit for Spy {
    fn permit(&self, _: &CycleState, _: &PodInfo, _: &str) -> Status {
        self.answer("Permit")
    }
}

impl PreBind for Spy {
    fn has_work(&self, _: &CycleState) -> bool {
        true
    }

    fn pre_bind<'a>(
        &'a self,
        _: &'a CycleState,
        _: &'a PodInfo,
        _: &'a str,
    ) -> BoxFuture<'a, Status> {
        async { self.answer("PreBind") }.boxed()
    }
}

impl Bind for Spy {
    fn bind<'a>(&'a self, _: &'a CycleState, _: &'a PodInfo, _: &'a str) -> BoxFuture<'a, Status> {
        async { self.answer("Bind") }.boxed()
    }
}

impl PostBind for Spy {
    fn post_bind(&self, _: &CycleState, _: &PodInfo, _: &str) {
        self.asked.lock().expect("no panic").push("PostBind");
    }
}

impl PostFilter for Spy {
    fn post_filter(&self, _: &mut Failed<'_>) -> (Nomination, Status) {
        (Nomination::Withdrawn, self.answer("PostFilter"))
    }
}

struct Only(PluginName, &'static [&'static str]);

impl Plugin for Only {
    fn name(&self) -> PluginName {
        self.0
    }
}

impl PreFilter for Only {
    fn pre_filter(
        &self,
        _: &mut CycleState,
        _: &PodInfo,
        _: &Snapshot<'_>,
    ) -> (Option<NodeNames>, Status) {
        (
            Some(self.1.iter().map(|name| (*name).to_owned()).collect()),
            Status::SUCCESS,
        )
    }
}

fn binding(spy: &Spy) -> Framework {
    Framework {
        permit: vec![Box::new(spy.clone())],
        pre_bind: vec![Box::new(spy.clone())],
        bind: vec![Box::new(spy.clone())],
        post_bind: vec![Box::new(spy.clone())],
        ..Framework::default()
    }
}

async fn bind(framework: &Framework) -> Status {
    let (pod, cycle) = (pod("p", "1"), CycleState::default());
    match framework.run_permit(&cycle, &pod, "n") {
        Ok(permission) => framework.run_bind(&cycle, &pod, "n", permission).await,
        Err(status) => status,
    }
}

#[test]
fn what_is_reserved_is_given_back_if_one_plugin_cannot() {
    let (can, cannot) = (
        Spy::new(|| Status::SUCCESS),
        Spy::new(|| Status::unschedulable(vec!["full".into()])),
    );
    let framework = Framework {
        reserve: vec![Box::new(can.clone()), Box::new(cannot.clone())],
        ..Framework::default()
    };
    let status = framework.run_reserve(
        &mut CycleState::default(),
        &pod("p", "1"),
        &info(&node("n", "4")),
    );
    assert_eq!(
        (status.plugin(), status.message().as_str()),
        (Some(PluginName::Test), "full")
    );
    assert_eq!(
        (
            can.asked().len(),
            can.reserved.load(SeqCst),
            cannot.reserved.load(SeqCst)
        ),
        (1, 0, 0)
    );
}

#[tokio::test]
async fn points_of_a_binding_are_asked_in_order_up_to_the_first_no() {
    let agrees = Spy::new(|| Status::SUCCESS);
    assert!(bind(&binding(&agrees)).await.is_success());
    assert_eq!(agrees.asked(), ["Permit", "PreBind", "Bind", "PostBind"]);
    let refuses = Spy::new(|| Status::unschedulable(vec!["no".into()]));
    assert_eq!(
        bind(&binding(&refuses)).await.plugin(),
        Some(PluginName::Test)
    );
    assert_eq!(refuses.asked(), ["Permit"]);
    let passes = Spy::new(|| Status::SKIP);
    assert_eq!(
        bind(&binding(&passes)).await.message(),
        "no plugin binds this pod"
    );
}

#[tokio::test]
async fn a_pod_waits_until_it_is_allowed_rejected_or_out_of_time() {
    async fn held(timeout: fn() -> Status, verdict: impl FnOnce(&Framework, &PodUid)) -> Status {
        let holds = Spy::new(timeout);
        let framework = Framework {
            permit: vec![Box::new(holds)],
            ..Framework::default()
        };
        let framework = Framework {
            bind: vec![Box::new(Spy::new(|| Status::SUCCESS))],
            ..framework
        };
        let (pod, cycle) = (pod("p", "1"), CycleState::default());
        let permission = framework.run_permit(&cycle, &pod, "n").expect("no refusal");
        assert!(permission.is_some());
        verdict(&framework, &pod.uid);
        framework.run_bind(&cycle, &pod, "n", permission).await
    }
    let long = || Status::wait(Duration::from_secs(60));
    let allowed = held(long, |framework, uid| {
        framework.allow_waiting_pod(uid, PluginName::Test)
    })
    .await;
    assert!(allowed.is_success());
    let rejected = held(long, |framework, uid| {
        framework.reject_waiting_pod(uid, "the pod is gone")
    })
    .await;
    assert_eq!(rejected.message(), "the pod is gone");
    let late = held(
        || Status::wait(Duration::ZERO),
        |framework, uid| framework.allow_waiting_pod(uid, PluginName::SchedulingGates),
    );
    let late = late.await;
    assert_eq!(
        (late.is_refusal(), late.plugin()),
        (true, Some(PluginName::Test)),
        "who holds it has to allow it"
    );
}

#[test]
fn only_nodes_that_all_plugins_leave_are_looked_at() {
    let nodes = Nodes::of(&[]);
    let narrowed = |plugins: Vec<Only>| {
        let pre_filter = plugins
            .into_iter()
            .map(|plugin| Box::new(plugin) as Box<dyn PreFilter>)
            .collect();
        let framework = Framework {
            pre_filter,
            ..Framework::default()
        };
        let found = framework.run_pre_filter(
            &mut CycleState::default(),
            &pod("p", "1"),
            &nodes.snapshot(),
        );
        found
            .map(|narrowed| narrowed.map(|narrowed| narrowed.names))
            .map_err(|status| status.message())
    };
    let a_b = Only(PluginName::NodeAffinity, &["a", "b"]);
    let b_c = Only(PluginName::VolumeBinding, &["b", "c"]);
    let d = Only(PluginName::Test, &["d"]);
    assert_eq!(narrowed(vec![]), Ok(None));
    assert_eq!(narrowed(vec![a_b, b_c]), Ok(Some(["b".to_owned()].into())));
    let a_b = Only(PluginName::NodeAffinity, &["a", "b"]);
    let expected = "node(s) didn't satisfy plugin(s) [NodeAffinity Test] simultaneously";
    assert_eq!(narrowed(vec![a_b, d]), Err(expected.to_owned()));
}

#[test]
fn what_was_done_to_make_room_is_told() {
    let told = |post_filter: Vec<Box<dyn PostFilter>>| {
        let framework = Framework {
            post_filter,
            ..Framework::default()
        };
        let (nomination, message) = framework.run_post_filter(&mut Failed {
            filters: &framework,
            extenders: &framework.extenders,
            cycle: &CycleState::default(),
            pod: &pod("p", "1"),
            diagnosis: &Diagnosis::of(0),
            nominated: None,
            cache: &mut Cache::default(),
        });
        (format!("{nomination:?}"), message)
    };
    let says = |says: fn() -> Status| Box::new(Spy::new(says)) as Box<dyn PostFilter>;
    let no: fn() -> Status = || Status::unschedulable(vec!["preemption: no victims".into()]);
    let withdrawn = |message: &str| ("Withdrawn".to_owned(), message.to_owned());
    assert_eq!(told(vec![says(no)]), withdrawn("preemption: no victims"));
    let twice = "preemption: no victims, preemption: no victims";
    assert_eq!(told(vec![says(no), says(no)]), withdrawn(twice));
    assert_eq!(
        told(vec![says(no), says(|| Status::SUCCESS)]),
        withdrawn("")
    );
    assert_eq!(told(vec![]), ("Unchanged".to_owned(), String::new()));
    assert_eq!(
        Reason::from("a"),
        Reason::from("a".to_owned()),
        "a reason is its text"
    );
}
