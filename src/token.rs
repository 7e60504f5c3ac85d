//! `coracle token`: bootstrap tokens for nodes, kept as Kubernetes keeps them (Secrets of type
//! `bootstrap.kubernetes.io/token`); and the server token, which is a file.
//!
//! The printed form is `K10<SHA-256 of the CA certificate>::<id>.<secret>`: a node can tell the
//! real server from any other before it sends the secret.
//!
//! Source: Kubernetes `docs/reference/access-authn-authz/bootstrap-tokens`.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, anyhow, bail};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, ObjectMeta, PostParams},
};
use rand::RngExt;

use crate::{
    Failure,
    admin::{self, Calls},
    cli::{ApiArgs, DataDir, TokenCommand},
    say,
};

const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
const NAME_PREFIX: &str = "bootstrap-token-";
const NAMESPACE: &str = "kube-system";
const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;
const ALPHABET: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
/// For one request to the API server.
const DEADLINE: Duration = Duration::from_secs(30);

/// Carries out one subcommand.
pub(crate) fn run(command: TokenCommand) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match command {
            TokenCommand::Create {
                api,
                ttl,
                description,
                print_join_command,
            } => {
                let ttl = parse_ttl(&ttl).map_err(Failure::Usage)?;
                let token = create(&api, ttl, &description).await?;
                if print_join_command {
                    let server = admin::server(&api)?;
                    say(format_args!(
                        "coracle agent --server {server} --token {token}"
                    ));
                } else {
                    say(format_args!("{token}"));
                }
            }
            TokenCommand::Server {
                data,
                print_join_command,
            } => print_servers(data, print_join_command)?,
            TokenCommand::List { api } => list(&api).await?,
            TokenCommand::Delete { api, token } => {
                let id = token_id(&token).map_err(Failure::Usage)?;
                delete(&api, id).await?;
            }
        }
        Ok(())
    })
}

async fn create(
    args: &ApiArgs,
    ttl: Option<Duration>,
    description: &str,
) -> anyhow::Result<String> {
    let (client, ca_hash) = admin::connect(args, Calls::Writes, DEADLINE).await?;
    let (id, secret) = (random(ID_LENGTH), random(SECRET_LENGTH));
    let mut data = BTreeMap::from([
        ("token-id".to_owned(), id.clone()),
        ("token-secret".to_owned(), secret.clone()),
        (
            "usage-bootstrap-authentication".to_owned(),
            "true".to_owned(),
        ),
    ]);
    if let Some(ttl) = ttl {
        let until = jiff::Timestamp::now() + ttl;
        data.insert(
            "expiration".to_owned(),
            until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        );
    }
    if !description.is_empty() {
        data.insert("description".to_owned(), description.to_owned());
    }
    let object = Secret {
        metadata: ObjectMeta {
            name: Some(format!("{NAME_PREFIX}{id}")),
            ..ObjectMeta::default()
        },
        type_: Some(SECRET_TYPE.to_owned()),
        string_data: Some(data),
        ..Secret::default()
    };
    secrets(client)
        .create(&PostParams::default(), &object)
        .await
        .context("store the token")?;
    Ok(format!("K10{ca_hash}::{id}.{secret}"))
}

/// The token by which servers join: a file of a server, and nothing that the API knows.
#[cfg(feature = "etcd")]
fn print_servers(data: DataDir, print_join_command: bool) -> anyhow::Result<()> {
    let dir = &data.data_dir;
    let token = coracle_controlplane::joining::read_token(dir)?.ok_or_else(|| {
        anyhow!(
            "{} has no server token: one is made where servers share a store (--store etcd=URL,...), on the first of them",
            dir.display()
        )
    })?;
    if print_join_command {
        let api = ApiArgs {
            data,
            kubeconfig: None,
        };
        let server = admin::server(&api)?;
        say(format_args!(
            "coracle server --join {server} --token {token}"
        ));
    } else {
        say(format_args!("{token}"));
    }
    Ok(())
}

#[cfg(not(feature = "etcd"))]
fn print_servers(_: DataDir, _: bool) -> anyhow::Result<()> {
    bail!(crate::store::WITHOUT)
}

