//! Where both differ, and who is right.

use crate::{Answer, Case};

/// A difference that is known.
pub(crate) struct Difference {
    pub(crate) what: &'static str,
    /// Whether a case is of it.
    pub(crate) is: fn(&Case) -> bool,
}

pub(crate) const DIFFERENCES: &[Difference] = &[
    Difference {
        what: "cel-go converts what is written in an expression as it compiles it, and refuses it then",
        is: |case| {
            ours_refused(
                case,
                &[
                    "argument",
                    "conversion error",
                    "overflow",
                    "no such overload",
                    "invalid double",
                    "invalid UTF-8",
                ],
            ) && !matches!(case.theirs, Answer::Refused(_))
        },
    },
    Difference {
        what: "numbers are compared across types, also as it is checked",
        is: |case| {
            matches!(&case.theirs, Answer::Refused(why) if ["int", "uint", "double"].iter().any(|a| {
                ["int", "uint", "double"].iter().any(|b| why.contains(&format!("to '({a}, {b})'")))
            }))
        },
    },
    Difference {
        what: "what is dynamic may be of any type, alone and with others",
        is: |case| {
            matches!(&case.theirs, Answer::Refused(why) if why.contains("dyn"))
                && !matches!(case.ours, Answer::Refused(_))
        },
    },
    Difference {
        what: "maps have no order; ours is that of the keys",
        is: |case| match (&case.ours, &case.theirs) {
            (Answer::Value(ours), Answer::Value(theirs)) => sorted(ours) == sorted(theirs),
            _ => false,
        },
    },
    Difference {
        what: "1 and 1u are one key: the specification's vector has an error",
        is: |case| ours_has_none(case, "Failed with repeated key"),
    },
    Difference {
        what: "cel-go has all milliseconds of a duration, they those of its last second",
        is: |case| {
            case.expression.contains("getMilliseconds()")
                && ["duration(", "- timestamp("]
                    .iter()
                    .any(|made| case.expression.contains(made))
        },
    },
    Difference {
        what: "cel-go has the nanoseconds of a duration as an int; they declare it, and have it not",
        is: |case| theirs_has_none(case, "int(duration)"),
    },
    Difference {
        what: "what can be no key is in no map, says cel-go",
        is: |case| theirs_has_none(case, "No matching overloads found : @in"),
    },
    Difference {
        what: "nothing is in a list that is written as empty: cel-go does not look what it is",
        is: |case| case.expression.contains("in []") || case.expression.contains("in dyn([])"),
    },
    Difference {
        what: "what is a key is looked at when it is evaluated, in cel-go",
        is: |case| ours_has_none(case, "unsupported key type"),
    },
    Difference {
        what: "a raw text may end with a backslash, says the grammar",
        is: |case| theirs_refused(case, "literal: String must end with"),
    },
    Difference {
        what: "an empty text is where the offset says, in cel-go, wherever that is",
        is: |case| {
            case.expression.contains("ndexOf(") && theirs_has_none(case, "index out of range")
        },
    },
    Difference {
        what: "a part of a text may end where the text does, says cel-go",
        is: |case| theirs_has_none(case, "is greater than <string>.size()"),
    },
    Difference {
        what: "the first second of 1970 is not zero in cel-go: the first one of the year 1 is",
        is: |case| case.expression.contains("ofNonZeroValue("),
    },
    Difference {
        what: "the first overload that takes an element of what is empty says of what type it is, in cel-go",
        is: |case| {
            ["[][", "optional.none()"]
                .iter()
                .any(|empty| case.expression.contains(empty))
                && ours_refused(case, &["found no matching overload"])
        },
    },
    Difference {
        what: "values of a map are dynamic as soon as one is, in cel-go",
        is: |case| {
            theirs_refused(case, "found no matching overload")
                && ["{", ": x."]
                    .iter()
                    .all(|part| case.expression.contains(part))
        },
    },
    Difference {
        what: "moments have four digits of the year, T and Z, in Go",
        is: |case| ours_has_none(case, "to 'google.protobuf.Timestamp'"),
    },
    Difference {
        what: "bool is no number in cel-go, whatever it is asked for",
        is: |case| case.expression.contains("int(") && ours_has_none(case, "no such overload"),
    },
    Difference {
        what: "a text without letters has no parts in Go if letters are split from one another",
        is: |case| case.expression.contains("split("),
    },
    Difference {
        what: "an entry that is not there needs no key that can be one, in cel-go",
        is: |case| theirs_refused(case, "Unsupported map key type"),
    },
    Difference {
        what: "what is made of a map's keys has their order",
        is: |case| {
            [("m.filter(", "!= t"), ("transformList(", "[")]
                .iter()
                .any(|(of, then)| case.expression.contains(of) && case.expression.contains(then))
        },
    },
    Difference {
        what: "what Go reads as an int may stand in a zone",
        is: |case| theirs_has_none(case, "Invalid timezone"),
    },
    Difference {
        what: "what is made of the text of what is no number",
        is: |case| {
            ["Infinity", "NaN", "1e308", "0.0"]
                .iter()
                .any(|no| case.expression.contains(no))
                && case.expression.contains("string(")
        },
    },
    Difference {
        what: "no number is NaN in Go and nan in C++; fractions of a second are as short as can be in Go",
        is: |case| match (&case.ours, &case.theirs) {
            (Answer::Value(ours), Answer::Value(theirs)) => printed(ours) == printed(theirs),
            _ => false,
        },
    },
];

fn ours_refused(case: &Case, words: &[&str]) -> bool {
    matches!(&case.ours, Answer::Refused(why) if words.iter().any(|word| why.contains(word)))
}

fn theirs_refused(case: &Case, word: &str) -> bool {
    matches!(&case.theirs, Answer::Refused(why) if why.contains(word))
}

fn ours_has_none(case: &Case, word: &str) -> bool {
    matches!(&case.ours, Answer::Error(why) if why.contains(word))
}

fn theirs_has_none(case: &Case, word: &str) -> bool {
    matches!(&case.theirs, Answer::Error(why) if why.contains(word))
}

fn sorted(text: &str) -> Vec<char> {
    let mut letters: Vec<char> = text.chars().collect();
    letters.sort_unstable();
    letters
}

/// Without what each language prints in its own way.
fn printed(text: &str) -> String {
    let text = text.to_lowercase().replace("+inf", "inf");
    // Also as a key, with C++'s sign.
    let text = text.replace("-nan", "nan");
    let mut printed = String::new();
    for letter in text.chars() {
        if matches!(letter, 's' | 'z') {
            let short = printed.trim_end_matches('0').len();
            if printed[..short]
                .rsplit(|c: char| !c.is_ascii_digit())
                .next()
                != Some("")
                && printed[..short].contains('.')
            {
                printed.truncate(short);
            }
        }
        printed.push(letter);
    }
    printed
}
