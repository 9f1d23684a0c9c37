//! The back end that is always there: evaluates exactly the operators that the export writes.
//!
//! A file is compiled once into a flat plan. Rows then run through it in blocks that fit the cache, and within a block
//! tree by tree, so that a tree is read from memory once per block rather than once per row. Many rows are shared out among
//! all cores; each row's numbers are the same on any number of them, and alone.

mod compile;
mod ensemble;
mod kernels;
mod plan;
mod product;
mod tensor;
#[cfg(test)]
mod tests;
mod trees;

use crate::onnx::ModelProto;
use crate::predictor::{Outputs, read_metadata};
use crate::{Error, ModelMetadata, Prediction, Predictor};
use plan::Plan;
pub(crate) use tensor::Constant;

/// The native back end.
#[derive(Debug)]
pub(crate) struct Native {
    plan: Plan,
    metadata: ModelMetadata,
}

impl Native {
    /// Compiles a decoded file.
    pub(crate) fn new(model: &ModelProto) -> Result<Self, Error> {
        let metadata = read_metadata(model)?;
        let plan = compile::compile(model)?;
        if plan.input_width() != metadata.features.width() {
            return Err(Error::NotElastico {
                reason: format!(
                    "the graph reads {} features, the metadata name {}",
                    plan.input_width(),
                    metadata.features.width()
                ),
            });
        }
        Ok(Self { plan, metadata })
    }
}

impl Predictor for Native {
    fn metadata(&self) -> &ModelMetadata {
        &self.metadata
    }

    fn backend(&self) -> &'static str {
        "native"
    }

    fn predict(&self, rows: &[f32]) -> Result<Vec<Prediction>, Error> {
        self.metadata.check_rows(rows)?;
        let outputs: Outputs = self.plan.run(rows);
        outputs.predictions()
    }
}
