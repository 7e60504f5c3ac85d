//! From a Pod to what the runtime is asked for: sandbox and container configurations.
//!
//! The parts are pure (`env`, `fields`, `expansion`, `sub_path`, `resources`, `security`); this
//! file fetches what they refer to and writes the few files that every container gets.

pub(crate) mod apparmor;
pub(crate) mod env;
mod env_file;
mod environment;
pub(crate) mod expansion;
pub(crate) mod fields;
pub(crate) mod resources;
mod runtime_class;
pub(crate) mod security;
mod sub_path;

use std::{
    collections::HashMap,
    fs,
    net::IpAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};

use crate::{
    context::NodeContext,
    events::EventType,
    image::{
        credentials::{self, Collected},
        reference,
    },
    objects::{FRESH, FetchError},
    pod::{PodExt, spec_hash},
    pod_files,
    runtime::{
        Image, RegistryAuth, RuntimeError, SecretCoordinates,
        types::{ContainerConfig, Mount, MountPropagation, PortMapping, Resources, SandboxConfig},
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

/// What the sandbox of a pod is to be.
///
/// # Errors
/// The pod wants what no sandbox can have, or its RuntimeClass cannot be read.
pub(crate) async fn sandbox(
    ctx: &NodeContext,
    pod: &Pod,
    attempt: u32,
) -> Result<SandboxConfig, RuntimeError> {
    let runtime_handler = runtime_class::handler(&ctx.objects, pod).await?;
    let spec = pod.spec_or_default();
    let security = spec.security_context.as_ref();
    let sysctls = security
        .and_then(|s| s.sysctls.as_ref())
        .into_iter()
        .flatten()
        .map(|s| (s.name.clone(), s.value.clone()))
        .collect();
    let nodename = pod_files::nodename(pod, &ctx.config.cluster_domain).map_err(|error| {
        RuntimeError::InvalidConfig {
            message: error.to_string(),
        }
    })?;
    Ok(SandboxConfig {
        pod: pod.reference(),
        attempt,
        hostname: if pod.host_network() {
            ctx.config.node_name.clone()
        } else {
            nodename
        },
        host_network: pod.host_network(),
        host_pid: spec.host_pid.unwrap_or(false),
        host_ipc: spec.host_ipc.unwrap_or(false),
        share_process_namespace: spec.share_process_namespace.unwrap_or(false),
        user_namespace: spec.host_users == Some(false),
        runtime_handler,
        port_mappings: port_mappings(pod),
        cgroup_parent: resources::cgroup_parent(&ctx.config.cgroup_root, pod),
        // No field of a pod says how many processes it may have: that is the node's to limit.
        resources: Resources {
            pids_limit: ctx.config.pod_max_pids.map(i64::from),
            ..resources::for_pod(pod)
        },
        sysctls,
        log_directory: ctx.log_dir(&pod.reference()),
        labels: pod.metadata.labels.clone().unwrap_or_default(),
        annotations: pod.metadata.annotations.clone().unwrap_or_default(),
    })
}

fn port_mappings(pod: &Pod) -> Vec<PortMapping> {
    if pod.host_network() {
        return Vec::new();
    }
    let ports = pod
        .all_containers()
        .flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            Some(PortMapping {
                host_port: u16::try_from(port.host_port?)
                    .ok()
                    .filter(|&port| port > 0)?,
                container_port: u16::try_from(port.container_port).ok()?,
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
                host_ip: port.host_ip.clone().unwrap_or_default(),
            })
        })
        .collect()
}

