//! Builds the graph of a file, node by node.

use super::proto::{
    AttributeProto, Dimension, FLOAT, GraphProto, INT64, NodeProto, TensorProto, TensorShapeProto,
    TensorType, TypeProto, ValueInfoProto, attribute_type,
};
use prost::bytes::Bytes;

/// Nodes and tensors in the order in which they are computed; every method returns the name of its result.
#[derive(Debug, Default)]
pub(super) struct GraphBuilder {
    nodes: Vec<NodeProto>,
    initializers: Vec<TensorProto>,
}

impl GraphBuilder {
    pub(super) fn floats(&mut self, name: &str, dims: &[usize], values: &[f32]) -> String {
        debug_assert_eq!(dims.iter().product::<usize>(), values.len());
        let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.tensor(name, dims, FLOAT, raw)
    }

    pub(super) fn row(&mut self, name: &str, values: &[f32]) -> String {
        self.floats(name, &[1, values.len()], values)
    }

    pub(super) fn scalar(&mut self, name: &str, value: f32) -> String {
        self.floats(name, &[], &[value])
    }

    pub(super) fn integers(&mut self, name: &str, values: &[i64]) -> String {
        let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.tensor(name, &[values.len()], INT64, raw)
    }

    fn tensor(&mut self, name: &str, dims: &[usize], data_type: i32, raw: Vec<u8>) -> String {
        self.initializers.push(TensorProto {
            dims: dims.iter().map(|dim| id(*dim)).collect(),
            data_type,
            name: name.to_owned(),
            raw_data: Some(Bytes::from(raw)),
            ..TensorProto::default()
        });
        name.to_owned()
    }

    pub(super) fn node(&mut self, operator: &str, output: &str, inputs: &[&str]) -> String {
        self.full_node("", operator, output, inputs, Vec::new())
    }

    pub(super) fn full_node(
        &mut self,
        domain: &str,
        operator: &str,
        output: &str,
        inputs: &[&str],
        attribute: Vec<AttributeProto>,
    ) -> String {
        self.nodes.push(NodeProto {
            input: inputs.iter().map(|input| (*input).to_owned()).collect(),
            output: vec![output.to_owned()],
            name: output.to_owned(),
            op_type: operator.to_owned(),
            attribute,
            domain: domain.to_owned(),
        });
        output.to_owned()
    }

    /// The columns of a matrix, in the given order.
    pub(super) fn columns(&mut self, output: &str, matrix: &str, columns: &[usize]) -> String {
        let columns: Vec<i64> = columns.iter().map(|column| id(*column)).collect();
        let index = self.integers(&format!("{output}_columns"), &columns);
        self.full_node("", "Gather", output, &[matrix, &index], vec![integer("axis", 1)])
    }

    pub(super) fn finish(self, input: ValueInfoProto, output: Vec<ValueInfoProto>) -> GraphProto {
        GraphProto {
            node: self.nodes,
            name: "elastico".to_owned(),
            initializer: self.initializers,
            input: vec![input],
            output,
            sparse_initializer: Vec::new(),
        }
    }
}

/// An index as the file writes it. No list in memory is long enough to saturate it.
pub(super) fn id(index: usize) -> i64 {
    i64::try_from(index).unwrap_or(i64::MAX)
}

/// A float matrix of `N` rows.
pub(super) fn matrix(name: &str, width: usize, doc: &str) -> ValueInfoProto {
    let rows = Dimension { dim_value: None, dim_param: Some("N".to_owned()) };
    let columns = Dimension { dim_value: Some(id(width)), dim_param: None };
    let shape = TensorShapeProto { dim: vec![rows, columns] };
    let tensor = TensorType { elem_type: FLOAT, shape: Some(shape) };
    ValueInfoProto {
        name: name.to_owned(),
        r#type: Some(TypeProto { tensor_type: Some(tensor) }),
        doc_string: doc.to_owned(),
    }
}

fn attribute(name: &str, r#type: i32) -> AttributeProto {
    AttributeProto { name: name.to_owned(), r#type, ..AttributeProto::default() }
}

pub(super) fn integer(name: &str, value: i64) -> AttributeProto {
    AttributeProto { i: Some(value), ..attribute(name, attribute_type::INT) }
}

pub(super) fn string(name: &str, value: &'static str) -> AttributeProto {
    AttributeProto {
        s: Some(Bytes::from_static(value.as_bytes())),
        ..attribute(name, attribute_type::STRING)
    }
}

pub(super) fn floats(name: &str, floats: Vec<f32>) -> AttributeProto {
    AttributeProto { floats, ..attribute(name, attribute_type::FLOATS) }
}

pub(super) fn integers(name: &str, ints: Vec<i64>) -> AttributeProto {
    AttributeProto { ints, ..attribute(name, attribute_type::INTS) }
}

pub(super) fn strings(name: &str, strings: Vec<Bytes>) -> AttributeProto {
    AttributeProto { strings, ..attribute(name, attribute_type::STRINGS) }
}
