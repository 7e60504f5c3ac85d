//! Whether a register could have behaved so: some order of its calls, each somewhere between its
//! request and its answer, in which a register with one state would have answered alike.
//!
//! The search is Wing's and Gong's with Lowe's rule: a call takes effect at the latest when its
//! answer is there, and nothing does earlier than it must. What is kept are all states that are
//! possible at a time, each with the calls under way that have taken effect in it. A call without
//! an answer stays under way to the end.
//!
//! Our own, because what there is does not fit: `todc-utils` knows no call without an answer and
//! has had no release since 2023, and `stateright` tries the orders of a short history one by one.
//!
//! Source: J. Wing, C. Gong, "Testing and verifying concurrent objects" (1993); G. Lowe, "Testing
//! for linearizability" (2016), just-in-time linearization.

use std::collections::{BTreeSet, HashSet};

use super::history::{Action, Call, Outcome};

/// So many states are looked at in one step, at most.
const MOST: usize = 200_000;

/// A register's value; `None` if there is no such object.
type Value = Option<u64>;

/// What may be the case at a time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Possible {
    value: Value,
    /// Calls under way that have taken effect.
    done: BTreeSet<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    /// Before answers of the same time: they are concurrent then.
    Asked,
    Answered,
}

/// Checks the calls of one register that is not there at first.
///
/// # Errors
/// The first call whose answer fits to no order, with what the register may have been before it.
pub fn check(calls: &[&Call]) -> Result<(), String> {
    let mut moments = Vec::new();
    for (number, call) in calls.iter().enumerate() {
        if call.outcome == Outcome::Unknown && call.action == Action::Get {
            continue;
        }
        moments.push((call.asked, Moment::Asked, number));
        if let (Some(at), true) = (call.answered, call.outcome != Outcome::Unknown) {
            moments.push((at, Moment::Answered, number));
        }
    }
    moments.sort_unstable();
    let mut open = BTreeSet::new();
    let mut possible = HashSet::from([Possible {
        value: None,
        done: BTreeSet::new(),
    }]);
    for (_, moment, number) in moments {
        match moment {
            Moment::Asked => {
                open.insert(number);
            }
            Moment::Answered => {
                let next = after(calls, &open, &possible, number)?;
                if next.is_empty() {
                    let values: BTreeSet<Value> = possible.iter().map(|one| one.value).collect();
                    return Err(format!(
                        "no order of calls explains {:?}; before it the register was one of {values:?}, or what these have made \
                         of it: {:?}",
                        calls[number],
                        open.iter().map(|number| calls[*number]).collect::<Vec<_>>()
                    ));
                }
                open.remove(&number);
                possible = next;
            }
        }
    }
    Ok(())
}

/// What may be the case when `answered` has taken effect.
fn after(
    calls: &[&Call],
    open: &BTreeSet<usize>,
    before: &HashSet<Possible>,
    answered: usize,
) -> Result<HashSet<Possible>, String> {
    let mut next = HashSet::new();
    let mut looked_at: HashSet<Possible> = before.clone();
    let mut to_look_at: Vec<Possible> = before.iter().cloned().collect();
    while let Some(one) = to_look_at.pop() {
        if one.done.contains(&answered) {
            let mut one = one;
            one.done.remove(&answered);
            next.insert(one);
            continue;
        }
        for number in open.difference(&one.done) {
            let Some(value) = effect(calls[*number], one.value) else {
                continue;
            };
            let mut then = one.clone();
            then.value = value;
            then.done.insert(*number);
            if looked_at.insert(then.clone()) {
                to_look_at.push(then);
            }
        }
        if looked_at.len() > MOST {
            return Err(format!(
                "too many calls under way to tell: {} at {:?}",
                open.len(),
                calls[answered]
            ));
        }
    }
    Ok(next)
}

