//! Takes all rules of one owner away.

use super::{
    Iptables, IptablesError,
    plan::{self, Chains},
};

impl Iptables {
    /// Removes every chain whose name starts with `prefix`, and every rule that leads there, from
    /// `tables`.
    ///
    /// # Errors
    /// [`IptablesError`]; tables before the one that failed are clean.
    pub fn remove_all(&self, tables: &[&str], prefix: &str) -> Result<(), IptablesError> {
        for table in tables {
            let text = removal(table, &plan::parse(&self.save(table)?), prefix);
            if !text.is_empty() {
                self.restore(&text)?;
            }
        }
        Ok(())
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
