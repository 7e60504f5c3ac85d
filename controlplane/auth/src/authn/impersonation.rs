//! Acting as somebody else: `Impersonate-User`, `-Group`, `-Uid` and `-Extra-KEY`, each of which
//! needs the verb `impersonate`.
//!
//! Source: `k8s.io/apiserver/pkg/endpoints/filters/impersonation/impersonation.go` at v1.37. The
//! constrained form (`impersonate:user-info` and the like) is not served: the verb `impersonate`
//! decides alone.

use std::{borrow::Cow, sync::Arc};

use coracle_api::{percent, status::Status};
use http::HeaderMap;

use crate::{
    authz::{Attributes, Decision, ResourceTarget, Target, UnionAuthorizer, denied},
    user::{ANONYMOUS, GROUP_AUTHENTICATED, GROUP_UNAUTHENTICATED, UserInfo},
};

const PREFIX: &str = "impersonate-";
const EXTRA: &str = "impersonate-extra-";
const AUTHENTICATION: &str = "authentication.k8s.io";

/// Who the request is made as: `user`, or who the headers name.
///
/// # Errors
/// 403 if `user` may not act as them; 500, as upstream, for headers that name nobody.
pub fn effective(
    authorizer: &UnionAuthorizer,
    user: Arc<UserInfo>,
    headers: &HeaderMap,
) -> Result<Arc<UserInfo>, Status> {
    if !headers.keys().any(|name| name.as_str().starts_with(PREFIX)) {
        return Ok(user);
    }
    let wanted = Wanted::read(headers);
    if wanted.name.is_empty() {
        if wanted.is_empty() {
            return Ok(user);
        }
        return Err(Status::internal(format!(
            "requested {} without impersonating a user name",
            wanted.rest()
        )));
    }
    wanted.check(authorizer, &user)?;
    Ok(Arc::new(wanted.into_user()))
}

/// What the headers say.
#[derive(Debug, Default)]
struct Wanted {
    name: String,
    uid: String,
    groups: Vec<String>,
    extra: Vec<(String, Vec<String>)>,
}

impl Wanted {
    fn read(headers: &HeaderMap) -> Self {
        let mut wanted = Self::default();
        for (name, value) in headers {
            let text = || String::from_utf8_lossy(value.as_bytes()).into_owned();
            match name.as_str() {
                "impersonate-user" => wanted.name = text(),
                "impersonate-uid" => wanted.uid = text(),
                "impersonate-group" => wanted.groups.push(text()),
                name => {
                    let Some(key) = name.strip_prefix(EXTRA) else {
                        continue;
                    };
                    let key = percent::decode(key).into_owned();
                    match wanted.extra.iter_mut().find(|(known, _)| *known == key) {
                        Some((_, values)) => values.push(text()),
                        None => wanted.extra.push((key, vec![text()])),
                    }
                }
            }
        }
        wanted
    }

    fn is_empty(&self) -> bool {
        self.uid.is_empty() && self.groups.is_empty() && self.extra.is_empty()
    }

    fn rest(&self) -> String {
        let mut parts: Vec<Cow<'_, str>> = self
            .groups
            .iter()
            .map(|group| Cow::from(group.as_str()))
            .collect();
        parts.extend(self.extra.iter().map(|(key, _)| Cow::from(key.as_str())));
        if !self.uid.is_empty() {
            parts.push(Cow::from(self.uid.as_str()));
        }
        format!("[{}]", parts.join(" "))
    }

    /// Whether `user` may act as this, in each respect.
    fn check(&self, authorizer: &UnionAuthorizer, user: &UserInfo) -> Result<(), Status> {
        let check = |target: ResourceTarget<'_>| {
            let attributes = Attributes {
                user,
                verb: "impersonate",
                target: Target::Resource(target),
            };
            match authorizer.explain(&attributes) {
                Decision::Allow(_) => Ok(()),
                Decision::NoOpinion(why) => Err(denied(&attributes, &why)),
            }
        };
        match UserInfo::service_account_of(&self.name) {
            Some((namespace, name)) => {
                check(ResourceTarget {
                    resource: "serviceaccounts",
                    namespace,
                    name,
                    ..ResourceTarget::default()
                })?;
            }
            None => check(ResourceTarget {
                resource: "users",
                name: &self.name,
                ..ResourceTarget::default()
            })?,
        }
        for name in &self.groups {
            check(ResourceTarget {
                resource: "groups",
                name,
                ..ResourceTarget::default()
            })?;
        }
        let special = ResourceTarget {
            group: AUTHENTICATION,
            ..ResourceTarget::default()
        };
        for (key, values) in &self.extra {
            for name in values {
                check(ResourceTarget {
                    resource: "userextras",
                    subresource: key,
                    name,
                    ..special
                })?;
            }
        }
        if !self.uid.is_empty() {
            check(ResourceTarget {
                resource: "uids",
                name: &self.uid,
                ..special
            })?;
        }
        Ok(())
    }

    fn into_user(self) -> UserInfo {
        let Self {
            name,
            uid,
            mut groups,
            extra,
        } = self;
        if groups.is_empty()
            && let Some((namespace, name)) = UserInfo::service_account_of(&name)
        {
            groups = UserInfo::service_account(namespace, name).groups;
        }
        let is_said =
            |group: &String| group == GROUP_AUTHENTICATED || group == GROUP_UNAUTHENTICATED;
        if !groups.iter().any(is_said) {
            let group = if name == ANONYMOUS {
                GROUP_UNAUTHENTICATED
            } else {
                GROUP_AUTHENTICATED
            };
            groups.push(group.to_owned());
        }
        UserInfo {
            name,
            uid,
            groups,
            extra,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_make_a_user() {
        let mut headers = HeaderMap::new();
        headers.insert(
            "impersonate-user",
            "system:serviceaccount:a:b".parse().unwrap(),
        );
        assert_eq!(
            Wanted::read(&headers).into_user().groups,
            [
                "system:serviceaccounts",
                "system:serviceaccounts:a",
                "system:authenticated"
            ]
        );
        headers.append("impersonate-group", "dev".parse().unwrap());
        headers.append("impersonate-group", "ops".parse().unwrap());
        headers.append("impersonate-extra-acme.com%2fproject", "x".parse().unwrap());
        let user = Wanted::read(&headers).into_user();
        assert_eq!(user.groups, ["dev", "ops", "system:authenticated"]);
        assert_eq!(
            user.extra,
            [("acme.com/project".to_owned(), vec!["x".to_owned()])]
        );
        headers.insert("impersonate-user", "system:anonymous".parse().unwrap());
        headers.remove("impersonate-group");
        assert_eq!(
            Wanted::read(&headers).into_user().groups,
            ["system:unauthenticated"]
        );
    }
}