/// What a container is made from.
pub(crate) struct ContainerInput<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) container: &'a Container,
    pub(crate) image: &'a Image,
    pub(crate) attempt: u32,
    pub(crate) pod_ips: &'a [IpAddr],
    pub(crate) volumes: &'a MountedVolumes,
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
    let profiles = ctx.config.agent_dir().join("seccomp");
    let mut security = security::merge(
        pod,
        container,
        input.image.config.user.as_deref(),
        &profiles,
    )?;
    let selinux = security::selinux_enabled();
    security::check_supported(pod, container, selinux)?;
    if security::drops_label(pod, container, selinux) {
        let text = format!(
            "SELinux: container {} is privileged, its seLinuxOptions have no effect",
            container.name
        );
        ctx.events.pod(
            pod,
            Some(&container.name),
            EventType::Warning,
            "SELinux",
            text,
        );
    }
    let apparmor = apparmor::resolve(pod, container, apparmor::kernel)?;
    // Not refused: it runs as it would on a node without AppArmor, but somebody should know.
    if apparmor.lacks_default {
        let text = format!(
            "AppArmor: no default profile is loaded, container {} starts without one",
            container.name
        );
        ctx.events.pod(
            pod,
            Some(&container.name),
            EventType::Warning,
            "AppArmor",
            text,
        );
    }
    security.apparmor_profile = apparmor.profile;
    let mut mounts = volume_mounts(ctx, input, &lookup).await?;
    mounts.extend(own_mounts(ctx, input, &mounts).await?);
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

async fn volume_mounts(
    ctx: &NodeContext,
    input: &ContainerInput<'_>,
    env: &HashMap<&str, &str>,
) -> Result<Vec<Mount>, ContainerConfigError> {
    let mut mounts = Vec::new();
    for (index, mount) in input.container.volume_mounts.iter().flatten().enumerate() {
        let volume =
            input
                .volumes
                .get(&mount.name)
                .ok_or_else(|| ContainerConfigError::NoVolume {
                    volume: mount.name.clone(),
                    container: input.container.name.clone(),
                })?;
        let host_path = match sub_path::of(mount, env)? {
            None => volume.clone(),
            Some(path) => {
                // By its number: one container may mount two paths of one volume.
                let place = format!("{}/{}/{index}", mount.name, input.container.name);
                ctx.volumes
                    .sub_path(&input.pod.uid(), volume, &place, &path)
                    .await?
            }
        };
        mounts.push(Mount {
            container_path: absolute(&mount.mount_path),
            host_path,
            readonly: is_readonly(input.pod, mount),
            recursive_readonly: matches!(
                mount.recursive_read_only.as_deref(),
                Some("Enabled" | "IfPossible")
            ) && mount.read_only == Some(true),
            propagation: match mount.mount_propagation.as_deref() {
                Some("HostToContainer") => MountPropagation::HostToContainer,
                Some("Bidirectional") => MountPropagation::Bidirectional,
                _ => MountPropagation::Private,
            },
        });
    }
    Ok(mounts)
}

/// What a container may not write to: volumes whose content the node keeps current, and what says
/// so.
fn is_readonly(pod: &Pod, mount: &VolumeMount) -> bool {
    let kept = pod
        .spec_or_default()
        .volumes
        .iter()
        .flatten()
        .find(|volume| volume.name == mount.name)
        .is_some_and(|volume| {
            volume.config_map.is_some()
                || volume.secret.is_some()
                || volume.projected.is_some()
                || volume.downward_api.is_some()
        });
    kept || mount.read_only.unwrap_or(false)
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    }
}

