//! Three members of etcd and three servers that are killed, stopped and cut off at random, one
//! machine a round, under clients that write, watch and give controllers work, and under nodes that
//! run pods. Nothing acknowledged is lost, nothing happens twice, nodes stay Ready, and what every
//! client saw is what one register would have shown.
//!
//! `FAULT_ROUNDS=200` runs the whole of it (half an hour), `FAULT_SEED` repeats a run.

#[path = "faults/steady.rs"]
mod steady;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::{Duration, SystemTime},
};

use coracle_tests::{
    faults::{
        claims,
        history::{self, Action, Call, Clock, Facts, Micros, Object, Outcome, Record},
        linearizable, nodes,
        plan::{self, Fault, Part, Round},
        streams::{self, Verdict},
    },
    is_root_or_skip,
    machines::{CLIENTS, Machines, Plan},
    process::Process,
    several, wait,
};

const MACHINES: u8 = 3;
const NODES: u8 = 2;
/// As many as fit into a minute and a half.
const ROUNDS: usize = 6;
/// Between two rounds.
const CALM: Duration = Duration::from_secs(2);
/// Until the clients have something to do, and until they have listed all at the end.
const CLIENTS_DEADLINE: Duration = Duration::from_secs(240);
/// With one machine of three at fault for so long, somebody's writes must be acknowledged.
const OUTLASTS_ELECTIONS: Duration = Duration::from_secs(15);
/// A server that was started so long ago may still be asked for what was before its start.
const AFTER_A_START: Micros = 60_000_000;
/// From so many revisions before its start on, a server's cache knows what happened.
const WARM_REVISIONS: u64 = 1000;
/// As `fault_clients` scales it at the end.
const PODS_AT_THE_END: usize = 4;
/// Few addresses, so that servers that gave one out twice would soon do so.
const FEW_ADDRESSES: [&str; 2] = ["--service-cidr", "10.96.0.0/24"];

/// When a part failed, and when it was whole again.
#[derive(Debug, Clone, Copy)]
struct Failed {
    round: Round,
    from: Micros,
    to: Micros,
}

#[test]
fn nothing_acknowledged_is_lost_while_servers_and_members_fail() {
    if !is_root_or_skip() {
        return;
    }
    let count =
        number("FAULT_ROUNDS").map_or(ROUNDS, |count| usize::try_from(count).expect("a count"));
    let seed = number("FAULT_SEED").unwrap_or_else(now_as_seed);
    eprintln!("FAULT_ROUNDS={count} FAULT_SEED={seed}");
    let mut machines = Machines::start(Plan {
        machines: MACHINES,
        nodes: NODES,
        server_flags: FEW_ADDRESSES.map(str::to_owned).to_vec(),
        ..Plan::default()
    });
    steady::start(&machines);
    let history = machines.site.dir().join("history");
    let stop = machines.site.dir().join("stop");
    let mut clients = start_clients(&machines, seed, &history, &stop);
    let mut failed = Vec::new();
    let clock = Clock::start();
    for (index, round) in plan::rounds(seed, count, usize::from(MACHINES))
        .iter()
        .enumerate()
    {
        let round = &aimed(&machines, *round);
        let from = clock.now();
        machines.fail(round);
        pass(round.lasts);
        machines.mend(round);
        let to = clock.now();
        machines.wait_all_ready();
        let Round {
            machine,
            part,
            fault,
            lasts,
        } = round;
        let ready = Duration::from_micros(clock.now() - to);
        eprintln!(
            "round {:3}: {fault:?} {part:?} {machine} for {:.1} s, all ready {:.1} s after it",
            index + 1,
            lasts.as_secs_f32(),
            ready.as_secs_f32()
        );
        failed.push(Failed {
            round: *round,
            from,
            to,
        });
        assert!(
            clients.ended().is_none(),
            "the clients ended: {}",
            clients.output()
        );
        pass(CALM);
    }
    std::fs::write(&stop, "").expect("tell the clients");
    let ended = wait::until("the clients have ended", CLIENTS_DEADLINE, || {
        clients.ended().ok_or("they run")
    });
    assert!(ended.success(), "{ended}: {}", clients.output());
    let records = history::read(&history).expect("a history");
    judge(&records, &failed);
    steady::each_has_started_once(&machines);
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text}: expected a number")),
    )
}

