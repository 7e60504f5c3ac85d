//! Subresources: their names, the kinds they speak, and their verbs.

use serde_json::Value;

use crate::go;

/// A subresource of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subresource {
    /// `/status`: GET, PUT, PATCH; writes status and leaves spec.
    Status,
    /// `/scale`: autoscaling/v1 Scale.
    Scale,
    /// `pods/binding`: POST.
    Binding,
    /// `pods/eviction`: POST policy/v1.
    Eviction,
    /// `pods/log`.
    Log,
    /// `pods/exec`.
    Exec,
    /// `pods/attach`.
    Attach,
    /// `pods/portforward`.
    Portforward,
    /// `proxy` of pods, services, nodes.
    Proxy,
    /// `pods/ephemeralcontainers`.
    EphemeralContainers,
    /// `pods/resize`.
    Resize,
    /// `namespaces/finalize`.
    Finalize,
    /// `serviceaccounts/token`.
    Token,
    /// `certificatesigningrequests/approval`.
    Approval,
}

const ALL: [Subresource; 14] = [
    Subresource::Status,
    Subresource::Scale,
    Subresource::Binding,
    Subresource::Eviction,
    Subresource::Log,
    Subresource::Exec,
    Subresource::Attach,
    Subresource::Portforward,
    Subresource::Proxy,
    Subresource::EphemeralContainers,
    Subresource::Resize,
    Subresource::Finalize,
    Subresource::Token,
    Subresource::Approval,
];

impl Subresource {
    /// The last segment of its path, such as `status`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Binding => "binding",
            Self::Eviction => "eviction",
            Self::Log => "log",
            Self::Exec => "exec",
            Self::Attach => "attach",
            Self::Portforward => "portforward",
            Self::Proxy => "proxy",
            Self::EphemeralContainers => "ephemeralcontainers",
            Self::Resize => "resize",
            Self::Finalize => "finalize",
            Self::Token => "token",
            Self::Approval => "approval",
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        ALL.into_iter().find(|one| one.name() == name)
    }

    /// Whether a request joins its client with what runs: upstream's verb CONNECT.
    #[must_use]
    pub fn is_connect(self) -> bool {
        matches!(
            self,
            Self::Exec | Self::Attach | Self::Portforward | Self::Proxy
        )
    }

    /// Whether its answers are somebody else's bytes, as they come, for as long as they come.
    #[must_use]
    pub fn is_stream(self) -> bool {
        self == Self::Log || self.is_connect()
    }

    /// What may be done with it.
    #[must_use]
    pub fn verbs(self) -> &'static [&'static str] {
        match self {
            Self::Status
            | Self::Scale
            | Self::EphemeralContainers
            | Self::Resize
            | Self::Approval => &["get", "patch", "update"],
            Self::Binding | Self::Eviction | Self::Token => &["create"],
            Self::Log => &["get"],
            Self::Exec | Self::Attach | Self::Portforward => &["create", "get"],
            Self::Proxy => &["create", "delete", "get", "patch", "update"],
            Self::Finalize => &["update"],
        }
    }

    /// Group, version and kind of what it speaks below an object of a kind, where that is not its
    /// own.
    #[must_use]
    pub fn foreign_kind(self, of_kind: &str) -> Option<(&'static str, &'static str, &'static str)> {
        let options = |node, pod, service| match of_kind {
            "Node" => node,
            "Service" => service,
            _ => pod,
        };
        match self {
            Self::Scale => Some(("autoscaling", "v1", "Scale")),
            Self::Eviction => Some(("policy", "v1", "Eviction")),
            Self::Token => Some(("authentication.k8s.io", "v1", "TokenRequest")),
            Self::Binding => Some(("", "v1", "Binding")),
            Self::Exec => Some(("", "v1", "PodExecOptions")),
            Self::Attach => Some(("", "v1", "PodAttachOptions")),
            Self::Portforward => Some(("", "v1", "PodPortForwardOptions")),
            Self::Proxy => Some((
                "",
                "v1",
                options("NodeProxyOptions", "PodProxyOptions", "ServiceProxyOptions"),
            )),
            Self::Status
            | Self::Log
            | Self::EphemeralContainers
            | Self::Resize
            | Self::Finalize
            | Self::Approval => None,
        }
    }
}

/// Where the subresource `scale` finds what it shows: names of members, from the object on.
#[derive(Debug, Clone)]
pub struct ScalePaths {
    /// How many are wanted.
    pub spec_replicas: Vec<String>,
    /// How many there are.
    pub status_replicas: Vec<String>,
    /// Which they are: a label selector as text.
    pub selector: Option<Vec<String>>,
}

impl ScalePaths {
    /// Where it is set how many are wanted.
    #[must_use]
    pub fn spec(&self) -> Vec<&str> {
        self.spec_replicas.iter().map(String::as_str).collect()
    }

    /// How many are wanted, if that is said.
    #[must_use]
    pub fn wanted(&self, object: &Value) -> Option<i64> {
        number(object, &self.spec_replicas)
    }

    /// How many there are, if that is known.
    #[must_use]
    pub fn present(&self, object: &Value) -> Option<i64> {
        number(object, &self.status_replicas)
    }

    /// Why an object has no Scale, in upstream's words: something is of another type.
    #[must_use]
    pub fn misfit(&self, object: &Value) -> Option<String> {
        let of_number = |path| misfit(object, path, "int64", Value::is_i64);
        let selector = self.selector.as_ref();
        let of_text = || misfit(object, selector?, "string", Value::is_string);
        of_number(&self.spec_replicas)
            .or_else(|| of_number(&self.status_replicas))
            .or_else(of_text)
    }
}

/// Source: `NestedInt64`, `NestedString` in
/// `k8s.io/apimachinery/pkg/apis/meta/v1/unstructured/helpers.go` at v1.37.
fn misfit(
    object: &Value,
    path: &[String],
    wanted: &str,
    fits: fn(&Value) -> bool,
) -> Option<String> {
    let told = |path: &[String], value: &Value, wanted: &str| {
        let (path, shown, name) = (path.join("."), go::shown(value), go::type_name(value));
        format!(".{path} accessor error: {shown} is of the type {name}, expected {wanted}")
    };
    let mut value = object;
    for (at, name) in path.iter().enumerate() {
        value = match value {
            Value::Null => return None,
            Value::Object(map) => map.get(name)?,
            other => return Some(told(&path[..=at], other, "map[string]interface{}")),
        };
    }
    (!fits(value)).then(|| told(path, value, wanted))
}

fn number(object: &Value, path: &[String]) -> Option<i64> {
    let found = path.iter().try_fold(object, |value, name| value.get(name));
    found?.as_i64()
}
