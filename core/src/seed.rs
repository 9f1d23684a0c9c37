//! One seed for everything, drawn from by named streams.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A stream of random numbers; ChaCha8 gives the same numbers in every version and on every machine.
pub type Stream = ChaCha8Rng;

/// The one source of randomness of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seed(pub u64);

impl Seed {
    /// The stream for one purpose, for example `seed.stream("noise", &[trial_id])`.
    ///
    /// Two purposes, or one purpose with other parts, give independent streams: adding a draw in one place changes no
    /// other place.
    pub fn stream(self, purpose: &str, parts: &[&str]) -> Stream {
        let mut hasher = Sha256::new();
        hasher.update(self.0.to_le_bytes());
        for part in std::iter::once(&purpose).chain(parts) {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        Stream::from_seed(hasher.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::rand_core::Rng;

    #[test]
    fn streams_repeat_and_differ_by_purpose_and_part() {
        let draw = |seed: u64, purpose: &str, parts: &[&str]| Seed(seed).stream(purpose, parts).next_u64();
        assert_eq!(draw(7, "order", &["a"]), draw(7, "order", &["a"]));
        assert_ne!(draw(7, "order", &["a"]), draw(8, "order", &["a"]));
        assert_ne!(draw(7, "order", &["a"]), draw(7, "noise", &["a"]));
        assert_ne!(draw(7, "order", &["a", "b"]), draw(7, "order", &["ab"]));
    }
}
