//! An extender on a port of this machine.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use futures::stream;
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};

/// What it answers.
pub(super) enum Reply {
    Json(Value),
    Text(&'static str),
    Code(u16),
    /// Nothing, for ever.
    Silence,
    /// A head, and then nothing.
    Stall,
    /// Without an end.
    Flood,
}

type Answer = dyn Fn(&str, &Value) -> Reply + Send + Sync;

/// One that hears and answers until it is dropped.
pub(super) struct Server {
    pub(super) url: String,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    _stop: DropGuard,
}

#[derive(Clone)]
struct Handler {
    answer: Arc<Answer>,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Server {
    /// `answer` gets the verb and what is asked.
    pub(super) async fn start(
        answer: impl Fn(&str, &Value) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(None, answer).await
    }

    pub(super) async fn start_with(
        tls: Option<TlsAcceptor>,
        answer: impl Fn(&str, &Value) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let handler = Handler {
            answer: Arc::new(answer),
            asked: Arc::default(),
        };
        let (asked, stop) = (handler.asked.clone(), CancellationToken::new());
        let end = stop.clone();
        coracle_telemetry::spawn("an extender of a test", async move {
            loop {
                let (stream, _) = tokio::select! {
                    () = end.cancelled() => return,
                    accepted = listener.accept() => accepted.unwrap(),
                };
                let (handler, tls, end) = (handler.clone(), tls.clone(), end.clone());
                coracle_telemetry::spawn("a connection of a test", async move {
                    let serve = async {
                        match tls {
                            None => handler.serve(stream).await,
                            Some(tls) => {
                                if let Ok(stream) = tls.accept(stream).await {
                                    handler.serve(stream).await;
                                }
                            }
                        }
                    };
                    tokio::select! {
                        () = end.cancelled() => {}
                        () = serve => {}
                    }
                });
            }
        });
        Self {
            url: format!("{scheme}://{address}"),
            asked,
            _stop: stop.drop_guard(),
        }
    }

    /// What has been asked, in its order.
    pub(super) fn asked(&self) -> Vec<(String, Value)> {
        self.asked.lock().unwrap().clone()
    }

    /// How often anything has been asked.
    pub(super) fn count(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

impl Handler {
    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let service = hyper::service::service_fn(move |request| self.clone().answer(request));
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service);
        // It ends as the other side likes.
        drop(connection.await);
    }

    async fn answer(
        self,
        request: Request<Incoming>,
    ) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
        assert_eq!(request.method(), "POST");
        assert_eq!(request.headers()["content-type"], "application/json");
        let verb = request.uri().path().trim_start_matches('/').to_owned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let args: Value = serde_json::from_slice(&body).unwrap();
        let reply = (self.answer)(&verb, &args);
        self.asked.lock().unwrap().push((verb, args));
        let full = |text: String| http_body_util::Full::new(Bytes::from(text)).boxed();
        Ok(match reply {
            Reply::Json(value) => Response::new(full(value.to_string())),
            Reply::Text(text) => Response::new(full(text.to_owned())),
            Reply::Code(code) => {
                let response = Response::builder().status(code);
                response.body(full("{}".to_owned())).unwrap()
            }
            Reply::Silence => std::future::pending().await,
            Reply::Stall => Response::new(BodyExt::boxed(StreamBody::new(stream::pending()))),
            Reply::Flood => {
                let blanks = Bytes::from(vec![b' '; 1 << 20]);
                let blanks = stream::repeat_with(move || Ok(Frame::data(blanks.clone())));
                Response::new(BodyExt::boxed(StreamBody::new(blanks)))
            }
        })
    }
}
