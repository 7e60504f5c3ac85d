//! What one identity, or many, may take from the others: nothing.

mod large;

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use coracle_auth::user::UserInfo;
use futures::{FutureExt as _, future::BoxFuture};
use http::{Request, Response};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::raw::{CONFIG_MAPS, PODS, Raw, config_map};
use crate::{ApiServer, body::Held, handler, source::Source, testing};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
/// More than there are places for everybody.
const MANY: usize = 700;
/// Nothing here lasts so long unless it waits for what never comes.
const HUNG: Duration = Duration::from_secs(300);

fn plain() -> UserInfo {
    UserInfo::new("plain", &[])
}

/// A body of which the first bytes have come.
struct HalfSent(Option<Bytes>);

impl http_body::Body for HalfSent {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.take().map_or(Poll::Pending, |bytes| {
            Poll::Ready(Some(Ok(Frame::data(bytes))))
        })
    }
}

/// A request of `user` that has been polled once.
fn begun(
    server: &Arc<ApiServer>,
    user: UserInfo,
    body: Bytes,
) -> BoxFuture<'static, Response<Held>> {
    let (parts, ()) = Request::post(REVIEWS)
        .header("content-type", "application/json")
        .body(())
        .unwrap()
        .into_parts();
    let (server, source) = (Arc::clone(server), Source::Outsider(Arc::new(user)));
    let mut request =
        async move { handler::handle(&server.state, source, parts, HalfSent(Some(body))).await }
            .boxed();
    match request.as_mut().now_or_never() {
        Some(answer) => std::future::ready(answer).boxed(),
        None => request,
    }
}

async fn get(server: &Arc<ApiServer>, user: UserInfo, path: &str) -> Response<Held> {
    let (parts, body) = Request::get(path)
        .body(http_body_util::Empty::<Bytes>::new())
        .unwrap()
        .into_parts();
    handler::handle(&server.state, Source::Outsider(Arc::new(user)), parts, body).await
}

