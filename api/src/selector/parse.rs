//! The grammar of the `labelSelector` parameter.

use super::{Operator, ParseSelectorError, Requirement};
use crate::{name, status::quote};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Unknown,
    End,
    Close,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    Greater,
    Identifier,
    In,
    Less,
    NotEquals,
    NotIn,
    Open,
}

fn keyword(text: &str) -> Option<Token> {
    Some(match text {
        ")" => Token::Close,
        "," => Token::Comma,
        "!" => Token::Not,
        "==" => Token::DoubleEquals,
        "=" => Token::Equals,
        ">" => Token::Greater,
        "in" => Token::In,
        "<" => Token::Less,
        "!=" => Token::NotEquals,
        "notin" => Token::NotIn,
        "(" => Token::Open,
        _ => return None,
    })
}

pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, ParseSelectorError> {
    let mut parser = Parser {
        tokens: scan(text),
        position: 0,
    };
    parser.parse().map_err(ParseSelectorError)
}

fn is_special(c: char) -> bool {
    "=!(),><".contains(c)
}

fn is_space(c: char) -> bool {
    " \t\r\n".contains(c)
}

/// Cuts the text into tokens; the last one is `End`.
fn scan(text: &str) -> Vec<(Token, String)> {
    let mut out = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        let len = if rest.starts_with(is_special) {
            // The longest symbol: two characters where they make one.
            match rest.get(..2).and_then(keyword) {
                Some(_) => 2,
                None => 1,
            }
        } else {
            rest.find(|c| is_special(c) || is_space(c))
                .unwrap_or(rest.len())
        };
        let (word, after) = rest.split_at(len);
        let fallback = if word.starts_with(is_special) {
            Token::Unknown
        } else {
            Token::Identifier
        };
        out.push((keyword(word).unwrap_or(fallback), word.to_owned()));
        rest = after.trim_start_matches(is_space);
    }
    out.push((Token::End, String::new()));
    out
}

struct Parser {
    tokens: Vec<(Token, String)>,
    position: usize,
}

impl Parser {
    /// The current token where a value may stand: `in` and `notin` are values there.
    fn peek(&self) -> (Token, &str) {
        let (token, text) = &self.tokens[self.position.min(self.tokens.len() - 1)];
        let token = if matches!(token, Token::In | Token::NotIn) {
            Token::Identifier
        } else {
            *token
        };
        (token, text)
    }

    fn next(&mut self) -> (Token, String) {
        let (token, text) = self.peek();
        let found = (token, text.to_owned());
        self.position += 1;
        found
    }

    fn parse(&mut self) -> Result<Vec<Requirement>, String> {
        let mut out = Vec::new();
        loop {
            match self.peek() {
                (Token::Identifier | Token::Not, _) => {}
                (Token::End, _) => return Ok(out),
                (_, text) => {
                    return Err(format!(
                        "found '{text}', expected: !, identifier, or 'end of string'"
                    ));
                }
            }
            out.push(
                self.requirement()
                    .map_err(|e| format!("unable to parse requirement: {e}"))?,
            );
            match self.next() {
                (Token::End, _) => return Ok(out),
                (Token::Comma, _) => match self.peek() {
                    (Token::Identifier | Token::Not, _) => {}
                    (_, text) => {
                        return Err(format!("found '{text}', expected: identifier after ','"));
                    }
                },
                (_, text) => {
                    return Err(format!("found '{text}', expected: ',' or 'end of string'"));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let (mut token, mut key) = self.next();
        let negated = token == Token::Not;
        if negated {
            (token, key) = self.next();
        }
        if token != Token::Identifier {
            return Err(format!("found '{key}', expected: identifier"));
        }
        if let Some(error) = name::qualified_name_error(&key) {
            // Upstream passes no path here, and Go prints that so.
            return Err(format!("<nil>: Invalid value: {}: {error}", quote(&key)));
        }
        let checked =
            |operator, values| Requirement::checked(&key, operator, values).map_err(|e| e.0);
        if negated {
            return checked(Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return checked(Operator::Exists, Vec::new());
        }
        let (token, text) = self.tokens[self.position.min(self.tokens.len() - 1)].clone();
        self.position += 1;
        match token {
            Token::In => checked(Operator::In, self.values()?),
            Token::NotIn => checked(Operator::NotIn, self.values()?),
            Token::Equals | Token::DoubleEquals => checked(Operator::In, vec![self.value()?]),
            Token::NotEquals => checked(Operator::NotIn, vec![self.value()?]),
            Token::Greater => checked(Operator::GreaterThan, vec![self.value()?]),
            Token::Less => checked(Operator::LessThan, vec![self.value()?]),
            _ => Err(format!(
                "found '{text}', expected: in, notin, =, ==, !=, gt, lt"
            )),
        }
    }

    fn value(&mut self) -> Result<String, String> {
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Ok(String::new());
        }
        match self.next() {
            (Token::Identifier, text) => Ok(text),
            (_, text) => Err(format!("found '{text}', expected: identifier")),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        match self.next() {
            (Token::Open, _) => {}
            (_, text) => return Err(format!("found '{text}' expected: '('")),
        }
        let (token, first) = self.peek();
        let first = first.to_owned();
        match token {
            Token::Close => {
                self.next();
                Ok(vec![String::new()])
            }
            Token::Identifier | Token::Comma => {
                let values = self.value_list()?;
                match self.next() {
                    (Token::Close, _) => Ok(values),
                    _ => Err(format!("found '{first}', expected: ')'")),
                }
            }
            _ => Err(format!("found '{first}', expected: ',', ')' or identifier")),
        }
    }

    /// `a,b`, where a value between commas may be empty. Leaves the closing parenthesis.
    fn value_list(&mut self) -> Result<Vec<String>, String> {
        let mut out = Vec::new();
        loop {
            match self.next() {
                (Token::Identifier, text) => {
                    out.push(text);
                    match self.peek() {
                        (Token::Comma, _) => {}
                        (Token::Close, _) => return Ok(out),
                        (_, text) => return Err(format!("found '{text}', expected: ',' or ')'")),
                    }
                }
                (Token::Comma, _) => {
                    if out.is_empty() {
                        out.push(String::new());
                    }
                    match self.peek().0 {
                        Token::Close => {
                            out.push(String::new());
                            return Ok(out);
                        }
                        Token::Comma => out.push(String::new()),
                        _ => {}
                    }
                }
                (_, text) => return Err(format!("found '{text}', expected: ',', or identifier")),
            }
        }
    }
}
