//! What `coracle check` tells about etcd. Nothing is written.

use std::time::{Duration, Instant};

use crate::{
    config::EtcdConfig,
    error::{CallError, OpenError},
    keys::Keys,
    members::{About, Members},
    record::{self, Found},
    version::Version,
};

const PATIENCE: Duration = Duration::from_secs(3);

/// What is known of an etcd.
#[derive(Debug)]
pub struct EtcdStatus {
    /// Each address of `--store`, in its order.
    pub members: Vec<MemberStatus>,
    /// What is under the prefix; or why that cannot be read.
    pub data: Result<DataStatus, CallError>,
}

/// One member.
#[derive(Debug)]
pub struct MemberStatus {
    /// Its address.
    pub url: String,
    /// What it says of itself; or why it says nothing.
    pub said: Result<MemberFacts, CallError>,
}

/// What a member says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberFacts {
    /// Its version.
    pub version: String,
    /// Whether it leads.
    pub is_leader: bool,
    /// The size of its file.
    pub size_bytes: u64,
    /// Such as `NOSPACE`.
    pub alarms: Vec<String>,
    /// Whether it can be asked how far it is. Where it cannot, a read that comes after somebody
    /// else's write, outside the prefix, needs a write of ours.
    pub tells_progress: bool,
    /// How long it took to answer.
    pub answered: Duration,
}

/// What is under the prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DataStatus {
    /// Nothing: a server makes a new cluster there.
    Empty,
    /// Not Coracle's.
    Foreign,
    /// A cluster.
    Cluster {
        /// The fingerprint of its certificate authority.
        owner: String,
        /// The form of its data.
        version: u64,
    },
}

/// Asks every member, and one what is under the prefix.
///
/// # Errors
/// [`OpenError::Config`] for flags that cannot work.
pub async fn status(config: &EtcdConfig) -> Result<EtcdStatus, OpenError> {
    config.validate()?;
    let members = Members::new(&config.endpoints, &config.tls).await?;
    let mut told = Vec::with_capacity(members.all().len());
    for member in members.all() {
        let started = Instant::now();
        let said = match members.look_at(member, PATIENCE).await {
            Ok(_) => member.about(PATIENCE).await,
            Err(error) => Err(error),
        };
        told.push(MemberStatus {
            url: member.url.clone(),
            said: said.map(|about| facts(about, started.elapsed())),
        });
    }
    let keys = Keys::under(&config.prefix);
    let data = match told.iter().all(|member| member.said.is_err()) {
        // There is nobody to ask.
        true => Err(told.iter().find_map(|member| member.said.clone().err())),
        false => record::find(&keys, &members).await.map_err(Some),
    };
    let data = match data {
        Ok(Found::Nothing) => Ok(DataStatus::Empty),
        Ok(Found::Foreign) => Ok(DataStatus::Foreign),
        Ok(Found::Cluster(record)) => Ok(DataStatus::Cluster {
            owner: record.owner,
            version: record.data_version,
        }),
        Err(Some(error)) => Err(error),
        Err(None) => Ok(DataStatus::Empty),
    };
    Ok(EtcdStatus {
        members: told,
        data,
    })
}

fn facts(about: About, answered: Duration) -> MemberFacts {
    MemberFacts {
        tells_progress: Version::parse(&about.version).is_some_and(Version::tells_progress),
        version: about.version,
        is_leader: about.is_leader,
        size_bytes: about.size_bytes,
        alarms: about.alarms,
        answered,
    }
}