#[tokio::test]
async fn half_sent_bodies_take_nobodys_place() {
    let server = testing::server().await;
    let held: Vec<_> = (0..MANY)
        .map(|_| begun(&server, plain(), Bytes::from_static(b"{")))
        .collect();
    let admin = Raw::outside(&server, UserInfo::master("admin"));
    assert_eq!(admin.get(PODS).await.0, 200);
    let review = json!({"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}});
    for user in ["plain", "other"] {
        let user = Raw::outside(&server, UserInfo::new(user, &[]));
        assert_eq!(user.post(REVIEWS, review.clone()).await.0, 201);
    }
    drop(held);
}

#[tokio::test]
async fn bodies_of_one_identity_take_its_room_alone() {
    let server = testing::server().await;
    let megabyte = Bytes::from(vec![b' '; 1 << 20]);
    let mut held: Vec<_> = (0..200)
        .map(|_| begun(&server, plain(), megabyte.clone()))
        .collect();
    let refused = held
        .iter_mut()
        .filter_map(|request| request.now_or_never())
        .map(|answer| answer.status().as_u16());
    let refused: Vec<u16> = refused.collect();
    // 24 have their room; some of the refused are still read to their end, so that their client
    // sees the answer.
    assert!(
        refused.len() > 100 && refused.iter().all(|code| *code == 429),
        "{refused:?}"
    );
    let review = json!({"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}})
        .to_string()
        + &" ".repeat(2 << 20);
    let other = Raw::outside(&server, UserInfo::new("other", &[]));
    assert_eq!(
        other
            .send("POST", REVIEWS, "application/json", review)
            .await
            .0,
        201
    );
}

#[tokio::test]
async fn an_answer_keeps_its_place_until_it_has_gone() {
    let server = testing::server().await;
    let admin = Raw::of(&server, UserInfo::master("admin"));
    for name in 0..20 {
        let mut object = config_map(&format!("c{name}"));
        object["data"]["n"] = "x".repeat(10_000).into();
        assert_eq!(admin.post(CONFIG_MAPS, object).await.0, 201);
    }
    let mut reader = plain();
    reader.groups.push("system:masters".to_owned());
    let mut held = Vec::new();
    let refused = loop {
        let answer = get(&server, reader.clone(), CONFIG_MAPS).await;
        match answer.status().as_u16() {
            200 => held.push(answer),
            code => break code,
        }
        assert!(held.len() < 10_000, "there is no end");
    };
    assert_eq!(refused, 429);
    assert_eq!(
        admin.get(CONFIG_MAPS).await.0,
        200,
        "parts of this process have their own"
    );
    assert_eq!(
        get(&server, UserInfo::anonymous(), "/livez").await.status(),
        200,
        "health is always told"
    );
    let read = held
        .pop()
        .unwrap()
        .into_body()
        .collect()
        .await
        .unwrap()
        .to_bytes();
    let list: Value = serde_json::from_slice(&read).unwrap();
    assert!(list["items"].as_array().unwrap().len() >= 20);
    assert_eq!(get(&server, reader, CONFIG_MAPS).await.status(), 200);
}

#[tokio::test]
async fn a_burst_of_the_clusters_own_parts_is_carried_out() {
    let server = testing::server().await;
    let part = Raw::of(
        &server,
        UserInfo::new("system:kube-controller-manager", &["system:masters"]),
    );
    let burst = (0..MANY).map(|name| {
        let part = part.clone();
        async move {
            part.post(CONFIG_MAPS, config_map(&format!("c{name}")))
                .await
                .0
        }
    });
    let codes = futures::future::join_all(burst).await;
    assert!(codes.iter().all(|code| *code == 201), "{codes:?}");
}

/// ConfigMaps are everybody's.
async fn open_to_everybody(admin: &Raw) {
    let rules = json!([{"verbs": ["*"], "apiGroups": [""], "resources": ["configmaps"]}]);
    let role = json!({"metadata": {"name": "keeper"}, "rules": rules});
    assert_eq!(
        admin
            .post("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
            .await
            .0,
        201
    );
    let binding = json!({"metadata": {"name": "keepers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "keeper"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}]});
    assert_eq!(
        admin
            .post(
                "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
                binding
            )
            .await
            .0,
        201
    );
}

#[tokio::test]
async fn many_watches_of_one_identity_are_not_everybodys() {
    let server = testing::server().await;
    let admin = Raw::of(&server, UserInfo::master("admin"));
    open_to_everybody(&admin).await;
    let watch = format!("{CONFIG_MAPS}?watch=true");
    let mut held = Vec::new();
    loop {
        let answer = get(&server, plain(), &watch).await;
        if answer.status() == 429 {
            break;
        }
        assert_eq!(answer.status(), 200);
        held.push(answer);
        assert!(held.len() < 20_000, "there is no end");
    }
    assert_eq!(
        get(&server, UserInfo::new("other", &[]), &watch)
            .await
            .status(),
        200
    );
    held.pop();
    assert_eq!(get(&server, plain(), &watch).await.status(), 200);
}

#[tokio::test]
async fn who_waits_for_the_future_keeps_nobody_from_the_present() {
    let server = testing::server().await;
    let mut reader = plain();
    reader.groups.push("system:masters".to_owned());
    let future = format!("{PODS}?resourceVersion=999999999999");
    let mut waiting: Vec<_> = (0..MANY)
        .map(|_| {
            let (server, reader, future) = (Arc::clone(&server), reader.clone(), future.clone());
            async move { get(&server, reader, &future).await.status().as_u16() }.boxed()
        })
        .collect();
    let early = waiting
        .iter_mut()
        .filter_map(|request| request.now_or_never())
        .filter(|code| *code == 429)
        .count();
    assert!(early > MANY / 2, "{early} were told to come back");
    assert_eq!(get(&server, reader, PODS).await.status(), 200);
}

#[tokio::test]
async fn the_end_of_an_answer_is_known_before_it_is_sent() {
    let server = testing::server().await;
    let answer = get(&server, UserInfo::master("admin"), "/openapi/v2").await;
    let size = answer.body().size_hint().exact().unwrap();
    let whole = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(whole.len() as u64, size, "in pieces, and all of it");
}
