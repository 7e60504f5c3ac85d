use http::Method;

use super::*;
use crate::query::Query;

fn limits() -> Limits {
    Limits::new(12, 8)
}

fn request<'a>(path: &'a str, query: &'a Query<'a>) -> RequestInfo<'a> {
    RequestInfo::parse(&Method::GET, path, query)
}

async fn seats(
    limits: &Limits,
    user: &UserInfo,
    is_part: bool,
    path: &str,
    most: usize,
) -> Vec<Seat> {
    let query = Query::parse("");
    let request = request(path, &query);
    let mut held = Vec::new();
    while held.len() < most {
        match limits
            .seat(limits.requester(user, is_part), &request, true)
            .await
        {
            Ok(seat) => held.push(seat),
            Err(status) => {
                assert_eq!(status.code, 429);
                break;
            }
        }
    }
    held
}

const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test(start_paused = true)]
async fn one_identity_takes_a_quarter_and_leaves_the_shares_of_others_alone() {
    let limits = limits();
    let held = seats(&limits, &UserInfo::new("plain", &[]), false, PODS, 100).await;
    assert_eq!(held.len(), 2, "a quarter of eight");
    let mut all = held;
    for name in 0..100 {
        all.extend(
            seats(
                &limits,
                &UserInfo::new(format!("plain-{name}"), &[]),
                false,
                PODS,
                100,
            )
            .await,
        );
    }
    assert_eq!(all.len(), 8, "all that are there");
    for (user, is_part, path, expect) in [
        (UserInfo::master("admin"), false, PODS, 12),
        (
            UserInfo::new("system:kube-scheduler", &[]),
            true,
            PODS,
            PARTS,
        ),
        (
            UserInfo::node("n1"),
            false,
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1",
            OF_A_NODE,
        ),
        (
            UserInfo::node("n1"),
            false,
            "/apis/coordination.k8s.io/v1/namespaces/default/leases/n1",
            0,
        ),
        (
            UserInfo::node("n2"),
            false,
            "/api/v1/nodes/n2/status",
            OF_A_NODE,
        ),
        (
            UserInfo::new("plain-200", &[]),
            false,
            "/api/v1/nodes/n2/status",
            0,
        ),
    ] {
        assert_eq!(
            seats(&limits, &user, is_part, path, 1000).await.len(),
            expect,
            "{} {path}",
            user.name
        );
    }
    drop(all);
    assert_eq!(
        seats(&limits, &UserInfo::new("plain", &[]), false, PODS, 1)
            .await
            .len(),
        1
    );
}

#[tokio::test]
async fn accounts_of_one_namespace_share_their_part() {
    let limits = limits();
    let flow = |namespace: &str, name: &str| {
        limits
            .requester(&UserInfo::service_account(namespace, name), false)
            .flow
    };
    assert_eq!(flow("team", "a"), flow("team", "b"));
    let own = ["a", "b", "c", "d", "e"].map(|name| flow("kube-system", name));
    assert!(
        own.iter().any(|flow| *flow != own[0]),
        "all five in one of 1024"
    );
}

#[tokio::test]
async fn calls_from_this_process_wait_for_each_other_alone() {
    let limits = limits();
    let user = UserInfo::new("system:kube-scheduler", &[]);
    let mut held = seats(&limits, &user, true, PODS, PARTS).await;
    let next = seats(&limits, &user, true, PODS, 1);
    let mut next = std::pin::pin!(next);
    assert!(futures::poll!(next.as_mut()).is_pending());
    for other in [UserInfo::master("admin"), UserInfo::new("plain", &[])] {
        assert_eq!(
            seats(&limits, &other, false, PODS, 1).await.len(),
            1,
            "{} does not wait",
            other.name
        );
    }
    held.pop();
    assert_eq!(next.await.len(), 1);
}

