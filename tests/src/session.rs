//! Sessions: what a user types and what must then be on the screen, as text files that tests play
//! on a real cluster.
//!
//! ```text
//! == create configmap                   a row of the matrix; `| since 1.35` or `| until 1.29` restricts it,
//!                                       `| alone` keeps other sessions from rows that say so too,
//!                                       `| out of scope: why` names what is not expected to work: it is not played
//! $ kubectl create configmap c --from-literal=a=b
//! > configmap/c created                 this is on the screen (standard output and error)
//! < nothing like this is
//! = the whole screen is this line
//! ? 1                                   the exit status, 0 if not said
//! $~ kubectl get pod p                  tried again until all that follows holds
//! ```
//! A command runs in bash; indented lines below it belong to it (here documents). The environment
//! has `VERSION`, `NS` and a directory of its own as working directory. What a row's commands leave
//! in `TMPDIR`, as `kubectl edit` does with what the server refuses, goes with the row.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Mutex,
    time::{Duration, Instant},
};

use crate::{matrix::Row, wait};

/// How long one command may take, and how long one is tried again.
const PATIENCE: Duration = Duration::from_secs(60);

/// Held by rows that must be alone.
static ALONE: Mutex<()> = Mutex::new(());

/// Where and as whom a session is played.
#[derive(Debug, Clone)]
pub struct Stage {
    /// The client's name in the matrix, such as `kubectl 1.29`.
    pub client: String,
    /// Its version, for rows that are restricted.
    pub version: String,
    /// The network namespace, as a path; empty for the test's own.
    pub within: String,
    /// First in `PATH`: the clients.
    pub bin: PathBuf,
    /// Working directory.
    pub dir: PathBuf,
    /// More environment.
    pub environment: Vec<(String, String)>,
}

/// A row of a session.
#[derive(Debug, Default)]
struct Scene {
    name: String,
    since: Option<String>,
    until: Option<String>,
    alone: bool,
    out_of_scope: Option<String>,
    steps: Vec<Step>,
}

/// One command and what is expected of it.
#[derive(Debug, Default)]
struct Step {
    script: String,
    line: usize,
    again: bool,
    status: i32,
    present: Vec<String>,
    absent: Vec<String>,
    whole: Option<String>,
}

/// Plays the session in `file` and gives a row for each of its scenes. A scene ends at its first
/// failure; the next ones are played all the same.
pub fn play(file: &Path, stage: &Stage) -> Vec<Row> {
    let text =
        std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let scenes = parse(&text).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
    let rows = scenes.iter().map(|scene| {
        let started = Instant::now();
        let result = scene
            .play(stage)
            .map_err(|why| format!("{}: {why}", file.display()));
        Row {
            command: scene.name.clone(),
            client: stage.client.clone(),
            result,
            took: started.elapsed(),
        }
    });
    rows.collect()
}

impl Scene {
    fn play(&self, stage: &Stage) -> Result<String, String> {
        if let Some(why) = &self.out_of_scope {
            return Ok(format!("not tried: {why}"));
        }
        if self
            .since
            .as_deref()
            .is_some_and(|since| older(&stage.version, since))
        {
            return Ok(format!(
                "not in this version: since {}",
                self.since.as_deref().unwrap_or_default()
            ));
        }
        if self
            .until
            .as_deref()
            .is_some_and(|until| older(until, &stage.version))
        {
            return Ok(format!(
                "not in this version: until {}",
                self.until.as_deref().unwrap_or_default()
            ));
        }
        let _alone = self.alone.then(|| {
            ALONE
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
        });
        let temporary = tempfile::tempdir_in(&stage.dir)
            .map_err(|error| format!("make a directory in {}: {error}", stage.dir.display()))?;
        let mut steps = self.steps.iter();
        steps.try_for_each(|step| step.play(stage, temporary.path()))?;
        Ok("pass".to_owned())
    }
}

