//! Names, calls, literals, and what is in parentheses, brackets and braces.

use super::{EXPRESSION, Parsed, Parser, Stop, offset};
use crate::{
    ast::{Expr, ExprKind, Literal},
    lexer::{Kind, RESERVED},
    literal, macros,
};

/// What may stand after `{` in a map, as messages list it.
const MAP: &str = "{'[', '{', '}', '(', '.', ',', '-', '!', '?', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, \
     NUM_UINT, STRING, BYTES, IDENTIFIER}";

impl Parser<'_> {
    pub(super) fn primary(&mut self) -> Parsed<Expr> {
        self.skip_one_too_many(EXPRESSION, |kind| {
            !matches!(
                kind,
                Kind::End
                    | Kind::Sign(
                        "in" | "=="
                            | "!="
                            | "<="
                            | ">="
                            | "&&"
                            | "||"
                            | "<"
                            | ">"
                            | "]"
                            | "}"
                            | ")"
                            | ","
                            | "?"
                            | ":"
                            | "+"
                            | "*"
                            | "/"
                            | "%"
                    )
            )
        });
        let token = self.peek();
        let at = offset(token);
        match token.kind {
            Kind::Int | Kind::Uint | Kind::Double | Kind::String | Kind::Bytes => {
                Ok(self.literal(at, ""))
            }
            Kind::Sign("-") if matches!(self.peek_second().kind, Kind::Int | Kind::Double) => {
                self.next();
                Ok(self.literal(at, "-"))
            }
            Kind::Sign(word @ ("true" | "false" | "null")) => {
                self.next();
                let literal = match word {
                    "null" => Literal::Null,
                    word => Literal::Bool(word == "true"),
                };
                Ok(self.build.literal(at, literal))
            }
            Kind::Sign("(") => {
                self.next();
                let expr = self.expr()?;
                self.expect(")")?;
                Ok(expr)
            }
            Kind::Sign("[") => {
                self.next();
                self.list(at)
            }
            Kind::Sign("{") => {
                self.next();
                self.map(at)
            }
            Kind::Sign(".") => {
                self.next();
                self.name(at, true)
            }
            Kind::Ident => self.name(at, false),
            Kind::Sign(_) | Kind::End => Err(self.mismatched(EXPRESSION)),
        }
    }

    /// Tells and skips a word after which what was expected follows.
    fn skip_one_too_many(&mut self, expecting: &str, fits: impl Fn(Kind) -> bool) {
        let second = self.peek_second().kind;
        if !fits(self.peek().kind) && self.peek().kind != Kind::End && fits(second) {
            self.unexpected("extraneous", expecting);
            self.next();
        }
    }

    fn literal(&mut self, at: u32, sign: &str) -> Expr {
        let token = self.next();
        let text = format!("{sign}{}", self.text(token));
        let literal = match token.kind {
            Kind::Int => literal::int(&text),
            Kind::Uint => literal::uint(&text),
            Kind::Double => literal::double(&text),
            kind => literal::string(&text, kind == Kind::Bytes),
        };
        match literal {
            Ok(literal) => self.build.literal(at, literal),
            Err(message) => {
                self.build.error(at, message);
                self.build.bad(at)
            }
        }
    }

    /// A name, a call, or a message; the dot before it was taken.
    fn name(&mut self, at: u32, dot: bool) -> Parsed<Expr> {
        if let Some(message) = self.message(dot)? {
            return Ok(message);
        }
        let name_at = offset(self.peek());
        let name = self.identifier()?;
        let reserved = RESERVED.contains(&&*name);
        if reserved {
            self.build
                .error(name_at, format!("reserved identifier: {name}"));
        }
        let full = if dot { format!(".{name}") } else { name };
        match self.take("(") {
            Some(open) => {
                let args = self.arguments()?;
                Ok(macros::expand(&mut self.build, open, None, &full, args))
            }
            None if reserved => Ok(self.build.bad(at)),
            None => Ok(self.build.ident(at, &full)),
        }
    }

    /// `a.b.C{..}`, if it is one.
    fn message(&mut self, dot: bool) -> Parsed<Option<Expr>> {
        let kind = |at: usize| self.tokens.get(at).map(|token| token.kind);
        let mut at = self.at;
        while kind(at) == Some(Kind::Ident) && kind(at + 1) == Some(Kind::Sign(".")) {
            at += 2;
        }
        if kind(at) != Some(Kind::Ident) || kind(at + 1) != Some(Kind::Sign("{")) {
            return Ok(None);
        }
        let mut name = String::from(if dot { "." } else { "" });
        while !self.is("{") {
            let token = self.next();
            name.push_str(&self.text(token));
        }
        let open = self.expect("{")?;
        let mut fields = Vec::new();
        while !self.is("}") {
            let optional = self.take("?").is_some();
            self.skip_one_too_many("{'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}", |kind| {
                kind == Kind::Ident
            });
            if self.peek().kind != Kind::Ident {
                return Err(self.mismatched("{'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}"));
            }
            let field = self.identifier()?;
            let colon = self.expect(":")?;
            let id = self.build.id(colon);
            let value = self.expr()?;
            fields.push((id, field.into(), value, optional));
            if self.take(",").is_none() {
                break;
            }
        }
        self.expect("}")?;
        let type_name = name.into();
        let kind = ExprKind::Struct { type_name, fields };
        Ok(Some(self.build.expr(open, kind)))
    }

    /// What is between parentheses that are open, up to the closing one.
    pub(super) fn arguments(&mut self) -> Parsed<Vec<Expr>> {
        let mut args = Vec::new();
        while !self.is(")") {
            args.push(self.expr()?);
            if self.take(",").is_none() {
                break;
            }
            if self.is(")") {
                return Err(self.mismatched(EXPRESSION));
            }
        }
        self.expect(")")?;
        Ok(args)
    }

    fn list(&mut self, open: u32) -> Parsed<Expr> {
        let mut elements = Vec::new();
        // A comma may follow the last element, and stand for none.
        let empty = self.is("]") || self.is(",");
        while !empty && !self.is("]") {
            let optional = self.take("?").is_some();
            elements.push((self.expr()?, optional));
            if self.take(",").is_none() {
                break;
            }
        }
        if elements.is_empty() {
            self.take(",");
        }
        self.expect("]")?;
        Ok(self.build.expr(open, ExprKind::List { elements }))
    }

    fn map(&mut self, open: u32) -> Parsed<Expr> {
        let mut entries = Vec::new();
        let empty = self.is("}") || self.is(",");
        while !empty && !self.is("}") {
            if self.peek().kind == Kind::End {
                return Err::<Expr, Stop>(self.mismatched(MAP));
            }
            let optional = self.take("?").is_some();
            let key = self.expr()?;
            self.expect(":")?;
            let value = self.expr()?;
            entries.push((key, value, optional));
            if self.take(",").is_none() {
                break;
            }
        }
        if entries.is_empty() {
            self.take(",");
        }
        self.expect("}")?;
        Ok(self.build.expr(open, ExprKind::Map { entries }))
    }
}
