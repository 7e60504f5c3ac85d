//! The explanation as text: tables, as kubectl prints them.

use std::{collections::BTreeSet, fmt};

use super::{Explanation, Found, Preemption, Said, advice::advice};
use crate::framework::{PluginName, Scores};

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pod,
            scheduler,
            node,
            nominated,
            found,
        } = self;
        match (node, nominated) {
            (Some(node), _) => writeln!(
                f,
                "Pod {pod} is on {node}; {scheduler} would say now, were it on none:"
            )?,
            (None, Some(node)) => {
                writeln!(f, "Pod {pod} waits for room on {node}; {scheduler} says:")?
            }
            (None, None) => writeln!(f, "Pod {pod} has no node; {scheduler} says:")?,
        }
        match found {
            Found::Held(said) => {
                writeln!(f, "\nIt is not tried:")?;
                list(f, said)?;
                changes(f, said.iter())
            }
            Found::Refused(said) => {
                writeln!(f, "\nIt fits on no node, whichever that is:")?;
                list(f, said)?;
                changes(f, said.iter())
            }
            Found::Nodes {
                refusing,
                feasible,
                scores,
                preemption,
            } => {
                if refusing.is_empty() && feasible.is_empty() {
                    return writeln!(f, "\nThere are no nodes.");
                }
                ranking(f, feasible, scores)?;
                refusals(f, refusing)?;
                preempted(f, preemption)?;
                if feasible.is_empty() {
                    changes(f, refusing.iter().flat_map(|(_, said)| said))?;
                }
                Ok(())
            }
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, said: &[Said]) -> fmt::Result {
    said.iter().try_for_each(|said| writeln!(f, "  {said}"))
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(plugin) = self.plugin {
            write!(f, "{plugin}: ")?;
        }
        f.write_str(&self.message)
    }
}

/// The best first, as the scheduler takes it; of equals those with fewer pods go first there.
fn ranking(f: &mut fmt::Formatter<'_>, feasible: &[String], scores: &[Scores]) -> fmt::Result {
    if feasible.is_empty() {
        return Ok(());
    }
    let total = |node: usize| -> i64 {
        let of = |one: &Scores| one.scores.as_ref().map_or(0, |all| all[node] * one.weight);
        scores.iter().map(of).sum()
    };
    let mut order: Vec<usize> = (0..feasible.len()).collect();
    order.sort_by_key(|node| (std::cmp::Reverse(total(*node)), feasible[*node].clone()));
    let mut rows = vec![vec!["FITS ON".to_owned(), "SCORE".to_owned()]];
    let speaking = scores.iter().filter(|one| one.scores.is_some());
    let speaking: Vec<&Scores> = speaking.collect();
    rows[0].extend(
        speaking
            .iter()
            .map(|one| format!("{} x{}", one.plugin, one.weight)),
    );
    for node in order {
        let mut row = vec![feasible[node].clone(), total(node).to_string()];
        let of = |one: &&Scores| one.scores.as_ref().map_or(0, |all| all[node]).to_string();
        row.extend(speaking.iter().map(of));
        rows.push(row);
    }
    table(f, &rows)
}

fn refusals(f: &mut fmt::Formatter<'_>, refusing: &[(String, Vec<Said>)]) -> fmt::Result {
    if refusing.is_empty() {
        return Ok(());
    }
    let mut rows = vec![
        ["DOES NOT FIT ON", "BECAUSE", "IF PODS END"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for (node, said) in refusing {
        for (number, said) in said.iter().enumerate() {
            let node = if number == 0 { node.as_str() } else { "" };
            let helps = if said.is_resolvable {
                "it may fit"
            } else {
                "it does not fit either"
            };
            rows.push([node, &said.to_string(), helps].map(str::to_owned).to_vec());
        }
    }
    table(f, &rows)
}

fn preempted(f: &mut fmt::Formatter<'_>, preemption: &Preemption) -> fmt::Result {
    match preemption {
        Preemption::NotAsked => Ok(()),
        Preemption::Nobody(why) if why.is_empty() => Ok(()),
        Preemption::Nobody(why) => writeln!(f, "\nNobody is ended for it: {why}"),
        Preemption::Of { node, victims } => {
            writeln!(
                f,
                "\nOf lower priority, these end on {node} to make room for it: {}",
                victims.join(", ")
            )
        }
    }
}

fn changes<'a>(f: &mut fmt::Formatter<'_>, said: impl Iterator<Item = &'a Said>) -> fmt::Result {
    let plugins: BTreeSet<PluginName> = said.filter_map(|said| said.plugin).collect();
    let advice: Vec<_> = plugins
        .into_iter()
        .filter_map(|plugin| Some((plugin, advice(plugin)?)))
        .collect();
    if advice.is_empty() {
        return Ok(());
    }
    writeln!(f, "\nWhat would have to change:")?;
    let mut lines = advice.into_iter();
    lines.try_for_each(|(plugin, advice)| writeln!(f, "  {plugin}: {advice}"))
}

/// Columns as wide as what is in them, three spaces apart.
fn table(f: &mut fmt::Formatter<'_>, rows: &[Vec<String>]) -> fmt::Result {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    writeln!(f)?;
    for row in rows {
        let cells = row.iter().zip(&widths);
        let line: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        writeln!(f, "{}", line.join("   ").trim_end())?;
    }
    Ok(())
}
