//! Names as types, so that a workload is never passed where a pool is meant. Clones share the text.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Why a text is no id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Nothing, or only blanks.
    #[error("{what} is empty")]
    Empty {
        /// Which kind of id was read.
        what: &'static str,
    },
    /// A control character would break tables, paths and JSON lines.
    #[error("{what} `{}` contains a control character", text.escape_debug())]
    Control {
        /// Which kind of id was read.
        what: &'static str,
        /// The text as given.
        text: String,
    },
    /// Longer than any real name, so most likely not a name.
    #[error("{what} has {length} bytes, the limit is 200")]
    TooLong {
        /// Which kind of id was read.
        what: &'static str,
        /// Its length in bytes.
        length: usize,
    },
}

macro_rules! id {
    ($(#[$meta:meta])* $name:ident, $what:literal) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// The same name in memory of its own, for a thread that makes many copies.
            #[must_use]
            pub fn apart(&self) -> Self {
                Self(Arc::from(&*self.0))
            }

            /// Checks and wraps a name.
            ///
            /// # Errors
            /// [`IdError`] where the text is empty, over 200 bytes, or holds a control character.
            pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                if text.trim().is_empty() {
                    return Err(IdError::Empty { what: $what });
                }
                if text.len() > 200 {
                    return Err(IdError::TooLong { what: $what, length: text.len() });
                }
                if text.chars().any(char::is_control) {
                    return Err(IdError::Control { what: $what, text });
                }
                Ok(Self(text.into()))
            }

            /// The name.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0.as_ref().to_owned()
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

id!(
    /// One benchmark at one setting of its axes, for example `tr_block.b8_s1024_h1024_bf16`.
    WorkloadId,
    "workload id"
);
id!(
    /// The workloads that share a structure, for example `tr_block`: the unit that a split holds out.
    FamilyId,
    "family id"
);
id!(
    /// One pair under one sharing mode in one repeat.
    TrialId,
    "trial id"
);
id!(
    /// A job that waits for, or has, a place.
    JobId,
    "job id"
);
id!(
    /// Equal nodes of one device model.
    PoolId,
    "pool id"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_checked_also_when_read() {
        assert_eq!(WorkloadId::new("a b").unwrap().as_str(), "a b");
        assert_eq!(WorkloadId::new("  "), Err(IdError::Empty { what: "workload id" }));
        assert!(matches!(JobId::new("a\nb"), Err(IdError::Control { .. })));
        assert!(serde_json::from_str::<PoolId>(&format!("\"{}\"", "x".repeat(201))).is_err());
        assert_eq!(serde_json::to_string(&PoolId::new("h100").unwrap()).unwrap(), "\"h100\"");
    }
}
