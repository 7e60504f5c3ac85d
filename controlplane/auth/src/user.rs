//! Who makes a request.

use serde_json::{Map, Value, json};

/// An authenticated identity, as in `k8s.io/apiserver/pkg/authentication/user.Info`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UserInfo {
    /// Such as `system:node:n1` or `kubernetes-admin`.
    pub name: String,
    /// Set for service accounts only.
    pub uid: String,
    /// Such as `system:masters`, `system:nodes`.
    pub groups: Vec<String>,
    /// What the authenticator adds: the pod that a service-account token is bound to, for example.
    pub extra: Vec<(String, Vec<String>)>,
}

/// May do everything.
pub const GROUP_MASTERS: &str = "system:masters";
/// Every node.
pub const GROUP_NODES: &str = "system:nodes";
/// Who presents a bootstrap token.
pub const GROUP_BOOTSTRAPPERS: &str = "system:bootstrappers";
/// Everybody who is somebody.
pub const GROUP_AUTHENTICATED: &str = "system:authenticated";
/// Everybody who is nobody.
pub const GROUP_UNAUTHENTICATED: &str = "system:unauthenticated";
/// The user of a request without credentials.
pub const ANONYMOUS: &str = "system:anonymous";

/// The key of [`UserInfo::extra`] that tells one credential of a user from another.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// Every service account.
pub const GROUP_SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

impl UserInfo {
    /// The service account `name` of `namespace`.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        let of_namespace = format!("{GROUP_SERVICE_ACCOUNTS}:{namespace}");
        Self::new(
            format!("{SERVICE_ACCOUNT}{namespace}:{name}"),
            &[GROUP_SERVICE_ACCOUNTS, &of_namespace],
        )
    }

    /// Namespace and name of the service account that `user` names, if it names one.
    pub fn service_account_of(user: &str) -> Option<(&str, &str)> {
        let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
        (!namespace.is_empty() && !name.is_empty() && !name.contains(':'))
            .then_some((namespace, name))
    }

    /// As `authentication.k8s.io/v1` shows a user.
    pub fn to_value(&self) -> Value {
        let mut value = json!({"username": self.name, "groups": self.groups});
        if !self.uid.is_empty() {
            value["uid"] = self.uid.as_str().into();
        }
        if !self.extra.is_empty() {
            let extra: Map<String, Value> = self
                .extra
                .iter()
                .map(|(key, values)| (key.clone(), values.clone().into()))
                .collect();
            value["extra"] = extra.into();
        }
        value
    }

    /// An identity in `groups`, and in `system:authenticated`.
    pub fn new(name: impl Into<String>, groups: &[&str]) -> Self {
        let mut groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        if !groups.iter().any(|group| group == GROUP_AUTHENTICATED) {
            groups.push(GROUP_AUTHENTICATED.to_owned());
        }
        Self {
            name: name.into(),
            uid: String::new(),
            groups,
            extra: Vec::new(),
        }
    }

    /// Somebody who may do everything.
    #[cfg(any(test, feature = "testing"))]
    pub fn master(name: impl Into<String>) -> Self {
        Self::new(name, &[GROUP_MASTERS])
    }

    /// The node called `node`.
    pub fn node(node: &str) -> Self {
        Self::new(format!("system:node:{node}"), &[GROUP_NODES])
    }

    /// Nobody in particular.
    pub fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.to_owned(),
            uid: String::new(),
            groups: vec![GROUP_UNAUTHENTICATED.to_owned()],
            extra: Vec::new(),
        }
    }

    /// Whether this identity is in `group`.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// Whether this is a part of the cluster itself: a node, the scheduler, a controller.
    pub fn is_component(&self) -> bool {
        self.is_in(GROUP_NODES)
            || self.name.starts_with("system:kube-")
            || self.name.starts_with("system:serviceaccount:kube-system:")
    }

    /// The node's name, if this is a node's identity.
    pub fn node_name(&self) -> Option<&str> {
        if !self.is_in(GROUP_NODES) {
            return None;
        }
        self.name.strip_prefix("system:node:")
    }
}
