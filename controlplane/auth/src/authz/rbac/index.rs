//! Roles and bindings as authorization asks for them: by subject. Pure bookkeeping, no I/O.
//!
//! Bindings refer to roles by name and find them when asked, so either may come first.

use std::{collections::HashMap, sync::Arc};

use coracle_api::meta;
use serde_json::Value;

use crate::{
    authz::rule::{Pool, Rule},
    user::UserInfo,
};

const SERVICE_ACCOUNT: &str = "ServiceAccount";

/// The four kinds of group `rbac.authorization.k8s.io`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    ClusterRole,
    Role,
    ClusterRoleBinding,
    RoleBinding,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [
        Self::ClusterRole,
        Self::Role,
        Self::ClusterRoleBinding,
        Self::RoleBinding,
    ];

    pub(super) fn plural(self) -> &'static str {
        match self {
            Self::ClusterRole => "clusterroles",
            Self::Role => "roles",
            Self::ClusterRoleBinding => "clusterrolebindings",
            Self::RoleBinding => "rolebindings",
        }
    }
}

/// What a binding gives to one of its subjects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Name of the binding.
    pub(super) binding: Arc<str>,
    /// Whether it gives a ClusterRole.
    pub(super) is_cluster_role: bool,
    pub(super) role: Arc<str>,
    /// Whether the subject is written as a ServiceAccount.
    is_account: bool,
}

/// A grant as it was found: where, and for whom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found<'a> {
    pub(super) grant: &'a Grant,
    /// Of a RoleBinding; empty for a ClusterRoleBinding.
    pub(super) namespace: &'a str,
    subject: Subject<'a>,
    /// `None` if the role does not exist.
    pub(super) rules: Option<&'a [Rule]>,
}

#[derive(Debug, Clone, Copy)]
enum Subject<'a> {
    User(&'a str),
    Group(&'a str),
}

/// The grants of one namespace, or of the cluster, by user and group.
#[derive(Debug, Default)]
struct Subjects {
    users: HashMap<Arc<str>, Vec<Grant>>,
    groups: HashMap<Arc<str>, Vec<Grant>>,
}

/// Under which subject a binding has its grants: to find them when it goes.
#[derive(Debug)]
struct SubjectKey {
    is_group: bool,
    name: Arc<str>,
}

type Roles = HashMap<Arc<str>, Box<[Rule]>>;

/// All roles and bindings.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pool: Pool,
    cluster_roles: Roles,
    roles: HashMap<Arc<str>, Roles>,
    cluster: Subjects,
    namespaces: HashMap<Arc<str>, Subjects>,
    /// The subjects of each binding, by namespace and name.
    bindings: HashMap<(Arc<str>, Arc<str>), Vec<SubjectKey>>,
}

impl Index {
    /// Takes in an object's present state.
    pub(super) fn put(&mut self, kind: Kind, namespace: &str, name: &str, object: &Value) {
        self.remove(kind, namespace, name);
        let Self { pool, .. } = self;
        let (shared_namespace, shared_name) = (pool.share(namespace), pool.share(name));
        match kind {
            Kind::ClusterRole => {
                let rules = Rule::parse_all(object, pool);
                self.cluster_roles.insert(shared_name, rules);
            }
            Kind::Role => {
                let rules = Rule::parse_all(object, pool);
                self.roles
                    .entry(shared_namespace)
                    .or_default()
                    .insert(shared_name, rules);
            }
            Kind::ClusterRoleBinding | Kind::RoleBinding => {
                self.bind(shared_namespace, shared_name, object)
            }
        }
    }

    /// Forgets an object.
    pub(super) fn remove(&mut self, kind: Kind, namespace: &str, name: &str) {
        match kind {
            Kind::ClusterRole => {
                self.cluster_roles.remove(name);
            }
            Kind::Role => {
                if let Some(roles) = self.roles.get_mut(namespace) {
                    roles.remove(name);
                    if roles.is_empty() {
                        self.roles.remove(namespace);
                    }
                }
            }
            Kind::ClusterRoleBinding | Kind::RoleBinding => self.unbind(namespace, name),
        }
    }

    /// Forgets everything of a kind.
    pub(super) fn clear(&mut self, kind: Kind) {
        match kind {
            Kind::ClusterRole => self.cluster_roles.clear(),
            Kind::Role => self.roles.clear(),
            Kind::ClusterRoleBinding => {
                self.cluster = Subjects::default();
                self.bindings
                    .retain(|(namespace, _), _| !namespace.is_empty());
            }
            Kind::RoleBinding => {
                self.namespaces.clear();
                self.bindings
                    .retain(|(namespace, _), _| namespace.is_empty());
            }
        }
    }

