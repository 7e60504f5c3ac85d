//! Links in pages that come through a proxy: those that begin at the root of the backend begin
//! below the proxy's path.
//!
//! Piece by piece: text goes through as it comes, and only a tag that is not complete yet is held
//! back. Scripts, styles and comments are no text with tags in it and stay as they are.
//!
//! Source: `k8s.io/apimachinery/pkg/util/proxy/transport.go` at v1.37.

use bytes::Bytes;
use futures::{Stream, StreamExt as _};

/// A tag that is longer is passed on as it is.
const TAG_LIMIT: usize = 8 * 1024;

/// Elements, and which of their attributes are links.
const LINKS: &[(&str, &[&str])] = &[
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];

/// Elements whose content has no tags but their own end.
const RAW: [&str; 5] = ["script", "style", "textarea", "title", "xmp"];
const COMMENT: &[u8] = b"<!--";
const COMMENT_END: &[u8] = b"-->";

/// Where links lead.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// The proxy's path, without a slash at its end.
    pub(super) prefix: String,
    /// Names of the backend and of this server, as links may have them.
    pub(super) hosts: Vec<String>,
}

impl Place {
    /// The link as it has to be here; `None` if it may stay.
    fn moved(&self, link: &str) -> Option<String> {
        let path = match link.split_once("://") {
            Some(("http" | "https", rest)) => {
                let (host, path) = rest.split_at(rest.find('/')?);
                self.hosts
                    .iter()
                    .any(|known| known == host)
                    .then_some(path)?
            }
            Some(_) => return None,
            // Two slashes begin a host.
            None => Some(link).filter(|link| link.starts_with('/') && !link.starts_with("//"))?,
        };
        let is_below = path
            .strip_prefix(&self.prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        (!is_below).then(|| format!("{}{path}", self.prefix))
    }
}

/// A page under way.
pub(super) struct Page {
    place: Place,
    held: Vec<u8>,
    inside: Inside,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    Text,
    Comment,
    Raw(&'static str),
}

impl Page {
    pub(super) fn new(place: Place) -> Self {
        Self {
            place,
            held: Vec::new(),
            inside: Inside::Text,
        }
    }

    /// What can be passed on once `piece` has come.
    fn feed(&mut self, piece: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(piece);
        let text = std::mem::take(&mut self.held);
        let mut out = Vec::with_capacity(text.len() + 256);
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            match self.step(rest, &mut out) {
                Some(taken) => at += taken,
                None if rest.len() > TAG_LIMIT => {
                    out.extend_from_slice(rest);
                    at = text.len();
                }
                None => {
                    self.held = rest.to_vec();
                    break;
                }
            }
        }
        out
    }

    /// Passes on the next part of `rest` and says how long it was; `None` if its end has not come
    /// yet.
    fn step(&mut self, rest: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let taken = match self.inside {
            Inside::Comment => match find(rest, COMMENT_END) {
                Some(end) => {
                    self.inside = Inside::Text;
                    end + COMMENT_END.len()
                }
                // Perhaps the last two bytes are its beginning.
                None => rest
                    .len()
                    .checked_sub(COMMENT_END.len() - 1)
                    .filter(|length| *length > 0)?,
            },
            Inside::Raw(element) => match rest.iter().position(|byte| *byte == b'<') {
                Some(0) => {
                    let name = rest.get(2..element.len() + 2);
                    if rest.len() < element.len() + 2 && rest.len() < TAG_LIMIT {
                        return None;
                    }
                    if rest.get(1) == Some(&b'/')
                        && name.is_some_and(|name| name.eq_ignore_ascii_case(element.as_bytes()))
                    {
                        self.inside = Inside::Text;
                        return Some(0);
                    }
                    1
                }
                Some(start) => start,
                None => rest.len(),
            },
            Inside::Text if rest[0] != b'<' => rest
                .iter()
                .position(|byte| *byte == b'<')
                .unwrap_or(rest.len()),
            Inside::Text => return self.tag(rest, out),
        };
        out.extend_from_slice(&rest[..taken]);
        Some(taken)
    }

