//! The distribution protocol, as far as pulling goes: manifests and blobs of one repository at one
//! endpoint.
//!
//! Written on `reqwest` rather than on `oci-client`'s own client, which follows realms and
//! redirects anywhere and reads manifests and tokens of any length into memory; its types for
//! references and manifests are used. Verifies documents against their digests; layers are verified
//! by who unpacks them. No retry: the pod worker's back-off does that.
//!
//! Source: OCI distribution-spec v1.1; distribution `docs/spec/auth/token.md`.

pub(super) mod challenge;
pub(super) mod guard;

use std::{io, time::Duration};

use bytes::Bytes;
use coracle_telemetry::ErrorChain;
use futures::{Stream, TryStreamExt};
use http::{StatusCode, header};
use oci_client::{
    Reference,
    client::current_platform_resolver,
    manifest::{OciImageIndex, OciImageManifest, OciManifest},
};
use parking_lot::Mutex;
use reqwest::{Certificate, Response, Url, redirect};
use sha2::{Digest, Sha256};

use self::{challenge::Challenge, guard::Guard};
use super::{config::DOCUMENT_MAX, layer::is_sha256, registries::Tls};

const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// A token is some kilobytes.
const TOKEN_MAX: u64 = 256 << 10;
/// Of an error's body, for people.
const REASON_MAX: u64 = 4 << 10;
/// As containerd and curl have it, or less.
const REDIRECTS_MAX: u32 = 5;

/// Most indexes on the way to a manifest. containerd walks them, too
/// (`core/images/image.go` at v2.1).
pub(super) const INDEXES_MAX: usize = 4;

const MANIFEST_TYPES: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json";

/// Who asks.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Credentials {
    Anonymous,
    Basic {
        username: String,
        password: String,
    },
    Token(String),
    /// Exchanged for tokens at the realm.
    Identity(String),
}

/// Where and what: see the module's description.
pub(super) struct Distribution {
    http: reqwest::Client,
    base: Url,
    guard: Guard,
    repository: String,
    /// The registry that a mirror is asked in place of.
    instead_of: Option<String>,
    credentials: Credentials,
    /// The `Authorization` that the last challenge led to.
    authorization: Mutex<Option<String>>,
}

/// An image's manifest and the digests by which it was found.
pub(super) struct FoundManifest {
    pub(super) manifest: OciImageManifest,
    /// Of what the name stands for: the index if there is one.
    pub(super) digest: String,
}

impl Distribution {
    /// Connects to nothing yet. `base` is `http(s)://HOST[:PORT]/`.
    pub(super) fn new(
        base: &str,
        tls: &Tls,
        image: &Reference,
        instead_of: Option<String>,
        credentials: Credentials,
    ) -> Result<Self, String> {
        let base: Url = base
            .parse()
            .map_err(|error| format!("endpoint {base:?}: {error}"))?;
        let guard = Guard::new(base.clone());
        Ok(Self {
            http: client(tls, &base, guard.clone())?,
            base,
            guard,
            repository: image.repository().to_owned(),
            instead_of,
            authorization: Mutex::new(match &credentials {
                Credentials::Token(token) => Some(format!("Bearer {token}")),
                _ => None,
            }),
            credentials,
        })
    }

    /// The manifest for this machine.
    pub(super) async fn manifest(&self, image: &Reference) -> Result<FoundManifest, String> {
        let wanted = image.digest().or(image.tag()).unwrap_or("latest");
        let (mut document, digest) = self.document(wanted).await?;
        for _ in 0..=INDEXES_MAX {
            let index = match document {
                OciManifest::Image(manifest) => return Ok(FoundManifest { manifest, digest }),
                OciManifest::ImageIndex(index) => index,
            };
            document = self.document(&ours(&index)?).await?.0;
        }
        Err(format!("more than {INDEXES_MAX} indexes within each other"))
    }

    /// A manifest or index by tag or digest, and its digest.
    async fn document(&self, wanted: &str) -> Result<(OciManifest, String), String> {
        let response = self.get("manifests", wanted).await?;
        let announced = response
            .headers()
            .get("docker-content-digest")
            .and_then(|value| value.to_str().ok());
        let announced = announced
            .filter(|digest| is_sha256(digest))
            .map(str::to_owned);
        let bytes = body(response, DOCUMENT_MAX).await?;
        let digest = sha256(&bytes);
        let promised = if wanted.contains(':') {
            Some(wanted.to_owned())
        } else {
            announced
        };
        if let Some(promised) = promised.filter(|promised| *promised != digest) {
            return Err(format!("manifest is {digest}, expected {promised}"));
        }
        let document = serde_json::from_slice(&bytes)
            .map_err(|error| format!("manifest {digest}: {error}"))?;
        Ok((document, digest))
    }

