//! Content hashes that name an artefact.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fmt;

/// A SHA-256 content hash; two artefacts with one digest are one artefact.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(String);

impl Digest {
    /// Hashes parts in order; each part is preceded by its length, so that `["ab", "c"]` differs from `["a", "bc"]`.
    pub fn of<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            let part = part.as_ref();
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        use std::fmt::Write as _;
        let hexadecimal = hasher.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        Self(hexadecimal)
    }

    /// All 64 hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first 12 digits, for people and for ids.
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_delimited_and_order_matters() {
        assert_ne!(Digest::of(["ab", "c"]), Digest::of(["a", "bc"]));
        assert_ne!(Digest::of(["a", "b"]), Digest::of(["b", "a"]));
        // SHA-256 of an eight-byte little-endian length 3 followed by "abc", from Python's hashlib.
        let expected = "ce91dc5eec0139ad";
        assert_eq!(Digest::of(["abc"]).as_str().len(), 64);
        assert_eq!(&Digest::of(["abc"]).as_str()[..16], expected);
    }
}
