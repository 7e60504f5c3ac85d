//! Which engine the flags mean, and `coracle store`.

mod backup;

use std::path::Path;

use anyhow::bail;
use coracle_controlplane::StoreEngine;

use crate::{
    Failure,
    cli::{EtcdArgs, Store, StoreCommand},
};

/// What the flags say.
pub(crate) fn engine(store: &Store, etcd: &EtcdArgs) -> anyhow::Result<StoreEngine> {
    let given = [
        ("--etcd-cacert", etcd.etcd_cacert.is_some()),
        ("--etcd-cert", etcd.etcd_cert.is_some()),
        ("--etcd-key", etcd.etcd_key.is_some()),
        ("--etcd-prefix", etcd.etcd_prefix.is_some()),
    ];
    if let Store::Etcd(urls) = store {
        return etcd_engine(urls, etcd);
    }
    if let Some((flag, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
        bail!(
            "{flag} is of no use without an etcd: name its members (--store etcd=URL,...), or leave it out"
        );
    }
    Ok(match store {
        Store::Memory => StoreEngine::Memory,
        Store::Sqlite | Store::Etcd(_) => StoreEngine::Sqlite,
    })
}

#[cfg(feature = "etcd")]
pub(crate) fn etcd_config(
    urls: &[String],
    args: &EtcdArgs,
) -> anyhow::Result<coracle_controlplane::etcd::EtcdConfig> {
    use coracle_controlplane::etcd::{EtcdConfig, EtcdTls};

    let mut config = EtcdConfig::new(urls.to_vec());
    if let Some(prefix) = &args.etcd_prefix {
        config.prefix.clone_from(prefix);
    }
    config.tls = EtcdTls {
        ca: args.etcd_cacert.clone(),
        cert: args.etcd_cert.clone(),
        key: args.etcd_key.clone(),
    };
    config.validate()?;
    Ok(config)
}

#[cfg(feature = "etcd")]
fn etcd_engine(urls: &[String], args: &EtcdArgs) -> anyhow::Result<StoreEngine> {
    Ok(StoreEngine::Etcd(etcd_config(urls, args)?))
}

#[cfg(not(feature = "etcd"))]
pub(crate) const WITHOUT: &str =
    "this program was built without etcd: build it with --features etcd, or use --store sqlite";

#[cfg(not(feature = "etcd"))]
fn etcd_engine(_: &[String], _: &EtcdArgs) -> anyhow::Result<StoreEngine> {
    bail!(WITHOUT)
}

/// Carries out one subcommand.
pub(crate) fn run(command: StoreCommand) -> Result<(), Failure> {
    match command {
        StoreCommand::Backup { api, force, file } => backup::back_up(&api, force, &file)?,
        StoreCommand::Restore { data, file } => backup::restore(&data, &file)?,
        StoreCommand::Copy {
            data,
            from,
            to,
            etcd,
        } => {
            let (from, to) = copy_engines(&from, &to, &etcd).map_err(Failure::Usage)?;
            copy(&data.data_dir, &from, &to)?;
        }
    }
    Ok(())
}

#[cfg(not(feature = "etcd"))]
fn copy(_: &Path, _: &StoreEngine, _: &StoreEngine) -> anyhow::Result<()> {
    bail!(WITHOUT)
}

#[cfg(feature = "etcd")]
fn copy(data_dir: &Path, from: &StoreEngine, to: &StoreEngine) -> anyhow::Result<()> {
    use anyhow::Context as _;
    use coracle_controlplane::{Copied, copy_store};

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let Copied {
        keys,
        bytes,
        from: past,
        to: now,
    } = runtime
        .block_on(copy_store(data_dir, from, to))
        .context("no copy was made")?;
    crate::say(format_args!(
        "copied {keys} objects ({bytes} bytes) at revision {past}, compared them, and found no difference"
    ));
    crate::say(format_args!(
        "resourceVersions go on after {now}; the old store is as it was: start the server on the new one"
    ));
    Ok(())
}

/// One of the two may be etcd, and takes the flags.
fn copy_engines(
    from: &Store,
    to: &Store,
    etcd: &EtcdArgs,
) -> anyhow::Result<(StoreEngine, StoreEngine)> {
    let none = EtcdArgs::default();
    match (from, to) {
        (Store::Sqlite, Store::Etcd(_)) => Ok((engine(from, &none)?, engine(to, etcd)?)),
        (Store::Etcd(_), Store::Sqlite) => Ok((engine(from, etcd)?, engine(to, &none)?)),
        _ => {
            bail!("a copy goes --from sqlite --to etcd=URL,... or --from etcd=URL,... --to sqlite")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn etcd() -> Store {
        Store::Etcd(vec!["http://127.0.0.1:2379".to_owned()])
    }

    #[test]
    fn contradictions_are_refused() {
        let prefix = EtcdArgs {
            etcd_prefix: Some("/a".to_owned()),
            ..EtcdArgs::default()
        };
        let refused = |store: &Store, args: &EtcdArgs| match engine(store, args) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
        for store in [Store::Sqlite, Store::Memory] {
            let said = refused(&store, &prefix);
            assert!(said.starts_with("--etcd-prefix is of no use"), "{said}");
        }
        assert_eq!(refused(&Store::Sqlite, &EtcdArgs::default()), "");
        if cfg!(feature = "etcd") {
            assert_eq!(refused(&etcd(), &prefix), "");
            let said = refused(&Store::Etcd(Vec::new()), &prefix);
            assert!(said.contains("names no member"), "{said}");
        } else {
            assert!(refused(&etcd(), &prefix).contains("without etcd"));
        }
    }

    #[test]
    fn a_copy_has_two_different_ends() {
        let none = EtcdArgs::default();
        for (from, to) in [
            (Store::Sqlite, Store::Sqlite),
            (etcd(), etcd()),
            (Store::Memory, etcd()),
            (etcd(), Store::Memory),
        ] {
            assert!(copy_engines(&from, &to, &none).is_err(), "{from:?} {to:?}");
        }
    }
}