    fn bind(&mut self, namespace: Arc<str>, name: Arc<str>, object: &Value) {
        let pool = &mut self.pool;
        let role = pool.share(meta::get_str(object, &["roleRef", "name"]));
        let is_cluster_role = meta::get_str(object, &["roleRef", "kind"]) == "ClusterRole";
        let subjects = match &*namespace {
            "" => &mut self.cluster,
            _ => self.namespaces.entry(Arc::clone(&namespace)).or_default(),
        };
        let mut keys = Vec::new();
        for subject in meta::get_array(object, &["subjects"]) {
            let text = |field: &str| meta::get_str(subject, &[field]);
            let is_account = text("kind") == SERVICE_ACCOUNT;
            let is_group = text("kind") == "Group";
            let subject = if is_account {
                let home = Some(text("namespace"))
                    .filter(|own| !own.is_empty())
                    .unwrap_or(&namespace);
                pool.share(&format!("system:serviceaccount:{home}:{}", text("name")))
            } else {
                pool.share(text("name"))
            };
            let grant = Grant {
                binding: Arc::clone(&name),
                is_cluster_role,
                role: Arc::clone(&role),
                is_account,
            };
            let map = if is_group {
                &mut subjects.groups
            } else {
                &mut subjects.users
            };
            map.entry(Arc::clone(&subject)).or_default().push(grant);
            keys.push(SubjectKey {
                is_group,
                name: subject,
            });
        }
        self.bindings.insert((namespace, name), keys);
    }

    fn unbind(&mut self, namespace: &str, name: &str) {
        let Some(keys) = self
            .bindings
            .remove(&(Arc::from(namespace), Arc::from(name)))
        else {
            return;
        };
        let subjects = match namespace {
            "" => Some(&mut self.cluster),
            _ => self.namespaces.get_mut(namespace),
        };
        let Some(subjects) = subjects else { return };
        for key in keys {
            let map = if key.is_group {
                &mut subjects.groups
            } else {
                &mut subjects.users
            };
            if let Some(grants) = map.get_mut(&key.name) {
                grants.retain(|grant| *grant.binding != *name);
                if grants.is_empty() {
                    map.remove(&key.name);
                }
            }
        }
        if !namespace.is_empty() && subjects.users.is_empty() && subjects.groups.is_empty() {
            self.namespaces.remove(namespace);
        }
    }

    /// Shows `visit` what `user` has been granted, in the cluster and in `namespace`, until it
    /// returns true.
    pub(crate) fn visit<'a>(
        &'a self,
        user: &'a UserInfo,
        namespace: &'a str,
        mut visit: impl FnMut(Found<'a>) -> bool,
    ) -> bool {
        let local = if namespace.is_empty() {
            None
        } else {
            self.namespaces.get(namespace)
        };
        let places = [
            Some((&self.cluster, "")),
            local.map(|local| (local, namespace)),
        ];
        for (subjects, namespace) in places.into_iter().flatten() {
            let mut show = |subject, grants: &'a [Grant]| {
                grants.iter().any(|grant| {
                    let rules = self.rules(grant.is_cluster_role, &grant.role, namespace);
                    visit(Found {
                        grant,
                        namespace,
                        subject,
                        rules,
                    })
                })
            };
            if let Some(grants) = subjects.users.get(user.name.as_str())
                && show(Subject::User(&user.name), grants)
            {
                return true;
            }
            for group in &user.groups {
                if let Some(grants) = subjects.groups.get(group.as_str())
                    && show(Subject::Group(group), grants)
                {
                    return true;
                }
            }
        }
        false
    }

    /// The rules of a role; `None` if there is no such role.
    pub(crate) fn rules(
        &self,
        is_cluster_role: bool,
        name: &str,
        namespace: &str,
    ) -> Option<&[Rule]> {
        let roles = if is_cluster_role {
            &self.cluster_roles
        } else {
            self.roles.get(namespace)?
        };
        roles.get(name).map(|rules| &**rules)
    }
}

impl Found<'_> {
    /// Why something is allowed, in upstream's words.
    pub(super) fn reason(&self) -> String {
        let Grant {
            binding,
            role,
            is_account,
            is_cluster_role,
        } = self.grant;
        let binding = match self.namespace {
            "" => format!("ClusterRoleBinding {binding:?}"),
            namespace => format!("RoleBinding {:?}", format!("{binding}/{namespace}")),
        };
        let role_kind = if *is_cluster_role {
            "ClusterRole"
        } else {
            "Role"
        };
        let subject = match self.subject {
            Subject::Group(name) => format!("Group {name:?}"),
            Subject::User(name) if *is_account => {
                let mut parts = name.rsplitn(3, ':');
                let (name, namespace) = (
                    parts.next().unwrap_or_default(),
                    parts.next().unwrap_or_default(),
                );
                format!("ServiceAccount {:?}", format!("{name}/{namespace}"))
            }
            Subject::User(name) => format!("User {name:?}"),
        };
        format!("RBAC: allowed by {binding} of {role_kind} {role:?} to {subject}")
    }

    /// What is wrong with a grant of a role that does not exist.
    pub(super) fn missing(&self) -> String {
        missing_role(self.grant.is_cluster_role, &self.grant.role)
    }
}

/// As upstream says that a role is not there.
pub(crate) fn missing_role(is_cluster_role: bool, name: &str) -> String {
    let kind = if is_cluster_role {
        "clusterrole"
    } else {
        "role"
    };
    format!("{kind}.rbac.authorization.k8s.io {name:?} not found")
}
