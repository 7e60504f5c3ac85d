//! Takes all rules of one owner away.

use std::{thread, time::Duration};

use super::{
    Iptables, IptablesError,
    plan::{self, Chains},
};

/// After a try that was refused; so many tries follow the first.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
];

impl Iptables {
    /// Removes every chain whose name starts with `prefix`, and every rule that leads there, from
    /// `tables`.
    ///
    /// # Errors
    /// [`IptablesError`]; tables before the one that failed are clean.
    pub fn remove_all(&self, tables: &[&str], prefix: &str) -> Result<(), IptablesError> {
        for table in tables {
            let left = || Ok(removal(table, &plan::parse(&self.save(table)?), prefix));
            let is_gone = until_gone(left, |text| self.restore(text), PAUSES)?;
            if !is_gone {
                let table = (*table).to_owned();
                return Err(IptablesError::Rewritten { table });
            }
        }
        Ok(())
    }
}

/// A program that an ended agent had started may still be writing: it makes what is gone again, or
/// takes away what is listed. So it is looked again until nothing is left; not for ever, as one
/// that has not ended makes it again each time. Says whether all is gone.
#[expect(clippy::disallowed_methods, reason = "callers block anyway")]
fn until_gone(
    left: impl Fn() -> Result<String, IptablesError>,
    mut remove: impl FnMut(&str) -> Result<(), IptablesError>,
    pauses: impl IntoIterator<Item = Duration>,
) -> Result<bool, IptablesError> {
    let mut pauses = pauses.into_iter();
    loop {
        let text = left()?;
        if text.is_empty() {
            return Ok(true);
        }
        match (remove(&text), pauses.next()) {
            (Ok(()), Some(_)) => {}
            (Ok(()), None) => return Ok(left()?.is_empty()),
            (Err(_), Some(pause)) => thread::sleep(pause),
            (Err(error), None) => return Err(error),
        }
    }
}

/// The transaction that removes every such chain of a table, and every rule that leads there; empty
/// if there is none.
fn removal(table: &str, chains: &Chains, prefix: &str) -> String {
    let own = |name: &str| name.starts_with(prefix);
    let leads_to_own = |rule: &str| {
        let mut words = rule
            .split(' ')
            .skip_while(|word| *word != "-j" && *word != "-g");
        words.nth(1).is_some_and(own)
    };
    let foreign = chains.iter().filter(|(name, _)| !own(name));
    let jumps = foreign.flat_map(|(name, rules)| {
        rules
            .iter()
            .filter(|rule| leads_to_own(rule))
            .map(move |r| (name, r))
    });
    let mut lines: Vec<String> = jumps
        .map(|(name, rule)| format!("-D {name} {rule}"))
        .collect();
    let owned: Vec<&String> = chains.keys().filter(|name| own(name)).collect();
    lines.extend(owned.iter().map(|name| format!("-F {name}")));
    lines.extend(owned.iter().map(|name| format!("-X {name}")));
    if lines.is_empty() {
        String::new()
    } else {
        format!("*{table}\n{}\nCOMMIT\n", lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: [Duration; PAUSES.len()] = [Duration::ZERO; PAUSES.len()];

    #[test]
    fn own_chains_and_the_ways_there_go_and_nothing_else() {
        let saved = "*nat\n:PREROUTING ACCEPT [0:0]\n:CORACLE-SERVICES - [0:0]\n:CORACLE-SVC-A - [0:0]\n:OTHER - [0:0]\n\
                     -A PREROUTING -m comment --comment \"to -j CORACLE\" -j OTHER\n\
                     -A PREROUTING -m comment --comment x -j CORACLE-SERVICES\n\
                     -A CORACLE-SERVICES -d 10.0.0.1/32 -j CORACLE-SVC-A\nCOMMIT\n";
        assert_eq!(
            removal("nat", &plan::parse(saved), "CORACLE-"),
            "*nat\n-D PREROUTING -m comment --comment x -j CORACLE-SERVICES\n-F CORACLE-SERVICES\n-F CORACLE-SVC-A\n\
             -X CORACLE-SERVICES\n-X CORACLE-SVC-A\nCOMMIT\n"
        );
    }

    #[test]
    fn what_somebody_still_writes_is_removed_once_it_is_written() {
        let lists = ["-X A\n", "-X A\n-X B\n", ""];
        let looks = std::cell::Cell::new(0);
        let left = || {
            let at = looks.replace(looks.get() + 1);
            Ok(lists[at].to_owned())
        };
        let mut removed = Vec::new();
        let refused = || IptablesError::Failed {
            tool: "iptables-restore",
            message: "no such chain".to_owned(),
        };
        let remove = |text: &str| {
            removed.push(text.to_owned());
            match removed.len() {
                1 => Err(refused()),
                _ => Ok(()),
            }
        };
        let outcome = until_gone(left, remove, AT_ONCE);
        assert!(matches!(outcome, Ok(true)), "{outcome:?}");
        assert_eq!(removed, lists[..2]);
        assert_eq!(looks.get(), 3);
        let again = || Ok("-X A\n".to_owned());
        let never = until_gone(again, |_| Err(refused()), AT_ONCE);
        assert!(matches!(never, Err(IptablesError::Failed { .. })));
    }

    #[test]
    fn what_comes_back_each_time_is_not_removed_for_ever() {
        let mut tries = 0;
        let remove = |_: &str| {
            tries += 1;
            Ok(())
        };
        let outcome = until_gone(|| Ok("-X A\n".to_owned()), remove, AT_ONCE);
        assert!(matches!(outcome, Ok(false)), "{outcome:?}");
        assert_eq!(tries, 1 + AT_ONCE.len());
    }

    #[test]
    fn a_table_without_own_chains_is_left_alone() {
        assert_eq!(
            removal(
                "filter",
                &plan::parse(":INPUT ACCEPT [0:0]\n-A INPUT -j DROP\n"),
                "CORACLE-"
            ),
            ""
        );
    }
}
