//! Paths that are no resources: health, version, discovery, OpenAPI.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    sync::{Arc, LazyLock},
};

use bytes::Bytes;
use coracle_api::status::Status;
use coracle_auth::authn::issuer;
use coracle_telemetry::metrics::CONTENT_TYPE;
use http::{HeaderValue, Method, Response, StatusCode, header, request::Parts};
use serde_json::json;

use crate::{
    body::Body,
    discovery::{self, Document},
    gzip, metrics, openapi, pieced,
    published::Published,
    query::Query,
    reply::{Reply, TEXT},
    state::State,
};

/// Of the issuer's keys and metadata: they change with the cluster's key only.
const CACHE_CONTROL: HeaderValue = HeaderValue::from_static("public, max-age=3600");
/// The version whose API this server speaks.
const MINOR: &str = "37";
const GIT_VERSION: &str = "v1.37.0+coracle";

/// Paths that no kind is behind.
const PATHS: [&str; 12] = [
    "/api",
    "/api/v1",
    "/apis",
    "/healthz",
    "/livez",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/readyz",
    "/version",
    issuer::CONFIGURATION,
    issuer::JWKS,
];

/// Serves a path.
pub(crate) fn serve(
    server: &Arc<State>,
    parts: &Parts,
    path: &str,
    query: &Query<'_>,
) -> Result<Response<Body>, Status> {
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(Status::no_such_path());
    }
    let accept = parts
        .headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let reply = match path {
        "/healthz" | "/livez" | "/readyz" => health(server, path, query),
        issuer::CONFIGURATION | issuer::JWKS => issuer_document(server, path),
        "/version" => Reply::json(VERSION.clone()),
        "/metrics" => Reply::new(StatusCode::OK, CONTENT_TYPE, metrics::page::text(server)),
        "/" => document(
            parts,
            discovery::root(&server.catalog.now().published, &PATHS),
        ),
        "/api" | "/apis" | "/openapi/v2" => described(server, parts, path, accept)?,
        _ => {
            let parts_of = ["/healthz/", "/livez/", "/readyz/"].into_iter();
            if let Some((endpoint, check)) = parts_of
                .filter_map(|of| Some((of, path.strip_prefix(of)?)))
                .next()
            {
                return one_check(server, endpoint.trim_matches('/'), check);
            }
            deeper(&server.catalog.now().published, parts, path, query)?
        }
    };
    Ok(reply.into_response())
}

fn negotiate(accept: &str) -> Result<discovery::Form, Status> {
    discovery::negotiate(accept).ok_or_else(|| Status::not_acceptable(&["application/json"]))
}

/// The documents whose form is for the client to choose.
fn described(server: &State, parts: &Parts, path: &str, accept: &str) -> Result<Reply, Status> {
    let catalog = server.catalog.now();
    let published = &catalog.published;
    Ok(match path {
        "/api" => {
            let form = negotiate(accept)?;
            document(
                parts,
                discovery::api(published, form, server.config.advertise),
            )
        }
        "/apis" => document(parts, discovery::apis(published, negotiate(accept)?)),
        _ => {
            let form = openapi::v2::Form::negotiate(accept).ok_or_else(|| {
                Status::not_acceptable(&[
                    "application/json",
                    openapi::v2::Form::Protobuf.content_type(),
                ])
            })?;
            compressed(
                parts,
                openapi::v2::cached(published, form),
                form.content_type(),
            )
        }
    })
}

/// A document that is kept compressed, or 304 for who has it already.
fn compressed(parts: &Parts, document: &pieced::Document, content_type: &'static str) -> Reply {
    let mut reply = if has_already(parts, &document.tag) {
        Reply::new(StatusCode::NOT_MODIFIED, "", Body::Empty)
    } else if gzip::takes_gzip(&parts.headers) {
        let mut reply = Reply::new(StatusCode::OK, content_type, document.gzip());
        reply
            .headers
            .push((header::CONTENT_ENCODING, HeaderValue::from_static("gzip")));
        reply
    } else {
        Reply::new(StatusCode::OK, content_type, document.plain())
    };
    reply.headers.push((
        header::VARY,
        HeaderValue::from_static("Accept, Accept-Encoding"),
    ));
    reply
        .headers
        .extend(HeaderValue::from_str(&document.tag).map(|tag| (header::ETAG, tag)));
    reply
}

/// A document of discovery, or 304 for who has it already.
///
/// Source: `k8s.io/apiserver/pkg/endpoints/discovery/aggregated/etag.go` at v1.37.
fn document(parts: &Parts, document: Document) -> Reply {
    let Document {
        body,
        content_type,
        tag,
    } = document;
    let Some(tag) = tag else {
        return Reply::new(StatusCode::OK, content_type, body);
    };
    let mut reply = if has_already(parts, &tag) {
        Reply::new(StatusCode::NOT_MODIFIED, "", Body::Empty)
    } else {
        Reply::new(StatusCode::OK, content_type, body)
    };
    reply.headers.extend([
        (header::VARY, HeaderValue::from_static("Accept")),
        (header::CACHE_CONTROL, HeaderValue::from_static("public")),
    ]);
    let tag = HeaderValue::from_str(&tag);
    reply.headers.extend(tag.map(|tag| (header::ETAG, tag)));
    reply
}

/// Whether the client has the document with this tag.
fn has_already(parts: &Parts, tag: &str) -> bool {
    let known = parts.headers.get(header::IF_NONE_MATCH);
    known.is_some_and(|known| known.as_bytes() == tag.as_bytes())
}