impl Step {
    fn play(&self, stage: &Stage, temporary: &Path) -> Result<(), String> {
        let mut last = self.look(stage, temporary);
        if self.again && last.is_err() {
            wait::quietly(PATIENCE, || {
                last = self.look(stage, temporary);
                last.is_ok().then_some(())
            });
        }
        last.map_err(|why| format!("line {}: $ {}\n{why}", self.line, self.script))
    }

    fn look(&self, stage: &Stage, temporary: &Path) -> Result<(), String> {
        let path = std::env::var("PATH").unwrap_or_default();
        let limit = PATIENCE.as_secs().to_string();
        let mut line = vec![
            "timeout",
            "--kill-after=5",
            &limit,
            "bash",
            "-o",
            "pipefail",
            "-c",
        ];
        let within = format!("--net={}", stage.within);
        if !stage.within.is_empty() {
            line.splice(0..0, ["nsenter", &within]);
        }
        let mut command = Command::new(line[0]);
        command.args(&line[1..]);
        // One stream, in the order of its lines.
        command
            .arg(format!("exec 2>&1\n{}", self.script))
            .current_dir(&stage.dir)
            .stdin(Stdio::null());
        command
            .env("PATH", format!("{}:{path}", stage.bin.display()))
            .env("VERSION", &stage.version);
        command
            .env("HOME", &stage.dir)
            .env("TMPDIR", temporary)
            .envs(stage.environment.iter().cloned());
        let output = command.output().map_err(|error| format!("bash: {error}"))?;
        let screen = String::from_utf8_lossy(&output.stdout);
        let filled = |text: &String| stage.fill(text);
        let (present, absent) = (
            self.present.iter().map(filled),
            self.absent.iter().map(filled),
        );
        let status = output.status.code().unwrap_or(-1);
        let whole = self.whole.as_ref().map(filled);
        let wrong = self.wrong(status, &screen, present, absent, whole);
        wrong.map_or(Ok(()), |why| Err(format!("{why}; the screen:\n{screen}")))
    }

    fn wrong(
        &self,
        status: i32,
        screen: &str,
        mut present: impl Iterator<Item = String>,
        mut absent: impl Iterator<Item = String>,
        whole: Option<String>,
    ) -> Option<String> {
        if let Some(missing) = present.find(|text| !screen.contains(text)) {
            return Some(format!("{missing:?} is missing (status {status})"));
        }
        if let Some(wrong) = absent.find(|text| screen.contains(text)) {
            return Some(format!("{wrong:?} should not be there"));
        }
        if let Some(whole) = whole.filter(|whole| screen.trim() != whole.trim()) {
            return Some(format!("not just {whole:?} (status {status})"));
        }
        (status != self.status).then(|| format!("status {status}, not {}", self.status))
    }
}

impl Stage {
    /// Expectations may name `$NS` and `$VERSION`.
    fn fill(&self, text: &str) -> String {
        let namespace = self
            .environment
            .iter()
            .find(|(name, _)| name == "NS")
            .map_or("", |(_, value)| value);
        text.replace("$VERSION", &self.version)
            .replace("$NS", namespace)
    }
}

/// Whether version `a` came before `b`, both like `1.29`.
fn older(a: &str, b: &str) -> bool {
    let numbers = |text: &str| {
        text.split('.')
            .map(|part| part.parse::<u32>().unwrap_or(0))
            .collect::<Vec<_>>()
    };
    numbers(a) < numbers(b)
}

fn parse(text: &str) -> Result<Vec<Scene>, String> {
    let mut scenes: Vec<Scene> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let at = index + 1;
        let wrong = |why: &str| format!("line {at}: {why}: {line}");
        if let Some(head) = line.strip_prefix("== ") {
            scenes.push(scene(head).map_err(|why| wrong(&why))?);
            continue;
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let steps = &mut scenes
            .last_mut()
            .ok_or_else(|| wrong("no == before"))?
            .steps;
        if let Some(script) = line.strip_prefix("$~ ") {
            steps.push(Step {
                script: script.to_owned(),
                line: at,
                again: true,
                ..Step::default()
            });
            continue;
        }
        if let Some(script) = line.strip_prefix("$ ") {
            steps.push(Step {
                script: script.to_owned(),
                line: at,
                ..Step::default()
            });
            continue;
        }
        let step = steps.last_mut().ok_or_else(|| wrong("no $ before"))?;
        let (mark, rest) = line.split_at_checked(2).ok_or_else(|| wrong("too short"))?;
        match mark {
            "> " => step.present.push(rest.to_owned()),
            "< " => step.absent.push(rest.to_owned()),
            "= " => step.whole = Some(rest.to_owned()),
            "? " => step.status = rest.parse().map_err(|_| wrong("no status"))?,
            "  " => {
                step.script.push('\n');
                step.script.push_str(rest);
            }
            _ => return Err(wrong("unknown mark")),
        }
    }
    Ok(scenes)
}

