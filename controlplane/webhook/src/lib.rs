//! Webhooks, as an API server calls them: a POST of JSON over TLS, and its answer.
//!
//! ```text
//! Webhooks::post > the client of a configuration > a place > a connection, idle or new > POST > at most 3 MB
//! ```
//!
//! | module | does |
//! |---|---|
//! | [`config`] | where a webhook is and whom to believe there: `WebhookClientConfig` |
//! | [`dial`] | how to get to a Service: the caller's matter |
//! | [`error`] | why there is no answer, in upstream's words |
//! | `words` | what failures are called |
//! | `tls`, `own_authority` | whose certificates are believed |
//! | `lookup` | the addresses of a host, without taking everybody's threads |
//! | `connection` | one connection and one exchange on it |
//! | `client` | the connections to one webhook |
//! | `answer` | what is taken of an answer, and what is said of one that is no success |
//! | [`webhooks`] | the clients of all webhooks |
//!
//! One call has one deadline, over all of its steps. Nothing is sent twice, no redirect is
//! followed, and no proxy of the environment is asked. It knows nothing of the API: what is sent
//! and what an answer means is the caller's.
//!
//! Source: `k8s.io/apiserver/pkg/util/webhook/client.go` at v1.37.
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that cannot go on fails")
)]

mod answer;
mod client;
pub mod config;
mod connection;
pub mod dial;
pub mod error;
mod lookup;
mod own_authority;
mod tls;
pub mod webhooks;
mod words;

#[cfg(test)]
mod tests;

pub use config::{ClientConfig, Credentials, ReadConfigError, ServiceReference, Target};
pub use dial::{DialError, Dialer, Io};
pub use error::{CallError, SetupError};
pub use webhooks::Webhooks;
