//! The limits of a cgroup, in the files of v1 and of v2.

use std::fs;

use super::{Hierarchies, Resources, RuntimeError, state};

impl Hierarchies {
    /// Changes the limits of a cgroup in use. What is absent becomes unlimited.
    ///
    /// Below what is in use memory is not limited: v2 would kill for it, v1 would refuse in fewer
    /// words.
    pub(in crate::runtime) fn update(
        &self,
        path: &str,
        resources: &Resources,
    ) -> Result<(), RuntimeError> {
        let used = self.stats(path).memory_working_set_bytes;
        let limit = resources
            .memory_limit_bytes
            .and_then(|limit| u64::try_from(limit).ok());
        if let Some(limit) = limit.filter(|limit| *limit < used) {
            let message =
                format!("attempting to set memory limits ({limit}) below current usage ({used})");
            return Err(RuntimeError::InvalidConfig { message });
        }
        let explicit = Resources {
            cpu_quota_us: resources.cpu_quota_us.or(Some(-1)),
            memory_limit_bytes: resources.memory_limit_bytes.or(Some(-1)),
            ..resources.clone()
        };
        self.write_limits(path.trim_matches('/'), &explicit)
    }

    /// Writes what is named; what is absent stays as it is.
    pub(super) fn write_limits(
        &self,
        relative: &str,
        resources: &Resources,
    ) -> Result<(), RuntimeError> {
        for (file, value) in self.limits(resources) {
            let target = match self.is_v2() {
                true => self
                    .unified
                    .as_ref()
                    .map(|point| point.join(relative).join(file)),
                false => {
                    let controller = file.split('.').next().unwrap_or("");
                    self.v1_point(controller)
                        .map(|point| point.join(relative).join(file))
                }
            };
            // A controller that the node lacks limits nothing: `coracle check` says so.
            if let Some(target) = target.filter(|target| target.exists()) {
                fs::write(&target, &value)
                    .map_err(|source| state("write the limit", target, source))?;
            }
        }
        Ok(())
    }

    fn limits(&self, resources: &Resources) -> Vec<(&'static str, String)> {
        let mut out = Vec::new();
        let period = resources.cpu_period_us.unwrap_or(100_000);
        if self.is_v2() {
            if let Some(shares) = resources.cpu_shares {
                out.push(("cpu.weight", weight(shares).to_string()));
            }
            if let Some(quota) = resources.cpu_quota_us {
                let quota = if quota > 0 {
                    quota.to_string()
                } else {
                    "max".to_owned()
                };
                out.push(("cpu.max", format!("{quota} {period}")));
            }
            if let Some(limit) = resources.memory_limit_bytes {
                out.push((
                    "memory.max",
                    if limit > 0 {
                        limit.to_string()
                    } else {
                        "max".to_owned()
                    },
                ));
            }
        } else {
            if let Some(shares) = resources.cpu_shares {
                out.push(("cpu.shares", shares.clamp(2, 262_144).to_string()));
            }
            if let Some(quota) = resources.cpu_quota_us {
                out.push(("cpu.cfs_period_us", period.to_string()));
                // In v1 -1 itself stands for no limit.
                out.push(("cpu.cfs_quota_us", quota.to_string()));
            }
            if let Some(limit) = resources.memory_limit_bytes {
                out.push(("memory.limit_in_bytes", limit.to_string()));
            }
        }
        if let Some(limit) = resources.pids_limit {
            out.push((
                "pids.max",
                if limit > 0 {
                    limit.to_string()
                } else {
                    "max".to_owned()
                },
            ));
        }
        out
    }
}

/// `cpu.shares` (2 to 262144) as `cpu.weight` (1 to 10000), by the formula of Kubernetes (KEP
/// 2254).
fn weight(shares: u64) -> u64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9999 / 262_142
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_become_weight_as_kubernetes_converts_them() {
        for (shares, expected) in [
            (2, 1),
            (1024, 39),
            (262_144, 10_000),
            (0, 1),
            (1_000_000, 10_000),
        ] {
            assert_eq!(weight(shares), expected, "{shares}");
        }
    }
}
