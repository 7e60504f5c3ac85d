//! The filter run by a small interpreter, loaded into the kernel, and put in the way of a process.

use coracle_ground::{Ground, is_root_or_skip};
use serde_json::{Value, json};

use super::*;

/// As the agent writes them.
fn default_rules() -> Vec<Rule> {
    let device = |kind: &str, major: i64, minor: i64, access: &str| {
        let mut rule = json!({ "allow": true, "type": kind, "access": access });
        for (name, number) in [("major", major), ("minor", minor)] {
            if number >= 0 {
                rule[name] = json!(number);
            }
        }
        rule
    };
    let mut list = vec![
        json!({ "allow": false, "access": "rwm" }),
        device("c", -1, -1, "m"),
        device("b", -1, -1, "m"),
    ];
    for (major, minor) in [
        (1, 3),
        (1, 5),
        (1, 7),
        (5, 0),
        (1, 8),
        (1, 9),
        (5, 1),
        (5, 2),
        (136, -1),
    ] {
        list.push(device("c", major, minor, "rwm"));
    }
    planned(list).unwrap().expect("a filter")
}

fn planned(list: Vec<Value>) -> anyhow::Result<Option<Vec<Rule>>> {
    let list: Vec<LinuxDeviceCgroup> = serde_json::from_value(Value::Array(list)).unwrap();
    plan(&list)
}

/// What the kernel would do, for the instructions that occur.
fn run(program: &[Instruction], kind: i32, access: i32, major: i32, minor: i32) -> bool {
    let context = [access << 16 | kind, major, minor];
    let mut registers = [0_i32; 10];
    let mut at = 0;
    loop {
        let instruction = program[at];
        let (to, from) = (
            usize::from(instruction.registers & 15),
            usize::from(instruction.registers >> 4),
        );
        at += 1;
        match instruction.code {
            0x61 => registers[to] = context[usize::try_from(instruction.offset / 4).unwrap()],
            0xbc => registers[to] = registers[from],
            0x54 => registers[to] &= instruction.immediate,
            0x74 => registers[to] >>= instruction.immediate,
            0xb7 => registers[to] = instruction.immediate,
            0x56 if registers[to] != instruction.immediate => {
                at += usize::try_from(instruction.offset).unwrap()
            }
            0x56 => {}
            0x95 => return registers[0] == 1,
            other => panic!("instruction {other:#x}"),
        }
    }
}

#[test]
fn only_harmless_devices_can_be_opened() {
    let program = program(&default_rules());
    for (kind, access, major, minor, allowed) in [
        (CHARACTER, READ | WRITE, 1, 3, true),
        (CHARACTER, READ, 1, 9, true),
        (CHARACTER, EVERYTHING, 136, 77, true),
        (CHARACTER, READ | WRITE, 5, 2, true),
        (CHARACTER, READ, 1, 1, false),
        (CHARACTER, READ, 10, 200, false),
        (CHARACTER, WRITE, 1, 11, false),
        (BLOCK, MKNOD, 254, 0, true),
        (CHARACTER, MKNOD, 1, 1, true),
        (BLOCK, READ, 254, 0, false),
        (BLOCK, WRITE, 8, 0, false),
        (BLOCK, MKNOD | READ, 8, 0, false),
        (BLOCK, READ, 1, 3, false),
        (BLOCK, READ, 136, 3, false),
    ] {
        assert_eq!(
            run(&program, kind, access, major, minor),
            allowed,
            "{kind} {access} {major}:{minor}"
        );
    }
}

#[test]
fn the_last_word_on_everything_counts() {
    let everything = |allow: bool| json!({ "allow": allow, "access": "rwm" });
    assert_eq!(planned(vec![everything(true)]).unwrap(), None);
    assert_eq!(
        planned(vec![everything(true), everything(false)]).unwrap(),
        Some(vec![])
    );
    assert_eq!(
        planned(vec![]).unwrap(),
        Some(vec![]),
        "no rules allow nothing"
    );
    assert!(!run(&program(&[]), CHARACTER, READ, 1, 3));
    assert!(
        planned(vec![
            everything(true),
            json!({ "allow": false, "type": "b", "access": "rwm" })
        ])
        .is_err()
    );
}

/// A cgroup of the unified hierarchy, wherever that is mounted.
struct Cgroup {
    path: std::path::PathBuf,
    _ground: Ground,
}

impl Cgroup {
    fn new() -> Self {
        let mounts = cgroup::mounts(&fs::read_to_string("/proc/self/mountinfo").unwrap());
        let (root, _) = mounts
            .into_iter()
            .find(|(_, options)| options.is_empty())
            .expect("cgroup v2 is mounted");
        let ground = Ground::new();
        let path = root.join(ground.name());
        fs::create_dir(&path).unwrap();
        Self {
            path,
            _ground: ground,
        }
    }
}

#[test]
fn a_process_in_the_cgroup_cannot_open_a_disk() {
    if !is_root_or_skip() {
        return;
    }
    let cgroup = Cgroup::new();
    attach(&cgroup.path, &default_rules()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    // A node for the kernel's memory (1:1): it may be made, and not opened.
    let script = format!(
        "echo $$ > {}/cgroup.procs; mknod {dir}/mem c 1 1 && echo made; dd if={dir}/mem bs=1 count=1 2>&1; \
         head -c 1 /dev/zero | wc -c; echo x > /dev/null && echo null",
        cgroup.path.display(),
        dir = directory.path().display(),
    );
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        told.starts_with("made\n") && told.contains("Operation not permitted"),
        "{told}"
    );
    assert!(told.ends_with("1\nnull\n"), "{told}");
}
