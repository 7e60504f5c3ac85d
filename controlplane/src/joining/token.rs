//! The server token: `K10<hex SHA-256 of the CA's certificate>::server:<secret>`, as k3s writes it.
//!
//! The hash tells the real servers from any other before anything is said to them; the secret is
//! what everything is sealed with that servers share. It is kept in `DATA/server/token`, mode 0600.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use coracle_apiserver::pki;
use coracle_trust::token;
use ring::rand::{SecureRandom as _, SystemRandom};

use super::JoinError;

/// Bytes of a random secret.
const RANDOM: usize = 16;
/// What somebody chooses has at least so many characters.
const SHORTEST: usize = 16;
const LONGEST: usize = 256;

/// A server token.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ServerToken {
    /// Lower-case hex.
    pub(crate) ca_hash: String,
    pub(crate) secret: String,
}

impl fmt::Debug for ServerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerToken")
            .field("ca_hash", &self.ca_hash)
            .finish_non_exhaustive()
    }
}

impl ServerToken {
    /// A whole token.
    ///
    /// # Errors
    /// [`JoinError::TokenForm`], [`JoinError::NodeToken`].
    pub(crate) fn parse(text: &str) -> Result<Self, JoinError> {
        let (hash, rest) = token::split(text).map_err(|_| JoinError::TokenForm)?;
        let is_nodes = rest.len() == 23 && rest.as_bytes()[6] == b'.';
        match rest.strip_prefix("server:") {
            Some(secret) if is_usable(secret) => Ok(Self {
                ca_hash: hash.to_string(),
                secret: secret.to_owned(),
            }),
            None if is_nodes => Err(JoinError::NodeToken),
            _ => Err(JoinError::TokenForm),
        }
    }

    /// What the first server is told: a whole token of this cluster, or the secret alone.
    ///
    /// # Errors
    /// As [`ServerToken::parse`]; [`JoinError::ChosenToken`].
    pub(crate) fn chosen(text: &str, ca_hash: &str) -> Result<Self, JoinError> {
        if text.starts_with("K10") {
            let token = Self::parse(text)?;
            return match token.ca_hash == ca_hash {
                true => Ok(token),
                false => Err(JoinError::OtherClustersToken),
            };
        }
        if !is_usable(text) {
            return Err(JoinError::ChosenToken);
        }
        Ok(Self {
            ca_hash: ca_hash.to_owned(),
            secret: text.to_owned(),
        })
    }

    /// A new one that nobody can guess.
    ///
    /// # Errors
    /// [`JoinError::NoRandomness`].
    pub(crate) fn random(ca_hash: &str) -> Result<Self, JoinError> {
        let mut secret = [0; RANDOM];
        SystemRandom::new()
            .fill(&mut secret)
            .map_err(|_| JoinError::NoRandomness)?;
        Ok(Self {
            ca_hash: ca_hash.to_owned(),
            secret: hex::encode(secret),
        })
    }

    /// The whole token, as it is printed.
    pub(crate) fn text(&self) -> String {
        format!("K10{}::server:{}", self.ca_hash, self.secret)
    }

    /// What is kept in `server_dir`, if there is one.
    ///
    /// # Errors
    /// [`JoinError::File`], or that it is none.
    pub(crate) fn read(server_dir: &Path) -> Result<Option<Self>, JoinError> {
        let path = file(server_dir);
        match std::fs::read_to_string(&path) {
            Ok(text) => Self::parse(&text)
                .map(Some)
                .map_err(|_| JoinError::DamagedToken { path }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(JoinError::File {
                operation: "read",
                path,
                source,
            }),
        }
    }

    /// Keeps it in `server_dir`.
    ///
    /// # Errors
    /// [`JoinError::Pki`] names the file.
    pub(crate) fn write(&self, server_dir: &Path) -> Result<(), JoinError> {
        let line = format!("{}\n", self.text());
        Ok(pki::keep_private(&file(server_dir), line.as_bytes())?)
    }
}

/// Where it is kept.
pub(crate) fn file(server_dir: &Path) -> PathBuf {
    server_dir.join("token")
}

/// Visible ASCII, neither too short nor too long.
fn is_usable(secret: &str) -> bool {
    (SHORTEST..=LONGEST).contains(&secret.len())
        && secret.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash() -> String {
        "ab".repeat(32)
    }

    #[test]
    fn tokens_of_servers_are_told_from_all_else() {
        let good = format!("K10{}::server:0123456789abcdef", hash());
        assert_eq!(ServerToken::parse(&good).unwrap().text(), good);
        assert_eq!(
            ServerToken::parse(&format!(" {good}\n")).unwrap().text(),
            good
        );
        for (text, expected) in [
            (String::new(), "expected K10"),
            ("0123456789abcdef".to_owned(), "expected K10"),
            ("K10ab::server:0123456789abcdef".to_owned(), "expected K10"),
            (format!("K10{}::server:short", hash()), "expected K10"),
            (
                format!("K10{}::abcdef.0123456789abcdef", hash()),
                "token for nodes",
            ),
        ] {
            let said = ServerToken::parse(&text).unwrap_err().to_string();
            assert!(said.contains(expected), "{text}: {said}");
        }
    }

    #[test]
    fn a_chosen_token_is_long_enough_and_of_this_cluster() {
        let chosen = ServerToken::chosen("correct-horse-battery", &hash()).unwrap();
        assert_eq!(
            chosen.text(),
            format!("K10{}::server:correct-horse-battery", hash())
        );
        assert_eq!(
            ServerToken::chosen(&chosen.text(), &hash()).unwrap(),
            chosen
        );
        let other = "cd".repeat(32);
        for (text, ca_hash, expected) in [
            ("too-short", hash(), "at least 16"),
            ("with a blank in the middle", hash(), "at least 16"),
            (&chosen.text(), other, "another cluster"),
        ] {
            let said = ServerToken::chosen(text, &ca_hash).unwrap_err().to_string();
            assert!(said.contains(expected), "{text}: {said}");
        }
        let random = ServerToken::random(&hash()).unwrap();
        assert_ne!(random, ServerToken::random(&hash()).unwrap());
        assert!(!format!("{random:?}").contains(&random.secret));
    }
}
