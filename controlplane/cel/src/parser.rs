//! From a text to a tree, by upstream's grammar.
//!
//! A word too many is told and skipped; at any other fault the parser stops. Macros are expanded as
//! they are met ([`crate::macros`]).
//!
//! Source: `parser/gen/Cel.g4` and `parser/parser.go` of cel-go.

mod primary;

use crate::{
    ast::{Ast, Expr, ExprKind},
    build::Builder,
    lexer::{self, Kind, Token},
    macros,
    source::{Issue, Issues, Source},
};

/// How deep expressions may be in each other's parentheses, brackets and conditionals, and how long
/// a chain of operators of one rank may be.
const MAX_NESTING: usize = 250;

/// What may begin an expression, as messages list it.
const EXPRESSION: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, \
     STRING, BYTES, IDENTIFIER}";

/// Operators by their ranks; those of a higher rank hold closer together.
const RANKS: [&[&str]; 5] = [
    &["||"],
    &["&&"],
    &["<", "<=", ">=", ">", "==", "!=", "in"],
    &["+", "-"],
    &["*", "/", "%"],
];

/// The parser stopped; the reason is among the issues.
struct Stop;

type Parsed<T> = Result<T, Stop>;

/// Parses a text.
///
/// # Errors
/// [`Issues`] with all faults that were found.
pub fn parse(text: &str) -> Result<Ast, Issues> {
    let source = Source::new(text)?;
    let (tokens, issues) = lexer::tokens(source.chars());
    let mut parser = Parser {
        source: &source,
        tokens,
        at: 0,
        nesting: 0,
        build: Builder::new(issues),
    };
    let root = parser.whole();
    let mut build = parser.build;
    if build.too_deep {
        build.issues.push(Issue {
            offset: None,
            message: "max recursion depth exceeded".into(),
        });
    }
    if build.too_large {
        build.issues.push(Issue {
            offset: None,
            message: "expression too large: macros copy too much of it".into(),
        });
    }
    match root {
        Ok(root) if build.issues.is_empty() => Ok(Ast {
            source,
            root,
            positions: build.positions,
        }),
        _ => Err(Issues::new(source, build.issues)),
    }
}

struct Parser<'a> {
    source: &'a Source,
    tokens: Vec<Token>,
    at: usize,
    nesting: usize,
    build: Builder,
}

