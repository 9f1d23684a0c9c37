//! From the messages of a file to a plan; everything that the evaluation relies on is checked here.

use super::ensemble;
use super::plan::{Binary, Operand, Plan, Slot, Step};
use super::product::Weights;
use super::tensor::Constant;
use crate::Error;
use crate::onnx::ModelProto;
use crate::onnx::export::{INPUT, ML_DOMAIN, OUTPUTS};
use crate::onnx::proto::{FLOAT, GraphProto, NodeProto, ValueInfoProto};
use crate::schema::MAX_WIDTH;
use std::collections::BTreeMap;

/// Columns of all matrices together; our largest graphs need some hundreds.
const MAX_ARENA: usize = 16 * MAX_WIDTH;
const MAX_NODES: usize = 1000;

/// Truth values and numbers never mix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number,
    Truth,
}

#[derive(Debug, Clone)]
enum Value {
    Matrix(Slot, Kind),
    Constant(Constant),
}

/// Compiles a decoded file.
pub(super) fn compile(model: &ModelProto) -> Result<Plan, Error> {
    let absent = |part: &str| Err(Error::graph(part.to_owned(), "is absent".to_owned()));
    if !model.functions.is_empty() || !model.training_info.is_empty() {
        return Err(Error::graph("the model", "has functions or training information"));
    }
    let Some(graph) = &model.graph else { return absent("the graph") };
    let [input] = &graph.input[..] else {
        return Err(Error::graph("the graph", format!("has {} inputs, not 1", graph.input.len())));
    };
    if input.name != INPUT {
        return Err(Error::graph(format!("the input `{}`", input.name), format!("is not `{INPUT}`")));
    }
    let mut compiler = Compiler::new(graph, matrix_width(input)?)?;
    if graph.node.len() > MAX_NODES {
        let found = graph.node.len() as u64;
        return Err(Error::TooLarge { what: "a graph", found, limit: MAX_NODES as u64 });
    }
    for (index, node) in graph.node.iter().enumerate() {
        compiler.push(index, node)?;
    }
    compiler.finish(graph)
}

fn matrix_width(value: &ValueInfoProto) -> Result<usize, Error> {
    let tensor = value.r#type.as_ref().and_then(|kind| kind.tensor_type.as_ref());
    let dims =
        tensor.filter(|t| t.elem_type == FLOAT).and_then(|t| t.shape.as_ref()).map(|shape| &shape.dim[..]);
    let width = match dims {
        Some([_, columns]) => columns.dim_value.and_then(|width| usize::try_from(width).ok()),
        _ => None,
    };
    match width {
        Some(width) if (1..=MAX_WIDTH).contains(&width) => Ok(width),
        Some(width) => {
            Err(Error::TooLarge { what: "a matrix", found: width as u64, limit: MAX_WIDTH as u64 })
        }
        None => Err(Error::graph(format!("`{}`", value.name), "is no float matrix of known width")),
    }
}

struct Compiler {
    values: BTreeMap<String, Value>,
    input: Slot,
    steps: Vec<(Step, Slot)>,
    width: usize,
}

/// A node with its place, for errors.
struct Reader<'a> {
    label: String,
    node: &'a NodeProto,
}

impl Reader<'_> {
    fn refuse(&self, reason: impl Into<String>) -> Error {
        Error::graph(format!("node `{}`", self.label), reason)
    }

    fn operator(&self) -> Error {
        let domain = &self.node.domain;
        let dot = if domain.is_empty() { "" } else { "." };
        Error::Operator { node: self.label.clone(), operator: format!("{domain}{dot}{}", self.node.op_type) }
    }

    fn arity(&self, wanted: usize) -> Result<(), Error> {
        let found = self.node.input.len();
        if found == wanted { Ok(()) } else { Err(self.refuse(format!("has {found} inputs, not {wanted}"))) }
    }

    /// The only attribute of a node, an integer.
    fn only_integer(&self, name: &str) -> Result<i64, Error> {
        match &self.node.attribute[..] {
            [attribute] if attribute.name == name => {
                attribute.i.ok_or_else(|| self.refuse(format!("has no integer in {name}")))
            }
            _ => Err(self.refuse(format!("needs the one attribute {name}"))),
        }
    }
}

impl Compiler {
    fn new(graph: &GraphProto, width: usize) -> Result<Self, Error> {
        if !graph.sparse_initializer.is_empty() {
            return Err(Error::graph("the graph", "has sparse tensors"));
        }
        let input = Slot { offset: 0, width };
        let mut values = BTreeMap::from([(INPUT.to_owned(), Value::Matrix(input, Kind::Number))]);
        for tensor in &graph.initializer {
            let constant = Value::Constant(Constant::read(tensor)?);
            if values.insert(tensor.name.clone(), constant).is_some() {
                return Err(Error::graph(format!("tensor `{}`", tensor.name), "occurs twice"));
            }
        }
        Ok(Self { values, input, steps: Vec::new(), width })
    }

