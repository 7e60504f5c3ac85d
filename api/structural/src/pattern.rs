//! `pattern`: regular expressions as Go reads them, run by an engine of linear time.
//!
//! The two agree but for a few signs: Go's classes are ASCII, a brace that repeats nothing is
//! itself, a bracket in a class is a letter, there is no algebra of classes, fewer flags, and
//! nothing is repeated twice. Compiled when they are first asked: most patterns of most definitions
//! never are.
//!
//! Source: <https://pkg.go.dev/regexp/syntax>.

use std::{fmt::Write as _, sync::OnceLock};

use regex::{Regex, RegexBuilder};

/// Bytes of one that is compiled: the least of these that it fits into is what it counts for.
const SIZES: [usize; 4] = [16 << 10, 128 << 10, 1 << 20, LARGEST];
const LARGEST: usize = 4 << 20;
/// Bytes of all patterns of a schema, compiled: they stay once they have been asked.
const MOST: usize = 32 << 20;
/// Go repeats no more often.
const MOST_TIMES: u32 = 1000;
/// Signs of a repetition, with room for one that is too often.
const LONGEST: usize = 20;

/// A pattern of a schema.
#[derive(Debug)]
pub(crate) struct Pattern {
    text: String,
    /// `None` within: it is none, and matches nothing.
    compiled: OnceLock<Option<Regex>>,
}

impl Pattern {
    pub(crate) fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            compiled: OnceLock::new(),
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        let compile = || compile(&self.text).ok().map(|(regex, _)| regex);
        let compiled = self.compiled.get_or_init(compile);
        compiled.as_ref().is_some_and(|regex| regex.is_match(text))
    }
}

/// Room for the patterns of a schema.
pub(crate) struct Room(usize);

impl Room {
    pub(crate) fn new() -> Self {
        Self(MOST)
    }

    /// Whether there is room for a pattern, which is one.
    ///
    /// # Errors
    /// What is wrong with it, about as Go says it.
    pub(crate) fn take(&mut self, pattern: &str) -> Result<(), String> {
        if self.0 == 0 {
            return Err(format!(
                "all patterns together take more than {MOST} bytes when they are compiled"
            ));
        }
        let taken = compile(pattern).map(|(_, size)| size);
        // What was given up as too large took as long as the largest.
        self.0 = self.0.saturating_sub(*taken.as_ref().unwrap_or(&LARGEST));
        taken.map(drop)
    }
}

/// Reads a pattern, and says what it counts for.
///
/// # Errors
/// What is wrong with it, about as Go says it.
fn compile(pattern: &str) -> Result<(Regex, usize), String> {
    let translated = translate(pattern)?;
    let mut builder = RegexBuilder::new(&translated);
    for size in SIZES {
        match builder.size_limit(size).build() {
            Ok(regex) => return Ok((regex, size)),
            Err(regex::Error::CompiledTooBig(_)) => {}
            Err(_) => break,
        }
    }
    Err(format!("error parsing regexp: `{pattern}`"))
}

/// A pattern of Go's in the terms of the `regex` crate, which may still refuse it.
///
/// # Errors
/// What is wrong with it, about as Go says it.
pub fn translate(pattern: &str) -> Result<String, String> {
    Translation::of(pattern)
}

/// A pattern of Go's on its way into the engine's terms.
struct Translation<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    out: String,
}

