//! From the ops of a step to actions and buffers.
//!
//! A program says what runs, not which result feeds what. Lowering links the ops as the structures mean them: an op reads
//! the latest result of its format that fits; products read a weight of their own; a gradient op finds the forward op
//! that it belongs to and reads what that op read. Every read is of something that this step wrote before, of weights,
//! tables and optimiser state, or of constant random inputs: nothing flows from one step to the next but weights and
//! state, whose changes are bounded. That is why results stay finite however long a campaign runs.

mod attention;
mod convolution;
mod memory;
mod products;
mod rows;
mod sparse;
mod stress;

use super::call::View;
use super::error::LaunchError;
use super::fill::Fill;
use super::format::Format;
use super::plan::{Action, KernelCall, Place, Target};
use crate::op::Op;
use crate::program::StepProgram;
use elastico_core::Dtype;
use memory::{Optimiser, Weights};
use std::collections::BTreeMap;

/// How many results an op looks back for its operands.
const WINDOW: usize = 8;
/// Offsets of operands in a buffer: what the fastest loads and the products ask for.
const ALIGNMENT: u64 = 256;

/// A buffer in the making.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) label: &'static str,
    pub(super) bytes: u64,
    pub(super) place: Place,
    pub(super) fill: Fill,
    /// Lives from its first to its last use in a step and shares memory with others.
    pub(super) is_transient: bool,
}

/// Which part of a step an op belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Forward,
    Backward,
    Optimiser,
}

/// A forward op and what its gradient needs.
#[derive(Debug)]
struct Record {
    gradients: Vec<Op>,
    is_done: Vec<bool>,
    /// In the order of the op's own meaning: A and B, input and filter, q, k and v, table and indices.
    inputs: Vec<View>,
    output: View,
    /// The second input is a weight: its gradient goes to the optimiser.
    has_weight: bool,
    /// B lies transposed.
    is_transposed: bool,
    /// The gradient of the output, once a first gradient op has read it.
    gradient: Option<View>,
}

/// The state of lowering one program.
pub(super) struct Lowering<'a> {
    target: &'a Target,
    dtype: Dtype,
    pub(super) buffers: Vec<Draft>,
    pub(super) actions: Vec<Action>,
    /// Results of this step, the latest last.
    tensors: Vec<View>,
    /// Constant random operands by format.
    inputs: BTreeMap<Format, usize>,
    weights: BTreeMap<Format, Weights>,
    optimiser: Option<Optimiser>,
    /// Row numbers by table size, bits of the skew, and count.
    indices: BTreeMap<(u64, u64, u64), usize>,
    tables: BTreeMap<(u64, u64, Format), usize>,
    /// Buffer, first free byte and format of the key-value cache.
    cache: Option<(usize, u64, Format)>,
    cache_bytes: u64,
    records: Vec<Record>,
    phase: Phase,
    /// How many results there were when the backward pass began.
    forward_results: usize,
}

impl<'a> Lowering<'a> {
    pub(super) fn new(target: &'a Target, program: &StepProgram) -> Self {
        Self {
            target,
            dtype: program.demand().dtype,
            buffers: Vec::new(),
            actions: Vec::new(),
            tensors: Vec::new(),
            inputs: BTreeMap::new(),
            weights: BTreeMap::new(),
            optimiser: None,
            indices: BTreeMap::new(),
            tables: BTreeMap::new(),
            cache: None,
            cache_bytes: program.memory.cache.get() as u64,
            records: Vec::new(),
            phase: Phase::Forward,
            forward_results: 0,
        }
    }

    /// Lowers every op in order.
    pub(super) fn run(&mut self, program: &StepProgram) -> Result<(), LaunchError> {
        self.plan_weights(program);
        for (index, op) in program.ops.iter().enumerate() {
            let section = program.sections.iter().rev().find(|section| section.first <= index);
            self.phase = match section.map(|section| section.name.as_str()) {
                Some("backward") => Phase::Backward,
                Some("optimiser") => Phase::Optimiser,
                _ => Phase::Forward,
            };
            if self.phase == Phase::Forward {
                self.forward_results = self.tensors.len();
            }
            self.op(op)?;
        }
        self.finish_weights();
        Ok(())
    }