#[test]
fn bodies_take_room_as_they_come() {
    let limits = limits();
    let requester = limits.requester(&UserInfo::new("plain", &[]), false);
    let mut room = limits.room(requester).unwrap();
    assert!(room.grow(BODY_BYTES / 4));
    assert!(
        !limits.room(requester).unwrap().grow(1),
        "its quarter is taken"
    );
    let other = limits.requester(&UserInfo::new("other", &[]), false);
    assert!(limits.room(other).unwrap().grow(1));
    assert!(
        limits
            .room(limits.requester(&UserInfo::master("admin"), false))
            .unwrap()
            .grow(BODY_BYTES)
    );
    assert!(
        limits
            .room(limits.requester(&UserInfo::node("n"), true))
            .is_none(),
        "parts bound themselves"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_are_worked_on_a_few_at_once_and_small_ones_do_not_wait() {
    let limits = Arc::new(limits());
    let taken = limits.take_cores().await;
    let user = limits.requester(&UserInfo::new("bob", &[]), false);
    assert_eq!(
        limits.worked_on(user, 10, async { Ok(1) }).await.unwrap(),
        1
    );
    let large = {
        let limits = Arc::clone(&limits);
        coracle_telemetry::spawn("task of a test", async move {
            limits.worked_on(user, LARGE, async { Ok(2) }).await
        })
    };
    while limits.large_bytes() == 0 {
        tokio::task::yield_now().await;
    }
    assert!(!large.is_finished());
    let more = limits
        .worked_on(user, LARGE_BYTES / 4, async { Ok(3) })
        .await;
    assert_eq!(
        more.unwrap_err().code,
        429,
        "one identity waits with so much"
    );
    let admin = limits.requester(&UserInfo::master("admin"), true);
    assert_eq!(
        limits
            .worked_on(admin, LARGE, async { Ok(4) })
            .await
            .unwrap(),
        4,
        "and nobody of ours waits behind it"
    );
    drop(taken);
    assert_eq!(large.await.unwrap().unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_itself_has_no_core() {
    let limits = limits();
    limits
        .large
        .forget_permits(limits.large.available_permits() - 1);
    let [bob, eve] = ["bob", "eve"].map(|name| limits.requester(&UserInfo::new(name, &[]), false));
    let answer = tokio::sync::Notify::new();
    let waiting = limits.worked_on(bob, LARGE, async {
        answer.notified().await;
        Ok::<_, Status>(1)
    });
    let mut waiting = std::pin::pin!(waiting);
    assert!(futures::poll!(waiting.as_mut()).is_pending());
    for who in [eve, bob] {
        let others = limits.worked_on(who, LARGE, async { Ok::<_, Status>(2) });
        let others = tokio::time::timeout(Duration::from_secs(10), others).await;
        assert_eq!(others.expect("the core is free").unwrap(), 2);
    }
    answer.notify_one();
    assert_eq!(waiting.await.unwrap(), 1);
}

#[tokio::test]
async fn one_identity_stands_once_in_the_line_for_a_core() {
    let limits = limits();
    limits
        .large
        .forget_permits(limits.large.available_permits() - 1);
    let taken = limits.take_cores().await;
    let [bob, eve] = ["bob", "eve"].map(|name| limits.requester(&UserInfo::new(name, &[]), false));
    let work = |who, done| limits.worked_on(who, LARGE, async move { Ok::<_, Status>(done) });
    let (first, second, others) = (work(bob, 1), work(bob, 2), work(eve, 3));
    let (mut first, mut second, mut others) = (
        std::pin::pin!(first),
        std::pin::pin!(second),
        std::pin::pin!(others),
    );
    assert!(futures::poll!(first.as_mut()).is_pending());
    assert!(futures::poll!(second.as_mut()).is_pending());
    assert!(futures::poll!(others.as_mut()).is_pending());
    drop(taken);
    assert_eq!(first.await.unwrap(), 1);
    assert!(
        futures::poll!(second.as_mut()).is_pending(),
        "behind all who came meanwhile"
    );
    assert_eq!(others.await.unwrap(), 3);
    assert_eq!(second.await.unwrap(), 2);
}

#[test]
fn copies_that_one_client_does_not_take_leave_room_for_others() {
    let limits = Limits::new(10, 10);
    let of = |name: &str| limits.requester(&UserInfo::new(name, &[]), false);
    let (slow, other) = (of("slow"), of("other"));
    let held = limits.copy(slow, COPIES / 4).unwrap();
    assert!(held.is_some());
    let refused = limits.copy(slow, 1).unwrap_err();
    assert_eq!(refused.code, 429);
    assert!(limits.copy(other, 1).is_ok(), "who has taken nothing");
    // It was sent, or its client was cut off.
    drop(held);
    assert!(limits.copy(slow, 1).is_ok());
}
