//! The machine-readable reasons of a [`super::Status`].

use std::fmt;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident)*) => {
        /// `metav1.StatusReason`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason {
            /// None of the known ones; left out on the wire.
            Unknown,
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// As it stands on the wire.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    Self::Unknown => "",
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// Reads what stands on the wire.
            #[must_use]
            pub fn from_text(text: &str) -> Self {
                match text {
                    $(stringify!($name) => Self::$name,)*
                    _ => Self::Unknown,
                }
            }
        }
    };
}

reasons! {
    /// 401
    Unauthorized
    /// 403
    Forbidden
    /// 404
    NotFound
    /// 409
    AlreadyExists
    /// 409
    Conflict
    /// 410
    Gone
    /// 422
    Invalid
    /// 500
    ServerTimeout
    /// 500
    StoreReadError
    /// 504
    Timeout
    /// 429
    TooManyRequests
    /// 400
    BadRequest
    /// 405
    MethodNotAllowed
    /// 406
    NotAcceptable
    /// 413
    RequestEntityTooLarge
    /// 415
    UnsupportedMediaType
    /// 500
    InternalError
    /// 410
    Expired
    /// 503
    ServiceUnavailable
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