    fn op(&mut self, op: &Op) -> Result<(), LaunchError> {
        match *op {
            Op::Gemm { .. } => self.gemm(op),
            Op::Convolution { .. } => self.convolution(op),
            Op::Attention { .. } => self.attention(op),
            Op::Norm { .. } => self.norm(op),
            Op::Softmax { .. } => self.softmax(op),
            Op::Elementwise { elements, inputs: 3, outputs: 2, .. } if self.phase == Phase::Optimiser => {
                self.momentum(elements)
            }
            Op::Elementwise { .. } => self.elementwise(op),
            Op::Gather { .. } => self.gather(op),
            Op::Scatter { .. } => self.scatter(op),
            Op::Adam { parameters, dtype } => self.adam(parameters, dtype),
            Op::Stream { footprint, bytes, access, blocks } => self.stream(footprint, bytes, access, blocks),
            Op::Compute { .. } => self.compute(op),
            Op::SharedMemory { bytes, conflict, blocks, warps_per_block } => {
                self.shared_memory(bytes, conflict, blocks, warps_per_block)
            }
            Op::Atomic { updates, addresses } => self.atomic(updates, addresses),
            Op::Copy { bytes, direction } => {
                self.copy(bytes, direction);
                Ok(())
            }
            Op::Launch { count } => self.launches(count),
            Op::Resident { blocks, warps_per_block, shared_bytes, seconds } => {
                self.resident(blocks, warps_per_block, shared_bytes, seconds.get())
            }
            Op::HostGap { seconds } => {
                self.actions.push(Action::HostGap { seconds: seconds.get() });
                Ok(())
            }
        }
    }

    fn kernel(&mut self, call: KernelCall) {
        self.actions.push(Action::Kernel(call));
    }

    /// Refuses what the target has no instruction for.
    fn require(&self, op: &'static str, dtype: Dtype, needs: (i32, i32)) -> Result<(), LaunchError> {
        let has = self.target.compute_capability;
        if has >= needs {
            return Ok(());
        }
        Err(LaunchError::Capability { op, dtype, needs, has })
    }

    /// Refuses gradients in formats that are not trained: there are no kernels for them.
    fn require_trained(op: &'static str, format: Format) -> Result<(), LaunchError> {
        if matches!(format, Format::F32 | Format::F16 | Format::Bf16) {
            return Ok(());
        }
        Err(LaunchError::Format { op, dtype: dtype_of(format) })
    }

    // ---- operands ----

    fn buffer(&mut self, label: &'static str, bytes: u64, fill: Fill) -> usize {
        let bytes = bytes.max(1).next_multiple_of(16);
        self.buffers.push(Draft { label, bytes, place: Place::Device, fill, is_transient: false });
        self.buffers.len() - 1
    }

    /// A result or workspace that lives until its last use.
    fn transient(&mut self, label: &'static str, format: Format, elements: u64) -> View {
        let bytes = (elements * format.bytes()).max(1).next_multiple_of(16);
        let fill = Fill::Normal { dtype: self.dtype, deviation: 1.0 };
        self.buffers.push(Draft { label, bytes, place: Place::Device, fill, is_transient: true });
        View { buffer: self.buffers.len() - 1, offset: 0, elements, format }
    }

    /// A result that later ops read.
    fn output(&mut self, format: Format, elements: u64) -> View {
        let view = self.transient("activations", format, elements);
        self.tensors.push(view);
        view
    }

    /// Constant random numbers from element `first` on.
    fn constant(&mut self, format: Format, first: u64, elements: u64) -> View {
        let first = aligned(first, format);
        let dtype = dtype_of(format);
        let buffer = match self.inputs.get(&format) {
            Some(buffer) => *buffer,
            None => {
                let buffer = self.buffer("inputs", 1, Fill::Normal { dtype, deviation: 1.0 });
                self.inputs.insert(format, buffer);
                buffer
            }
        };
        let needed = ((first + elements) * format.bytes()).next_multiple_of(16);
        let draft = &mut self.buffers[buffer];
        draft.bytes = draft.bytes.max(needed);
        View { buffer, offset: first * format.bytes(), elements, format }
    }

    /// The result of this step that an op of that size most likely reads: the latest of exactly that size, else the
    /// latest of all if it is large enough, else the closest in size.
    fn result(&self, format: Format, elements: u64, except: Option<View>) -> Option<View> {
        self.result_since(0, format, elements, except)
    }

