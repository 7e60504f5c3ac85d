//! `coracle image`: the node's image store, whether its agent is running or not (they share it by
//! file locks).

use anyhow::Context;
use coracle_agent::{
    image::{ImageStore, ImageStoreConfig, registries::Registries},
    runtime::{Image, ImageService},
};

use crate::{
    Failure,
    cli::{DataDir, ImageCommand},
    say,
};

/// Carries out one subcommand.
pub(crate) fn run(command: ImageCommand) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match command {
            ImageCommand::Import { data, file } => {
                let store = open(&data, Registries::default())?;
                let imported = store.import(file.clone()).await;
                for image in imported.with_context(|| format!("import {}", file.display()))? {
                    say(format_args!(
                        "imported {} ({})",
                        name(&image),
                        short(&image.id)
                    ));
                }
            }
            ImageCommand::List { data } => {
                let store = open_present(&data)?;
                list(&store).await?;
            }
            ImageCommand::Pull {
                data,
                registries,
                reference,
            } => {
                let registries = match registries {
                    Some(path) => {
                        Registries::load(&path).map_err(|error| Failure::Usage(error.into()))?
                    }
                    None => Registries::default(),
                };
                let image = open(&data, registries)?.pull_image(&reference, &[]).await?;
                say(format_args!(
                    "pulled {} ({})",
                    name(&image),
                    short(&image.id)
                ));
            }
            ImageCommand::Remove { data, reference } => {
                let store = open_present(&data)?;
                // To a runtime it is no error to remove what is not there, but to a person it is.
                store.image_status(&reference).await?.with_context(|| {
                    format!("image {reference:?} is not in {}", data.data_dir.display())
                })?;
                store.remove_image(&reference).await?;
                say(format_args!("removed {reference}"));
            }
        }
        Ok(())
    })
}

/// For who brings no image: a wrong directory is not filled with an empty store.
fn open_present(data: &DataDir) -> anyhow::Result<std::sync::Arc<ImageStore>> {
    let images = data.data_dir.join("agent/images");
    if !images.is_dir() {
        anyhow::bail!(
            "{} is not there: no image has been brought here yet, or this is not the node's --data-dir",
            images.display()
        );
    }
    open(data, Registries::default())
}

fn open(data: &DataDir, registries: Registries) -> anyhow::Result<std::sync::Arc<ImageStore>> {
    let root_dir = std::path::absolute(&data.data_dir)
        .context("--data-dir")?
        .join("agent/images");
    Ok(ImageStore::open(ImageStoreConfig {
        root_dir,
        registries,
    })?)
}

async fn list(store: &ImageStore) -> anyhow::Result<()> {
    say(format_args!("{:<60} {:<14} {:>10}", "IMAGE", "ID", "SIZE"));
    let mut images = store.list_images().await?;
    images.sort_by_key(name);
    for image in images {
        let size = format!("{:.1}MB", image.size_bytes as f64 / 1e6);
        say(format_args!(
            "{:<60} {:<14} {size:>10}",
            name(&image),
            short(&image.id)
        ));
    }
    Ok(())
}

fn name(image: &Image) -> String {
    image
        .repo_tags
        .first()
        .or(image.repo_digests.first())
        .cloned()
        .unwrap_or_else(|| "<none>".to_owned())
}

/// Enough of the digest to tell images apart.
fn short(id: &str) -> &str {
    let hex = id.strip_prefix("sha256:").unwrap_or(id);
    &hex[..hex.len().min(12)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_list_images_makes_no_store() {
        let dir = tempfile::tempdir().expect("directory");
        let data = || DataDir {
            data_dir: dir.path().join("mistyped"),
        };
        let commands = [
            ImageCommand::List { data: data() },
            ImageCommand::Remove {
                data: data(),
                reference: "a".to_owned(),
            },
        ];
        for command in commands {
            assert!(run(command).is_err());
            assert!(!data().data_dir.exists());
        }
    }
}
