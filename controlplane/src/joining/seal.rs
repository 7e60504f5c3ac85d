//! What is made of a server token, and what is sealed with it.
//!
//! ```text
//! PBKDF2-HMAC-SHA256(secret, salt: the CA's hash) --HKDF--> proof: shown to the server that is asked
//!                                                 --HKDF--> a key for each sealing: AES-256-GCM
//! sealed text: base64(salt of the key | nonce | ciphertext and tag), bound to the CA's hash
//! ```
//! Who has the sealed text and not the token can guess, at the cost of one PBKDF2 a guess; a random
//! secret of 128 bits is not guessed.

use std::num::NonZeroU32;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hkdf::{self, HKDF_SHA256, KeyType, Prk},
    pbkdf2,
    rand::{SecureRandom as _, SystemRandom},
};

use super::{JoinError, token::ServerToken};

/// What OWASP's cheat sheet on storing passwords asks for with PBKDF2-HMAC-SHA256.
const ITERATIONS: NonZeroU32 = match NonZeroU32::new(600_000) {
    Some(iterations) => iterations,
    None => NonZeroU32::MIN,
};
const PURPOSE: &[u8] = b"coracle server token v1";
const SALT: usize = 16;

/// What a token is good for. Made once: that takes a while, on purpose.
pub(super) struct Keys {
    master: Prk,
    bound_to: String,
}

/// Why something cannot be sealed or opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The machine gives no random numbers.
    #[error("this machine gives no random numbers")]
    NoRandomness,
    /// A key cannot be made of the token.
    #[error("a key cannot be derived from the server token")]
    Derive,
    /// It is more than can be encrypted.
    #[error("it cannot be encrypted")]
    Encrypt,
    /// It was sealed with another token or for another cluster, or is damaged.
    #[error("it was sealed with another token or for another cluster, or is damaged")]
    NotOpened,
}

/// The length of what HKDF makes.
struct Of32;

impl KeyType for Of32 {
    fn len(&self) -> usize {
        32
    }
}

impl Keys {
    /// Blocks for a tenth of a second or more.
    pub(super) fn of(token: &ServerToken) -> Self {
        let salt = [PURPOSE, token.ca_hash.as_bytes()].concat();
        let mut master = [0; 32];
        pbkdf2::derive(
            pbkdf2::PBKDF2_HMAC_SHA256,
            ITERATIONS,
            &salt,
            token.secret.as_bytes(),
            &mut master,
        );
        Self {
            master: Prk::new_less_safe(HKDF_SHA256, &master),
            bound_to: token.ca_hash.clone(),
        }
    }

    /// The same for an asynchronous caller.
    ///
    /// # Errors
    /// [`JoinError::Thread`].
    pub(super) async fn of_token(token: ServerToken) -> Result<Self, JoinError> {
        let made = tokio::task::spawn_blocking(move || Self::of(&token)).await;
        made.map_err(|source| JoinError::Thread {
            what: "making keys of the server token",
            source,
        })
    }

    /// Shows that one knows the token, and does not give it away.
    ///
    /// # Errors
    /// [`SealError::Derive`].
    pub(super) fn proof(&self) -> Result<[u8; 32], SealError> {
        self.expand(&[b"proof"])
    }

    /// # Errors
    /// All but [`SealError::NotOpened`].
    pub(super) fn seal(&self, clear: &[u8]) -> Result<String, SealError> {
        let mut head = [0; SALT + NONCE_LEN];
        SystemRandom::new()
            .fill(&mut head)
            .map_err(|_| SealError::NoRandomness)?;
        let (salt, nonce) = head.split_at(SALT);
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SealError::Encrypt)?;
        let mut text = clear.to_vec();
        self.key(salt)?
            .seal_in_place_append_tag(nonce, self.aad(), &mut text)
            .map_err(|_| SealError::Encrypt)?;
        Ok(BASE64_STANDARD.encode([&head[..], &text].concat()))
    }

    /// # Errors
    /// [`SealError::NotOpened`], [`SealError::Derive`].
    pub(super) fn open(&self, sealed: &str) -> Result<Vec<u8>, SealError> {
        let not_opened = SealError::NotOpened;
        let bytes = BASE64_STANDARD.decode(sealed).map_err(|_| not_opened)?;
        let (salt, rest) = bytes.split_at_checked(SALT).ok_or(not_opened)?;
        let (nonce, text) = rest.split_at_checked(NONCE_LEN).ok_or(not_opened)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| not_opened)?;
        let mut text = text.to_vec();
        let key = self.key(salt)?;
        let clear = key.open_in_place(nonce, self.aad(), &mut text);
        clear.map(|clear| clear.to_vec()).map_err(|_| not_opened)
    }

    fn key(&self, salt: &[u8]) -> Result<LessSafeKey, SealError> {
        let bytes = self.expand(&[b"seal", salt])?;
        let key = UnboundKey::new(&AES_256_GCM, &bytes).map_err(|_| SealError::Derive)?;
        Ok(LessSafeKey::new(key))
    }

    fn aad(&self) -> Aad<&[u8]> {
        Aad::from(self.bound_to.as_bytes())
    }

    fn expand(&self, info: &[&[u8]]) -> Result<[u8; 32], SealError> {
        let mut key = [0; 32];
        let expanded: Result<hkdf::Okm<'_, Of32>, _> = self.master.expand(info, Of32);
        expanded
            .and_then(|expanded| expanded.fill(&mut key))
            .map_err(|_| SealError::Derive)?;
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(secret: &str, hash: &str) -> Keys {
        Keys::of(&ServerToken {
            ca_hash: hash.repeat(32),
            secret: secret.to_owned(),
        })
    }

    #[test]
    fn only_the_same_token_of_the_same_cluster_opens() {
        let ours = keys("0123456789abcdef", "ab");
        let sealed = ours.seal(b"a private key").unwrap();
        assert_eq!(ours.open(&sealed).unwrap(), b"a private key");
        assert_ne!(ours.seal(b"a private key").unwrap(), sealed);
        for other in [
            keys("0123456789abcdee", "ab"),
            keys("0123456789abcdef", "ac"),
        ] {
            assert_eq!(other.open(&sealed), Err(SealError::NotOpened));
            assert_ne!(other.proof().unwrap(), ours.proof().unwrap());
        }
        let again = keys("0123456789abcdef", "ab");
        assert_eq!(again.proof().unwrap(), ours.proof().unwrap());
        assert_eq!(again.open(&sealed).unwrap(), b"a private key");
    }

    #[test]
    fn what_was_changed_is_not_opened() {
        let ours = keys("0123456789abcdef", "ab");
        let sealed = BASE64_STANDARD
            .decode(ours.seal(b"a private key").unwrap())
            .unwrap();
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            let changed = BASE64_STANDARD.encode(changed);
            assert_eq!(ours.open(&changed), Err(SealError::NotOpened), "{at}");
        }
        for length in 0..sealed.len() {
            let cut = BASE64_STANDARD.encode(&sealed[..length]);
            assert_eq!(ours.open(&cut), Err(SealError::NotOpened), "{length}");
        }
        assert_eq!(ours.open("no base64"), Err(SealError::NotOpened));
    }
}