/// What a register with `value` is after this call; `None` if it would have answered otherwise, or
/// if nothing comes of a call without an answer.
fn effect(call: &Call, value: Value) -> Option<Value> {
    let (is_met, next) = match call.action {
        Action::Get => return (call.outcome == Outcome::Read(value)).then_some(value),
        Action::Create { value: first } => (value.is_none(), Some(first)),
        Action::Update { from, to } => (value == Some(from), Some(to)),
        Action::Delete { from } => (value == Some(from), None),
    };
    match call.outcome {
        Outcome::Done | Outcome::Unknown => is_met.then_some(next),
        Outcome::Refused => (!is_met).then_some(value),
        Outcome::Read(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREATE: Action = Action::Create { value: 1 };
    const UPDATE: Action = Action::Update { from: 1, to: 2 };
    const DELETE: Action = Action::Delete { from: 1 };

    /// A call from `asked` to `answered`, which is 0 for never.
    fn call(asked: u64, answered: u64, action: Action, outcome: Outcome) -> Call {
        Call {
            client: 0,
            server: 0,
            key: "a".to_owned(),
            action,
            asked,
            answered: (answered > 0).then_some(answered),
            outcome,
            version: None,
        }
    }

    fn is_linearizable(calls: &[Call]) -> bool {
        check(&calls.iter().collect::<Vec<_>>()).is_ok()
    }

    fn read(asked: u64, answered: u64, value: Value) -> Call {
        call(asked, answered, Action::Get, Outcome::Read(value))
    }

    fn done(asked: u64, answered: u64, action: Action) -> Call {
        call(asked, answered, action, Outcome::Done)
    }

    fn refused(asked: u64, answered: u64, action: Action) -> Call {
        call(asked, answered, action, Outcome::Refused)
    }

    fn unknown(asked: u64, action: Action) -> Call {
        call(asked, 0, action, Outcome::Unknown)
    }

    #[test]
    fn what_one_register_does_is_accepted() {
        assert!(is_linearizable(&[
            read(1, 2, None),
            done(3, 4, CREATE),
            refused(5, 6, Action::Create { value: 9 }),
            read(5, 7, Some(1)),
            done(8, 9, UPDATE),
            refused(10, 11, UPDATE),
            refused(10, 12, DELETE),
            read(13, 14, Some(2)),
            done(15, 16, Action::Delete { from: 2 }),
            read(17, 18, None),
        ]));
    }

    #[test]
    fn who_reads_during_a_write_may_see_either() {
        for value in [None, Some(1)] {
            assert!(is_linearizable(&[done(1, 10, CREATE), read(2, 3, value)]));
        }
        // But not the new one, and then the old one.
        assert!(!is_linearizable(&[
            done(1, 10, CREATE),
            read(2, 3, Some(1)),
            read(4, 5, None)
        ]));
    }

    #[test]
    fn a_stale_read_is_refused() {
        assert!(!is_linearizable(&[
            done(1, 2, CREATE),
            done(3, 4, UPDATE),
            read(5, 6, Some(1))
        ]));
        assert!(!is_linearizable(&[done(1, 2, CREATE), read(3, 4, None)]));
        assert!(!is_linearizable(&[
            done(1, 2, CREATE),
            done(3, 4, DELETE),
            read(5, 6, Some(1))
        ]));
    }

    #[test]
    fn a_lost_update_is_refused() {
        // Two who both read 1 cannot both have replaced it.
        let other = Action::Update { from: 1, to: 3 };
        assert!(!is_linearizable(&[
            done(1, 2, CREATE),
            done(3, 6, UPDATE),
            done(4, 7, other)
        ]));
        // An acknowledged write is there.
        assert!(!is_linearizable(&[
            done(1, 2, CREATE),
            done(3, 4, UPDATE),
            read(5, 6, None)
        ]));
    }

    #[test]
    fn a_write_that_takes_effect_twice_is_refused() {
        let again = Action::Update { from: 2, to: 1 };
        assert!(!is_linearizable(&[
            done(1, 2, CREATE),
            done(3, 4, UPDATE),
            done(5, 6, again),
            read(7, 8, Some(1)),
            read(9, 10, Some(2)),
        ]));
        assert!(!is_linearizable(&[
            unknown(1, CREATE),
            read(2, 3, Some(1)),
            done(4, 5, DELETE),
            read(6, 7, Some(1)),
        ]));
    }

    #[test]
    fn an_unknown_write_may_take_effect_at_any_later_time_or_never() {
        for later in [None, Some(1)] {
            assert!(is_linearizable(&[
                unknown(1, CREATE),
                read(2, 3, None),
                read(4, 5, None),
                read(6, 7, later),
            ]));
        }
        // Nobody wrote that.
        assert!(!is_linearizable(&[unknown(1, CREATE), read(2, 3, Some(7))]));
        // Not before it was asked for.
        assert!(!is_linearizable(&[read(1, 2, Some(1)), unknown(3, CREATE)]));
    }

    #[test]
    fn a_wrong_refusal_is_refused() {
        assert!(!is_linearizable(&[refused(1, 2, CREATE)]));
        assert!(!is_linearizable(&[
            done(1, 2, CREATE),
            refused(3, 4, UPDATE)
        ]));
        // Its own first try has made it: told as a refusal, a retry inside the server shows here.
        assert!(!is_linearizable(&[
            refused(1, 4, CREATE),
            read(5, 6, Some(1))
        ]));
    }

    #[test]
    fn many_unknown_calls_are_no_burden() {
        let mut calls = Vec::new();
        let mut value = 1;
        calls.push(done(1, 2, Action::Create { value }));
        for round in 0..2000 {
            let at = 10 + 10 * round;
            calls.push(unknown(
                at,
                Action::Update {
                    from: value,
                    to: value + 1,
                },
            ));
            calls.push(unknown(at, Action::Create { value: value + 2 }));
            calls.push(read(at + 1, at + 2, Some(value)));
            calls.push(done(
                at + 3,
                at + 9,
                Action::Update {
                    from: value,
                    to: value + 3,
                },
            ));
            value += 3;
        }
        assert!(is_linearizable(&calls));
        calls.push(read(1_000_000, 1_000_001, Some(value - 3)));
        assert!(!is_linearizable(&calls));
    }
}