fn now_as_seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(1, |now| u64::from(now.subsec_nanos()))
}

/// A round that ends somebody's leading is the leader's.
fn aimed(machines: &Machines, round: Round) -> Round {
    if !round.ends_leading() {
        return round;
    }
    let holder = machines.kubectl(0).ok(several::HOLDER);
    let machine = machines
        .all
        .iter()
        .position(|machine| holder.split('_').next() == Some(&machine.name));
    Round {
        machine: machine.unwrap_or(round.machine),
        ..round
    }
}

/// Lets time pass: a fault lasts.
fn pass(time: Duration) {
    wait::quietly(time, || None::<()>);
}

fn start_clients(machines: &Machines, seed: u64, history: &Path, stop: &Path) -> Process {
    let mut command = machines
        .site
        .command(CLIENTS, env!("CARGO_BIN_EXE_fault_clients"));
    command.arg(seed.to_string()).arg(history).arg(stop);
    command.args((0..usize::from(MACHINES)).map(|number| machines.kubeconfig(number)));
    for name in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"] {
        command.env_remove(name);
    }
    let mut clients = Process::start(command, &machines.site.dir().join("clients.log"));
    wait::until("the clients work", CLIENTS_DEADLINE, || {
        let ended = clients.ended();
        assert!(ended.is_none(), "{ended:?}: {}", clients.output());
        let written = std::fs::metadata(history).map_or(0, |file| file.len());
        if written > 0 {
            Ok(())
        } else {
            Err(clients.output())
        }
    });
    clients
}

/// Everything that must hold of a history.
fn judge(records: &[Record], failed: &[Failed]) {
    let odd = records.iter().filter_map(|record| match record {
        Record::Odd(what) => Some(what.clone()),
        _ => None,
    });
    let mut problems: Vec<String> = odd.collect();
    let verdict = streams::check(records);
    problems.extend(verdict.problems.iter().cloned());
    problems.extend(history::versions_out_of_order(records));
    problems.extend(registers(records));
    problems.extend(gone(records, failed));
    problems.extend(standing_still(records, failed));
    problems.extend(cluster(records, &verdict));
    let calls = |outcome: fn(&Outcome) -> bool| {
        let calls = records
            .iter()
            .filter(|record| matches!(record, Record::Call(call) if outcome(&call.outcome)));
        calls.count()
    };
    eprintln!(
        "{} reads, {} writes acknowledged, {} refused, {} unknown; {} registers; {} events, {} watches begun anew",
        calls(|outcome| matches!(outcome, Outcome::Read(_))),
        calls(|outcome| *outcome == Outcome::Done),
        calls(|outcome| *outcome == Outcome::Refused),
        calls(|outcome| *outcome == Outcome::Unknown),
        history::by_key(records).len(),
        verdict.events,
        verdict.gone,
    );
    let shown = problems
        .iter()
        .take(20)
        .map(String::as_str)
        .collect::<Vec<_>>();
    assert!(
        problems.is_empty(),
        "{} problems:\n{}",
        problems.len(),
        shown.join("\n")
    );
}

/// Each register, with what every server listed of it at the end as a last read.
fn registers(records: &[Record]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut keys: BTreeMap<&str, Vec<Call>> = BTreeMap::new();
    for (key, calls) in history::by_key(records) {
        keys.insert(key, calls.into_iter().cloned().collect());
    }
    let all = keys.values().flatten();
    let over = all
        .map(|call| call.answered.unwrap_or(call.asked))
        .max()
        .unwrap_or_default()
        + 1;
    for (server, objects) in last_lists(records, "ConfigMap") {
        let mut found: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for object in objects {
            if let Facts::Register { key, value } = &object.facts {
                found.entry(key).or_default().push(*value);
            }
        }
        for (key, calls) in &mut keys {
            let values = found.remove(key).unwrap_or_default();
            if values.len() > 1 {
                problems.push(format!("{key} is there {} times: {values:?}", values.len()));
            }
            calls.push(Call {
                client: usize::MAX,
                server,
                key: (*key).to_owned(),
                action: Action::Get,
                asked: over,
                answered: Some(over),
                outcome: Outcome::Read(values.first().copied()),
                version: None,
            });
        }
        problems.extend(found.keys().map(|key| format!("nobody made {key}")));
    }
    let checked = keys
        .values()
        .map(|calls| linearizable::check(&calls.iter().collect::<Vec<_>>()));
    problems.extend(checked.filter_map(Result::err));
    problems
}

