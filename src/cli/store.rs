//! Where objects are kept: flags of `server` and `up`, of `check`, and of `store`.

use std::{path::PathBuf, str::FromStr};

use clap::{Args, Subcommand};

use super::{ApiArgs, DataDir};

/// What keeps the objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Store {
    /// One file below the data directory.
    Sqlite,
    /// Nothing: all is gone with the process.
    Memory,
    /// These members of an etcd.
    Etcd(Vec<String>),
}

impl FromStr for Store {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            Some(("etcd", urls)) => {
                let urls = urls.split(',').map(str::trim).filter(|url| !url.is_empty());
                Ok(Self::Etcd(urls.map(str::to_owned).collect()))
            }
            None if text == "sqlite" => Ok(Self::Sqlite),
            None if text == "memory" => Ok(Self::Memory),
            _ => Err("expected sqlite, memory or etcd=https://ADDRESS:PORT,..."),
        }
    }
}

/// Where objects are kept.
#[derive(Debug, Clone, Args)]
pub(crate) struct StoreArgs {
    /// Where objects are kept: `sqlite`, one file below the data directory; `etcd=URL,URL,...`, the
    /// members of an etcd, which several servers can share; or `memory`, gone with the process.
    #[arg(long, default_value = "sqlite", value_name = "ENGINE")]
    pub(crate) store: Store,

    #[command(flatten)]
    pub(crate) etcd: EtcdArgs,
}

/// How etcd is spoken to.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct EtcdArgs {
    /// The authority of etcd's certificates.
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_cacert: Option<PathBuf>,

    /// The certificate to show to etcd.
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_cert: Option<PathBuf>,

    /// Its key.
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_key: Option<PathBuf>,

    /// What all keys in etcd begin with [default: /coracle].
    #[arg(long, value_name = "PATH")]
    pub(crate) etcd_prefix: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Write all objects to a file, while the server runs or not. Certificates and keys are not
    /// among them: keep DATA_DIR/server/pki as well. With etcd: `etcdctl snapshot save`.
    Backup {
        #[command(flatten)]
        api: ApiArgs,
        /// Replace FILE if it is there.
        #[arg(long)]
        force: bool,
        /// Where to write them.
        file: PathBuf,
    },
    /// Put a backup in the place of what a stopped server has, which is kept beside it.
    Restore {
        #[command(flatten)]
        data: DataDir,
        /// What `coracle store backup` has written.
        file: PathBuf,
    },
    /// Copy all objects from SQLite to etcd, or back, while no server runs. The old store stays as
    /// it is.
    Copy {
        #[command(flatten)]
        data: DataDir,
        /// Where the objects are: `sqlite` or `etcd=URL,...`.
        #[arg(long, value_name = "ENGINE")]
        from: Store,
        /// Where they shall be, which must be empty: `etcd=URL,...` or `sqlite`.
        #[arg(long, value_name = "ENGINE")]
        to: Store,
        #[command(flatten)]
        etcd: EtcdArgs,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_told_apart() {
        let etcd = |urls: &[&str]| Ok(Store::Etcd(urls.iter().map(|&url| url.into()).collect()));
        for (text, expected) in [
            ("sqlite", Ok(Store::Sqlite)),
            ("memory", Ok(Store::Memory)),
            (
                "etcd=http://a:1,http://b:2",
                etcd(&["http://a:1", "http://b:2"]),
            ),
            ("etcd=", etcd(&[])),
        ] {
            assert_eq!(text.parse(), expected, "{text}");
        }
        for text in ["", "etcd", "sqlite=/x", "paper", "etcd:http://a:1"] {
            assert!(text.parse::<Store>().is_err(), "{text}");
        }
    }
}