/// Hosts, resolver, host name and the termination message file.
async fn own_mounts(
    ctx: &NodeContext,
    input: &ContainerInput<'_>,
    taken: &[Mount],
) -> Result<Vec<Mount>, ContainerConfigError> {
    let (pod, container) = (input.pod, input.container);
    let dir = ctx.volumes.pod_dir(&pod.uid());
    let (domain, dns) = (
        ctx.config.cluster_domain.clone(),
        ctx.config.cluster_dns.clone(),
    );
    let (pod, ips) = (pod.clone(), input.pod_ips.to_vec());
    let message_path = container
        .termination_message_path
        .clone()
        .filter(|path| !path.is_empty())
        .unwrap_or_else(|| "/dev/termination-log".to_owned());
    let message_file = message_file(&dir, &container.name, input.attempt);
    let readonly = container
        .security_context
        .as_ref()
        .and_then(|s| s.read_only_root_filesystem)
        .unwrap_or(false);
    let hostname_file = dir.join("hostname");
    let own_name = pod_files::nodename(&pod, &domain)
        .ok()
        .filter(|_| !pod.host_network());
    let hostname = own_name.unwrap_or_else(|| ctx.config.node_name.clone());
    let files = tokio::task::spawn_blocking(move || {
        let node_file = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let hosts = pod_files::hosts(
            &pod,
            &ips,
            &domain,
            &if pod.host_network() {
                node_file("/etc/hosts")
            } else {
                String::new()
            },
        );
        write_if_changed(&dir.join("etc-hosts"), &hosts, 0o644)?;
        let of_node = pod_files::node_resolv_conf(node_file);
        let resolver = pod_files::resolv_conf(&pod, &dns, &domain, &of_node);
        write_if_changed(&dir.join("resolv.conf"), &resolver, 0o644)?;
        write_if_changed(&hostname_file, &format!("{hostname}\n"), 0o644)?;
        // For everybody: the container may run as any user...
        write_if_changed(&message_file, "", 0o666)?;
        let files = [
            ("/etc/hosts".to_owned(), dir.join("etc-hosts"), readonly),
            (
                "/etc/resolv.conf".to_owned(),
                dir.join("resolv.conf"),
                readonly,
            ),
            ("/etc/hostname".to_owned(), hostname_file, readonly),
            // ...and says why it ends even where its root is read-only.
            (message_path, message_file, false),
        ];
        Ok::<_, ContainerConfigError>((files, pod_files::dns_limits(&pod, &dns, &domain, &of_node)))
    })
    .await
    .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
    let (files, cut) = files?;
    for message in cut {
        ctx.events.pod(
            input.pod,
            None,
            EventType::Warning,
            "DNSConfigForming",
            message,
        );
    }
    // A volume that is mounted in such a place wins, as upstream.
    let wanted = files
        .into_iter()
        .filter(|(path, _, _)| !taken.iter().any(|mount| mount.container_path == *path));
    Ok(wanted
        .map(|(container_path, host_path, readonly)| Mount {
            container_path,
            host_path,
            readonly,
            recursive_readonly: false,
            propagation: MountPropagation::Private,
        })
        .collect())
}

/// Where an instance of a container leaves its last words, on the node.
pub(crate) fn message_file(pod_dir: &Path, container: &str, attempt: u32) -> PathBuf {
    pod_dir
        .join("containers")
        .join(container)
        .join(attempt.to_string())
}

fn write_if_changed(path: &Path, text: &str, mode: u32) -> Result<(), ContainerConfigError> {
    let failed = |operation| {
        let path = path.to_owned();
        move |source| ContainerConfigError::File {
            operation,
            path,
            source,
        }
    };
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed("create the directory of"))?;
    }
    // In place: running containers have this file mounted.
    fs::write(path, text).map_err(failed("write"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed("set the mode of"))
}

/// What a pod's `imagePullSecrets` hold, and the names of those that could not be read, or hold
/// more than is taken: as upstream, the pull is tried without them.
pub(crate) async fn pull_credentials(
    ctx: &NodeContext,
    pod: &Pod,
) -> (Vec<RegistryAuth>, Vec<String>) {
    let spec = pod.spec_or_default();
    let references = spec.image_pull_secrets.iter().flatten();
    let (names, beyond) = credentials::to_read(references.map(|reference| &*reference.name));
    let (mut found, mut missing) = (Collected::default(), Vec::new());
    for name in names {
        let secret = ctx.objects.secret(pod.namespace(), name, FRESH).await;
        let Ok(Some(secret)) = secret else {
            missing.push(name.to_owned());
            continue;
        };
        let coordinates = SecretCoordinates {
            uid: secret.metadata.uid.clone().unwrap_or_default(),
            namespace: pod.namespace().to_owned(),
            name: name.to_owned(),
        };
        let data = |key: &str| secret.data.as_ref().and_then(|data| data.get(key));
        let whole = match (data(".dockerconfigjson"), data(".dockercfg")) {
            (Some(json), _) => found.add(&json.0, credentials::parse_config, coordinates),
            (None, Some(json)) => found.add(&json.0, credentials::parse_legacy, coordinates),
            (None, None) => true,
        };
        if !whole {
            missing.push(name.to_owned());
        }
    }
    missing.extend(beyond.into_iter().map(str::to_owned));
    (found.auths, missing)
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
