//! The ONNX file: its messages, how a model is written, and how it is read back.

mod body;
mod domain;
pub(crate) mod export;
mod graph;
mod physics;
pub(crate) mod proto;
mod read;
mod seal;

pub(crate) use proto::ModelProto;
pub(crate) use seal::{check_seal, seal};

use crate::Error;
use prost::Message;
use prost::bytes::Bytes;

/// The largest file that is read: 50 times a forest of 100 deep trees.
pub(crate) const MAX_FILE_BYTES: u64 = 512 * 1024 * 1024;

/// Parses the bytes of an ONNX file.
pub(crate) fn decode(bytes: &[u8]) -> Result<ModelProto, Error> {
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(Error::TooLarge {
            what: "a model file",
            found: bytes.len() as u64,
            limit: MAX_FILE_BYTES,
        });
    }
    if bytes.is_empty() {
        return Err(Error::NotElastico { reason: "it is empty".into() });
    }
    ModelProto::decode(Bytes::copy_from_slice(bytes)).map_err(Error::Protobuf)
}