    /// As [`Self::result`], among the results from the given one on.
    fn result_since(
        &self,
        first: usize,
        format: Format,
        elements: u64,
        except: Option<View>,
    ) -> Option<View> {
        let results = self.tensors.get(first..).unwrap_or_default();
        let fits = |view: &&View| {
            view.format == format
                && view.elements >= elements
                && except.is_none_or(|other| view.buffer != other.buffer)
        };
        let recent = || results.iter().rev().take(WINDOW).filter(fits);
        let exact = recent().find(|view| view.elements == elements);
        let latest = || results.last().filter(fits);
        exact
            .or_else(latest)
            .or_else(|| recent().min_by_key(|view| view.elements))
            .map(|view| view.take(elements))
    }

    /// The operand of an op.
    fn operand(&mut self, format: Format, elements: u64) -> View {
        match self.result(format, elements, None) {
            Some(view) => view,
            None => self.constant(format, 0, elements),
        }
    }

    /// Another operand beside `first`: the rest of the same result where it is large enough and nothing fits exactly.
    fn second(&mut self, format: Format, elements: u64, first: View) -> View {
        let other = self.result(format, elements, Some(first));
        if let Some(exact) = other.filter(|view| self.whole(*view) == elements) {
            return exact;
        }
        let skipped = aligned(first.elements, format);
        if self.whole(first) >= skipped + elements && first.format == format && first.offset == 0 {
            return View { offset: skipped * format.bytes(), elements, ..first };
        }
        match other {
            Some(view) => view,
            None => self.constant(format, first.elements, elements),
        }
    }

    /// Elements of the whole result that a view is part of; 0 for what is no result.
    fn whole(&self, view: View) -> u64 {
        let is_it = |tensor: &&View| tensor.buffer == view.buffer;
        self.tensors.iter().find(is_it).map_or(0, |tensor| tensor.elements)
    }

    // ---- gradients ----

    /// Keeps a forward op for its gradient.
    fn record(&mut self, op: &Op, inputs: Vec<View>, output: View, has_weight: bool, is_transposed: bool) {
        let gradients = op.gradient();
        if self.phase == Phase::Forward && !gradients.is_empty() {
            self.records.push(Record {
                is_done: vec![false; gradients.len()],
                gradients,
                inputs,
                output,
                has_weight,
                is_transposed,
                gradient: None,
            });
        }
    }

    /// The latest forward op whose gradient `op` is, and which of its gradients. Marks that one as done.
    fn forward_of(&mut self, op: &Op) -> Option<(usize, usize)> {
        if self.phase != Phase::Backward {
            return None;
        }
        let found = self.records.iter().enumerate().rev().find_map(|(index, record)| {
            let of = |(which, gradient): (usize, &Op)| {
                (!record.is_done[which] && gradient == op).then_some((index, which))
            };
            record.gradients.iter().enumerate().find_map(of)
        });
        if let Some((index, which)) = found {
            self.records[index].is_done[which] = true;
        }
        found
    }

    /// The gradient of a forward op's result: the same for all gradient ops of that op. It is a result of the backward
    /// pass; where there is none yet, a random one stands for the gradient of the loss. No result of the forward pass
    /// does: it goes together with what it is multiplied by, and sums over many rows would grow with their number.
    fn gradient_of(&mut self, record: usize, format: Format, elements: u64) -> View {
        if let Some(view) = self.records[record].gradient {
            return view;
        }
        let found = self.result_since(self.forward_results, format, elements, None);
        let view = found.unwrap_or_else(|| self.constant(format, 0, elements));
        self.records[record].gradient = Some(view);
        view
    }
}

/// The next element count at or after `elements` where an operand may begin.
fn aligned(elements: u64, format: Format) -> u64 {
    elements.next_multiple_of(ALIGNMENT / format.bytes())
}

/// The format of numbers in memory as the catalogue names it; TF32 is FP32 in memory.
fn dtype_of(format: Format) -> Dtype {
    match format {
        Format::F64 | Format::U64 => Dtype::Fp64,
        Format::F32 | Format::I32 => Dtype::Fp32,
        Format::F16 => Dtype::Fp16,
        Format::Bf16 => Dtype::Bf16,
        Format::E4m3 => Dtype::Fp8,
        Format::I8 | Format::Raw => Dtype::Int8,
    }
}
