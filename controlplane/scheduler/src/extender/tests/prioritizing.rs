use std::{
    sync::{Condvar, Mutex},
    time::Duration,
};

use super::*;

/// How long one waits for the other.
const PATIENCE: Duration = Duration::from_secs(10);

fn all_equal() -> Cache {
    cache(&[("a", "4"), ("b", "4"), ("c", "4")])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn scores_are_weighed_scaled_and_added() {
    let one = Server::start(|_, _| {
        Reply::Json(json!([{"Host": "a", "Score": 10}, {"Host": "b", "Score": 4}, {"Host": "z", "Score": 99}]))
    })
    .await;
    let other = Server::start(|_, _| Reply::Json(json!([{"host": "b", "score": 9}]))).await;
    let framework = framework(&json!([
        {"urlPrefix": one.url, "prioritizeVerb": "p", "weight": 1, "nodeCacheCapable": true},
        {"urlPrefix": other.url, "prioritizeVerb": "p", "weight": 3},
    ]));
    let (cache, pod) = (all_equal(), small("p"));
    let (snapshot, mut cycle) = (cache.snapshot(), CycleState::default());
    let feasible: Vec<&NodeInfo> = snapshot.nodes().iter().collect();
    let sums = framework.extenders.prioritize(&pod, &feasible);
    assert_eq!(sums, Some(vec![10, 4 + 27, 0]));
    let totals = framework.run_score(&mut cycle, &pod, &feasible, &snapshot);
    let totals = totals.unwrap();
    assert_eq!((totals[0] - totals[2], totals[1] - totals[2]), (100, 310));
    assert_eq!(place(&framework, &cache, &pod), Ok("b".to_owned()));
    assert_eq!(one.asked()[0].1["NodeNames"], json!(["a", "b", "c"]));
    assert_eq!(
        other.asked()[0].1["Nodes"]["items"][2]["metadata"]["name"],
        "c"
    );
    let mut cycle = CycleState::default();
    let explained = framework.explain_scores(&mut cycle, &pod, &feasible, &snapshot);
    let explained = explained.unwrap().pop().unwrap();
    assert_eq!(explained.scores, Some(vec![100, 310, 0]));
}

/// Each answers once the other has been asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_are_asked_at_once() {
    let meeting = Arc::new((Mutex::new(0), Condvar::new()));
    let meets = |score: i64| {
        let meeting = meeting.clone();
        Server::start(move |_, _| {
            let (asked, other) = &*meeting;
            let mut asked = asked.lock().unwrap();
            *asked += 1;
            other.notify_all();
            let met = tokio::task::block_in_place(|| {
                other.wait_timeout_while(asked, PATIENCE, |asked| *asked < 2)
            });
            match met.unwrap().1.timed_out() {
                true => Reply::Code(500),
                false => Reply::Json(json!([{"Host": "c", "Score": score}])),
            }
        })
    };
    let (one, other) = (meets(1).await, meets(2).await);
    let says = |url: &str| json!({"urlPrefix": url, "prioritizeVerb": "p", "weight": 1, "httpTimeout": "60s"});
    let framework = framework(&json!([says(&one.url), says(&other.url)]));
    let cache = all_equal();
    let snapshot = cache.snapshot();
    let feasible: Vec<&NodeInfo> = snapshot.nodes().iter().collect();
    let sums = framework.extenders.prioritize(&small("p"), &feasible);
    assert_eq!(sums, Some(vec![0, 0, 3]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn who_fails_or_gives_scores_that_are_none_gives_none() {
    let good = Server::start(|_, _| Reply::Json(json!([{"Host": "c", "Score": 1}]))).await;
    let says = |url: &str| json!({"urlPrefix": url, "prioritizeVerb": "p", "weight": i64::MAX});
    for bad in [
        json!([{"Host": "a", "Score": 11}]),
        json!([{"Host": "a", "Score": -1}]),
        json!([{"Host": "a", "Score": i64::MIN}]),
        json!([{"Host": "a", "Score": 1e300}]),
        json!([{"Score": 3}]),
        json!({"a": 3}),
        json!("a"),
    ] {
        let text = bad.to_string();
        let bad = Server::start(move |_, _| Reply::Json(bad.clone())).await;
        let framework = framework(&json!([says(&bad.url), says(&good.url)]));
        let cache = all_equal();
        assert_eq!(
            place(&framework, &cache, &small("p")),
            Ok("c".to_owned()),
            "{text}"
        );
    }
    let down = Server::start(|_, _| Reply::Code(500)).await;
    let framework = framework(&json!([says(&down.url)]));
    place(&framework, &all_equal(), &small("p")).expect("it is placed all the same");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn where_one_node_is_left_nobody_is_asked() {
    let server = Server::start(|_, _| Reply::Json(json!([]))).await;
    let says = json!([{"urlPrefix": server.url, "prioritizeVerb": "p", "weight": 1}]);
    let cache = cache(&[("a", "4"), ("b", "0")]);
    assert_eq!(
        place(&framework(&says), &cache, &small("p")),
        Ok("a".to_owned())
    );
    assert_eq!(server.count(), 0);
}
