//! The one trait that everything above this crate predicts with.

use crate::native::Native;
use crate::onnx::ModelProto;
use crate::onnx::export::{IR_VERSION, ML_DOMAIN, ML_OPSET, OPSET};
use crate::runtime;
use crate::{Error, ModelMetadata, metadata, onnx};
use elastico_core::Slowdown;
use std::cmp::Ordering;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// What a model says about one row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// The point.
    pub slowdown: Slowdown,
    /// The one-sided upper bound at the level of the metadata; not under the point.
    pub upper: Slowdown,
    /// Whether every feature lies in the range of the training data; if not, the numbers extrapolate.
    pub in_domain: bool,
}

/// A model that is ready to predict.
pub trait Predictor: Send + Sync {
    /// What the model reads, was trained on, and how well it does.
    fn metadata(&self) -> &ModelMetadata;

    /// `native` or `ort`.
    fn backend(&self) -> &'static str;

    /// Predicts row-major rows of `metadata().features.width()` values, NaN = missing.
    ///
    /// One call with many rows is much cheaper than many calls. No rows give no predictions.
    ///
    /// # Errors
    /// [`Error::Rows`] for a length that is no multiple of the width, [`Error::RowValue`] for an infinite value.
    fn predict(&self, rows: &[f32]) -> Result<Vec<Prediction>, Error>;
}

/// What evaluates a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// ONNX Runtime where its library is configured and usable, else native.
    #[default]
    Auto,
    /// The evaluator of this crate.
    Native,
    /// ONNX Runtime.
    Ort,
}

/// How to load a model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoadOptions {
    /// The back end.
    pub backend: Backend,
    /// The ONNX Runtime library; `None` = the environment's `ELASTICO_ORT_LIBRARY`, then `ORT_DYLIB_PATH`.
    pub library: Option<PathBuf>,
}

impl From<Backend> for LoadOptions {
    fn from(backend: Backend) -> Self {
        Self { backend, library: None }
    }
}

/// Loads a model file.
///
/// # Errors
/// Whatever is wrong with the file, and with [`Backend::Ort`] whatever is wrong with the library. [`Backend::Auto`] falls
/// back to native instead, with one warning per process if a library is configured but not usable.
pub fn load(path: &Path, options: impl Into<LoadOptions>) -> Result<Box<dyn Predictor>, Error> {
    let read = |source| Error::Read { path: path.to_owned(), source };
    let found = std::fs::metadata(path).map_err(read)?;
    // A device or a pipe may never end.
    if !found.is_file() {
        let kind = if found.is_dir() { ErrorKind::IsADirectory.into() } else { irregular() };
        return Err(read(kind));
    }
    let size = found.len();
    if size > onnx::MAX_FILE_BYTES {
        return Err(Error::TooLarge { what: "a model file", found: size, limit: onnx::MAX_FILE_BYTES });
    }
    load_bytes(&std::fs::read(path).map_err(read)?, options)
}

/// What a file is that has no size and no end.
fn irregular() -> std::io::Error {
    std::io::Error::new(ErrorKind::InvalidInput, "it is no regular file")
}

/// Loads the bytes of a model file; see [`load`].
pub fn load_bytes(bytes: &[u8], options: impl Into<LoadOptions>) -> Result<Box<dyn Predictor>, Error> {
    let options = options.into();
    // ONNX Runtime is given only what the native back end has read wholly: it never sees a malformed file.
    let model = onnx::decode(bytes)?;
    let seal = onnx::check_seal(bytes, &model)?;
    let native = Native::new(&model)?;
    seal.expect_some()?;
    let library = options.library.as_deref();
    match options.backend {
        Backend::Native => Ok(Box::new(native)),
        Backend::Ort => Ok(Box::new(runtime::Ort::new(bytes, native.metadata().clone(), library)?)),
        Backend::Auto => match runtime::Ort::new(bytes, native.metadata().clone(), library) {
            Ok(predictor) => Ok(Box::new(predictor)),
            Err(error) => {
                runtime::warn_once(&error);
                Ok(Box::new(native))
            }
        },
    }
}

