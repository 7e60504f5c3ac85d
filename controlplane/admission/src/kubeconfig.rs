//! kubeconfig files: how the server reaches a webhook that no object of the API describes, and who
//! it is to webhooks. They are read once, with the files that they name, as the server starts.
//!
//! What would be ignored is refused: a server that was to be somebody must not call as nobody.
//!
//! Source: `k8s.io/client-go/tools/clientcmd`,
//! `k8s.io/apiserver/pkg/util/webhook/authentication.go` at v1.37.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use coracle_webhook::{ClientConfig, Credentials, Target};
use serde::Deserialize;
use serde_json::Value;

use crate::config::file::{self, AdmissionConfigError};

/// Who the server is to which host.
#[derive(Debug, Clone, Default)]
pub(crate) struct Authentication {
    /// By host and port, `*.` and the end of one, or `*`.
    users: HashMap<String, Credentials>,
    current: Option<String>,
}

struct Kubeconfig {
    directory: PathBuf,
    file: File,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[derive(Default)]
struct File {
    clusters: Vec<NamedCluster>,
    users: Vec<NamedUser>,
    contexts: Vec<NamedContext>,
    current_context: String,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    #[serde(default)]
    cluster: Cluster,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
    user: User,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    #[serde(default)]
    context: Context,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct Cluster {
    server: String,
    certificate_authority: String,
    certificate_authority_data: String,
    disable_compression: bool,
    extensions: Value,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct User {
    #[serde(rename = "client-certificate")]
    client_certificate: String,
    #[serde(rename = "client-certificate-data")]
    client_certificate_data: String,
    #[serde(rename = "client-key")]
    client_key: String,
    #[serde(rename = "client-key-data")]
    client_key_data: String,
    token: String,
    #[serde(rename = "tokenFile")]
    token_file: String,
    username: String,
    password: String,
    extensions: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
}

impl Authentication {
    /// # Errors
    /// The file, or one that it names, cannot be read, or says what is not understood.
    pub(crate) fn read(path: &Path) -> Result<Self, AdmissionConfigError> {
        let config = Kubeconfig::read(path)?;
        let mut users = HashMap::new();
        for named in &config.file.users {
            users.insert(named.name.clone(), config.credentials(named)?);
        }
        let current = config.context().map(|context| context.user.clone());
        Ok(Self { users, current })
    }

    /// Who the server is to a webhook; nobody if nothing is said.
    pub(crate) fn of(&self, target: &Target) -> Credentials {
        let found = self.find(&host(target));
        found.cloned().unwrap_or_default()
    }

    fn find(&self, host: &str) -> Option<&Credentials> {
        let current = || self.users.get(self.current.as_deref()?);
        self.named(host)
            .or_else(|| self.named(host.strip_suffix(":443")?))
            .or_else(|| self.users.get("*"))
            .or_else(current)
    }

    /// The host itself, or the longest end of it that somebody is for.
    fn named(&self, host: &str) -> Option<&Credentials> {
        let ends = host.match_indices('.').map(|(at, _)| &host[at..]);
        let mut ends = ends.filter_map(|end| self.users.get(&format!("*{end}")));
        self.users.get(host).or_else(|| ends.next())
    }
}

/// Host and port as they are written.
fn host(target: &Target) -> String {
    match target {
        Target::Service(service) => {
            format!(
                "{}.{}.svc:{}",
                service.name, service.namespace, service.port
            )
        }
        Target::Url(url) => {
            let rest = url.split_once("://").map_or(&**url, |(_, rest)| rest);
            let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
            let host = authority.rsplit_once('@').map(|(_, host)| host);
            host.unwrap_or(authority).to_owned()
        }
    }
}

/// How to reach the one webhook that a kubeconfig is about, by its current context.
///
/// # Errors
/// As [`Authentication::read`]; it is about none, or not by HTTPS.
pub(crate) fn client(path: &Path) -> Result<ClientConfig, AdmissionConfigError> {
    let config = Kubeconfig::read(path)?;
    let current = &config.file.current_context;
    let context = config.context().ok_or_else(|| {
        config.wrong(
            "current-context",
            &format!("there is no context {current:?}"),
        )
    })?;
    let cluster = config
        .file
        .clusters
        .iter()
        .find(|one| one.name == context.cluster);
    let cluster = cluster.ok_or_else(|| {
        let why = format!("there is no cluster {:?}", context.cluster);
        config.wrong(&format!("contexts[{current}].cluster"), &why)
    })?;
    let at = format!("clusters[{}]", cluster.name);
    let cluster = &cluster.cluster;
    if !cluster.server.starts_with("https://") {
        let why = format!("{:?}: must be a URL of https", cluster.server);
        return Err(config.wrong(&format!("{at}.server"), &why));
    }
    let user = config
        .file
        .users
        .iter()
        .find(|one| one.name == context.user);
    if user.is_none() && !context.user.is_empty() {
        let why = format!("there is no user {:?}", context.user);
        return Err(config.wrong(&format!("contexts[{current}].user"), &why));
    }
    let authority = (
        &*cluster.certificate_authority,
        &*cluster.certificate_authority_data,
    );
    Ok(ClientConfig {
        target: Target::Url(cluster.server.clone()),
        ca_bundle: config.bytes(&format!("{at}.certificate-authority"), authority)?,
        credentials: user.map_or_else(
            || Ok(Credentials::default()),
            |user| config.credentials(user),
        )?,
    })
}

impl Kubeconfig {
    fn read(path: &Path) -> Result<Self, AdmissionConfigError> {
        let named = |error: &dyn std::fmt::Display| {
            AdmissionConfigError(format!("kubeConfigFile {}: {error}", path.display()))
        };
        let text = fs::read_to_string(path).map_err(|error| named(&error))?;
        let value = serde_yaml::from_str(&text).map_err(|error| named(&error))?;
        Ok(Self {
            directory: path.parent().unwrap_or(Path::new(".")).to_owned(),
            file: file::read(value).map_err(|error| named(&error))?,
        })
    }

    fn context(&self) -> Option<&Context> {
        let current = &self.file.current_context;
        let mut contexts = self.file.contexts.iter();
        let found = contexts.find(|one| one.name == *current)?;
        Some(&found.context)
    }

    fn wrong(&self, place: &str, why: &str) -> AdmissionConfigError {
        AdmissionConfigError(format!(
            "kubeconfig in {}: {place}: {why}",
            self.directory.display()
        ))
    }

    /// What is shown of a user. A token comes before a name with a password, as in Go's client.
    fn credentials(&self, named: &NamedUser) -> Result<Credentials, AdmissionConfigError> {
        let (at, user) = (format!("users[{}]", named.name), &named.user);
        let from_file = self.bytes(&format!("{at}.tokenFile"), (&user.token_file, ""))?;
        let token = match user.token.as_str() {
            "" => String::from_utf8_lossy(&from_file).trim().to_owned(),
            token => token.to_owned(),
        };
        let authorization = if !token.is_empty() {
            format!("Bearer {token}")
        } else if user.username.is_empty() && user.password.is_empty() {
            String::new()
        } else {
            let both = STANDARD.encode(format!("{}:{}", user.username, user.password));
            format!("Basic {both}")
        };
        let certificate = (&*user.client_certificate, &*user.client_certificate_data);
        let key = (&*user.client_key, &*user.client_key_data);
        let certificate = self.bytes(&format!("{at}.client-certificate"), certificate)?;
        let key = self.bytes(&format!("{at}.client-key"), key)?;
        if certificate.is_empty() != key.is_empty() {
            return Err(self.wrong(&at, "client-certificate and client-key come together"));
        }
        Ok(Credentials {
            authorization,
            certificate,
            key,
        })
    }

    /// What is said in base64, or else in a file; nothing of nothing.
    fn bytes(
        &self,
        place: &str,
        (path, data): (&str, &str),
    ) -> Result<Vec<u8>, AdmissionConfigError> {
        if !data.is_empty() {
            let decoded = STANDARD.decode(data.trim());
            return decoded
                .map_err(|error| self.wrong(&format!("{place}-data"), &error.to_string()));
        }
        if path.is_empty() {
            return Ok(Vec::new());
        }
        let read = fs::read(self.directory.join(path));
        read.map_err(|error| self.wrong(place, &format!("{path}: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use coracle_webhook::ServiceReference;

    use super::*;

    fn written(text: &str) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubeconfig");
        fs::write(&path, text).unwrap();
        for (name, text) in [
            ("ca.pem", "CA"),
            ("token", "t0\n"),
            ("c.pem", "C"),
            ("k.pem", "K"),
        ] {
            fs::write(directory.path().join(name), text).unwrap();
        }
        (directory, path)
    }

    const USERS: &str = "
users:
- {name: hook.ns.svc, user: {token: a}}
- {name: '*.ns.svc', user: {tokenFile: token}}
- {name: '*.example.org', user: {username: u, password: p}}
- {name: 'b.example.org:8443', user: {client-certificate: c.pem, client-key-data: Sw==}}
";

    #[test]
    fn who_the_server_is_depends_on_the_host() {
        let (_directory, path) = written(USERS);
        let known = Authentication::read(&path).unwrap();
        let service = |name: &str, port| {
            let (name, namespace) = (name.to_owned(), "ns".to_owned());
            let path = String::new();
            Target::Service(ServiceReference {
                namespace,
                name,
                port,
                path,
            })
        };
        let url = |url: &str| Target::Url(url.to_owned());
        for (target, expect) in [
            (service("hook", 443), "Bearer a"),
            (service("hook", 8443), ""),
            (service("other", 443), "Bearer t0"),
            (url("https://a.example.org/x"), "Basic dTpw"),
            (url("https://a.example.org:443"), "Basic dTpw"),
            (url("https://a.example.org:8443/x"), ""),
            (url("https://example.com"), ""),
        ] {
            assert_eq!(known.of(&target).authorization, expect, "{target:?}");
        }
        let shown = known.of(&url("https://b.example.org:8443/x"));
        assert_eq!(
            (shown.certificate, shown.key),
            (b"C".to_vec(), b"K".to_vec())
        );
    }

    #[test]
    fn others_get_the_star_or_else_the_current_user() {
        let context = "{contexts: [{name: c, context: {user: u}}], current-context: c,
            users: [{name: u, user: {token: current}}]}";
        let (_directory, path) = written(context);
        let known = Authentication::read(&path).unwrap();
        let anywhere = Target::Url("https://example.com".to_owned());
        assert_eq!(known.of(&anywhere).authorization, "Bearer current");
        let (_directory, path) = written(&context.replace("name: u", "name: '*'"));
        let known = Authentication::read(&path).unwrap();
        assert_eq!(known.of(&anywhere).authorization, "Bearer current");
    }

    const CLIENT: &str = "
clusters: [{name: images, cluster: {server: 'https://images.example.org/policy', certificate-authority: ca.pem}}]
users: [{name: me, user: {token: t}}]
contexts: [{name: c, context: {cluster: images, user: me}}]
current-context: c
";

    #[test]
    fn the_current_context_is_the_webhook() {
        let (_directory, path) = written(CLIENT);
        let client = client(&path).unwrap();
        let target = Target::Url("https://images.example.org/policy".to_owned());
        assert_eq!((client.target, &*client.ca_bundle), (target, &b"CA"[..]));
        assert_eq!(client.credentials.authorization, "Bearer t");
    }

    #[test]
    fn what_would_be_ignored_is_refused() {
        for (from, to, expect) in [
            (
                "current-context: c",
                "",
                "current-context: there is no context \"\"",
            ),
            (
                "cluster: images,",
                "cluster: others,",
                "contexts[c].cluster: there is no cluster \"others\"",
            ),
            (
                "user: me",
                "user: you",
                "contexts[c].user: there is no user \"you\"",
            ),
            (
                "https://images",
                "http://images",
                "clusters[images].server: \"http://images.example.org/policy\": must be",
            ),
            (
                "ca.pem",
                "none.pem",
                "clusters[images].certificate-authority: none.pem: ",
            ),
            ("token: t", "exec: {}", "unknown field `exec`"),
            (
                "token: t",
                "client-key: k.pem",
                "users[me]: client-certificate and client-key come together",
            ),
            (
                "certificate-authority: ca.pem",
                "insecure-skip-tls-verify: true",
                "unknown field `insecure-skip-tls-verify`",
            ),
        ] {
            assert!(CLIENT.contains(from), "{from}");
            let (_directory, path) = written(&CLIENT.replacen(from, to, 1));
            let error = client(&path).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}\n{expect}");
        }
        let missing = Authentication::read(Path::new("/nonexistent/kubeconfig"));
        let error = missing.unwrap_err().to_string();
        assert!(
            error.starts_with("kubeConfigFile /nonexistent/kubeconfig: "),
            "{error}"
        );
    }
}
