//! One question to an extender, and its answer: in time, not too long, and of the right form.

use bytes::Bytes;
use http::{Method, Request, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::ClientConfig;
use serde::{Deserialize, Serialize};

use crate::{
    config::{ExtenderConfig, Verb},
    framework::ExtenderError,
};

/// By how much an answer may be longer than its question. One that repeats whole nodes is as long
/// as that; what else there is to say about 5,000 of them takes some megabytes.
const ANSWER_MORE: usize = 10 << 20;

/// The connections to one extender.
pub(super) struct Caller {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    timeout: std::time::Duration,
}

impl Caller {
    pub(super) fn new(config: &ExtenderConfig) -> Self {
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(ClientConfig::clone(&config.tls))
            .https_or_http();
        let https = match &config.server_name {
            Some(name) => {
                https.with_server_name_resolver(FixedServerNameResolver::new(name.clone()))
            }
            None => https,
        };
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .build(https.enable_http1().build());
        Self {
            client,
            timeout: config.timeout,
        }
    }

    /// Asks, and takes `null` for nothing said.
    pub(super) async fn send<A: Serialize, R: for<'de> Deserialize<'de> + Default>(
        &self,
        verb: &Verb,
        args: &A,
    ) -> Result<R, ExtenderError> {
        let url = || verb.url.to_string();
        let question = serde_json::to_vec(args).map_err(|source| ExtenderError::Write {
            url: url(),
            source: source.into(),
        })?;
        let limit = question.len().saturating_add(ANSWER_MORE);
        let answer = tokio::time::timeout(self.timeout, self.exchange(verb, question, limit));
        let answer = answer.await.map_err(|_| ExtenderError::Slow {
            url: url(),
            timeout: self.timeout,
        })??;
        // The first value: as Go reads, whatever follows it.
        let mut values = serde_json::Deserializer::from_slice(&answer).into_iter::<Option<R>>();
        let read = values.next().unwrap_or_else(|| serde_json::from_slice(b""));
        read.map(Option::unwrap_or_default)
            .map_err(|source| ExtenderError::Read {
                url: url(),
                source: source.into(),
            })
    }

    async fn exchange(
        &self,
        verb: &Verb,
        question: Vec<u8>,
        limit: usize,
    ) -> Result<Bytes, ExtenderError> {
        let url = || verb.url.to_string();
        let request = Request::builder()
            .method(Method::POST)
            .uri(verb.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(question))
            .map_err(|source| ExtenderError::Write {
                url: url(),
                source: source.into(),
            })?;
        let answer = self.client.request(request).await;
        let answer = answer.map_err(|source| ExtenderError::Send {
            url: url(),
            source: source.into(),
        })?;
        if answer.status() != StatusCode::OK {
            return Err(ExtenderError::Code {
                verb: verb.name.clone(),
                url: url(),
                code: answer.status().as_u16(),
            });
        }
        let body = Limited::new(answer.into_body(), limit).collect().await;
        let body = body.map_err(|source| match source.is::<LengthLimitError>() {
            true => ExtenderError::Long { url: url(), limit },
            false => ExtenderError::Send { url: url(), source },
        })?;
        Ok(body.to_bytes())
    }
}
