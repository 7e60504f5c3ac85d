//! The distribution protocol, as far as pulling goes: manifests and blobs of one repository at one
//! endpoint.
//!
//! Written on `reqwest` rather than on `oci-client`'s own client, which follows realms and
//! redirects anywhere and reads manifests and tokens of any length into memory; its types for
//! references and manifests are used. Verifies documents against their digests; layers are verified
//! by who unpacks them. What passes by itself is asked for again ([`retry`]), and a blob goes on
//! where its connection broke ([`download`]); everything else is for the pod worker's back-off.
//!
//! Source: OCI distribution-spec v1.1; distribution `docs/spec/auth/token.md`.

pub(super) mod challenge;
mod download;
pub(super) mod guard;
mod request;
mod retry;

use bytes::Bytes;
use futures::{Stream, stream};
use http::{HeaderMap, StatusCode, header};
use oci_client::{
    Reference,
    client::current_platform_resolver,
    manifest::{OciImageIndex, OciImageManifest, OciManifest},
};
use parking_lot::Mutex;
use reqwest::{Response, Url};
use sha2::{Digest, Sha256};

pub(super) use self::retry::Retries;

use self::{
    challenge::Challenge,
    download::Download,
    guard::Guard,
    request::{body, client, in_time, location, not_an_address, refusal, send},
};
use super::{
    config::DOCUMENT_MAX,
    error::{DocumentError, RegistryError},
    layer::is_sha256,
    registries::Tls,
};

