//! From a Pod to what the runtime is asked for: sandbox and container configurations.
//!
//! The parts are pure (`env`, `fields`, `expansion`, `sub_path`, `resources`, `security`), but for
//! three: `environment` fetches what variables refer to, `mounts` writes the few files that every
//! container gets, and `pull_credentials` reads Secrets.

pub(crate) mod apparmor;
pub(crate) mod env;
mod env_file;
mod environment;
pub(crate) mod expansion;
pub(crate) mod fields;
mod mounts;
mod pull_credentials;
pub(crate) mod resources;
mod runtime_class;
mod sandbox;
pub(crate) mod security;
mod sub_path;
mod sysctls;

pub(crate) use self::{mounts::message_file, pull_credentials::pull_credentials, sandbox::sandbox};

use std::{collections::HashMap, net::IpAddr, path::PathBuf, time::Duration};

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::{
    context::NodeContext,
    events::EventType,
    image::reference,
    objects::FetchError,
    pod::{PodExt, spec_hash},
    runtime::{
        Image,
        types::{ContainerConfig, SecurityContext},
    },
    volume::{MountedVolumes, SubPathError},
};

/// Why there is no configuration: the waiting reason is `CreateContainerConfigError`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContainerConfigError {
    #[error(transparent)]
    Env(#[from] env::EnvError),
    #[error(transparent)]
    Security(#[from] security::SecurityError),
    #[error(transparent)]
    AppArmor(#[from] apparmor::AppArmorError),
    #[error(transparent)]
    MissingValue(#[from] sub_path::MissingValue),
    #[error(transparent)]
    SubPath(#[from] SubPathError),
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("cannot find volume \"{volume}\" to mount into container \"{container}\"")]
    NoVolume { volume: String, container: String },
    #[error("unable to find target container \"{target}\"")]
    NoTarget { target: String },
    #[error("{operation} {path}")]
    File {
        operation: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
}

/// What a container is made from.
pub(crate) struct ContainerInput<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) container: &'a Container,
    pub(crate) image: &'a Image,
    pub(crate) attempt: u32,
    pub(crate) pod_ips: &'a [IpAddr],
    pub(crate) volumes: &'a MountedVolumes,
    /// How old an object may be that its environment refers to.
    pub(crate) max_age: Duration,
}

/// What a container is to be. Fetches what its environment refers to, prepares its files.
pub(crate) async fn container(
    ctx: &NodeContext,
    input: &ContainerInput<'_>,
) -> Result<ContainerConfig, ContainerConfigError> {
    let (pod, container) = (input.pod, input.container);
    let env = environment::fetch(ctx, input).await?;
    let lookup: HashMap<&str, &str> = env
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let expand = |texts: Option<&Vec<String>>| -> Vec<String> {
        texts
            .into_iter()
            .flatten()
            .map(|text| expansion::expand(text, |name| lookup.get(name).copied()))
            .collect()
    };
    let (command, args) = (
        expand(container.command.as_ref()),
        expand(container.args.as_ref()),
    );
    let security = security(ctx, input)?;
    let mounts = mounts::of(ctx, input, &lookup).await?;
    Ok(ContainerConfig {
        name: container.name.clone(),
        attempt: input.attempt,
        image: container.image.clone().unwrap_or_default(),
        image_id: input.image.id.clone(),
        image_ref: image_ref(input.image, container.image.as_deref().unwrap_or_default()),
        command,
        args,
        env,
        working_dir: container.working_dir.clone().filter(|dir| !dir.is_empty()),
        mounts,
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        tty: container.tty.unwrap_or(false),
        resources: resources::for_container(pod, container, ctx.machine.facts().memory_bytes),
        security,
        log_path: format!("{}/{}.log", container.name, input.attempt),
        init: pod
            .init_containers()
            .iter()
            .any(|init| init.name == container.name),
        stop_signal: container
            .lifecycle
            .as_ref()
            .and_then(|lifecycle| lifecycle.stop_signal.clone()),
        spec_hash: spec_hash(container),
    })
}

/// What confines a container. Says in an event what the pod wants and does not get.
fn security(
    ctx: &NodeContext,
    input: &ContainerInput<'_>,
) -> Result<SecurityContext, ContainerConfigError> {
    let (pod, container) = (input.pod, input.container);
    let profiles = ctx.config.agent_dir().join("seccomp");
    let image_user = input.image.config.user.as_deref();
    let mut security = security::merge(pod, container, image_user, &profiles)?;
    let name = &container.name;
    let warn = |reason, text| {
        let severity = EventType::Warning;
        ctx.events.pod(pod, Some(name), severity, reason, text);
    };
    let selinux = security::selinux_enabled();
    security::check_supported(pod, container, selinux)?;
    if security::drops_label(pod, container, selinux) {
        let text =
            format!("SELinux: container {name} is privileged, its seLinuxOptions have no effect");
        warn("SELinux", text);
    }
    let apparmor = apparmor::resolve(pod, container, apparmor::kernel)?;
    // Not refused: it runs as it would on a node without AppArmor, but somebody should know.
    if apparmor.lacks_default {
        let text =
            format!("AppArmor: no default profile is loaded, container {name} starts without one");
        warn("AppArmor", text);
    }
    security.apparmor_profile = apparmor.profile;
    // As upstream: what a volume says of itself goes to all containers of its pod.
    for group in input.volumes.values().filter_map(|volume| volume.group) {
        if !security.supplemental_groups.contains(&group) {
            security.supplemental_groups.push(group);
        }
    }
    Ok(security)
}

/// What an image came as: its repository and the digest of its manifest there, the repository that
/// the container names if there are several. An image from an archive came from none, and has its
/// own ID only.
///
/// Source: `toCRIContainerStatus` in containerd's `internal/cri/server/container_status.go` at
/// v2.1.
pub(crate) fn image_ref(image: &Image, named_as: &str) -> String {
    let own = reference::parse(named_as)
        .map(|own| reference::digest_name(&own, ""))
        .ok();
    let named = |name: &&String| {
        own.as_ref()
            .is_some_and(|own| name.starts_with(own.as_str()))
    };
    let digests = || image.repo_digests.iter();
    digests()
        .find(named)
        .or_else(|| digests().next())
        .unwrap_or(&image.id)
        .clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_told_by_the_repository_it_came_from() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let name = |repository: &str| format!("{repository}@{digest}");
        let image = |repositories: &[&str]| Image {
            id: "sha256:config".to_owned(),
            repo_tags: Vec::new(),
            repo_digests: repositories
                .iter()
                .map(|repository| name(repository))
                .collect(),
            size_bytes: 0,
            config: crate::runtime::ImageConfig::default(),
        };
        let both = image(&["docker.io/library/nginx", "r.example/team/web"]);
        assert_eq!(image_ref(&both, "nginx:1"), name("docker.io/library/nginx"));
        assert_eq!(
            image_ref(&both, "r.example/team/web"),
            name("r.example/team/web")
        );
        assert_eq!(image_ref(&both, "other:1"), name("docker.io/library/nginx"));
        assert_eq!(image_ref(&image(&[]), "nginx:1"), "sha256:config");
    }
}