    /// The same for what begins with `<`.
    fn tag(&mut self, rest: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        if rest.len() < COMMENT.len() && COMMENT.starts_with(rest) {
            return None;
        }
        if rest.starts_with(COMMENT) {
            self.inside = Inside::Comment;
            out.extend_from_slice(COMMENT);
            return Some(COMMENT.len());
        }
        if !rest[1].is_ascii_alphabetic() {
            // An end, a declaration, or no tag at all: without links.
            out.push(b'<');
            return Some(1);
        }
        let end = end_of_tag(rest)?;
        let tag = &rest[..end];
        let name_end = tag
            .iter()
            .position(|byte| byte.is_ascii_whitespace() || matches!(byte, b'>' | b'/'))
            .unwrap_or(end);
        let name = String::from_utf8_lossy(&tag[1..name_end]).to_ascii_lowercase();
        match LINKS.iter().find(|(element, _)| *element == name) {
            Some((_, attributes)) => self.links(tag, name_end, attributes, out),
            None => out.extend_from_slice(tag),
        }
        if let Some(element) = RAW.into_iter().find(|element| *element == name) {
            self.inside = Inside::Raw(element);
        }
        Some(end)
    }

    /// A tag with its links moved.
    fn links(&self, tag: &[u8], name_end: usize, attributes: &[&str], out: &mut Vec<u8>) {
        let mut copied = 0;
        for (name, value) in (Attributes { tag, at: name_end }) {
            let is_link = attributes
                .iter()
                .any(|attribute| name.eq_ignore_ascii_case(attribute.as_bytes()));
            let Some(moved) = std::str::from_utf8(&tag[value.clone()])
                .ok()
                .filter(|_| is_link)
                .and_then(|link| self.place.moved(link))
            else {
                continue;
            };
            out.extend_from_slice(&tag[copied..value.start]);
            out.extend_from_slice(moved.as_bytes());
            copied = value.end;
        }
        out.extend_from_slice(&tag[copied..]);
    }
}

/// The attributes of a tag: name and place of the value.
struct Attributes<'a> {
    tag: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (&'a [u8], std::ops::Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        let tag = self.tag;
        let skip = |from: usize, what: fn(&u8) -> bool| {
            from + tag[from.min(tag.len())..]
                .iter()
                .take_while(|byte| what(byte))
                .count()
        };
        let start = skip(self.at, |byte| byte.is_ascii_whitespace() || *byte == b'/');
        let name_end = skip(start, |byte| {
            !byte.is_ascii_whitespace() && !matches!(byte, b'=' | b'>' | b'/')
        });
        if name_end == start {
            // Nothing is left but perhaps a sign that stands alone.
            self.at = start + 1;
            return (self.at < tag.len()).then(|| (&tag[..0], 0..0));
        }
        let name = &tag[start..name_end];
        let equals = skip(name_end, u8::is_ascii_whitespace);
        if tag.get(equals) != Some(&b'=') {
            self.at = name_end;
            return Some((name, name_end..name_end));
        }
        let value = skip(equals + 1, u8::is_ascii_whitespace);
        let range = match tag.get(value) {
            Some(&quote) if matches!(quote, b'"' | b'\'') => {
                let length = tag[value + 1..]
                    .iter()
                    .position(|byte| *byte == quote)
                    .unwrap_or(tag.len() - value - 1);
                self.at = value + length + 2;
                value + 1..value + 1 + length
            }
            _ => {
                let end = skip(value, |byte| !byte.is_ascii_whitespace() && *byte != b'>');
                self.at = end;
                value..end
            }
        };
        Some((name, range))
    }
}

