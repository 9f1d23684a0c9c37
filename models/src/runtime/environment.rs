//! The one ONNX Runtime of the process.

use super::library;
use crate::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// Loading takes tens of milliseconds; a library that takes this long will not come back.
const PATIENCE: Duration = Duration::from_secs(20);

enum State {
    Unloaded,
    Loaded {
        path: PathBuf,
        environment: ort::environment::Environment,
    },
    /// A thread is stuck inside this library; asking again would hang too.
    Stuck(PathBuf),
}

static STATE: Mutex<State> = Mutex::new(State::Unloaded);

/// Loads the library, or gives the environment that it was loaded into before.
///
/// A process can hold one ONNX Runtime. A library that was refused does not count; one that hung does.
pub(super) fn environment(path: Option<&Path>) -> Result<ort::environment::Environment, Error> {
    let path = library::find(path, |name| std::env::var_os(name).map(PathBuf::from))?;
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    if let State::Loaded { path: loaded, environment } = &*state
        && *loaded == path
    {
        return Ok(environment.clone());
    }
    library::inspect(&path, ort::MINOR_VERSION)?;
    match &*state {
        State::Loaded { path: loaded, .. } => {
            return Err(Error::LibraryBusy { loaded: loaded.clone(), asked: path });
        }
        State::Stuck(stuck) => {
            let reason = "an earlier attempt to load it did not return".to_owned();
            return Err(Error::LibraryBroken { path: stuck.clone(), reason });
        }
        State::Unloaded => {}
    }
    match load(&path) {
        Ok(environment) => {
            *state = State::Loaded { path, environment: environment.clone() };
            Ok(environment)
        }
        Err(Failure::Refused(reason)) => Err(Error::LibraryBroken { path, reason }),
        Err(Failure::TooOld(found)) => {
            Err(Error::LibraryTooOld { path, found, needed: format!("1.{}", ort::MINOR_VERSION) })
        }
        Err(Failure::Stuck) => {
            *state = State::Stuck(path.clone());
            let reason = format!("it did not load within {} s", PATIENCE.as_secs());
            Err(Error::LibraryBroken { path, reason })
        }
    }
}

enum Failure {
    Refused(String),
    TooOld(String),
    Stuck,
}

/// Loads on a thread of its own: `ort` panics on some faults and spins on others.
fn load(path: &Path) -> Result<ort::environment::Environment, Failure> {
    let (sender, receiver) = mpsc::channel();
    let path = path.to_owned();
    let attempt = move || {
        let built = catch_unwind(AssertUnwindSafe(|| {
            let builder = ort::init_from(&path).map_err(|error| match error {
                ort::LoadDynamicError::BadVersion { version_str, .. } => Failure::TooOld(version_str),
                other => Failure::Refused(other.to_string()),
            })?;
            let logger = |level, category: &str, _: &str, _: &str, message: &str| {
                tracing::debug!(?level, category, message, "onnxruntime");
            };
            let environment = builder
                .with_name("elastico")
                .with_telemetry(false)
                .with_logger(Arc::new(logger))
                .build()
                .map_err(|error| Failure::Refused(error.to_string()))?;
            environment.set_log_level(ort::logging::LogLevel::Warning);
            Ok(environment)
        }));
        // The receiver has gone only if its patience has run out.
        let _ = sender
            .send(built.unwrap_or_else(|_| Err(Failure::Refused("it panicked while loading".to_owned()))));
    };
    std::thread::Builder::new()
        .name("load-onnxruntime".to_owned())
        .spawn(attempt)
        .map_err(|error| Failure::Refused(error.to_string()))?;
    match receiver.recv_timeout(PATIENCE) {
        Ok(result) => result,
        Err(_) => Err(Failure::Stuck),
    }
}