/// Below `/api`, `/apis` and `/openapi`.
fn deeper(
    published: &Published,
    parts: &Parts,
    path: &str,
    query: &Query<'_>,
) -> Result<Reply, Status> {
    let elements: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let found = match elements[..] {
        ["api", version] => discovery::resources(published, "", version),
        ["apis", group] => discovery::group(published, group),
        ["apis", group, version] => discovery::resources(published, group, version),
        ["openapi", "v3", ..] => return openapi_v3(published, parts, path, query),
        _ => None,
    };
    found
        .map(|found| document(parts, found))
        .ok_or_else(Status::no_such_path)
}

/// A document is for ever under the URL with its hash, and nowhere else: it changes with the kinds
/// that are served. Who has an old hash is sent to the new one.
///
/// Source: `HandleGroupVersion` in `k8s.io/kube-openapi/pkg/handler3/handler.go`.
fn openapi_v3(
    published: &Published,
    parts: &Parts,
    path: &str,
    query: &Query<'_>,
) -> Result<Reply, Status> {
    let name = path.trim_start_matches("/openapi/v3").trim_matches('/');
    if name.is_empty() {
        return Ok(Reply::new(
            StatusCode::OK,
            "application/json",
            openapi::index(published),
        ));
    }
    let found = openapi::of_version(published, name).ok_or_else(Status::no_such_path)?;
    let hash = found.tag.trim_matches('"');
    match query.text("hash") {
        Some(asked) if asked != hash => {
            let mut reply = Reply::new(StatusCode::MOVED_PERMANENTLY, "", Body::Empty);
            let location = HeaderValue::from_str(&format!("/openapi/v3/{name}?hash={hash}"));
            reply
                .headers
                .extend(location.map(|location| (header::LOCATION, location)));
            Ok(reply)
        }
        asked => {
            let mut reply = compressed(parts, found, "application/json");
            if asked.is_some() {
                let forever = HeaderValue::from_static("public, immutable, max-age=31536000");
                reply.headers.push((header::CACHE_CONTROL, forever));
            }
            Ok(reply)
        }
    }
}

/// What others need to check this cluster's tokens.
fn issuer_document(server: &State, path: &str) -> Reply {
    let (media_type, value) = issuer::document(&server.signer, server.config.advertise, path);
    let mut reply = Reply::new(StatusCode::OK, media_type, value.to_string());
    reply.headers.push((header::CACHE_CONTROL, CACHE_CONTROL));
    reply
}

static VERSION: LazyLock<Bytes> = LazyLock::new(|| {
    json!({
        "major": "1",
        "minor": MINOR,
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, architecture()),
    })
    .to_string()
    .into()
});

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// One check: its name, and what is wrong.
type Check = (&'static str, Option<Cow<'static, str>>);

fn checks(server: &State) -> Vec<Check> {
    let stopping = server
        .shutdown
        .is_cancelled()
        .then_some("the server is shutting down".into());
    let bootstrapped =
        (!server.is_bootstrapped()).then_some("the first objects are still being written".into());
    vec![
        ("ping", None),
        ("log", None),
        ("store", server.store.backend.failure().map(Cow::Owned)),
        ("poststarthook/bootstrap", bootstrapped),
        ("shutdown", stopping),
    ]
}

/// What else runs in this process.
fn parts(server: &State) -> Vec<Check> {
    let wrong = |well: bool| (!well).then_some(Cow::Borrowed("it has died and is started again"));
    server
        .health
        .parts()
        .into_iter()
        .map(|(part, well)| (part, wrong(well)))
        .collect()
}

/// What one of the three endpoints looks at.
fn checks_of(server: &State, endpoint: &str) -> Vec<Check> {
    let parts = if endpoint == "healthz" {
        parts(server)
    } else {
        Vec::new()
    };
    checks(server)
        .into_iter()
        .chain(parts)
        .filter(|(check, _)| endpoint == "readyz" || *check != "shutdown")
        .collect()
}

/// Everybody may ask how the server is: why it is unwell is for those who may ask a single check.
///
/// Source: `k8s.io/apiserver/pkg/server/healthz/healthz.go` at v1.37.
fn health(server: &State, path: &str, query: &Query<'_>) -> Reply {
    let name = path.trim_start_matches('/');
    let mut excluded: BTreeSet<&str> = query.all("exclude").collect();
    let (mut text, mut failed) = (String::new(), false);
    for (check, wrong) in checks_of(server, name) {
        text.push_str(&match wrong {
            _ if excluded.remove(check) => format!("[+]{check} excluded: ok\n"),
            None => format!("[+]{check} ok\n"),
            Some(_) => {
                failed = true;
                format!("[-]{check} failed: reason withheld\n")
            }
        });
    }
    if !excluded.is_empty() {
        let unknown: Vec<String> = excluded.iter().map(|check| format!("{check:?}")).collect();
        text.push_str(&format!(
            "warn: some health checks cannot be excluded: no matches for {}\n",
            unknown.join(", ")
        ));
    }
    if failed {
        text.push_str(&format!("{name} check failed\n"));
        return Reply::new(StatusCode::INTERNAL_SERVER_ERROR, TEXT, text);
    }
    if query.all("verbose").next().is_some() {
        text.push_str(&format!("{name} check passed\n"));
    } else {
        "ok".clone_into(&mut text);
    }
    Reply::new(StatusCode::OK, TEXT, text)
}

/// `/healthz/NAME` and its like, with the reason.
fn one_check(server: &State, endpoint: &str, name: &str) -> Result<Response<Body>, Status> {
    let (_, wrong) = checks_of(server, endpoint)
        .into_iter()
        .find(|(check, _)| *check == name)
        .ok_or_else(Status::no_such_path)?;
    let reply = match wrong {
        None => Reply::new(StatusCode::OK, TEXT, "ok"),
        Some(wrong) => Reply::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            TEXT,
            format!("internal server error: {wrong}\n"),
        ),
    };
    Ok(reply.into_response())
}