/// Where a tag ends: after the `>` that is in no quotes.
fn end_of_tag(rest: &[u8]) -> Option<usize> {
    let mut quote = None;
    let mut before = b' ';
    for (at, &byte) in rest.iter().enumerate() {
        match (quote, byte) {
            (Some(open), byte) if byte == open => quote = None,
            (Some(_), _) => {}
            // Quotes are quotes only where a value begins.
            (None, b'"' | b'\'') if before == b'=' => quote = Some(byte),
            (None, b'>') => return Some(at + 1),
            _ => {}
        }
        if !byte.is_ascii_whitespace() {
            before = byte;
        }
    }
    None
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

/// The pieces of a page with its links moved.
pub(super) fn pieces<E>(
    pieces: impl Stream<Item = Result<Bytes, E>> + Send + Unpin + 'static,
    place: Place,
) -> impl Stream<Item = Result<Bytes, E>> + Send {
    futures::stream::unfold(Some((pieces, Page::new(place))), |state| async move {
        let (mut pieces, mut page) = state?;
        match pieces.next().await {
            Some(Ok(piece)) => {
                let out = page.feed(&piece);
                Some((Ok(Bytes::from(out)), Some((pieces, page))))
            }
            Some(Err(error)) => Some((Err(error), None)),
            None => Some((Ok(Bytes::from(page.held)), None)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        Place {
            prefix: "/p/proxy".to_owned(),
            hosts: vec!["web:80".to_owned(), "api:6443".to_owned()],
        }
    }

    /// The page, however it is cut.
    #[track_caller]
    fn check(page: &str, expect: &str) {
        for size in [1, 2, 3, 7, page.len().max(1)] {
            let mut rewritten = Page::new(place());
            let mut out: Vec<u8> = page
                .as_bytes()
                .chunks(size)
                .flat_map(|piece| rewritten.feed(piece))
                .collect();
            out.extend_from_slice(&rewritten.held);
            assert_eq!(String::from_utf8(out).unwrap(), expect, "cut at {size}");
        }
    }

    #[test]
    fn links_from_the_root_lead_below_the_proxy() {
        check(
            r#"<a href="/rewriteme">x</a>"#,
            r#"<a href="/p/proxy/rewriteme">x</a>"#,
        );
        check(
            "<A class=b HREF='/x/' id=c>",
            "<A class=b HREF='/p/proxy/x/' id=c>",
        );
        check(
            "<img alt=\"a > b\" src=/i.png>",
            "<img alt=\"a > b\" src=/p/proxy/i.png>",
        );
        check(
            "<link href = \"/s.css\"/><script src=\"/s.js\"></script>",
            "<link href = \"/p/proxy/s.css\"/><script src=\"/p/proxy/s.js\"></script>",
        );
        check(
            "<a href=\"http://web:80/x?y=/z\">",
            "<a href=\"/p/proxy/x?y=/z\">",
        );
        check("<form action=\"/\">", "<form action=\"/p/proxy/\">");
    }

    #[test]
    fn everything_else_stays() {
        for page in [
            r#"<a href="x">"#,
            r#"<a href="//elsewhere/x">"#,
            r#"<a href="https://elsewhere/x">"#,
            r#"<a href="/p/proxy/x">"#,
            r##"<a href="#/x">"##,
            r#"<div data="/x" href="/y">"#,
            r#"<!-- <a href="/x"> -->"#,
            r#"<script>if (a < b) { c = '<a href="/x">' }</script>"#,
            r#"<style>a { background: url("/x") }</style>"#,
            r#"a < b <3 </a href="/x"> <!doctype html>"#,
            "<a href=\"/x",
            "<",
            "",
        ] {
            check(page, page);
        }
        check(
            "<style></style><a href=\"/x\">",
            "<style></style><a href=\"/p/proxy/x\">",
        );
    }

    #[test]
    fn a_tag_without_an_end_is_not_held_for_ever() {
        let mut page = Page::new(place());
        let tag = format!("<a href=\"{}", "x".repeat(TAG_LIMIT));
        assert_eq!(page.feed(tag.as_bytes()), tag.as_bytes());
        assert!(page.held.is_empty());
    }
}
