//! One connection to a webhook, and one exchange at a time on it.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;

use crate::{dial::Io, error::ExchangeError};

/// A connection on which nothing is under way.
pub(crate) struct Connection(SendRequest<Full<Bytes>>);

/// What became of a request on a connection that was idle.
pub(crate) enum Sent {
    Answered(Response<Incoming>),
    /// Nothing of it was sent: the other side had gone.
    Unsent(Request<Full<Bytes>>),
    Failed(ExchangeError),
}

impl Connection {
    /// Begins to speak on `stream`.
    pub(crate) async fn begin(stream: Box<dyn Io>) -> Result<Self, ExchangeError> {
        let begun = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = begun.map_err(ExchangeError::Http)?;
        // Ends with the sender, or when the other side goes.
        coracle_telemetry::spawn("connection to a webhook", async {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to a webhook has ended");
            }
        });
        Ok(Self(sender))
    }

    /// Whether the other side is still there, as far as is known.
    pub(crate) fn is_open(&self) -> bool {
        !self.0.is_closed()
    }

    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> Sent {
        match self.0.try_send_request(request).await {
            Ok(response) => Sent::Answered(response),
            Err(mut error) => match error.take_message() {
                Some(request) => Sent::Unsent(request),
                None => Sent::Failed(ExchangeError::Http(error.into_error())),
            },
        }
    }

    /// Waits until the next request may be sent; `false` if there will be none.
    pub(crate) async fn is_ready(&mut self) -> bool {
        self.0.ready().await.is_ok()
    }
}