    fn push(&mut self, index: usize, node: &NodeProto) -> Result<(), Error> {
        let label = if node.name.is_empty() { format!("#{index}") } else { node.name.clone() };
        let reader = Reader { label, node };
        let [output] = &node.output[..] else {
            return Err(reader.refuse(format!("has {} outputs, not 1", node.output.len())));
        };
        let (step, width, kind) = self.step(&reader)?;
        let slot = Slot { offset: self.width, width };
        self.width += width;
        if self.width > MAX_ARENA {
            let found = self.width as u64;
            return Err(Error::TooLarge { what: "a graph's working memory", found, limit: MAX_ARENA as u64 });
        }
        self.steps.push((step, slot));
        if self.values.insert(output.clone(), Value::Matrix(slot, kind)).is_some() {
            return Err(reader.refuse(format!("writes `{output}`, which exists")));
        }
        Ok(())
    }

    fn step(&self, reader: &Reader<'_>) -> Result<(Step, usize, Kind), Error> {
        use Kind::{Number, Truth};
        let node = reader.node;
        let bare = |arity: usize| {
            if !node.attribute.is_empty() {
                return Err(reader.refuse("has attributes"));
            }
            reader.arity(arity)
        };
        let binary = |operator: Binary, read: Kind, gives: Kind| {
            bare(2)?;
            let (a, b) = (self.operand(reader, 0, read)?, self.operand(reader, 1, read)?);
            let width = spread(reader, &[a.width(), b.width()])?;
            if matches!((&a, &b), (Operand::Row(_), Operand::Row(_))) {
                return Err(reader.refuse("reads constants only"));
            }
            Ok((Step::Binary(operator, a, b), width, gives))
        };
        if node.domain == ML_DOMAIN {
            if node.op_type != "TreeEnsembleRegressor" {
                return Err(reader.operator());
            }
            reader.arity(1)?;
            let input = self.matrix(reader, 0, Number)?;
            return Ok((Step::Trees(input, ensemble::compile(node, input.width)?), 1, Number));
        }
        if !matches!(node.domain.as_str(), "" | "ai.onnx") {
            return Err(reader.operator());
        }
        match node.op_type.as_str() {
            "IsNaN" => {
                bare(1)?;
                let input = self.matrix(reader, 0, Number)?;
                Ok((Step::IsNaN(input), input.width, Truth))
            }
            "Relu" | "Exp" | "Log" => {
                bare(1)?;
                let input = self.matrix(reader, 0, Number)?;
                let step = match node.op_type.as_str() {
                    "Relu" => Step::Relu(input),
                    "Exp" => Step::Exp(input),
                    _ => Step::Log(input),
                };
                Ok((step, input.width, Number))
            }
            "Clip" => {
                bare(3)?;
                let input = self.matrix(reader, 0, Number)?;
                let (low, high) = (self.scalar(reader, 1)?, self.scalar(reader, 2)?);
                Ok((Step::Clip(input, low, high), input.width, Number))
            }
            "Add" => binary(Binary::Add, Number, Number),
            "Sub" => binary(Binary::Sub, Number, Number),
            "Mul" => binary(Binary::Mul, Number, Number),
            "Div" => binary(Binary::Div, Number, Number),
            "Max" => binary(Binary::Max, Number, Number),
            "GreaterOrEqual" => binary(Binary::GreaterOrEqual, Number, Truth),
            "LessOrEqual" => binary(Binary::LessOrEqual, Number, Truth),
            "And" => binary(Binary::And, Truth, Truth),
            "Where" => {
                bare(3)?;
                let condition = self.matrix(reader, 0, Truth)?;
                let (a, b) = (self.operand(reader, 1, Number)?, self.operand(reader, 2, Number)?);
                if spread(reader, &[condition.width, a.width(), b.width()])? != condition.width {
                    return Err(reader.refuse("has a condition narrower than its result"));
                }
                Ok((Step::Where(condition, a, b), condition.width, Number))
            }
            "Gather" => self.gather(reader),
            "Concat" => self.concat(reader),
            "MatMul" => {
                bare(2)?;
                let input = self.matrix(reader, 0, Number)?;
                match self.value(reader, 1)? {
                    Value::Constant(Constant::Floats { dims, values }) => match dims[..] {
                        [rows, width] if rows == input.width && (1..=MAX_WIDTH).contains(&width) => {
                            Ok((Step::Product(input, Weights::new(values, width)), width, Number))
                        }
                        _ => Err(reader.refuse(format!("needs a constant of {} rows", input.width))),
                    },
                    _ => Err(reader.refuse("needs a constant to multiply with")),
                }
            }
            "Cast" => {
                reader.arity(1)?;
                if reader.only_integer("to")? != i64::from(FLOAT) {
                    return Err(reader.refuse("casts to another type than float"));
                }
                let input = self.matrix(reader, 0, Truth)?;
                Ok((Step::Copy(input), input.width, Number))
            }
            "ReduceMin" => {
                reader.arity(2)?;
                if reader.only_integer("keepdims")? != 1 {
                    return Err(reader.refuse("drops a dimension"));
                }
                if self.indices(reader, 1)?[..] != [1] {
                    return Err(reader.refuse("reduces another axis than 1"));
                }
                Ok((Step::Least(self.matrix(reader, 0, Number)?), 1, Number))
            }
            _ => Err(reader.operator()),
        }
    }

