//! The client matrix: command by client by result, printed and written to `target/clients/`.

use std::{fmt::Write as _, time::Duration};

/// What came of one command of one client.
#[derive(Debug)]
pub struct Row {
    /// The command, or what of a library was used.
    pub command: String,
    /// Client and version.
    pub client: String,
    /// `pass` or why it was not tried; or what was wrong.
    pub result: Result<String, String>,
    /// How long it took.
    pub took: Duration,
}

/// Prints the table, keeps it as `target/clients/NAME.md`, and fails if any row did.
///
/// # Panics
/// With every failure in full.
pub fn publish(name: &str, rows: &[Row]) {
    let table = table(rows);
    let dir = crate::target_dir().join("clients");
    let written = std::fs::create_dir_all(&dir)
        .and_then(|()| std::fs::write(dir.join(format!("{name}.md")), &table));
    written.unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    say(&table);
    let failures: Vec<String> = rows
        .iter()
        .filter_map(|row| Some((row, row.result.as_ref().err()?)))
        .map(describe)
        .collect();
    assert!(!rows.is_empty(), "nothing was played");
    assert!(
        failures.is_empty(),
        "{} of {} rows failed\n\n{}",
        failures.len(),
        rows.len(),
        failures.join("\n\n")
    );
}

#[allow(clippy::print_stdout, reason = "the table is what this test is for")]
fn say(table: &str) {
    println!("{table}");
}

fn describe((row, why): (&Row, &String)) -> String {
    format!("--- {} | {}\n{why}", row.command, row.client)
}

/// One line a command, one column a client, in the order in which they came.
fn table(rows: &[Row]) -> String {
    let (mut commands, mut clients): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for row in rows {
        if !commands.contains(&row.command.as_str()) {
            commands.push(&row.command);
        }
        if !clients.contains(&row.client.as_str()) {
            clients.push(&row.client);
        }
    }
    let mut text = format!(
        "| command | {} |\n|---|{}\n",
        clients.join(" | "),
        "---|".repeat(clients.len())
    );
    for command in commands {
        let cells: Vec<&str> = clients
            .iter()
            .map(|client| cell(rows, command, client))
            .collect();
        let _infallible = writeln!(text, "| {command} | {} |", cells.join(" | "));
    }
    let seconds: f64 = rows.iter().map(|row| row.took.as_secs_f64()).sum();
    let passed = rows
        .iter()
        .filter(|row| {
            row.result
                .as_ref()
                .is_ok_and(|said| said.starts_with("pass"))
        })
        .count();
    let failed = rows.iter().filter(|row| row.result.is_err()).count();
    let other = rows.len() - passed - failed;
    let _infallible = writeln!(
        text,
        "\n{passed} pass, {failed} fail, {other} not tried; {seconds:.0} s of commands"
    );
    text
}

fn cell<'a>(rows: &'a [Row], command: &str, client: &str) -> &'a str {
    let row = rows
        .iter()
        .find(|row| row.command == command && row.client == client);
    row.map_or("", |row| row.result.as_ref().map_or("FAIL", String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_line_and_every_client_a_column() {
        let row = |command: &str, client: &str, result: Result<&str, &str>| Row {
            command: command.to_owned(),
            client: client.to_owned(),
            result: result.map(str::to_owned).map_err(str::to_owned),
            took: Duration::ZERO,
        };
        let rows = [
            row("get", "a", Ok("pass")),
            row("get", "b", Err("no")),
            row("new", "b", Ok("not tried: x")),
        ];
        let table = table(&rows);
        assert!(
            table.contains("| get | pass | FAIL |\n| new |  | not tried: x |"),
            "{table}"
        );
        assert!(
            table.ends_with("1 pass, 1 fail, 1 not tried; 0 s of commands\n"),
            "{table}"
        );
    }
}
