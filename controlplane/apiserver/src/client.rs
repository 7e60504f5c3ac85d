//! The in-process client: a tower service over the handler, without sockets, TLS or HTTP framing.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use coracle_auth::user::UserInfo;
use futures::future::BoxFuture;
use http::{Request, Response};

use crate::{body::Held, handler, source::Source, state::State};

/// A client of `server` with identity `user`.
pub(crate) fn client(server: Arc<State>, user: UserInfo) -> kube::Client {
    kube::Client::new(
        InProcess {
            server,
            source: Source::Part(Arc::new(user)),
        },
        "default",
    )
}

/// As [`client`], but with the limits of somebody else.
#[cfg(test)]
pub(crate) fn outsider(server: Arc<State>, user: UserInfo) -> kube::Client {
    kube::Client::new(
        InProcess {
            server,
            source: Source::Outsider(Arc::new(user)),
        },
        "default",
    )
}

#[derive(Clone)]
struct InProcess {
    server: Arc<State>,
    source: Source,
}

impl tower::Service<Request<kube::client::Body>> for InProcess {
    type Response = Response<Held>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Held>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let Self { server, source } = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            Ok(handler::handle(&server, source, parts, body).await)
        })
    }
}
