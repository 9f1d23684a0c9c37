//! Constant tensors of a file, checked against their stated shape.

use crate::Error;
use crate::onnx::proto::{FLOAT, INT64, TensorProto};

/// A constant of the graph.
#[derive(Debug, Clone)]
pub(crate) enum Constant {
    Floats { dims: Vec<usize>, values: Vec<f32> },
    Integers { values: Vec<i64> },
}

impl Constant {
    pub(crate) fn read(tensor: &TensorProto) -> Result<Self, Error> {
        let refuse = |reason: String| Err(Error::graph(format!("tensor `{}`", tensor.name), reason));
        if tensor.data_location.unwrap_or(0) != 0 || !tensor.external_data.is_empty() {
            return refuse("lies outside the file".into());
        }
        let mut dims = Vec::new();
        for dim in &tensor.dims {
            match usize::try_from(*dim) {
                Ok(dim) => dims.push(dim),
                Err(_) => return refuse(format!("has the dimension {dim}")),
            }
        }
        let Some(expected) = dims.iter().try_fold(1_usize, |size, dim| size.checked_mul(*dim)) else {
            return refuse("is too large to be counted".into());
        };
        let raw = tensor.raw_data.as_deref();
        let (found, constant) = match tensor.data_type {
            FLOAT => {
                let values = match raw {
                    Some(raw) => numbers(raw, f32::from_le_bytes),
                    None => Some(tensor.float_data.clone()),
                };
                let Some(values) = values else { return refuse("ends within a number".into()) };
                if dims.len() > 2 {
                    return refuse(format!("has {} dimensions", dims.len()));
                }
                if let Some(value) = values.iter().find(|value| !value.is_finite()) {
                    return refuse(format!("holds {value}"));
                }
                (values.len(), Self::Floats { dims, values })
            }
            INT64 => {
                let values = match raw {
                    Some(raw) => numbers(raw, i64::from_le_bytes),
                    None => Some(tensor.int64_data.clone()),
                };
                let Some(values) = values else { return refuse("ends within a number".into()) };
                if dims.len() != 1 {
                    return refuse(format!("has {} dimensions", dims.len()));
                }
                (values.len(), Self::Integers { values })
            }
            other => return refuse(format!("has the element type {other}")),
        };
        if found != expected {
            return refuse(format!("holds {found} values, its shape says {expected}"));
        }
        Ok(constant)
    }
}

fn numbers<T, const N: usize>(raw: &[u8], read: fn([u8; N]) -> T) -> Option<Vec<T>> {
    let (chunks, rest) = raw.as_chunks::<N>();
    rest.is_empty().then(|| chunks.iter().map(|chunk| read(*chunk)).collect())
}