/// What every server listed at the end.
fn last_lists<'a>(records: &'a [Record], kind: &str) -> BTreeMap<usize, &'a [Object]> {
    let lists = records.iter().filter_map(|record| match record {
        Record::Compared(list) if list.kind == kind => Some((list.server, &*list.objects)),
        _ => None,
    });
    let lists: BTreeMap<usize, &[Object]> = lists.collect();
    assert_eq!(
        lists.len(),
        usize::from(MACHINES),
        "each server lists {kind}"
    );
    lists
}

/// A watch is told that its version is too old once that is compacted, which nothing is so soon;
/// or by a server that has just been started, whose cache begins some revisions before that.
fn gone(records: &[Record], failed: &[Failed]) -> Vec<String> {
    let was_started = |server: usize, at: Micros| {
        let mut starts = failed.iter().filter(|failed| {
            let Round {
                machine,
                part,
                fault,
                ..
            } = failed.round;
            (machine, fault) == (server, Fault::Kill) && part != Part::Etcd
        });
        starts.any(|failed| failed.to < at && at < failed.to + AFTER_A_START)
    };
    let mut problems = Vec::new();
    for (index, record) in records.iter().enumerate() {
        let Record::Gone(gone) = record else { continue };
        let next = records[index..].iter().find_map(|record| match record {
            Record::Listed(list) if (list.server, &list.kind) == (gone.server, &gone.kind) => {
                Some(list.version)
            }
            _ => None,
        });
        let is_far = next.is_none_or(|next| next > gone.version + WARM_REVISIONS);
        if !is_far || !was_started(gone.server, gone.at) {
            problems.push(format!(
                "410 although nothing is compacted: {gone:?}, listed at {next:?}"
            ));
        }
    }
    problems
}

/// Long rounds in which nothing was acknowledged, although two machines of three were sound.
fn standing_still(records: &[Record], failed: &[Failed]) -> Vec<String> {
    let done = |from: Micros, to: Micros| {
        records.iter().any(|record| matches!(record, Record::Call(call)
            if call.outcome == Outcome::Done && from < call.asked && call.answered.is_some_and(|at| at < to)))
    };
    let long = failed
        .iter()
        .filter(|failed| failed.round.lasts >= OUTLASTS_ELECTIONS);
    long.filter(|failed| !done(failed.from, failed.to))
        .map(|failed| format!("no write was acknowledged in {failed:?}"))
        .collect()
}

/// What controllers and addresses look like, all the time and at the end.
fn cluster(records: &[Record], verdict: &Verdict) -> Vec<String> {
    let none = streams::Changes::new();
    let changes = |kind: &str| verdict.changes.get(kind).unwrap_or(&none);
    let (mut problems, acquisitions) = claims::leaders(changes("Lease"));
    let (twice, given) = claims::addresses(&verdict.first["Service"], changes("Service"));
    problems.extend(twice);
    let mut pods = BTreeSet::new();
    for (server, objects) in last_lists(records, "Pod") {
        let alive = objects.iter().filter(|pod| {
            matches!(
                &pod.facts,
                Facts::Pod {
                    is_going: false,
                    owner,
                    ..
                } if !owner.is_empty()
            )
        });
        let names: Vec<&str> = alive.map(|pod| &*pod.name).collect();
        if names.len() != PODS_AT_THE_END {
            problems.push(format!(
                "server {server} has {} pods at the end: {names:?}",
                names.len()
            ));
        }
        pods.insert(names);
    }
    if pods.len() != 1 {
        problems.push(format!("the servers have different pods: {pods:?}"));
    }
    let (wrong, ran) = nodes::pods(changes("Pod"));
    problems.extend(wrong);
    problems.extend(nodes::lost(changes("Node")));
    eprintln!(
        "Leases changed hands {acquisitions} times; {given} addresses and ports given out; {} pods of one owner at a time \
         at most, {ran} have run",
        claims::most_pods(changes("Pod"))
    );
    problems
}
