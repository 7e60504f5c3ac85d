//! How the node speaks to the API: in one process with a server, or with one of several.

use coracle_telemetry::Tasks;
use rustls::ClientConfig;
use rustls_pki_types::{CertificateDer, pem::PemObject as _};

use super::Groups;
use crate::{
    AgentConfig, AgentError, ApiAccess, JoinError,
    balancer::{self, Balancer, Endpoints, Keeper, Port},
    blocking::blocking,
    informers::Informers,
    join,
};

/// Speaks to the API.
pub(super) struct Api {
    pub(super) client: kube::Client,
    /// Where there are servers to choose from, and what to ask them with how they are.
    balanced: Option<(Balancer, ClientConfig)>,
}

impl Api {
    /// Begins, and says who may use the node's own API.
    pub(super) async fn open(
        groups: &mut Groups,
        config: &AgentConfig,
        access: ApiAccess,
    ) -> Result<(Self, Option<CertificateDer<'static>>), AgentError> {
        let (servers, lb_server_port, token) = match access {
            ApiAccess::Join {
                servers,
                lb_server_port,
                token,
            } => (servers, lb_server_port, token),
            ApiAccess::InProcess(client) => {
                let balanced = None;
                return Ok((Self { client, balanced }, read_ca(config)?));
            }
        };
        let balancer = balancer_of(config, &servers).await?;
        let port = Port::open(lb_server_port).await;
        let port = port.map_err(|source| JoinError::Port {
            port: lb_server_port.unwrap_or(Port::DEFAULT),
            source,
        })?;
        let shutdown = groups.tasks.stop();
        let joined = join::join(config, &balancer, &token, &shutdown).await?;
        let renewal = join::Renewal {
            client: joined.client.clone(),
            pki: join::pki_dir(config),
            purpose: join::Purpose::client(&config.node_name),
            identity: joined.identity,
            announced_ca: || None,
        };
        groups.tasks.add(
            "renew the client certificate",
            join::keep_renewed(renewal, shutdown.clone()),
        );
        groups.tasks.add(
            "balance connections to API servers",
            port.serve(balancer.clone(), shutdown),
        );
        let this = Self {
            client: joined.client,
            balanced: Some((balancer, joined.tls)),
        };
        Ok((this, Some(joined.ca)))
    }

    /// Has the balancer follow what becomes of the servers.
    pub(super) fn keep(self, tasks: &mut Tasks, config: &AgentConfig, informers: &mut Informers) {
        if let Some((balancer, tls)) = self.balanced {
            let keeper = Keeper {
                balancer,
                tls,
                endpoints: Endpoints::new(informers),
                path: config.servers_file(),
            };
            tasks.add("keep to a server that is well", keeper.run(tasks.stop()));
        }
    }
}

/// Between the servers that were given and those that were known last.
async fn balancer_of(config: &AgentConfig, servers: &[String]) -> Result<Balancer, JoinError> {
    let given = join::addresses(servers)?;
    let path = config.servers_file();
    let known = blocking(move || balancer::load_known(&path)).await;
    Balancer::new(&config.node_name, &given, known).ok_or_else(|| JoinError::Server {
        server: String::new(),
    })
}

/// In one process with the server its CA is a file in the same data directory.
pub(super) fn read_ca(config: &AgentConfig) -> Result<Option<CertificateDer<'static>>, AgentError> {
    let path = config
        .client_ca
        .clone()
        .unwrap_or_else(|| config.data_dir.join("server/pki/ca.crt"));
    match std::fs::read(&path) {
        Ok(text) => CertificateDer::from_pem_slice(&text)
            .map(Some)
            .map_err(|source| AgentError::ClientCa { path, source }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), "no CA of API clients: logs and exec will not work");
            Ok(None)
        }
        Err(source) => Err(AgentError::Directory { path, source }),
    }
}
