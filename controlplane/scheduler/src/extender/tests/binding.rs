use super::*;
use crate::framework::{Bind, Plugin, PluginName, Status};

/// Binds what is left to it.
struct Left;

impl Plugin for Left {
    fn name(&self) -> PluginName {
        PluginName::Test
    }
}

impl Bind for Left {
    fn bind<'a>(
        &'a self,
        _: &'a CycleState,
        _: &'a PodInfo,
        _: &'a str,
    ) -> futures::future::BoxFuture<'a, Status> {
        async { Status::error("left to the plugins") }.boxed()
    }
}

/// What comes of it.
async fn bound(extender: &Value, pod: &PodInfo) -> Result<(), String> {
    let framework = Framework {
        extenders: Arc::new(extenders(&config(&json!([extender])))),
        bind: vec![Box::new(Left)],
        ..Framework::default()
    };
    let status = framework
        .run_bind(&CycleState::default(), pod, "n", None)
        .await;
    match status.is_success() {
        true => Ok(()),
        false => Err(status.message()),
    }
}

#[tokio::test]
async fn one_that_binds_is_told_which_pod_goes_where() {
    let server = Server::start(|_, _| Reply::Json(json!({}))).await;
    let says = json!({"urlPrefix": server.url, "bindVerb": "bind"});
    assert_eq!(bound(&says, &small("p")).await, Ok(()));
    let expect = json!({"PodName": "p", "PodNamespace": "default", "PodUID": "uid-p", "Node": "n"});
    assert_eq!(server.asked(), [("bind".to_owned(), expect)]);
}

#[tokio::test]
async fn a_pod_that_is_none_of_its_business_is_left_to_the_plugins() {
    let server = Server::start(|_, _| Reply::Json(json!({}))).await;
    let says = json!({"urlPrefix": server.url, "bindVerb": "bind",
        "managedResources": [{"name": "example.com/gpu"}]});
    let left = Err("left to the plugins".to_owned());
    assert_eq!(bound(&says, &small("p")).await, left);
    assert_eq!(bound(&says, &gpu("p")).await, Ok(()));
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn a_binding_that_fails_is_told_or_left_to_the_plugins() {
    let server = Server::start(|_, _| Reply::Json(json!({"Error": "no such pod"}))).await;
    let mut says = json!({"urlPrefix": server.url, "bindVerb": "bind"});
    assert_eq!(
        bound(&says, &small("p")).await,
        Err("no such pod".to_owned())
    );
    says["ignorable"] = json!(true);
    let left = Err("left to the plugins".to_owned());
    assert_eq!(bound(&says, &small("p")).await, left);
    let silent = Server::start(|_, _| Reply::Silence).await;
    let says = json!({"urlPrefix": silent.url, "bindVerb": "bind", "httpTimeout": "20ms"});
    let why = bound(&says, &small("p")).await.unwrap_err();
    assert!(why.ends_with("has not answered within 20ms"), "{why}");
}
