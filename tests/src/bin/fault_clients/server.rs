//! Connections to the servers, and what their answers say of a write.

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use kube::{
    Client, Config, Error,
    config::{KubeConfigOptions, Kubeconfig},
};

/// How long an answer may take. More than etcd needs for an election.
const PATIENCE: Duration = Duration::from_secs(3);
const CONNECT: Duration = Duration::from_secs(1);

/// How to reach all servers.
pub(crate) struct Servers(Vec<Config>);

impl Servers {
    pub(crate) async fn read(kubeconfigs: &[PathBuf]) -> Result<Self> {
        let mut configs = Vec::with_capacity(kubeconfigs.len());
        for path in kubeconfigs {
            let options = KubeConfigOptions::default();
            let kubeconfig = Kubeconfig::read_from(path)?;
            let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
            config.connect_timeout = Some(CONNECT);
            // It would send a write again of which nobody knows whether it was carried out.
            config.default_retry = false;
            configs.push(config);
        }
        Ok(Self(configs))
    }

    /// Connections of one client.
    pub(crate) fn connect(&self) -> Result<Vec<Link>> {
        (0..self.0.len())
            .map(|server| self.connect_to(server))
            .collect()
    }

    pub(crate) fn connect_to(&self, server: usize) -> Result<Link> {
        let config = self.0[server].clone();
        Ok(Link {
            server,
            client: Client::try_from(config.clone())?,
            config,
        })
    }
}

/// A client's connection to one server.
pub(crate) struct Link {
    pub(crate) server: usize,
    pub(crate) client: Client,
    config: Config,
}

/// What an answer says.
pub(crate) enum Answer<T> {
    /// It was done.
    Done(T),
    /// What is there does not allow it: 404 and 409.
    Refused,
    /// It was not done: too many requests.
    NotNow,
    /// It may have been done.
    Unknown,
    /// What nobody should be told.
    Odd(String),
}

impl Link {
    /// The answer, or that there was none in time; then the next request gets a new connection,
    /// because the old one may lead into a cut line.
    pub(crate) async fn answer<T>(
        &mut self,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Answer<T> {
        match tokio::time::timeout(PATIENCE, request).await {
            Ok(Ok(answer)) => Answer::Done(answer),
            Ok(Err(Error::Api(status))) => match status.code {
                404 | 409 => Answer::Refused,
                429 => Answer::NotNow,
                503 | 504 => Answer::Unknown,
                _ => Answer::Odd(format!("server {}: {status:?}", self.server)),
            },
            Ok(Err(_)) | Err(_) => {
                self.renew();
                Answer::Unknown
            }
        }
    }

    /// Connects anew.
    pub(crate) fn renew(&mut self) {
        if let Ok(client) = Client::try_from(self.config.clone()) {
            self.client = client;
        }
    }
}