fn scene(head: &str) -> Result<Scene, String> {
    let mut parts = head.split(" | ");
    let mut scene = Scene {
        name: parts.next().unwrap_or_default().to_owned(),
        ..Scene::default()
    };
    for part in parts {
        match part.split_once(' ') {
            Some(("since", version)) => scene.since = Some(version.to_owned()),
            Some(("until", version)) => scene.until = Some(version.to_owned()),
            None if part == "alone" => scene.alone = true,
            _ => match part.strip_prefix("out of scope: ") {
                Some(why) => scene.out_of_scope = Some(why.to_owned()),
                None => return Err(format!("unknown restriction {part:?}")),
            },
        }
    }
    Ok(scene)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# a comment
== one | since 1.35 | alone
$ cat <<END
  first
  END
> first
< second
== two
$~ false
? 1
== three | out of scope: nobody has it
";

    fn stage(version: &str) -> Stage {
        let dir = std::env::temp_dir();
        let environment = Vec::new();
        let within = String::new();
        Stage {
            client: "c".to_owned(),
            version: version.to_owned(),
            within,
            bin: dir.clone(),
            dir,
            environment,
        }
    }

    #[test]
    fn a_session_is_rows_of_commands_and_expectations() {
        let scenes = parse(TEXT).expect("it is well formed");
        assert_eq!(
            scenes
                .iter()
                .map(|scene| scene.steps.len())
                .collect::<Vec<_>>(),
            [1, 1, 0]
        );
        assert_eq!(scenes[0].steps[0].script, "cat <<END\nfirst\nEND");
        let results: Vec<_> = scenes
            .iter()
            .map(|scene| scene.play(&stage("1.37")))
            .collect();
        assert_eq!(results[0].as_deref(), Ok("pass"));
        assert_eq!(results[1].as_deref(), Ok("pass"));
        assert_eq!(results[2].as_deref(), Ok("not tried: nobody has it"));
        assert_eq!(
            scenes[0].play(&stage("1.29")).as_deref(),
            Ok("not in this version: since 1.35")
        );
    }

    #[test]
    fn temporary_files_go_with_their_row() {
        let dir = tempfile::tempdir().expect("make a directory");
        let stage = Stage {
            dir: dir.path().to_owned(),
            ..stage("1.37")
        };
        let within = format!("> {}/", dir.path().display());
        let text = format!("== x\n$ mktemp >name; cat name\n{within}\n$ test -e $(cat name)\n");
        let scenes = parse(&text).expect("it is well formed");
        assert_eq!(scenes[0].play(&stage).as_deref(), Ok("pass"));
        let left = std::fs::read_dir(dir.path()).expect("it is there");
        let left: Vec<_> = left
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        assert_eq!(left, ["name"]);
    }

    #[test]
    fn what_is_missing_too_much_or_ends_otherwise_fails() {
        for text in [
            "$ echo a\n> b",
            "$ echo a\n< a",
            "$ echo a b\n= a",
            "$ exit 3",
            "$ true\n? 1",
        ] {
            let scenes = parse(&format!("== x\n{text}\n")).expect("it is well formed");
            assert!(scenes[0].play(&stage("1.37")).is_err(), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for text in [
            "$ before any row",
            "== x\n> before any command",
            "== x | sometimes",
            "== x\n$ a\nb",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
