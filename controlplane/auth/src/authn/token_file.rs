//! The static token file: a line `token,user,uid,"group1,group2"` for each token. Read at the start
//! only.
//!
//! Source: `k8s.io/apiserver/pkg/authentication/token/tokenfile/tokenfile.go` at v1.37.

use std::collections::HashMap;

use crate::user::UserInfo;

/// Why a token file cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFileError {
    /// A line has fewer than token, user and uid.
    #[error("line {line} must have at least 3 columns (token, user name, user uid)")]
    Columns {
        /// Counted from 1.
        line: usize,
    },
    /// A line has no token.
    #[error("line {line} has an empty token")]
    Empty {
        /// Counted from 1.
        line: usize,
    },
    /// A token is there twice.
    #[error("line {line} repeats a token")]
    Duplicate {
        /// Counted from 1.
        line: usize,
    },
}

/// The users by their tokens.
///
/// # Errors
/// [`TokenFileError`] names the line, never the token.
pub fn parse(text: &str) -> Result<HashMap<String, UserInfo>, TokenFileError> {
    let mut users = HashMap::new();
    for (line, text) in (1..).zip(text.lines()) {
        if text.trim().is_empty() || text.starts_with('#') {
            continue;
        }
        let columns = columns(text);
        let [token, name, uid, rest @ ..] = columns.as_slice() else {
            return Err(TokenFileError::Columns { line });
        };
        if token.is_empty() {
            return Err(TokenFileError::Empty { line });
        }
        let groups = rest.first().map(String::as_str).unwrap_or_default();
        let groups: Vec<&str> = groups
            .split(',')
            .map(str::trim)
            .filter(|group| !group.is_empty())
            .collect();
        let mut user = UserInfo::new(name.as_str(), &groups);
        user.uid.clone_from(uid);
        if users.insert(token.clone(), user).is_some() {
            return Err(TokenFileError::Duplicate { line });
        }
    }
    Ok(users)
}

/// Comma-separated values, in quotes where they have commas.
fn columns(line: &str) -> Vec<String> {
    let (mut columns, mut quoted) = (vec![String::new()], false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        let Some(column) = columns.last_mut() else {
            break;
        };
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                column.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => columns.push(String::new()),
            c => column.push(c),
        }
    }
    columns
        .into_iter()
        .map(|column| column.trim().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_users() {
        let users = parse("t1,alice,1,\"dev,ops\"\n\nt2,bob,2\n").unwrap();
        assert_eq!(users["t1"].name, "alice");
        assert_eq!(users["t1"].groups, ["dev", "ops", "system:authenticated"]);
        assert_eq!(
            (users["t2"].uid.as_str(), users["t2"].groups.len()),
            ("2", 1)
        );
    }

    #[test]
    fn bad_lines_are_named() {
        assert_eq!(
            parse("t1,alice").unwrap_err(),
            TokenFileError::Columns { line: 1 }
        );
        assert_eq!(
            parse("t1,a,1\n,b,2").unwrap_err(),
            TokenFileError::Empty { line: 2 }
        );
        assert_eq!(
            parse("t1,a,1\nt1,b,2").unwrap_err(),
            TokenFileError::Duplicate { line: 2 }
        );
    }
}