impl Parser<'_> {
    fn peek(&self) -> Token {
        self.tokens[self.at]
    }

    /// The word after the next; the end stays the end.
    fn peek_second(&self) -> Token {
        self.tokens[(self.at + 1).min(self.tokens.len() - 1)]
    }

    fn next(&mut self) -> Token {
        let token = self.peek();
        if token.kind != Kind::End {
            self.at += 1;
        }
        token
    }

    fn is(&self, sign: &str) -> bool {
        self.peek().kind == Kind::Sign(lookup(sign))
    }

    fn take(&mut self, sign: &str) -> Option<u32> {
        self.is(sign).then(|| offset(self.next()))
    }

    fn text(&self, token: Token) -> String {
        if token.kind == Kind::End {
            return "<EOF>".into();
        }
        self.source.chars()[token.start..token.end].iter().collect()
    }

    fn mismatched(&mut self, expecting: &str) -> Stop {
        self.unexpected("mismatched", expecting);
        Stop
    }

    fn unexpected(&mut self, what: &str, expecting: &str) {
        let token = self.peek();
        let message = format!(
            "Syntax error: {what} input '{}' expecting {expecting}",
            self.text(token)
        );
        self.build.error(offset(token), message);
    }

    fn expect(&mut self, sign: &str) -> Parsed<u32> {
        match self.take(sign) {
            Some(offset) => Ok(offset),
            None => Err(self.mismatched(&format!("'{sign}'"))),
        }
    }

    fn whole(&mut self) -> Parsed<Expr> {
        let expr = self.expr()?;
        if self.peek().kind == Kind::End {
            return Ok(expr);
        }
        let last = self.peek_second().kind == Kind::End;
        let what = if last { "extraneous" } else { "mismatched" };
        self.unexpected(what, "<EOF>");
        Err(Stop)
    }

    fn too_deep(&mut self) -> Stop {
        self.build.issues.push(Issue {
            offset: None,
            message: format!("expression recursion limit exceeded: {MAX_NESTING}"),
        });
        Stop
    }

    fn expr(&mut self) -> Parsed<Expr> {
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            return Err(self.too_deep());
        }
        let expr = self.conditional();
        self.nesting -= 1;
        expr
    }

    fn conditional(&mut self) -> Parsed<Expr> {
        let condition = self.operators(0)?;
        let Some(op) = self.take("?") else {
            return Ok(condition);
        };
        let yes = self.operators(0)?;
        self.expect(":")?;
        let no = self.expr()?;
        Ok(self.build.call(op, "_?_:_", vec![condition, yes, no]))
    }

    /// Operators of a rank or a higher one, with what they stand between.
    fn operators(&mut self, rank: usize) -> Parsed<Expr> {
        let mut left = self.unary()?;
        for _ in 0..MAX_NESTING {
            let token = self.peek();
            let found = match token.kind {
                Kind::Sign(sign) => RANKS
                    .iter()
                    .position(|signs| signs.contains(&sign))
                    .map(|rank| (rank, sign)),
                _ => None,
            };
            let Some((found, sign)) = found.filter(|(found, _)| *found >= rank) else {
                return Ok(left);
            };
            left = match sign {
                "||" => self.logical(left, found, sign, "_||_")?,
                "&&" => self.logical(left, found, sign, "_&&_")?,
                sign => {
                    let op = offset(self.next());
                    let right = self.operators(found + 1)?;
                    let function = match sign {
                        "in" => "@in".to_owned(),
                        sign => format!("_{sign}_"),
                    };
                    self.build.call(op, &function, vec![left, right])
                }
            };
        }
        self.build.too_deep = true;
        Err(Stop)
    }

    /// All operands of `&&` or `||` that follow the first.
    fn logical(&mut self, first: Expr, rank: usize, sign: &str, function: &str) -> Parsed<Expr> {
        let (mut operands, mut ops) = (vec![first], Vec::new());
        while let Some(op) = self.take(sign) {
            ops.push(op);
            operands.push(self.operators(rank + 1)?);
        }
        Ok(self.build.balanced(function, operands, &ops))
    }

    /// Operators that cancel each other out are none. A sign before a number is the number's.
    fn unary(&mut self) -> Parsed<Expr> {
        for (sign, function) in [("!", "!_"), ("-", "-_")] {
            let first = offset(self.peek());
            let mut count = 0;
            let number = |kind| matches!(kind, Kind::Int | Kind::Double);
            while self.is(sign) && !(sign == "-" && count == 0 && number(self.peek_second().kind)) {
                self.next();
                count += 1;
            }
            if count > 0 {
                let operand = self.member()?;
                return Ok(match count % 2 {
                    0 => operand,
                    _ => self.build.call(first, function, vec![operand]),
                });
            }
        }
        self.member()
    }

    fn member(&mut self) -> Parsed<Expr> {
        let mut expr = self.primary()?;
        for _ in 0..MAX_NESTING {
            if let Some(dot) = self.take(".") {
                let optional = self.take("?").is_some();
                let field = self.identifier()?;
                if !optional && let Some(open) = self.take("(") {
                    let args = self.arguments()?;
                    expr = macros::expand(&mut self.build, open, Some(expr), &field, args);
                    continue;
                }
                expr = self.select(dot, expr, &field, optional);
            } else if let Some(open) = self.take("[") {
                let optional = self.take("?").is_some();
                let index = self.expr()?;
                self.expect("]")?;
                let function = if optional { "_[?_]" } else { "_[_]" };
                expr = self.build.call(open, function, vec![expr, index]);
            } else {
                return Ok(expr);
            }
        }
        self.build.too_deep = true;
        Err(Stop)
    }

    fn select(&mut self, dot: u32, operand: Expr, field: &str, optional: bool) -> Expr {
        if optional {
            let field = self
                .build
                .literal(dot, crate::ast::Literal::String(field.into()));
            return self.build.call(dot, "_?._", vec![operand, field]);
        }
        let kind = ExprKind::Select {
            operand: Box::new(operand),
            field: field.into(),
            test_only: false,
        };
        self.build.expr(dot, kind)
    }

    fn identifier(&mut self) -> Parsed<String> {
        if self.peek().kind == Kind::Ident {
            let token = self.next();
            return Ok(self.text(token));
        }
        if self.peek().kind == Kind::End {
            let message = "Syntax error: no viable alternative at input '.'";
            let at = offset(self.peek());
            self.build.error(at, message);
            return Err(Stop);
        }
        Err(self.mismatched("IDENTIFIER"))
    }
}

/// The sign itself, as the lexer knows it.
fn lookup(sign: &str) -> &'static str {
    lexer::sign(sign)
}

fn offset(token: Token) -> u32 {
    u32::try_from(token.start).unwrap_or(u32::MAX)
}
