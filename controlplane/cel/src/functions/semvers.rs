//! Semantic versions: `semver('1.2.3')`.
//!
//! Source: `k8s.io/apiserver/pkg/cel/library/semverlib.go`; its parser is
//! `github.com/blang/semver/v4`.

use std::cmp::Ordering;

use crate::{
    function::{Function, function, walk_first},
    meter::Meter,
    value::{EvalError, Evaluated, Opaque, Value},
};

pub(super) const FUNCTIONS: &[Function] = &[
    function(
        "semver",
        semver,
        &[
            ("string_to_semver", "string -> kubernetes.Semver"),
            ("string_bool_to_semver", "string, bool -> kubernetes.Semver"),
        ],
    )
    .named(walk_first),
    function(
        "isSemver",
        is_semver,
        &[
            ("is_semver_string", "string -> bool"),
            ("is_semver_string_bool", "string, bool -> bool"),
        ],
    )
    .named(walk_first),
    function(
        "isGreaterThan",
        is_greater,
        &[(
            "semver_is_greater_than",
            ".kubernetes.Semver, kubernetes.Semver -> bool",
        )],
    ),
    function(
        "isLessThan",
        is_less,
        &[(
            "semver_is_less_than",
            ".kubernetes.Semver, kubernetes.Semver -> bool",
        )],
    ),
    function(
        "compareTo",
        compare_to,
        &[(
            "semver_compare_to",
            ".kubernetes.Semver, kubernetes.Semver -> int",
        )],
    ),
    function(
        "major",
        major,
        &[("semver_major", ".kubernetes.Semver -> int")],
    ),
    function(
        "minor",
        minor,
        &[("semver_minor", ".kubernetes.Semver -> int")],
    ),
    function(
        "patch",
        patch,
        &[("semver_patch", ".kubernetes.Semver -> int")],
    ),
];

/// Build metadata plays no part in order or equality.
#[derive(Debug, PartialEq)]
struct Version {
    numbers: [u64; 3],
    before_release: Vec<Part>,
}

/// Numbers come before words.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u64),
    Word(String),
}

impl Version {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".into());
        }
        let (text, build) = split(text, '+');
        let (numbers, before) = split(text, '-');
        let parts: Vec<&str> = numbers.split('.').collect();
        let [a, b, c] = parts[..] else {
            return Err("No Major.Minor.Patch elements found".into());
        };
        let names = ["major", "minor", "patch"];
        let mut numbers = [0; 3];
        for (at, part) in [a, b, c].into_iter().enumerate() {
            numbers[at] = number(part, names[at])?;
        }
        let before = before.map(|before| before.split('.').map(Part::parse).collect());
        if let Some(build) = build
            && build.split('.').any(|part| !is_word(part))
        {
            return Err(format!(
                "Invalid character(s) found in build meta data {build:?}"
            ));
        }
        Ok(Self {
            numbers,
            before_release: before.transpose()?.unwrap_or_default(),
        })
    }

    fn order(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| {
            // What is before a release has parts; a release has none and comes last.
            match (
                self.before_release.is_empty(),
                other.before_release.is_empty(),
            ) {
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                _ => self.before_release.cmp(&other.before_release),
            }
        })
    }
}

fn split(text: &str, at: char) -> (&str, Option<&str>) {
    match text.split_once(at) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

fn number(text: &str, name: &str) -> Result<u64, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!(
            "Invalid character(s) found in {name} number {text:?}"
        ));
    }
    if text.len() > 1 && text.starts_with('0') {
        let title = format!("{}{}", name[..1].to_uppercase(), &name[1..]);
        return Err(format!(
            "{title} number must not contain leading zeroes {text:?}"
        ));
    }
    text.parse()
        .map_err(|_| format!("strconv.ParseUint: parsing {text:?}: value out of range"))
}

impl Part {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Prerelease is empty".into());
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            if text.len() > 1 && text.starts_with('0') {
                return Err(format!(
                    "Numeric PreRelease version must not contain leading zeroes {text:?}"
                ));
            }
            let number = text.parse().map(Self::Number);
            return number.map_err(|_| format!("PreRelease number out of range {text:?}"));
        }
        if !is_word(text) {
            return Err(format!("Invalid character(s) found in prerelease {text:?}"));
        }
        Ok(Self::Word(text.into()))
    }
}

impl Opaque for Version {
    fn type_name(&self) -> &'static str {
        "kubernetes.Semver"
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        let other = other.as_any().downcast_ref::<Self>();
        other.is_some_and(|other| self.order(other).is_eq())
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

/// Without a `v` and leading zeroes, and with what of the three numbers is missing.
fn normalize(text: &str) -> Result<String, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
    for part in &mut parts {
        if part.len() > 1 {
            let trimmed = part.trim_start_matches('0');
            let digit = trimmed.starts_with(|c: char| c.is_ascii_digit());
            *part = format!("{}{trimmed}", if digit { "" } else { "0" });
        }
    }
    if parts.len() < 3 {
        if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".into());
        }
        parts.resize(3, "0".into());
    }
    Ok(parts.join("."))
}

fn parse(args: &[Value<'_>]) -> Result<Result<Version, String>, EvalError> {
    let text = args[0].as_str()?;
    Ok(match args.get(1) {
        None | Some(Value::Bool(false)) => Version::parse(text),
        Some(Value::Bool(true)) => normalize(text).and_then(|text| Version::parse(&text)),
        Some(_) => return Err(EvalError::no_such_overload()),
    })
}

fn semver<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    parse(args)?.map(Value::opaque).map_err(EvalError::new)
}

fn is_semver<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::Bool(parse(args)?.is_ok()))
}

fn compared(args: &[Value<'_>]) -> Result<Ordering, EvalError> {
    Ok(args[0]
        .downcast::<Version>()?
        .order(args[1].downcast::<Version>()?))
}

fn is_greater<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::Bool(compared(args)?.is_gt()))
}

fn is_less<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::Bool(compared(args)?.is_lt()))
}

fn compare_to<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::Int(compared(args)? as i64))
}

fn part<'v>(args: &[Value<'v>], at: usize) -> Evaluated<'v> {
    let version: &Version = args[0].downcast()?;
    Ok(Value::Int(
        i64::try_from(version.numbers[at]).unwrap_or(i64::MAX),
    ))
}

fn major<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    part(args, 0)
}

fn minor<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    part(args, 1)
}

fn patch<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    part(args, 2)
}
