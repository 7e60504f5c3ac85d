//! What is known of the etcd that `--store` names.

use coracle_controlplane::etcd::{
    EtcdConfig,
    status::{DataStatus, EtcdStatus, MemberFacts, MemberStatus, status},
};
use coracle_telemetry::ErrorChain;

use super::{Finding, Level};

/// Asks every member. Nothing is written.
pub(super) fn findings(config: &EtcdConfig) -> anyhow::Result<Vec<Finding>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    Ok(judge(&config.prefix, &runtime.block_on(status(config))?))
}

fn judge(prefix: &str, status: &EtcdStatus) -> Vec<Finding> {
    let mut findings: Vec<Finding> = status.members.iter().map(member).collect();
    let running = status.members.iter().filter(|member| member.said.is_ok());
    findings.push(members(running.count(), status.members.len()));
    findings.push(data(prefix, status));
    findings
}

fn member(member: &MemberStatus) -> Finding {
    let facts = match &member.said {
        Ok(facts) => facts,
        Err(error) => {
            return Finding {
                level: Level::Warn,
                what: format!("etcd {}", member.url),
                advice: ErrorChain(error).to_string(),
            };
        }
    };
    let MemberFacts {
        version,
        is_leader,
        size_bytes,
        alarms,
        tells_progress,
        answered,
    } = facts;
    let role = if *is_leader { "leader" } else { "follower" };
    let what = format!(
        "etcd {} {version}, {role}, {:.1} MB, answered in {} ms",
        member.url,
        *size_bytes as f64 / 1e6,
        answered.as_millis()
    );
    let (level, advice) = if !alarms.is_empty() {
        (
            Level::Fail,
            format!(
                "alarm {}: nothing is written until it is disarmed; compact, defragment, raise --quota-backend-bytes",
                alarms.join(", ")
            ),
        )
    } else if !tells_progress {
        (
            Level::Warn,
            "give Coracle an etcd of its own, or 3.4.31, 3.5.13 or later: where others write too, reads cost a write"
                .to_owned(),
        )
    } else {
        (Level::Ok, String::new())
    };
    Finding {
        level,
        what,
        advice,
    }
}

/// The server balances nothing: one that answers will do. Etcd itself needs more than half.
fn members(running: usize, named: usize) -> Finding {
    let what = format!("{running} of {named} named members of etcd answer");
    let (level, advice) = match (running, named) {
        (0, _) => (Level::Fail, "start etcd, or mend what each line above says"),
        (1, 1) => (
            Level::Warn,
            "name three members: with one, etcd's end is the cluster's",
        ),
        (running, named) if running < named => (Level::Warn, "start the others"),
        _ => (Level::Ok, ""),
    };
    Finding {
        level,
        what,
        advice: advice.to_owned(),
    }
}

fn data(prefix: &str, status: &EtcdStatus) -> Finding {
    let (level, what, advice) = match &status.data {
        Ok(DataStatus::Empty) => (
            Level::Ok,
            "is empty: a server makes a new cluster there".to_owned(),
            String::new(),
        ),
        Ok(DataStatus::Cluster { owner, version }) => {
            let owner = owner.get(..12).unwrap_or(owner);
            (
                Level::Ok,
                format!(
                    "holds the cluster with certificate authority {owner}, data version {version}"
                ),
                String::new(),
            )
        }
        Ok(_) => (
            Level::Fail,
            "holds data of something else".to_owned(),
            "choose another --etcd-prefix".to_owned(),
        ),
        Err(error) => (
            Level::Fail,
            "cannot be read".to_owned(),
            ErrorChain(error).to_string(),
        ),
    };
    Finding {
        level,
        what: format!("{prefix} in etcd {what}"),
        advice,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn facts() -> MemberFacts {
        MemberFacts {
            version: "3.5.21".to_owned(),
            is_leader: true,
            size_bytes: 2_500_000,
            alarms: Vec::new(),
            tells_progress: true,
            answered: Duration::from_millis(2),
        }
    }

    fn judged(facts: MemberFacts, data: DataStatus) -> Vec<Finding> {
        let member = |number: u8| MemberStatus {
            url: format!("http://127.0.0.{number}:2379"),
            said: Ok(facts.clone()),
        };
        let status = EtcdStatus {
            members: (1..=3).map(member).collect(),
            data: Ok(data),
        };
        judge("/coracle", &status)
    }

    #[test]
    fn a_sound_etcd_is_told_in_figures() {
        let cluster = DataStatus::Cluster {
            owner: "0123456789abcdef".to_owned(),
            version: 1,
        };
        let found = judged(facts(), cluster);
        assert!(
            found.iter().all(|finding| finding.level == Level::Ok),
            "{found:?}"
        );
        assert_eq!(
            found[0].what,
            "etcd http://127.0.0.1:2379 3.5.21, leader, 2.5 MB, answered in 2 ms"
        );
        assert_eq!(
            found[4].what,
            "/coracle in etcd holds the cluster with certificate authority 0123456789ab, data version 1"
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_what_to_do() {
        let full = MemberFacts {
            alarms: vec!["NOSPACE".to_owned()],
            ..facts()
        };
        let found = judged(full, DataStatus::Empty);
        assert_eq!(found[0].level, Level::Fail);
        assert!(found[0].advice.contains("disarmed"), "{}", found[0].advice);
        let old = MemberFacts {
            tells_progress: false,
            ..facts()
        };
        assert_eq!(judged(old, DataStatus::Empty)[0].level, Level::Warn);
        let foreign = judged(facts(), DataStatus::Foreign);
        assert!(foreign[4].advice.contains("--etcd-prefix"));
        assert_eq!(members(0, 3).level, Level::Fail);
        assert_eq!(members(2, 3).level, Level::Warn);
        assert_eq!(members(1, 1).level, Level::Warn);
    }
}
