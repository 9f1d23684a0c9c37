//! The back end on ONNX Runtime, loaded at run time and never trusted before it is looked at.

mod environment;
mod library;
mod session;

pub(crate) use session::Ort;

use crate::Error;
use std::path::{Path, PathBuf};
use std::sync::Once;

/// Tells, once per process, why a configured library is not used. A library that nobody configured is no news.
pub(crate) fn warn_once(error: &Error) {
    static WARNED: Once = Once::new();
    if matches!(error, Error::LibraryMissing { tried } if tried.iter().all(|place| place.ends_with(library::UNSET)))
    {
        tracing::debug!(%error, "no ONNX Runtime library is configured, predicting with the native back end");
        return;
    }
    WARNED.call_once(|| tracing::warn!(%error, "predicting with the native back end"));
}

/// The ONNX Runtime library that would be used, looked at but not loaded: the path given, else the variables
/// `ELASTICO_ORT_LIBRARY` and `ORT_DYLIB_PATH`.
///
/// # Errors
/// [`Error::LibraryMissing`], [`Error::LibraryTooOld`] or [`Error::LibraryBroken`].
pub fn runtime_library(path: Option<&Path>) -> Result<PathBuf, Error> {
    let path = library::find(path, |name| std::env::var_os(name).map(PathBuf::from))?;
    library::inspect(&path, ort::MINOR_VERSION)?;
    Ok(path)
}
