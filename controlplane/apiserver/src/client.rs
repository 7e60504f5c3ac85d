//! The in-process client: a tower service over the handler, without sockets, TLS or HTTP framing.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use http::{Request, Response};

use crate::{body::Body, handler, server::ApiServer, user::UserInfo};

/// A client of `server` with identity `user`.
pub(crate) fn client(server: Arc<ApiServer>, user: UserInfo) -> kube::Client {
    kube::Client::new(InProcess { server, user: Arc::new(user) }, "default")
}

#[derive(Clone)]
struct InProcess {
    server: Arc<ApiServer>,
    user: Arc<UserInfo>,
}

impl tower::Service<Request<kube::client::Body>> for InProcess {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let Self { server, user } = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            Ok(handler::handle(&server, user, parts, body).await)
        })
    }
}
