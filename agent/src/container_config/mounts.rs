//! What a container has mounted: volumes, and the few files that every container gets.

use std::{
    collections::HashMap,
    fs,
    net::IpAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::{Pod, VolumeMount};

use super::{ContainerConfigError, ContainerInput, sub_path};
use crate::{
    blocking::blocking,
    context::NodeContext,
    events::EventType,
    pod::PodExt,
    pod_files,
    runtime::types::{Mount, MountPropagation},
};

/// All mounts of a container; makes the files among them. `env` is what paths may refer to.
pub(super) async fn of(
    ctx: &NodeContext,
    input: &ContainerInput<'_>,
    env: &HashMap<&str, &str>,
) -> Result<Vec<Mount>, ContainerConfigError> {
    let mut mounts = volume_mounts(ctx, input, env).await?;
    // A volume that is mounted in the place of such a file wins, as upstream.
    let mut files = own_files(ctx, input).await?;
    files.retain(|file| {
        !mounts
            .iter()
            .any(|mount| mount.container_path == file.container_path)
    });
    mounts.append(&mut files);
    Ok(mounts)
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
            None => volume.path.clone(),
            Some(path) => {
                // By its number: one container may mount two paths of one volume.
                let place = format!("{}/{}/{index}", mount.name, input.container.name);
                ctx.volumes
                    .sub_path(&input.pod.uid(), &volume.path, &place, &path)
                    .await?
            }
        };
        mounts.push(Mount {
            container_path: absolute(&mount.mount_path),
            host_path,
            readonly: volume.read_only || is_readonly(input.pod, mount),
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

/// Hosts, resolver, host name and the termination message file: made, and where they are mounted.
async fn own_files(
    ctx: &NodeContext,
    input: &ContainerInput<'_>,
) -> Result<Vec<Mount>, ContainerConfigError> {
    let pod = input.pod;
    let own_name = pod_files::nodename(pod, &ctx.config.cluster_domain)
        .ok()
        .filter(|_| !pod.host_network());
    let files = OwnFiles {
        pod: pod.clone(),
        pod_ips: input.pod_ips.to_vec(),
        dir: ctx.volumes.pod_dir(&pod.uid()),
        hostname: own_name.unwrap_or_else(|| ctx.config.node_name.clone()),
        cluster_domain: ctx.config.cluster_domain.clone(),
        cluster_dns: ctx.config.name_servers(),
    };
    let container = input.container;
    let message_file = message_file(&files.dir, &container.name, input.attempt);
    let (hosts, resolver, hostname) = (files.hosts(), files.resolver(), files.hostname());
    let message = message_file.clone();
    let cut = blocking(move || {
        let cut = files.write()?;
        // For everybody: the container may run as any user...
        write_if_changed(&message, "", 0o666)?;
        Ok::<_, ContainerConfigError>(cut)
    })
    .await?;
    for message in cut {
        ctx.events
            .pod(pod, None, EventType::Warning, "DNSConfigForming", message);
    }
    let readonly = container
        .security_context
        .as_ref()
        .and_then(|s| s.read_only_root_filesystem)
        .unwrap_or(false);
    let message_path = container
        .termination_message_path
        .as_deref()
        .filter(|path| !path.is_empty())
        .unwrap_or("/dev/termination-log");
    let files = [
        ("/etc/hosts", hosts, readonly),
        ("/etc/resolv.conf", resolver, readonly),
        ("/etc/hostname", hostname, readonly),
        // ...and says why it ends even where its root is read-only.
        (message_path, message_file, false),
    ];
    Ok(files
        .into_iter()
        .map(|(container_path, host_path, readonly)| Mount {
            container_path: container_path.to_owned(),
            host_path,
            readonly,
            recursive_readonly: false,
            propagation: MountPropagation::Private,
        })
        .collect())
}

/// The files that all containers of a pod share, and what is written to them.
struct OwnFiles {
    pod: Pod,
    pod_ips: Vec<IpAddr>,
    /// The pod's directory on the node.
    dir: PathBuf,
    hostname: String,
    cluster_domain: String,
    cluster_dns: Vec<IpAddr>,
}

impl OwnFiles {
    fn hosts(&self) -> PathBuf {
        self.dir.join("etc-hosts")
    }

    fn resolver(&self) -> PathBuf {
        self.dir.join("resolv.conf")
    }

    fn hostname(&self) -> PathBuf {
        self.dir.join("hostname")
    }

    /// Blocks. Says what of the resolver's configuration is left out, for people.
    fn write(&self) -> Result<Vec<String>, ContainerConfigError> {
        let (pod, dns, domain) = (&self.pod, &self.cluster_dns, &self.cluster_domain);
        let node_file = |path: &str| fs::read_to_string(path).unwrap_or_default();
        // Who shares the node's network has the node's names, too.
        let of_node = if pod.host_network() {
            node_file("/etc/hosts")
        } else {
            String::new()
        };
        let hosts = pod_files::hosts(pod, &self.pod_ips, domain, &of_node);
        write_if_changed(&self.hosts(), &hosts, 0o644)?;
        let of_node = pod_files::node_resolv_conf(node_file);
        let resolver = pod_files::resolv_conf(pod, dns, domain, &of_node);
        write_if_changed(&self.resolver(), &resolver, 0o644)?;
        write_if_changed(&self.hostname(), &format!("{}\n", self.hostname), 0o644)?;
        Ok(pod_files::dns_limits(pod, dns, domain, &of_node))
    }
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