    /// A small blob as a whole, verified.
    pub(super) async fn small_blob(&self, digest: &str) -> Result<Vec<u8>, String> {
        let bytes = body(self.get("blobs", digest).await?, DOCUMENT_MAX).await?;
        let actual = sha256(&bytes);
        if actual == digest {
            Ok(bytes)
        } else {
            Err(format!("config is {actual}, expected {digest}"))
        }
    }

    /// A blob as it comes; the reader verifies it, and sees to it that it comes at all
    /// ([`super::progress`]).
    pub(super) async fn blob(
        &self,
        digest: &str,
    ) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + use<>, String> {
        let response = self.get("blobs", digest).await?;
        Ok(response
            .bytes_stream()
            .map_err(|error| io::Error::other(error.without_url())))
    }

    /// `GET /v2/<repository>/<what>/<name>`: answers a challenge once, follows redirects.
    async fn get(&self, what: &str, name: &str) -> Result<Response, String> {
        let path = format!("v2/{}/{what}/{name}", self.repository);
        let mut url = self
            .base
            .join(&path)
            .map_err(|error| format!("{path}: {error}"))?;
        if let Some(registry) = &self.instead_of {
            url.query_pairs_mut().append_pair("ns", registry);
        }
        let mut response = self.follow(url.clone()).await?;
        if response.status() == StatusCode::UNAUTHORIZED {
            if !self.answer_challenge(&response).await? {
                return Err(refusal(response).await);
            }
            response = self.follow(url).await?;
        }
        if response.status().is_success() {
            Ok(response)
        } else {
            Err(refusal(response).await)
        }
    }

    async fn follow(&self, mut url: Url) -> Result<Response, String> {
        for _ in 0..=REDIRECTS_MAX {
            let mut request = self
                .http
                .get(url.clone())
                .header(header::ACCEPT, MANIFEST_TYPES);
            let authorization = self.authorization.lock().clone();
            if let Some(value) = authorization.filter(|_| self.guard.takes_credentials(&url)) {
                request = request.header(header::AUTHORIZATION, value);
            }
            let response = request
                .send()
                .await
                .map_err(|error| ErrorChain(&error).to_string())?;
            let Some(location) = location(&response) else {
                return Ok(response);
            };
            url = url
                .join(&location)
                .map_err(|error| format!("redirect to {location:?}: {error}"))?;
            self.guard.check(&url)?;
        }
        Err(format!("more than {REDIRECTS_MAX} redirects"))
    }

    /// Gets what the registry asks for; false if there is nothing (more) to show.
    async fn answer_challenge(&self, response: &Response) -> Result<bool, String> {
        let headers = response.headers().get_all(header::WWW_AUTHENTICATE);
        // A redirect's target may not ask for anything.
        if !self.guard.takes_credentials(response.url()) {
            return Ok(false);
        }
        let value = match challenge::parse(headers.iter().filter_map(|value| value.to_str().ok())) {
            Some(Challenge::Bearer { realm, service })
                if !matches!(self.credentials, Credentials::Token(_)) =>
            {
                format!("Bearer {}", self.token(&realm, service.as_deref()).await?)
            }
            Some(Challenge::Basic) => match &self.credentials {
                Credentials::Basic { username, password } => basic(username, password),
                _ => return Ok(false),
            },
            _ => return Ok(false),
        };
        *self.authorization.lock() = Some(value);
        Ok(true)
    }

