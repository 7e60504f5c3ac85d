//! A profile: how pods of one `schedulerName` are placed.

use super::{ConfigError, DEFAULT_SCHEDULER, arguments::Arguments, file, points::Points};

/// How pods of one `schedulerName` are placed.
#[derive(Debug, Clone)]
pub(crate) struct Profile {
    pub(crate) name: String,
    pub(crate) points: Points,
    pub(crate) arguments: Arguments,
    /// Of which share of the nodes one that fits is enough; `None`: by how many there are.
    pub(crate) percent_of_nodes: Option<usize>,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            name: DEFAULT_SCHEDULER.to_owned(),
            points: Points::default(),
            arguments: Arguments::default(),
            percent_of_nodes: None,
        }
    }
}

impl Profile {
    /// `percent` is what is said for all profiles.
    pub(super) fn of(
        written: &file::Profile,
        percent: Option<i32>,
        place: &str,
    ) -> Result<Self, ConfigError> {
        let name = written
            .scheduler_name
            .as_deref()
            .unwrap_or(DEFAULT_SCHEDULER);
        if name.is_empty() {
            return Err(ConfigError::at(
                format!("{place}.schedulerName"),
                "Required value",
            ));
        }
        let percent = written.percentage_of_nodes_to_score.or(percent);
        let percent = match percent {
            None | Some(0) => None,
            Some(percent @ 1..=100) => usize::try_from(percent).ok(),
            Some(percent) => {
                let why = format!("Invalid value: {percent}: not in valid range [0-100]");
                return Err(ConfigError::at("percentageOfNodesToScore", why));
            }
        };
        Ok(Self {
            name: name.to_owned(),
            points: Points::of(&written.plugins, place)?,
            arguments: Arguments::of(&written.plugin_config, place)?,
            percent_of_nodes: percent,
        })
    }
}
