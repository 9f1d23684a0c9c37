//! Files as text, and JSON documents in them.

use crate::Error;
use serde::de::DeserializeOwned;
use std::path::Path;

/// The text of a file.
pub(crate) fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.into(), source })
}

/// The document in a text; `what` it should be and `path` are only named in errors.
pub(crate) fn json<T: DeserializeOwned>(text: &str, path: &Path, what: &'static str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|source| Error::Json { path: path.into(), what, source })
}
