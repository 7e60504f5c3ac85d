//! Words of an expression.
//!
//! What is no word is told and skipped, so that a message can name more than the first fault.

use crate::source::{Found, Issue};

/// The kind of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Signs, and the words `in`, `true`, `false` and `null`.
    Sign(&'static str),
    Ident,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    End,
}

/// A word and where it is, in code points.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Longer ones first.
const SIGNS: [&str; 24] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!",
    "?", ":", "+", "*", "/", "%",
];

const WORDS: [&str; 4] = ["in", "true", "false", "null"];

/// Names that a text may not use; a field may be called so.
pub(crate) const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Whether no field can be called so as it is.
pub(crate) fn is_reserved(name: &str) -> bool {
    WORDS.contains(&name) || RESERVED.contains(&name)
}

/// All words, the end last, and what is none.
pub(crate) fn tokens(chars: &[char]) -> (Vec<Token>, Found) {
    let mut lexer = Lexer { chars, at: 0 };
    let (mut tokens, mut issues) = (Vec::new(), Found::default());
    loop {
        lexer.skip_blanks();
        let start = lexer.at;
        if start >= chars.len() {
            break;
        }
        match lexer.token() {
            Some(kind) => tokens.push(Token {
                kind,
                start,
                end: lexer.at,
            }),
            None => issues.push(lexer.unknown(start)),
        }
    }
    let end = chars.len();
    tokens.push(Token {
        kind: Kind::End,
        start: end,
        end,
    });
    (tokens, issues)
}

struct Lexer<'a> {
    chars: &'a [char],
    at: usize,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn skip_blanks(&mut self) {
        while let Some(c) = self.peek(0) {
            match c {
                ' ' | '\t' | '\n' | '\r' | '\u{c}' => self.at += 1,
                '/' if self.peek(1) == Some('/') => {
                    while self.peek(0).is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    /// The next word; what is none leaves the place where it is.
    fn token(&mut self) -> Option<Kind> {
        if let Some(kind) = self.string() {
            return Some(kind);
        }
        let c = self.peek(0)?;
        if c.is_ascii_digit() || (c == '.' && self.peek(1).is_some_and(|c| c.is_ascii_digit())) {
            return Some(self.number());
        }
        if c.is_ascii_alphabetic() || c == '_' {
            let start = self.at;
            while self
                .peek(0)
                .is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
            {
                self.at += 1;
            }
            let word: String = self.chars[start..self.at].iter().collect();
            let known = WORDS.iter().find(|known| **known == word);
            return Some(known.map_or(Kind::Ident, |word| Kind::Sign(word)));
        }
        let sign = SIGNS.iter().find(|sign| {
            sign.chars()
                .enumerate()
                .all(|(at, c)| self.peek(at) == Some(c))
        })?;
        self.at += sign.len();
        Some(Kind::Sign(sign))
    }

    fn digits(&mut self) {
        while self.peek(0).is_some_and(|c| c.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn number(&mut self) -> Kind {
        let hex = self.peek(0) == Some('0')
            && self.peek(1) == Some('x')
            && self.peek(2).is_some_and(|c| c.is_ascii_hexdigit());
        let mut kind = Kind::Int;
        if hex {
            self.at += 2;
            while self.peek(0).is_some_and(|c| c.is_ascii_hexdigit()) {
                self.at += 1;
            }
        } else {
            self.digits();
            if self.peek(0) == Some('.') && self.peek(1).is_some_and(|c| c.is_ascii_digit()) {
                self.at += 1;
                self.digits();
                kind = Kind::Double;
            }
            let signed = usize::from(matches!(self.peek(1), Some('+' | '-')));
            if matches!(self.peek(0), Some('e' | 'E'))
                && self.peek(1 + signed).is_some_and(|c| c.is_ascii_digit())
            {
                self.at += 1 + signed;
                self.digits();
                kind = Kind::Double;
            }
        }
        if kind == Kind::Int && matches!(self.peek(0), Some('u' | 'U')) {
            self.at += 1;
            kind = Kind::Uint;
        }
        kind
    }

    /// A text in quotes with its prefixes, if it is one and ends.
    fn string(&mut self) -> Option<Kind> {
        let (mut at, mut bytes, mut raw) = (0, false, false);
        loop {
            match self.peek(at) {
                Some('b' | 'B') if !bytes && !raw => bytes = true,
                Some('r' | 'R') if !raw => raw = true,
                Some('"' | '\'') => break,
                _ => return None,
            }
            at += 1;
        }
        let end = string_end(&self.chars[self.at + at..], raw).ok()?;
        self.at += at + end;
        Some(if bytes { Kind::Bytes } else { Kind::String })
    }

    /// What is no word: as far as one that began could go on.
    fn unknown(&mut self, start: usize) -> Issue {
        let c = self.chars[start];
        let length = match c {
            '"' | '\'' => match string_end(&self.chars[start..], false) {
                Ok(end) | Err(end) => end.max(1),
            },
            '&' | '|' | '=' if self.peek(1).is_some() => 2,
            _ => 1,
        };
        self.at = (start + length).min(self.chars.len());
        let text: String = self.chars[start..self.at].iter().collect();
        Issue {
            offset: u32::try_from(start).ok(),
            message: format!("Syntax error: token recognition error at: '{text}'"),
        }
    }
}

/// How long a text in quotes is, or up to where it could be one.
fn string_end(chars: &[char], raw: bool) -> Result<usize, usize> {
    let quote = chars[0];
    let triple = chars.len() >= 3 && chars[1] == quote && chars[2] == quote;
    let mut at = if triple { 3 } else { 1 };
    loop {
        match chars.get(at) {
            None => return Err(at),
            Some('\n' | '\r') if !triple => return Err((at + 1).min(chars.len())),
            Some('\\') if !raw => at += escape_length(&chars[at..]).map_err(|bad| at + bad)?,
            Some(c) if *c == quote && !triple => return Ok(at + 1),
            Some(c)
                if *c == quote
                    && chars.get(at + 1) == Some(&quote)
                    && chars.get(at + 2) == Some(&quote) =>
            {
                return Ok(at + 3);
            }
            Some(_) => at += 1,
        }
    }
}

/// How long the escape at the beginning is, or how far it was looked at until it was none.
fn escape_length(chars: &[char]) -> Result<usize, usize> {
    let digits = |from: usize, count: usize, radix: u32| {
        let bad = (from..from + count)
            .find(|at| !chars.get(*at).is_some_and(|digit| digit.is_digit(radix)));
        bad.map_or(Ok(from + count), |at| Err((at + 1).min(chars.len())))
    };
    match chars.get(1) {
        Some('a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`') => Ok(2),
        Some('x' | 'X') => digits(2, 2, 16),
        Some('u') => digits(2, 4, 16),
        Some('U') => digits(2, 8, 16),
        Some('0'..='3') => digits(2, 2, 8),
        _ => Err(2.min(chars.len())),
    }
}

/// The sign or word with this text.
pub(crate) fn sign(text: &str) -> &'static str {
    let found = SIGNS.iter().chain(&WORDS).find(|sign| **sign == text);
    found.copied().unwrap_or_default()
}
