//! Predictions by ONNX Runtime.

use super::environment::environment;
use crate::onnx::export::{INPUT, OUTPUTS};
use crate::predictor::Outputs;
use crate::{Error, ModelMetadata, Prediction, Predictor};
use ort::session::Session;
use ort::value::TensorRef;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Rows of one call into the runtime, so that its working memory stays small.
const ROWS: usize = 16_384;

/// A session of ONNX Runtime.
///
/// It runs on one thread, for two reasons: with more, the runtime adds up trees in an order that depends on the number
/// of cores, and sums would differ in their last digits between machines; and calls are serialised anyway.
#[derive(Debug)]
pub(crate) struct Ort {
    session: Mutex<Session>,
    metadata: ModelMetadata,
}

fn refuse<R>(operation: &'static str) -> impl Fn(ort::Error<R>) -> Error {
    move |error| Error::Runtime { operation, reason: error.to_string() }
}

impl Ort {
    /// Opens a session on bytes that the native back end has accepted.
    pub(crate) fn new(bytes: &[u8], metadata: ModelMetadata, library: Option<&Path>) -> Result<Self, Error> {
        let environment = environment(library)?;
        let session = Session::builder(&environment)
            .map_err(refuse("open a session"))?
            .with_intra_threads(1)
            .map_err(refuse("use one thread"))?
            .with_inter_threads(1)
            .map_err(refuse("use one thread"))?
            .commit_from_memory(bytes)
            .map_err(refuse("read the model"))?;
        Ok(Self { session: Mutex::new(session), metadata })
    }
}

impl Predictor for Ort {
    fn metadata(&self) -> &ModelMetadata {
        &self.metadata
    }

    fn backend(&self) -> &'static str {
        "ort"
    }

    fn predict(&self, rows: &[f32]) -> Result<Vec<Prediction>, Error> {
        self.metadata.check_rows(rows)?;
        let width = self.metadata.features.width();
        let mut columns = Outputs::with_capacity(rows.len() / width);
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        for chunk in rows.chunks(ROWS * width) {
            let height = chunk.len() / width;
            let input =
                TensorRef::from_array_view(([height, width], chunk)).map_err(refuse("take the rows"))?;
            let outputs = session.run(ort::inputs![INPUT => input]).map_err(refuse("evaluate the model"))?;
            let column = |name: &'static str| {
                let value = outputs.get(name).ok_or_else(|| Error::Runtime {
                    operation: "evaluate the model",
                    reason: format!("it gives no {name}"),
                })?;
                let (_, values) = value.try_extract_tensor::<f32>().map_err(refuse("give numbers"))?;
                if values.len() == height {
                    Ok(values)
                } else {
                    let reason = format!("it gives {} values of {name} for {height} rows", values.len());
                    Err(Error::Runtime { operation: "evaluate the model", reason })
                }
            };
            columns.push(column(OUTPUTS[0])?, column(OUTPUTS[1])?, column(OUTPUTS[2])?);
        }
        columns.predictions()
    }
}
