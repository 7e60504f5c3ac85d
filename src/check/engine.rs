//! What the rules of Services and of the node itself are kept over, and what that needs.

use coracle_agent::config::ProxyMode;

use super::{
    Finding, Level, finding, kernel_option,
    machine::Machine,
    needs::{IPTABLES_OPTIONS, NFTABLES_OPTIONS, PROGRAMS},
};

/// Tells the engine, and what is there of what it needs.
pub(super) fn findings(machine: &Machine, mode: ProxyMode) -> Vec<Finding> {
    let engine = engine(machine, mode);
    let mut findings = vec![told(machine, mode, engine)];
    // What the kernel has just taken it has the options for.
    if machine.nftables != Some(Ok(())) && mode != ProxyMode::Iptables {
        let wanted = engine == Engine::Nftables;
        let options = NFTABLES_OPTIONS.iter();
        findings.extend(options.map(|&(option, needed, purpose)| {
            kernel_option(machine, &(option, needed && wanted, purpose))
        }));
    }
    match engine {
        Engine::Iptables => {
            let options = IPTABLES_OPTIONS.iter();
            findings.extend(options.map(|option| kernel_option(machine, option)));
            findings.extend(PROGRAMS.iter().map(|&(program, package)| {
                let is_there = machine.programs.contains(program);
                let advice = || format!("apt-get install {package}");
                finding(is_there, true, format!("program {program}"), advice)
            }));
        }
        Engine::Nftables => findings.extend(left_to_iptables(machine)),
    }
    findings
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Engine {
    Iptables,
    Nftables,
}

/// As an agent chooses. Whoever may not ask the kernel goes by its options.
fn engine(machine: &Machine, mode: ProxyMode) -> Engine {
    let has_options = || {
        let config = machine.kernel_config.as_ref();
        let has = |option: &str| config.is_none_or(|config| config.contains_key(option));
        NFTABLES_OPTIONS
            .iter()
            .all(|&(option, needed, _)| !needed || has(option))
    };
    let is_nftables = match (mode, &machine.nftables) {
        (ProxyMode::Nftables, _) => true,
        (ProxyMode::Iptables, _) => false,
        (ProxyMode::Auto, Some(taken)) => taken.is_ok(),
        (ProxyMode::Auto, None) => has_options(),
    };
    if is_nftables {
        Engine::Nftables
    } else {
        Engine::Iptables
    }
}

fn told(machine: &Machine, mode: ProxyMode, engine: Engine) -> Finding {
    let rules = |engine| format!("rules of Services and of the node over {engine}");
    let told = |level, what, advice: &str| Finding {
        level,
        what,
        advice: advice.to_owned(),
    };
    let kernel = "use a kernel with nftables (CONFIG_NF_TABLES and the options below)";
    match (engine, &machine.nftables) {
        (_, None) => {
            let engine = match engine {
                Engine::Iptables => "iptables",
                Engine::Nftables => "nftables",
            };
            let advice =
                "as far as it is seen without CAP_NET_ADMIN: run as root to ask the kernel";
            told(Level::Warn, rules(engine), advice)
        }
        (Engine::Nftables, Some(Ok(()))) => told(Level::Ok, rules("nftables"), ""),
        (Engine::Nftables, Some(Err(why))) => {
            let what = format!(
                "{}, which the kernel does not take: {why}",
                rules("nftables")
            );
            let advice = format!("{kernel}, or --proxy-mode auto");
            told(Level::Fail, what, &advice)
        }
        (Engine::Iptables, Some(Ok(()))) => told(Level::Ok, rules("iptables"), ""),
        (Engine::Iptables, Some(Err(why))) => {
            let what = format!(
                "{}, as the kernel does not take nftables' tables: {why}",
                rules("iptables")
            );
            let advice = match mode {
                ProxyMode::Iptables => "pods that NetworkPolicies select do not start: use a kernel with nftables (CONFIG_NF_TABLES)".to_owned(),
                ProxyMode::Auto | ProxyMode::Nftables => {
                    format!("works, but pods that NetworkPolicies select do not start: {kernel}")
                }
            };
            told(Level::Warn, what, &advice)
        }
    }
}

/// Beside nftables the program is needed for what is in iptables' own tables, and for that alone.
fn left_to_iptables(machine: &Machine) -> Option<Finding> {
    let is_installed = PROGRAMS
        .iter()
        .all(|(program, _)| machine.programs.contains(program));
    if is_installed || !machine.has_rules_in_iptables {
        return None;
    }
    let what = "rules of an earlier run in iptables' tables".to_owned();
    Some(finding(false, false, what, || {
        "they stay as they are without the program: apt-get install iptables until the agent has taken them away".to_owned()
    }))
}

#[cfg(test)]
mod tests {
    use super::{super::tests::complete, *};

    type Spoil = fn(&mut Machine);

    fn without_programs(machine: &mut Machine) {
        machine.programs.clear();
    }

    fn refused(machine: &mut Machine) {
        machine.nftables = Some(Err("Operation not supported".to_owned()));
    }

    fn unasked(machine: &mut Machine) {
        machine.nftables = None;
    }

    fn without(machine: &mut Machine, option: &str) {
        if let Some(config) = &mut machine.kernel_config {
            config.remove(option);
        }
    }

    /// What is not as it should be, by level and a part of what is said.
    #[track_caller]
    fn check(mode: ProxyMode, spoil: &[Spoil], expected: &[(Level, &str)]) {
        let mut machine = complete();
        for one in spoil {
            one(&mut machine);
        }
        let found = findings(&machine, mode);
        let found: Vec<_> = found.iter().filter(|one| one.level != Level::Ok).collect();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (one, (level, part)) in found.iter().zip(expected) {
            assert_eq!(one.level, *level, "{one:?}");
            let said = format!("{} - {}", one.what, one.advice);
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    #[test]
    fn iptables_is_needed_where_it_keeps_the_rules() {
        use ProxyMode::{Auto, Iptables, Nftables};
        let restore = (
            Level::Fail,
            "program iptables-restore - apt-get install iptables",
        );
        let save = (
            Level::Fail,
            "program iptables-save - apt-get install iptables",
        );
        check(Auto, &[without_programs], &[]);
        check(Nftables, &[without_programs], &[]);
        check(Iptables, &[without_programs], &[restore, save]);
        let falls_back = (
            Level::Warn,
            "over iptables, as the kernel does not take nftables' tables: Operation not supported",
        );
        check(Auto, &[refused], &[falls_back]);
        check(
            Auto,
            &[refused, without_programs],
            &[falls_back, restore, save],
        );
        let statistic: Spoil = |machine| without(machine, "NETFILTER_XT_MATCH_STATISTIC");
        check(Auto, &[statistic], &[]);
        check(
            Iptables,
            &[statistic],
            &[(Level::Fail, "CONFIG_NETFILTER_XT_MATCH_STATISTIC=y")],
        );
    }

    #[test]
    fn nftables_that_is_asked_for_has_to_be_there() {
        let refusal = (Level::Fail, "or --proxy-mode auto");
        check(ProxyMode::Nftables, &[refused], &[refusal]);
        let numgen: Spoil = |machine| without(machine, "NFT_NUMGEN");
        let lacks = (Level::Fail, "CONFIG_NFT_NUMGEN=y");
        check(ProxyMode::Nftables, &[refused, numgen], &[refusal, lacks]);
        // Policies are nftables' in any case.
        let policies = (Level::Warn, "pods that NetworkPolicies select do not start");
        check(ProxyMode::Iptables, &[refused], &[policies]);
    }

    #[test]
    fn who_may_not_ask_the_kernel_goes_by_its_options() {
        let guess = |engine| (Level::Warn, engine);
        check(
            ProxyMode::Auto,
            &[unasked, without_programs],
            &[guess("over nftables - as far as it is seen")],
        );
        let numgen: Spoil = |machine| without(machine, "NFT_NUMGEN");
        let expected = [
            guess("over iptables - as far as it is seen"),
            (Level::Warn, "NFT_NUMGEN"),
        ];
        check(ProxyMode::Auto, &[unasked, numgen], &expected);
    }

    #[test]
    fn what_nobody_can_take_from_iptables_is_told() {
        let left: Spoil = |machine| machine.has_rules_in_iptables = true;
        check(ProxyMode::Auto, &[left], &[]);
        let stays = (Level::Warn, "apt-get install iptables until");
        check(ProxyMode::Auto, &[left, without_programs], &[stays]);
    }
}