/// The metadata of a decoded file, checked against themselves.
pub(crate) fn read_metadata(model: &ModelProto) -> Result<ModelMetadata, Error> {
    let refuse = |reason: String| Err(Error::NotElastico { reason });
    let Some(entry) = model.metadata_props.iter().find(|entry| entry.key == metadata::KEY) else {
        let producer: String = model.producer_name.chars().take(40).collect();
        return refuse(if producer.is_empty() {
            format!("it has no `{}`", metadata::KEY)
        } else {
            format!("it has no `{}`, its producer is {producer}", metadata::KEY)
        });
    };
    // Before anything else: a later schema may have fields that this one has not.
    if let Ok(Header { schema: Some(found) }) = serde_json::from_str(&entry.value)
        && metadata::is_newer(&found)
    {
        return Err(Error::Newer { part: "schema", found, known: metadata::SCHEMA.to_owned() });
    }
    let parsed: ModelMetadata = match serde_json::from_str(&entry.value) {
        Ok(parsed) => parsed,
        Err(error) => return refuse(format!("its `{}` is not readable: {error}", metadata::KEY)),
    };
    if parsed.schema != metadata::SCHEMA {
        return refuse(format!("its schema is `{}`, not `{}`", parsed.schema, metadata::SCHEMA));
    }
    if parsed.features.digest() != parsed.features_digest {
        return refuse("the digest of its features is not the stated one".into());
    }
    check_versions(model)?;
    match parsed.check() {
        Ok(()) => Ok(parsed),
        Err(reason) => refuse(reason),
    }
}

/// The part of the metadata that every version has.
#[derive(serde::Deserialize)]
struct Header {
    schema: Option<String>,
}

/// Refuses a file of a later format than ours; an earlier one is no file of ours either.
fn check_versions(model: &ModelProto) -> Result<(), Error> {
    let check = |part: &'static str, found: i64, known: i64| match found.cmp(&known) {
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(Error::Newer { part, found: found.to_string(), known: known.to_string() }),
        Ordering::Less => Err(Error::NotElastico { reason: format!("its {part} is {found}, not {known}") }),
    };
    check("ONNX format", model.ir_version, IR_VERSION)?;
    for set in &model.opset_import {
        match set.domain.as_str() {
            "" | "ai.onnx" => check("operator set", set.version, OPSET)?,
            ML_DOMAIN => check("operator set ai.onnx.ml", set.version, ML_OPSET)?,
            domain => {
                let domain: String = domain.chars().take(40).collect();
                let operator = format!("set {domain} version {}", set.version);
                return Err(Error::Operator { node: "the model".into(), operator });
            }
        }
    }
    Ok(())
}

impl ModelMetadata {
    /// Refuses rows that do not fill a matrix or hold an infinite value.
    pub(crate) fn check_rows(&self, rows: &[f32]) -> Result<(), Error> {
        let width = self.features.width();
        if !rows.len().is_multiple_of(width) {
            return Err(Error::Rows { length: rows.len(), width });
        }
        // A look at each stretch as a whole is some times faster than one at each value.
        let is_infinite = |values: &&[f32]| values.iter().fold(false, |any, value| any | value.is_infinite());
        let stretch = rows.chunks(1024).position(|values| is_infinite(&values)).unwrap_or(rows.len() / 1024);
        let rest = rows.get(stretch * 1024..).unwrap_or_default();
        match rest.iter().position(|value| value.is_infinite()).map(|index| stretch * 1024 + index) {
            None => Ok(()),
            Some(index) => Err(Error::RowValue {
                row: index / width,
                feature: self.features.names()[index % width].clone(),
            }),
        }
    }
}

/// The three columns of numbers that a back end gives.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    slowdown: Vec<f32>,
    upper: Vec<f32>,
    in_domain: Vec<f32>,
}

impl Outputs {
    pub(crate) fn with_capacity(rows: usize) -> Self {
        let column = || Vec::with_capacity(rows);
        Self { slowdown: column(), upper: column(), in_domain: column() }
    }

    /// Appends the outputs of a block of rows.
    pub(crate) fn push(&mut self, slowdown: &[f32], upper: &[f32], in_domain: &[f32]) {
        self.slowdown.extend_from_slice(slowdown);
        self.upper.extend_from_slice(upper);
        self.in_domain.extend_from_slice(in_domain);
    }

    /// Appends the outputs of later rows.
    pub(crate) fn append(&mut self, later: &Self) {
        self.push(&later.slowdown, &later.upper, &later.in_domain);
    }

    /// Refuses numbers that are no slowdowns; a file whose bounds were tampered with may give some.
    pub(crate) fn predictions(&self) -> Result<Vec<Prediction>, Error> {
        let number = |row: usize, output: &'static str, value: f32| {
            Slowdown::new(f64::from(value)).map_err(|_| Error::Output { row, output, value })
        };
        self.slowdown
            .iter()
            .zip(&self.upper)
            .zip(&self.in_domain)
            .enumerate()
            .map(|(row, ((slowdown, upper), in_domain))| {
                Ok(Prediction {
                    slowdown: number(row, "slowdown", *slowdown)?,
                    upper: number(row, "slowdown_upper", *upper)?,
                    in_domain: *in_domain > 0.5,
                })
            })
            .collect()
    }
}