impl Translation<'_> {
    fn of(pattern: &str) -> Result<String, String> {
        let mut own = Translation {
            rest: pattern.chars().peekable(),
            out: String::with_capacity(pattern.len()),
        };
        let mut is_repeated = false;
        while let Some(letter) = own.rest.next() {
            let was_repeated = std::mem::take(&mut is_repeated);
            match letter {
                '\\' => own.escape()?,
                '[' => own.class()?,
                '(' => own.group()?,
                '{' => is_repeated = own.repetition()?,
                '}' => own.out.push_str("\\}"),
                ']' => own.out.push_str("\\]"),
                letter => {
                    is_repeated = matches!(letter, '*' | '+' | '?');
                    own.out.push(letter);
                }
            }
            if is_repeated && was_repeated {
                let nested = "error parsing regexp: invalid nested repetition operator: ";
                return Err(format!("{nested}`{pattern}`"));
            }
            if is_repeated && own.rest.next_if_eq(&'?').is_some() {
                own.out.push('?');
            }
        }
        Ok(own.out)
    }

    /// After a parenthesis: a name or flags may follow.
    fn group(&mut self) -> Result<(), String> {
        self.out.push('(');
        if self.rest.next_if_eq(&'?').is_none() {
            return Ok(());
        }
        self.out.push('?');
        if matches!(self.rest.peek(), Some('P' | '<')) {
            // The sign is no repetition, and the engine reads what follows.
            return Ok(());
        }
        for letter in self.rest.by_ref() {
            self.out.push(letter);
            match letter {
                'i' | 'm' | 's' | 'U' | '-' => {}
                ':' | ')' => break,
                _ => {
                    let wrong = "error parsing regexp: invalid or unsupported Perl syntax: ";
                    return Err(format!("{wrong}`(?{letter}`"));
                }
            }
        }
        Ok(())
    }

    /// After a backslash, outside of a class.
    fn escape(&mut self) -> Result<(), String> {
        match self.rest.next() {
            Some(letter @ ('b' | 'B')) => _ = write!(self.out, "(?-u:\\{letter})"),
            Some(letter @ ('A' | 'z')) => _ = write!(self.out, "\\{letter}"),
            Some('Q') => self.quoted(),
            Some(letter @ ('d' | 'w' | 's' | 'D' | 'W' | 'S' | 'p' | 'P')) => {
                self.shorthand(letter)
            }
            letter => {
                let letter = self.letter(letter)?;
                self.literal(letter);
            }
        }
        Ok(())
    }

    /// A class of one letter, after its backslash.
    fn shorthand(&mut self, letter: char) {
        match letter {
            'd' => self.out.push_str("[0-9]"),
            'D' => self.out.push_str("[^0-9]"),
            'w' => self.out.push_str("[0-9A-Za-z_]"),
            'W' => self.out.push_str("[^0-9A-Za-z_]"),
            's' => self.out.push_str("[\\t\\n\\x0C\\r ]"),
            'S' => self.out.push_str("[^\\t\\n\\x0C\\r ]"),
            script => {
                self.out.push('\\');
                self.out.push(script);
                let is_named = self.rest.peek() == Some(&'{');
                for letter in self.rest.by_ref() {
                    self.out.push(letter);
                    if !is_named || letter == '}' {
                        return;
                    }
                }
            }
        }
    }

    /// The letter that an escape stands for.
    fn letter(&mut self, escaped: Option<char>) -> Result<char, String> {
        let wrong =
            |what: char| format!("error parsing regexp: invalid escape sequence: `\\{what}`");
        Ok(match escaped {
            Some('a') => '\u{7}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\u{b}',
            Some('x') => self.hex().ok_or_else(|| wrong('x'))?,
            Some(digit @ '0'..='7') => self.octal(digit).ok_or_else(|| wrong(digit))?,
            Some(letter) if letter.is_ascii_punctuation() || letter == ' ' => letter,
            Some(letter) => return Err(wrong(letter)),
            None => {
                return Err(
                    "error parsing regexp: trailing backslash at end of expression: ``".into(),
                );
            }
        })
    }

    /// Two digits, or any number of them in braces.
    fn hex(&mut self) -> Option<char> {
        let digits: String = if self.rest.next_if_eq(&'{').is_some() {
            self.rest.by_ref().take_while(|next| *next != '}').collect()
        } else {
            self.rest.by_ref().take(2).collect()
        };
        char::from_u32(u32::from_str_radix(&digits, 16).ok()?)
    }

    /// Up to three digits; one alone, but zero, would refer back.
    fn octal(&mut self, first: char) -> Option<char> {
        let mut code = first.to_digit(8)?;
        let mut digits = 1;
        while digits < 3
            && let Some(digit) = self.rest.peek().and_then(|next| next.to_digit(8))
        {
            self.rest.next();
            code = code * 8 + digit;
            digits += 1;
        }
        let is_number = digits > 1 || first == '0';
        char::from_u32(code).filter(|_| is_number)
    }

    /// As it stands, up to `\E`.
    fn quoted(&mut self) {
        while let Some(letter) = self.rest.next() {
            if letter == '\\' && self.rest.peek() == Some(&'E') {
                self.rest.next();
                return;
            }
            self.literal(letter);
        }
    }

    fn literal(&mut self, letter: char) {
        // The engine takes `\<` for the beginning of a word.
        if letter.is_ascii_punctuation() && !matches!(letter, '<' | '>') {
            self.out.push('\\');
        }
        self.out.push(letter);
    }

    /// After a bracket.
    fn class(&mut self) -> Result<(), String> {
        self.out.push('[');
        if self.rest.next_if_eq(&'^').is_some() {
            self.out.push('^');
        }
        let mut is_first = true;
        loop {
            let missing = || "error parsing regexp: missing closing ]".to_owned();
            let letter = self.rest.next().ok_or_else(missing)?;
            match letter {
                ']' if !is_first => {
                    self.out.push(']');
                    return Ok(());
                }
                '[' if self.rest.peek() == Some(&':') => self.named_class(),
                '\\' => match self.rest.next() {
                    Some(class @ ('d' | 'w' | 's' | 'D' | 'W' | 'S' | 'p' | 'P')) => {
                        self.shorthand(class);
                    }
                    escaped => {
                        let low = self.letter(escaped)?;
                        self.range(low)?;
                    }
                },
                low => self.range(low)?,
            }
            is_first = false;
        }
    }

    /// A letter of a class, or all up to another one.
    fn range(&mut self, low: char) -> Result<(), String> {
        self.literal(low);
        let mut ahead = self.rest.clone();
        let is_range = ahead.next() == Some('-') && ahead.next().is_some_and(|next| next != ']');
        if !is_range {
            return Ok(());
        }
        self.rest.next();
        let high = match self.rest.next() {
            Some('\\') => {
                let escaped = self.rest.next();
                self.letter(escaped)?
            }
            Some(high) => high,
            None => return Ok(()),
        };
        if high < low {
            return Err(format!(
                "error parsing regexp: invalid character class range: `{low}-{high}`"
            ));
        }
        self.out.push('-');
        self.literal(high);
        Ok(())
    }

    /// Such as `[:alpha:]`, after its bracket.
    fn named_class(&mut self) {
        self.out.push('[');
        for letter in self.rest.by_ref() {
            self.out.push(letter);
            if letter == ']' {
                return;
            }
        }
    }

    /// After a brace: numbers of times, or a letter as others. Whether it is the former.
    fn repetition(&mut self) -> Result<bool, String> {
        // No longer than any that there may be: a pattern of braces is read once.
        let near: String = self.rest.clone().take(LONGEST).collect();
        let closing = near.find('}');
        let ahead = near[..closing.unwrap_or(near.len())].to_owned();
        let (least, most) = ahead.split_once(',').unwrap_or((&ahead, ""));
        let is_number = |text: &str| {
            let leads = text.len() > 1 && text.starts_with('0');
            !text.is_empty() && !leads && text.bytes().all(|b| b.is_ascii_digit())
        };
        if closing.is_none() || !is_number(least) || !(most.is_empty() || is_number(most)) {
            self.out.push_str("\\{");
            return Ok(false);
        }
        let is_too_often = |text: &str| text.parse::<u32>().is_ok_and(|times| times > MOST_TIMES);
        if is_too_often(least) || is_too_often(most) {
            return Err(format!(
                "error parsing regexp: invalid repeat count: `{{{ahead}}}`"
            ));
        }
        _ = write!(self.out, "{{{ahead}}}");
        for _ in 0..=ahead.chars().count() {
            self.rest.next();
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_go() {
        for (pattern, fits, misfits) in [
            ("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "a-b", "-a"),
            (r"^\d+$", "12", "\u{664}"),
            (r"^\w+$", "a_1", "\u{e9}"),
            (r"^[\w.-]+$", "a.b-c", "a/b"),
            (r"^[a\-z]+$", "a-z", "b"),
            ("^[a-f--9]$", "0", "g"),
            (r"^[\w-.]+$", "a.b-c", "a/b"),
            ("^[[]$", "[", "a"),
            ("^[a&&b]+$", "a&b", "c"),
            ("^[^]]$", "a", "]"),
            ("^[[:alpha:]]+$", "abc", "1"),
            (r"^a{2,3}$", "aaa", "a"),
            (r"^a{02}$", "a{02}", "aa"),
            (r"^a{2}?b+?$", "aab", "ab"),
            (r"^(?i:a)(?P<n>b)(?<m>c)$", "Abc", "AB"),
            (r"^(?s-i).$", "\n", ""),
            ("^{name}$", "{name}", "name"),
            ("^a{,2}$", "a{,2}", "aa"),
            (r"^\Qa.b\E$", "a.b", "axb"),
            (r"^\<x\>$", "<x>", "x"),
            (r"^\101$", "A", "1"),
            (r"\.example\.org$", "a.example.org", "example-org"),
            (r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))$", "1.5", "x"),
            (r"^\p{L}+$", "\u{e9}t\u{e9}", "1"),
            (r"^.\b.$", "a-", "ab"),
            (r"^(?i)ab$", "AB", "cd"),
            ("^[+-]$", "-", "a"),
        ] {
            let (regex, _) = compile(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            assert!(regex.is_match(fits), "{pattern} fits {fits}");
            assert!(!regex.is_match(misfits), "{pattern} does not fit {misfits}");
        }
    }

    #[test]
    fn many_that_are_large_have_no_room() {
        let (mut small, mut large) = (Room::new(), Room::new());
        for _ in 0..1000 {
            small.take("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$").unwrap();
        }
        let taken = (0..50).map_while(|_| large.take(r"\pL{60}").ok()).count();
        assert_eq!(taken, 8);
        let why = large.take("^a$").unwrap_err();
        assert!(why.contains("all patterns together"), "{why}");
        let mut none = Room::new();
        let refused = (0..50).map(|_| none.take(r"\pL{999}").unwrap_err());
        let refused: Vec<String> = refused.collect();
        assert!(refused[0].starts_with("error parsing regexp") && refused[49] == why);
    }

    #[test]
    fn what_go_does_not_read_is_none() {
        let unread = [
            "[a", "(", r"\1", r"\y", "a{1001}", "*", r"(?=a)", "\\", "a**", "a+?*", "a{2}{3}",
            "(?x)a b", "(?R)a", "(?u)a",
        ];
        for pattern in unread {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
    }
}
