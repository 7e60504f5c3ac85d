//! `coracle store backup` and `restore`: what the server keeps as a file, and back.

use std::{path::Path, time::Duration};

use anyhow::Context;
use coracle_controlplane::backup::{self, BackupError, Existing, PendingFile, Source};

use crate::{
    admin::{self, Calls},
    cli::{ApiArgs, DataDir},
    say,
};

/// Until the server has made its copy, and for each piece of it.
const PATIENCE: Duration = Duration::from_secs(600);

/// Writes all objects to `path`: asks the server, or copies what a stopped one has.
pub(super) fn back_up(api: &ApiArgs, force: bool, path: &Path) -> anyhow::Result<()> {
    let existing = if force {
        Existing::Replace
    } else {
        Existing::Keep
    };
    let mut file = PendingFile::create(path, existing)?;
    // A server is asked first: it may keep its objects elsewhere than in the directory, which then
    // has what it had before.
    if let Err(error) = fetch(api, &mut file) {
        let refused = matches!(
            error.downcast_ref(),
            Some(
                BackupError::Ask(kube::Error::Api(_))
                    | BackupError::Receive(_)
                    | BackupError::Files(_)
            )
        );
        let data_dir = &api.data.data_dir;
        if refused || api.kubeconfig.is_some() || !backup::has_store(data_dir) {
            return Err(error);
        }
        match backup::copy_stopped(data_dir, &file)? {
            Source::Stopped => {}
            Source::Running => return Err(error),
        }
    }
    let contents = backup::finish(file)?;
    let bytes = std::fs::metadata(path).map_or(0, |file| file.len());
    say(format_args!(
        "{} objects at revision {}, {:.1} MB: {}",
        contents.keys,
        contents.revision,
        bytes as f64 / 1e6,
        path.display()
    ));
    Ok(())
}

fn fetch(api: &ApiArgs, file: &mut PendingFile) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let (client, _) = admin::connect(api, Calls::Reads, PATIENCE).await?;
        Ok(backup::fetch(&client, file).await?)
    })
}

/// Puts `file` in the place of what the stopped server has.
pub(super) fn restore(data: &DataDir, file: &Path) -> anyhow::Result<()> {
    let data_dir = std::path::absolute(&data.data_dir).context("--data-dir")?;
    let restored = backup::put_back(&data_dir, file)?;
    say(format_args!(
        "{} objects are restored; clients go on at revision {}",
        restored.contents.keys, restored.contents.revision
    ));
    if let Some(kept) = restored.kept {
        say(format_args!("what was there before is {}", kept.display()));
    }
    Ok(())
}