/// A token is some kilobytes.
const TOKEN_MAX: u64 = 256 << 10;
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
    /// What images of it are called before their tag.
    name: String,
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
    ) -> Result<Self, RegistryError> {
        let base: Url = base.parse().map_err(not_an_address("endpoint", base))?;
        let guard = Guard::new(base.clone());
        Ok(Self {
            http: client(tls, &base, guard.clone())?,
            base,
            guard,
            repository: image.repository().to_owned(),
            name: format!("{}/{}", image.registry(), image.repository()),
            instead_of,
            authorization: Mutex::new(match &credentials {
                Credentials::Token(token) => Some(format!("Bearer {token}")),
                _ => None,
            }),
            credentials,
        })
    }

    /// The manifest for this machine.
    pub(super) async fn manifest(
        &self,
        image: &Reference,
        retries: Retries,
    ) -> Result<FoundManifest, RegistryError> {
        let mut tries = retries.begin();
        let wanted = image.digest().or(image.tag()).unwrap_or("latest");
        let (mut document, digest) = tries.run(|| self.document(wanted)).await?;
        for _ in 0..=INDEXES_MAX {
            let index = match document {
                OciManifest::Image(manifest) => return Ok(FoundManifest { manifest, digest }),
                OciManifest::ImageIndex(index) => index,
            };
            let ours = ours(&index)?;
            document = tries.run(|| self.document(&ours)).await?.0;
        }
        Err(DocumentError::Indexes(INDEXES_MAX).into())
    }

    /// A manifest or index by tag or digest, and its digest.
    async fn document(&self, wanted: &str) -> Result<(OciManifest, String), RegistryError> {
        let (headers, bytes) = self.whole("manifests", wanted).await?;
        let header = |name: &str| {
            let value = headers.get(name).and_then(|value| value.to_str().ok());
            value.map(str::to_owned)
        };
        let digest = sha256(&bytes);
        let promised = if wanted.contains(':') {
            Some(wanted.to_owned())
        } else {
            header("docker-content-digest").filter(|digest| is_sha256(digest))
        };
        if let Some(expected) = promised.filter(|promised| *promised != digest) {
            let (what, actual) = ("manifest", digest);
            return Err(RegistryError::Mismatch {
                what,
                actual,
                expected,
            });
        }
        match serde_json::from_slice(&bytes) {
            Ok(document) => Ok((document, digest)),
            Err(source) => Err(DocumentError::Manifest {
                digest,
                media_type: header("content-type").unwrap_or_default(),
                source,
            }
            .into()),
        }
    }

    /// A small blob as a whole, verified.
    pub(super) async fn small_blob(
        &self,
        digest: &str,
        retries: Retries,
    ) -> Result<Vec<u8>, RegistryError> {
        let mut tries = retries.begin();
        let (_, bytes) = tries.run(|| self.whole("blobs", digest)).await?;
        let actual = sha256(&bytes);
        if actual == digest {
            return Ok(bytes);
        }
        Err(RegistryError::Mismatch {
            what: "config",
            actual,
            expected: digest.to_owned(),
        })
    }

    /// A blob of so many bytes as it comes, with an error at its end if it does not come whole; the
    /// reader verifies it, and sees to it that it comes at all ([`super::progress`]).
    ///
    /// # Errors
    /// It does not begin to come.
    pub(super) async fn blob<'a>(
        &'a self,
        digest: &'a str,
        size: u64,
        retries: Retries,
    ) -> Result<impl Stream<Item = Result<Bytes, RegistryError>> + use<'a>, RegistryError> {
        let download = Download::begin(self, digest, size, retries).await?;
        Ok(stream::unfold(Some(download), async |download| {
            let mut download = download?;
            let chunk = download.next().await?;
            let rest = chunk.is_ok().then_some(download);
            Some((chunk, rest))
        }))
    }

    /// The headers and the body of a document.
    async fn whole(&self, what: &str, name: &str) -> Result<(HeaderMap, Vec<u8>), RegistryError> {
        in_time(async {
            let response = self.get(what, name, 0).await?;
            let headers = response.headers().clone();
            Ok((headers, body(response, DOCUMENT_MAX).await?))
        })
        .await
    }

    /// `GET /v2/<repository>/<what>/<name>`, from a byte on: answers a challenge once, follows
    /// redirects.
    async fn get(&self, what: &str, name: &str, from: u64) -> Result<Response, RegistryError> {
        let path = format!("v2/{}/{what}/{name}", self.repository);
        let mut url = self
            .base
            .join(&path)
            .map_err(not_an_address("path", &path))?;
        if let Some(registry) = &self.instead_of {
            url.query_pairs_mut().append_pair("ns", registry);
        }
        let mut response = self.follow(url.clone(), from).await?;
        if response.status() == StatusCode::UNAUTHORIZED && self.answer_challenge(&response).await?
        {
            response = self.follow(url, from).await?;
        }
        if response.status().is_success() {
            return Ok(response);
        }
        let between = if name.contains(':') { '@' } else { ':' };
        Err(refusal(response, format!("{}{between}{name}", self.name)).await)
    }

    async fn follow(&self, mut url: Url, from: u64) -> Result<Response, RegistryError> {
        for _ in 0..=REDIRECTS_MAX {
            let mut request = self
                .http
                .get(url.clone())
                .header(header::ACCEPT, MANIFEST_TYPES);
            if from > 0 {
                request = request.header(header::RANGE, format!("bytes={from}-"));
            }
            let authorization = self.authorization.lock().clone();
            if let Some(value) = authorization.filter(|_| self.guard.takes_credentials(&url)) {
                request = request.header(header::AUTHORIZATION, value);
            }
            let response = send(request, &url).await?;
            let Some(location) = location(&response) else {
                return Ok(response);
            };
            url = url
                .join(&location)
                .map_err(not_an_address("redirect to", &location))?;
            self.guard.check(&url)?;
        }
        Err(RegistryError::Redirects(REDIRECTS_MAX))
    }

    /// Gets what the registry asks for; false if there is nothing (more) to show.
    async fn answer_challenge(&self, response: &Response) -> Result<bool, RegistryError> {
        let headers = response.headers().get_all(header::WWW_AUTHENTICATE);
        // A redirect's target may not ask for anything.
        if !self.guard.takes_credentials(response.url()) {
            return Ok(false);
        }
        let value = match challenge::parse(headers.iter().filter_map(|value| value.to_str().ok())) {
            Some(Challenge::Bearer { realm, service })
                if !matches!(self.credentials, Credentials::Token(_)) =>
            {
                let token = self.token(&realm, service.as_deref()).await;
                let token = token.map_err(|error| RegistryError::Authorize(Box::new(error)))?;
                format!("Bearer {token}")
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

    async fn token(&self, realm: &str, service: Option<&str>) -> Result<String, RegistryError> {
        let mut url: Url = realm
            .parse()
            .map_err(not_an_address("token realm", realm))?;
        self.guard.check(&url)?;
        url.query_pairs_mut()
            .extend_pairs(service.map(|service| ("service", service)))
            .append_pair("scope", &format!("repository:{}:pull", self.repository));
        let mut request = match &self.credentials {
            Credentials::Identity(identity) => self.exchange(url.clone(), identity),
            _ => self.http.get(url.clone()),
        };
        if let Credentials::Basic { username, password } = &self.credentials {
            request = request.header(header::AUTHORIZATION, basic(username, password));
        }
        // Redirects are not followed: credentials are on the way.
        let response = send(request, &url).await?;
        if !response.status().is_success() {
            return Err(refusal(response, realm.to_owned()).await);
        }
        let bytes = body(response, TOKEN_MAX).await?;
        let answer: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let token = ["token", "access_token"]
            .iter()
            .find_map(|name| answer[*name].as_str());
        token
            .filter(|token| !token.is_empty())
            .map(str::to_owned)
            .ok_or(RegistryError::NoToken)
    }
}

/// The digest of the manifest for this machine, or else of the first that is for no machine in
/// particular: an index, or an image whose config tells.
pub(super) fn ours(index: &OciImageIndex) -> Result<String, DocumentError> {
    let entries = &index.manifests;
    let any = || entries.iter().find(|entry| entry.platform.is_none());
    let digest = current_platform_resolver(entries)
        .or_else(|| any().map(|entry| entry.digest.clone()))
        .ok_or(DocumentError::NoPlatform)?;
    if is_sha256(&digest) {
        return Ok(digest);
    }
    Err(DocumentError::Digest {
        of: "manifest digest",
        digest,
    })
}

fn basic(username: &str, password: &str) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    format!(
        "Basic {}",
        STANDARD.encode(format!("{username}:{password}"))
    )
}

fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}
