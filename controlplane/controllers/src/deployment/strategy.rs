//! The numbers of a Deployment's strategy: how many pods more or fewer than wanted there may be.
//! Pure.
//!
//! Source: `pkg/controller/deployment/util/deployment_util.go` (ResolveFenceposts, MaxSurge,
//! MaxUnavailable) at v1.37.

use k8s_openapi::{
    api::apps::v1::{Deployment, RollingUpdateDeployment},
    apimachinery::pkg::util::intstr::IntOrString,
};

use crate::int_or_percent::{percent, scaled};

/// `spec.replicas`, 1 without one.
pub(super) fn replicas_of(deployment: &Deployment) -> i32 {
    deployment.spec.replicas.unwrap_or(1)
}

/// Whether the strategy is `RollingUpdate`, as it is by default.
pub(super) fn is_rolling(deployment: &Deployment) -> bool {
    let strategy = deployment.spec.strategy.as_ref();
    strategy
        .and_then(|strategy| strategy.type_.as_deref())
        .is_none_or(|kind| kind == "RollingUpdate")
}

/// How many pods there may be beyond the wanted number.
pub(super) fn max_surge(deployment: &Deployment) -> i32 {
    if is_rolling(deployment) {
        fence_posts(deployment).0
    } else {
        0
    }
}

/// How many of the wanted pods may be unavailable.
pub(super) fn max_unavailable(deployment: &Deployment) -> i32 {
    let replicas = replicas_of(deployment);
    if is_rolling(deployment) && replicas > 0 {
        fence_posts(deployment).1.min(replicas)
    } else {
        0
    }
}

/// Surge rounded up, unavailable rounded down; never both zero, or nothing could move.
fn fence_posts(deployment: &Deployment) -> (i32, i32) {
    let rolling: Option<&RollingUpdateDeployment> = deployment
        .spec
        .strategy
        .as_ref()
        .and_then(|strategy| strategy.rolling_update.as_ref());
    let replicas = replicas_of(deployment);
    let surge = resolve(
        rolling.and_then(|rolling| rolling.max_surge.as_ref()),
        replicas,
        true,
    );
    let unavailable = resolve(
        rolling.and_then(|rolling| rolling.max_unavailable.as_ref()),
        replicas,
        false,
    );
    if surge == 0 && unavailable == 0 {
        (0, 1)
    } else {
        (surge, unavailable)
    }
}

/// 25 % if nothing is said.
fn resolve(value: Option<&IntOrString>, replicas: i32, round_up: bool) -> i32 {
    value.map_or_else(
        || percent(25, replicas, round_up),
        |value| scaled(value, replicas, round_up),
    )
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::{DeploymentSpec, DeploymentStrategy};

    use super::*;

    fn deployment(replicas: i32, surge: &str, unavailable: &str) -> Deployment {
        let value = |text: &str| match text.parse() {
            Ok(number) => IntOrString::Int(number),
            Err(_) => IntOrString::String(text.into()),
        };
        Deployment {
            spec: DeploymentSpec {
                replicas: Some(replicas),
                strategy: Some(DeploymentStrategy {
                    type_: Some("RollingUpdate".into()),
                    rolling_update: Some(RollingUpdateDeployment {
                        max_surge: Some(value(surge)),
                        max_unavailable: Some(value(unavailable)),
                    }),
                }),
                ..DeploymentSpec::default()
            },
            ..Deployment::default()
        }
    }

    #[test]
    fn surge_rounds_up_and_unavailable_down() {
        let table = [
            (10, "25%", "25%", 3, 2),
            (3, "25%", "25%", 1, 0),
            (4, "25%", "25%", 1, 1),
            (10, "0", "0", 0, 1),
            (10, "0%", "5%", 0, 1),
            (2, "1", "5", 1, 2),
            (0, "25%", "25%", 0, 0),
            (7, "100%", "0", 7, 0),
        ];
        for (replicas, surge, unavailable, max_over, max_under) in table {
            let deployment = deployment(replicas, surge, unavailable);
            assert_eq!(
                (max_surge(&deployment), max_unavailable(&deployment)),
                (max_over, max_under),
                "{replicas} {surge} {unavailable}"
            );
        }
    }
}