    /// What is asked in the query moves into the body, beside the identity, which belongs in no log
    /// of addresses.
    fn exchange(&self, mut url: Url, identity: &str) -> reqwest::RequestBuilder {
        url.query_pairs_mut()
            .append_pair("client_id", "coracle")
            .append_pair("grant_type", "refresh_token")
            .append_pair("refresh_token", identity);
        let form = url.query().unwrap_or_default().to_owned();
        url.set_query(None);
        self.http
            .post(url)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form)
    }

    async fn token(&self, realm: &str, service: Option<&str>) -> Result<String, String> {
        let mut url: Url = realm
            .parse()
            .map_err(|error| format!("token realm {realm:?}: {error}"))?;
        self.guard.check(&url)?;
        url.query_pairs_mut()
            .extend_pairs(service.map(|service| ("service", service)))
            .append_pair("scope", &format!("repository:{}:pull", self.repository));
        let mut request = match &self.credentials {
            Credentials::Identity(identity) => self.exchange(url, identity),
            _ => self.http.get(url),
        };
        if let Credentials::Basic { username, password } = &self.credentials {
            request = request.header(header::AUTHORIZATION, basic(username, password));
        }
        // Redirects are not followed: credentials are on the way.
        let response = request
            .send()
            .await
            .map_err(|error| ErrorChain(&error).to_string())?;
        if !response.status().is_success() {
            return Err(format!("get a token: {}", refusal(response).await));
        }
        let bytes = body(response, TOKEN_MAX).await?;
        let answer: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let token = ["token", "access_token"]
            .iter()
            .find_map(|name| answer[*name].as_str());
        token
            .filter(|token| !token.is_empty())
            .map(str::to_owned)
            .ok_or_else(|| "get a token: none in the answer".into())
    }
}

/// The digest of the manifest for this machine, or else of the first that is for no machine in
/// particular: an index, or an image whose config tells.
pub(super) fn ours(index: &OciImageIndex) -> Result<String, String> {
    let entries = &index.manifests;
    let any = || entries.iter().find(|entry| entry.platform.is_none());
    let digest = current_platform_resolver(entries)
        .or_else(|| any().map(|entry| entry.digest.clone()))
        .ok_or("the image has no manifest for this machine's platform")?;
    if is_sha256(&digest) {
        Ok(digest)
    } else {
        Err(format!("manifest digest {digest:?} is not a sha256 digest"))
    }
}

fn client(tls: &Tls, base: &Url, guard: Guard) -> Result<reqwest::Client, String> {
    // Absent where the library is used without the program.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    let mut extra = Vec::new();
    if let Some(path) = &tls.ca_file {
        let data = std::fs::read(path)
            .map_err(|error| format!("read ca_file {}: {error}", path.display()))?;
        extra = Certificate::from_pem_bundle(&data)
            .map_err(|error| format!("ca_file {}: {error}", path.display()))?;
    }
    let builder = || {
        reqwest::Client::builder()
            .user_agent(concat!("coracle/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_DEADLINE)
            .redirect(redirect::Policy::none())
            .tls_danger_accept_invalid_certs(tls.insecure_skip_verify)
            .dns_resolver(guard.clone())
    };
    match builder().tls_certs_merge(extra.clone()).build() {
        Ok(client) => Ok(client),
        // A machine without any trusted roots can still ask the registries whose authority it is
        // told, or without TLS.
        Err(_) if base.scheme() == "http" || !extra.is_empty() => builder()
            .tls_certs_only(extra)
            .build()
            .map_err(|error| ErrorChain(&error).to_string()),
        Err(error) => Err(ErrorChain(&error).to_string()),
    }
}

fn basic(username: &str, password: &str) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    format!(
        "Basic {}",
        STANDARD.encode(format!("{username}:{password}"))
    )
}

fn location(response: &Response) -> Option<String> {
    let redirects = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let value = response
        .headers()
        .get(header::LOCATION)
        .filter(|_| redirects)?;
    value.to_str().ok().map(str::to_owned)
}

/// The whole body, or an error once it is longer than `limit`.
async fn body(mut response: Response, limit: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| ErrorChain(&error).to_string())?
    {
        bytes.extend_from_slice(&chunk);
        if bytes.len() as u64 > limit {
            return Err(format!("the answer is longer than {limit} bytes"));
        }
    }
    Ok(bytes)
}

/// Why a registry said no: its own words, as far as it has any.
async fn refusal(response: Response) -> String {
    let status = response.status();
    let known = match status {
        StatusCode::NOT_FOUND => "not found".to_owned(),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            "pull access denied, repository does not exist or may require authorization".to_owned()
        }
        _ => format!("unexpected status {status}"),
    };
    let bytes = body(response, REASON_MAX).await.unwrap_or_default();
    let answer: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
    match answer["errors"][0]["message"]
        .as_str()
        .filter(|message| !message.is_empty())
    {
        Some(message) => format!("{known}: server message: {message}"),
        None => known,
    }
}

fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}
