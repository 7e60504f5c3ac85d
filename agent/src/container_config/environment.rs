//! Fetches what a container's environment refers to: objects of the API, Services, files in
//! volumes.

use std::{collections::HashMap, time::Duration};

use k8s_openapi::api::core::v1::Container;

use super::{ContainerConfigError, ContainerInput, env, env_file, fields};
use crate::{blocking::blocking, context::NodeContext, pod::PodExt, volume::MountedVolumes};

const SERVICES_LIMIT: Duration = Duration::from_secs(5);

/// The environment of a container, from what it refers to.
pub(super) async fn fetch(
    ctx: &NodeContext,
    input: &ContainerInput<'_>,
) -> Result<Vec<(String, String)>, ContainerConfigError> {
    let (pod, container) = (input.pod, input.container);
    let namespace = pod.namespace();
    let (map_names, secret_names) = env::references(container);
    let maps = futures::future::try_join_all(
        map_names
            .iter()
            .map(|name| ctx.objects.config_map(namespace, name, input.max_age)),
    );
    let secrets = futures::future::try_join_all(
        secret_names
            .iter()
            .map(|name| ctx.objects.secret(namespace, name, input.max_age)),
    );
    let (maps, secrets, ()) = tokio::try_join!(maps, secrets, async {
        // Not for ever, unlike upstream, which starts no container before: most need no variable of
        // a Service.
        ctx.services.wait_synced(SERVICES_LIMIT).await;
        Ok(())
    })?;
    let by_name = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect::<Vec<_>>();
    let config_maps = by_name(map_names)
        .into_iter()
        .zip(maps)
        .filter_map(|(name, map)| Some((name, map?)))
        .collect();
    let secrets = by_name(secret_names)
        .into_iter()
        .zip(secrets)
        .filter_map(|(name, secret)| Some((name, secret?)))
        .collect();
    let fields = fields::FieldInput {
        pod,
        node_ip: ctx.config.node_ip,
        pod_ips: input.pod_ips,
        allocatable: ctx.machine.allocatable(),
    };
    let services = ctx.services.of_namespace(namespace);
    let files = env_files(container, input.volumes).await?;
    let made = env::EnvInput {
        pod,
        fields: &fields,
        config_maps: &config_maps,
        secrets: &secrets,
        files: &files,
        services: &services,
    };
    Ok(env::make(container, &made)?)
}

/// What is in the files that the environment refers to.
async fn env_files(
    container: &Container,
    volumes: &MountedVolumes,
) -> Result<HashMap<env::FileKey, String>, env::EnvError> {
    let mut found = HashMap::new();
    for key in env::file_references(container) {
        let (volume, path, name) = key.clone();
        let Some(dir) = volumes.get(&volume).map(|volume| volume.path.clone()) else {
            return Err(env::EnvError::NoVolume { volume });
        };
        let file = path.clone();
        match blocking(move || env_file::read(&dir, &file, &name)).await {
            Ok(value) => found.extend(value.map(|value| (key, value))),
            Err(source) => {
                return Err(env::EnvError::File {
                    volume,
                    path,
                    source,
                });
            }
        }
    }
    Ok(found)
}