async fn list(args: &ApiArgs) -> anyhow::Result<()> {
    let (client, _) = admin::connect(args, Calls::Reads, DEADLINE).await?;
    let params = ListParams::default().fields(&format!("type={SECRET_TYPE}"));
    let found = secrets(client)
        .list(&params)
        .await
        .context("list the tokens")?;
    say(format_args!("{:<8} {:<22} DESCRIPTION", "ID", "EXPIRES"));
    for secret in found {
        let field = |name: &str| {
            let bytes = secret.data.as_ref().and_then(|data| data.get(name));
            bytes.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned())
        };
        let expires = field("expiration").unwrap_or_else(|| "never".to_owned());
        let id = field("token-id").unwrap_or_default();
        say(format_args!(
            "{id:<8} {expires:<22} {}",
            field("description").unwrap_or_default()
        ));
    }
    Ok(())
}

async fn delete(args: &ApiArgs, id: &str) -> anyhow::Result<()> {
    let (client, _) = admin::connect(args, Calls::Writes, DEADLINE).await?;
    match secrets(client)
        .delete(&format!("{NAME_PREFIX}{id}"), &DeleteParams::default())
        .await
    {
        Ok(_) => say(format_args!("deleted token {id}")),
        Err(kube::Error::Api(status)) if status.code == 404 => bail!("there is no token {id}"),
        Err(error) => return Err(error).with_context(|| format!("delete token {id}")),
    }
    Ok(())
}

fn secrets(client: Client) -> Api<Secret> {
    Api::namespaced(client, NAMESPACE)
}

fn random(length: usize) -> String {
    let mut rng = rand::rng();
    (0..length)
        .map(|_| char::from(ALPHABET[rng.random_range(..ALPHABET.len())]))
        .collect()
}

/// `24h`, `30m`, `90s`; `0` is for ever.
fn parse_ttl(text: &str) -> anyhow::Result<Option<Duration>> {
    if text == "0" {
        return Ok(None);
    }
    let expected =
        || anyhow!("--ttl {text:?}: expected a duration such as 24h or 30m, or 0 for ever");
    let span: jiff::SignedDuration = text.parse().map_err(|_| expected())?;
    let ttl = Duration::try_from(span).map_err(|_| expected())?;
    if ttl.is_zero() {
        Err(expected())
    } else {
        Ok(Some(ttl))
    }
}

/// The ID in a whole token, in its `id.secret` part, or by itself.
fn token_id(token: &str) -> anyhow::Result<&str> {
    let part = token.rsplit("::").next().unwrap_or(token);
    let id = part.split('.').next().unwrap_or(part);
    if id.len() != ID_LENGTH || !id.bytes().all(|byte| ALPHABET.contains(&byte)) {
        bail!("{token:?} is no token: expected K10...::ID.SECRET or the ID of six characters");
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use coracle_telemetry::ErrorChain;

    use super::*;

    #[test]
    fn the_id_is_found_in_every_form_of_a_token() {
        for given in [
            "abc123",
            "abc123.0123456789abcdef",
            "K10ff::abc123.0123456789abcdef",
        ] {
            assert_eq!(token_id(given).expect(given), "abc123");
        }
        for given in ["", "K10ff::", "../../x", "ABC123", "abc1234"] {
            assert!(token_id(given).is_err(), "{given}");
        }
    }

    #[tokio::test]
    async fn a_kubeconfig_that_is_not_there_is_named_once() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("none");
        let args = ApiArgs {
            data: DataDir {
                data_dir: dir.path().to_owned(),
            },
            kubeconfig: Some(path.clone()),
        };
        let connected = admin::connect(&args, Calls::Reads, DEADLINE).await;
        let error = connected.map(drop).expect_err("there is none");
        assert_eq!(
            ErrorChain(error.as_ref()).to_string(),
            format!(
                "read kubeconfig {} (is this the server's --data-dir? Elsewhere give --kubeconfig): No such file or directory (os error 2)",
                path.display()
            )
        );
    }

    #[test]
    fn lifetimes_are_durations_or_for_ever() {
        assert_eq!(parse_ttl("0").expect("0"), None);
        assert_eq!(
            parse_ttl("90m").expect("90m"),
            Some(Duration::from_secs(5400))
        );
        for given in ["", "-1h", "soon", "0s"] {
            assert!(parse_ttl(given).is_err(), "{given}");
        }
    }

    #[test]
    fn tokens_have_the_upstream_alphabet_and_length() {
        let secret = random(SECRET_LENGTH);
        assert!(
            secret.len() == SECRET_LENGTH && secret.bytes().all(|byte| ALPHABET.contains(&byte)),
            "{secret}"
        );
    }
}
