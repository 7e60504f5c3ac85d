//! Definitions that come and go through one server, while the other hears of it late.

use std::time::Duration;

use coracle_store::{Backend as _, Op, Txn};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    super::{
        definitions::{DEFINITIONS, WIDGETS, definition, has, until, widget},
        raw::{CONFIG_MAPS, config_map},
    },
    Two,
};

const DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.org";

impl Two {
    /// The first server keeps definitions for as long as this is held.
    fn keep(&self) -> DropGuard {
        let stop = CancellationToken::new();
        let keeping = std::sync::Arc::clone(&self.server).keep_definitions(stop.clone());
        coracle_telemetry::spawn("keep definitions", keeping);
        stop.drop_guard()
    }

    /// Has widgets defined and established through the first server.
    async fn define(&self) -> Value {
        let (code, made) = self
            .one
            .post(DEFINITIONS, definition(json!({"type": "integer"})))
            .await;
        assert_eq!(code, 201, "{made}");
        until(&self.one, DEFINITION, |_, now| {
            has(now, "Established", "True")
        })
        .await
    }

    /// The same, and the other server serves them as well.
    async fn both_define(&self) -> Value {
        let made = self.define().await;
        until(&self.other, WIDGETS, |code, _| code == 200).await;
        made
    }

    async fn end(&self) {
        let (code, status) = self.one.delete(DEFINITION, json!({})).await;
        assert_eq!(code, 200, "{status}");
    }
}

fn one(name: &str) -> Value {
    widget(name, json!({"size": 1}))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_made_after_a_definitions_end_does_not_come_back_with_the_next() {
    let two = Two::start().await;
    let _keeping = two.keep();
    two.both_define().await;
    assert_eq!(two.other.post(WIDGETS, one("early")).await.0, 201);
    two.deafen();
    two.end().await;
    until(&two.one, DEFINITION, |code, _| code == 404).await;
    // As far as its own cache goes, there are widgets.
    let (code, status) = two.other.post(WIDGETS, one("late")).await;
    assert_eq!(code, 404, "{status}");
    two.define().await;
    let (_, list) = two.one.get(WIDGETS).await;
    assert_eq!(list["items"], json!([]));
    let (code, status) = two.other.post(WIDGETS, one("of-before")).await;
    assert_eq!(code, 404, "{status}");
    assert_eq!(two.one.post(WIDGETS, one("new")).await.0, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_made_while_a_definition_goes() {
    let two = Two::start().await;
    let _keeping = two.keep();
    two.both_define().await;
    let mut held = one("held");
    held["metadata"]["finalizers"] = json!(["example.org/a"]);
    assert_eq!(two.other.post(WIDGETS, held).await.0, 201);
    two.deafen();
    two.end().await;
    let (code, status) = two.other.post(WIDGETS, one("late")).await;
    let why = status["message"].as_str().unwrap_or_default();
    assert!(
        code == 403
            && why.ends_with("create not allowed while custom resource definition is terminating"),
        "{code} {why}"
    );
    // What is there may be changed, so that it can go.
    let path = format!("{WIDGETS}/held");
    let bare = json!({"metadata": {"finalizers": null}});
    assert_eq!(two.one.merge(&path, bare).await.0, 200);
    until(&two.one, DEFINITION, |code, _| code == 404).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_of_before_there_were_keys_gets_one() {
    let two = Two::start().await;
    let _keeping = two.keep();
    let made = two.both_define().await;
    let uid = made["metadata"]["uid"].as_str().unwrap();
    let key = format!("/registry/open-definitions/widgets.example.org/{uid}");
    let gone = Op::Delete {
        key: key.as_str().into(),
    };
    let txn = Txn {
        ops: vec![gone],
        ..Txn::default()
    };
    assert!(two.way.get(&key).await.unwrap().is_some());
    two.way.txn(txn).await.unwrap();
    assert_eq!(two.other.post(WIDGETS, one("a")).await.0, 201);
    assert!(two.way.get(&key).await.unwrap().is_some());
    two.end().await;
    until(&two.one, DEFINITION, |code, _| code == 404).await;
    assert!(two.way.get(&key).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_another_server_told_of_is_waited_for() {
    let two = Two::start().await;
    let _keeping = two.keep();
    assert_eq!(two.other.get(WIDGETS).await.0, 404);
    two.deafen();
    two.define().await;
    let asking = async {
        loop {
            let (code, answer) = two.other.get(WIDGETS).await;
            assert_ne!(code, 404, "it is established: {answer}");
            if code == 200 {
                return;
            }
            // It comes to hear of it while somebody asks.
            two.way.set_away(false);
        }
    };
    let asked = tokio::time::timeout(Duration::from_secs(30), asking).await;
    asked.expect("it comes to serve it");
}

#[tokio::test]
async fn who_hears_nothing_of_the_store_admits_nothing_for_long() {
    let two = Two::start().await;
    let made = async |name: &str| two.other.post(CONFIG_MAPS, config_map(name)).await;
    assert_eq!(made("a").await.0, 201);
    two.deafen();
    // Such as a policy.
    assert_eq!(two.one.post(CONFIG_MAPS, config_map("b")).await.0, 201);
    assert_eq!(made("c").await.0, 201);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    let (code, status) = made("d").await;
    let why = status["message"].as_str().unwrap_or_default();
    assert!(
        code == 503 && why.contains("has heard nothing of the store for 10 s"),
        "{code} {why}"
    );
    assert_eq!(status["details"]["retryAfterSeconds"], 1, "{status}");
    two.way.set_away(false);
    let heard = async { while made("e").await.0 != 201 {} };
    let heard = tokio::time::timeout(Duration::from_secs(60), heard).await;
    heard.expect("it hears again");
}