    fn gather(&self, reader: &Reader<'_>) -> Result<(Step, usize, Kind), Error> {
        reader.arity(2)?;
        if reader.only_integer("axis")? != 1 {
            return Err(reader.refuse("gathers along another axis than 1"));
        }
        let input = self.matrix(reader, 0, Kind::Number)?;
        let mut columns = Vec::new();
        for index in self.indices(reader, 1)? {
            match u32::try_from(*index) {
                Ok(column) if (column as usize) < input.width => columns.push(column),
                _ => return Err(reader.refuse(format!("reads column {index} of {}", input.width))),
            }
        }
        let width = columns.len();
        if width == 0 || width > MAX_WIDTH {
            return Err(reader.refuse(format!("gathers {width} columns")));
        }
        Ok((Step::Columns(input, columns), width, Kind::Number))
    }

    fn concat(&self, reader: &Reader<'_>) -> Result<(Step, usize, Kind), Error> {
        if reader.only_integer("axis")? != 1 {
            return Err(reader.refuse("joins along another axis than 1"));
        }
        let parts = (0..reader.node.input.len())
            .map(|index| self.matrix(reader, index, Kind::Number))
            .collect::<Result<Vec<_>, _>>()?;
        let width = parts.iter().map(|part| part.width).fold(0, usize::saturating_add);
        if width == 0 || width > MAX_ARENA {
            return Err(reader.refuse(format!("joins to {width} columns")));
        }
        Ok((Step::Concat(parts), width, Kind::Number))
    }

    fn finish(self, graph: &GraphProto) -> Result<Plan, Error> {
        if graph.output.len() != OUTPUTS.len() {
            let reason = format!("has {} outputs, not {}", graph.output.len(), OUTPUTS.len());
            return Err(Error::graph("the graph", reason));
        }
        let mut outputs = [Slot { offset: 0, width: 0 }; 3];
        for ((output, wanted), slot) in graph.output.iter().zip(OUTPUTS).zip(&mut outputs) {
            match self.values.get(&output.name) {
                Some(Value::Matrix(found, Kind::Number))
                    if output.name == wanted && found.width == 1 && matrix_width(output)? == 1 =>
                {
                    *slot = *found;
                }
                _ => {
                    let part = format!("the output `{}`", output.name);
                    return Err(Error::graph(part, format!("is not the computed column `{wanted}`")));
                }
            }
        }
        Ok(Plan { input: self.input, steps: self.steps, outputs, width: self.width })
    }

    /// A value that exists already: this also rules out cycles.
    fn value(&self, reader: &Reader<'_>, index: usize) -> Result<&Value, Error> {
        let name = reader.node.input.get(index).map(String::as_str).unwrap_or_default();
        self.values
            .get(name)
            .ok_or_else(|| reader.refuse(format!("reads `{name}`, which nothing before it gives")))
    }

    fn matrix(&self, reader: &Reader<'_>, index: usize, wanted: Kind) -> Result<Slot, Error> {
        match self.value(reader, index)? {
            Value::Matrix(slot, kind) if *kind == wanted => Ok(*slot),
            _ => Err(reader.refuse(format!("has an unfit input {index}"))),
        }
    }

    fn operand(&self, reader: &Reader<'_>, index: usize, wanted: Kind) -> Result<Operand, Error> {
        match self.value(reader, index)? {
            Value::Matrix(slot, kind) if *kind == wanted => Ok(Operand::Slot(*slot)),
            Value::Constant(Constant::Floats { dims, values })
                if wanted == Kind::Number && !values.is_empty() && (dims.len() < 2 || dims[0] == 1) =>
            {
                Ok(Operand::Row(values.clone()))
            }
            _ => Err(reader.refuse(format!("has an unfit input {index}"))),
        }
    }

    fn scalar(&self, reader: &Reader<'_>, index: usize) -> Result<f32, Error> {
        match self.value(reader, index)? {
            Value::Constant(Constant::Floats { dims, values }) if dims.is_empty() => Ok(values[0]),
            _ => Err(reader.refuse(format!("needs a number as input {index}"))),
        }
    }

    fn indices(&self, reader: &Reader<'_>, index: usize) -> Result<&Vec<i64>, Error> {
        match self.value(reader, index)? {
            Value::Constant(Constant::Integers { values }) => Ok(values),
            _ => Err(reader.refuse(format!("needs whole numbers as input {index}"))),
        }
    }
}

/// The width of an element-wise result: all operands are that wide, or 1.
fn spread(reader: &Reader<'_>, widths: &[usize]) -> Result<usize, Error> {
    let width = widths.iter().copied().max().unwrap_or(0);
    if widths.iter().all(|each| *each == width || *each == 1) {
        Ok(width)
    } else {
        Err(reader.refuse(format!("joins matrices of widths {widths:?}")))
    }
}
