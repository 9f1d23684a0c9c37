//! A digest at the end of the file, by which a changed model is known.
//!
//! It is one more entry of the file's `metadata_props`. A protobuf message with a repeated field may be continued by
//! appending entries to its bytes, so the digest can cover every byte before it and the file stays plain ONNX.

use super::proto::{ModelProto, StringStringEntryProto};
use crate::Error;
use elastico_core::Digest;
use prost::Message as _;

const KEY: &str = "elastico.digest";

/// Appends the digest of the file so far.
pub(crate) fn seal(mut file: Vec<u8>) -> Vec<u8> {
    let entry = entry(&Digest::of([&file]));
    file.extend(entry);
    file
}

/// Whether a file has a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Seal {
    /// It fits.
    Whole,
    /// There is none.
    Absent,
}

impl Seal {
    /// Refuses a file without a digest, once it is clear that it is a model of ours: whoever took it off could have changed
    /// anything.
    pub(crate) fn expect_some(self) -> Result<(), Error> {
        if self == Self::Whole { Ok(()) } else { Err(Error::Unsealed) }
    }
}

/// Refuses a file whose digest does not fit.
pub(crate) fn check_seal(file: &[u8], model: &ModelProto) -> Result<Seal, Error> {
    let Some(stated) = model.metadata_props.iter().find(|entry| entry.key == KEY) else {
        return Ok(Seal::Absent);
    };
    let length = entry(&Digest::of([b""])).len();
    let found =
        file.split_at_checked(file.len().saturating_sub(length)).map(|(before, _)| Digest::of([before]));
    if found.is_some_and(|digest| digest.as_str() == stated.value && file.ends_with(&entry(&digest))) {
        return Ok(Seal::Whole);
    }
    Err(Error::Damaged)
}

/// The bytes of the entry; their number does not depend on the digest.
fn entry(digest: &Digest) -> Vec<u8> {
    let entry = StringStringEntryProto { key: KEY.to_owned(), value: digest.as_str().to_owned() };
    ModelProto { metadata_props: vec![entry], ..ModelProto::default() }.encode_to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed() -> Vec<u8> {
        let model =
            ModelProto { ir_version: 10, producer_name: "elastico".to_owned(), ..ModelProto::default() };
        seal(model.encode_to_vec())
    }

    fn check(file: &[u8]) -> Result<Seal, Error> {
        check_seal(file, &super::super::decode(file)?)
    }

    #[test]
    fn a_sealed_file_is_a_message_and_passes() {
        let file = sealed();
        assert_eq!(check(&file).unwrap(), Seal::Whole);
        let model = super::super::decode(&file).unwrap();
        assert_eq!((model.ir_version, model.producer_name.as_str()), (10, "elastico"));
    }

    #[test]
    fn no_changed_bit_before_the_seal_passes() {
        let file = sealed();
        let length = entry(&Digest::of([b""])).len();
        for bit in 0..8 * (file.len() - length) {
            let mut changed = file.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(check(&changed).is_err(), "bit {bit}");
        }
        let mut longer = file;
        longer.extend(ModelProto { model_version: 3, ..ModelProto::default() }.encode_to_vec());
        assert!(check(&longer).is_err(), "something appended");
    }

    #[test]
    fn a_file_without_a_digest_is_known_as_one() {
        let seal = check(&ModelProto { ir_version: 10, ..ModelProto::default() }.encode_to_vec()).unwrap();
        assert!(matches!(seal.expect_some(), Err(Error::Unsealed)));
    }
}
