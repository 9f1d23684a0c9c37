//! One lane: a thread's own operands and its part of each op.
//!
//! Weights are read by all lanes; everything else belongs to one. Operands are taken from buffers that are used around
//! and around, so that a step touches as much different memory as the workload holds, as far as the ration lasts.
//! Results are never fed back into inputs: numbers stay random, and no step is faster than another for its zeros.

use super::Plan;
use super::arena::{Cursor, Noise, OutOfMemory, Ration, spread};
use super::kernels;
use super::kernels::loops::{empty_kernel, sample, stream, sum_of};
use super::sizes::{ADDRESS_STRIDE, Sizes};
use super::task::{BUNDLE, LOADS, Needs, TILE, Task};
use elastico_gpu::product::{Matrix, Real};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Operands in one precision.
#[derive(Debug)]
struct Operands<T> {
    weights: Arc<Vec<T>>,
    inputs: Vec<T>,
    outputs: Vec<T>,
    weight: Cursor,
    input: Cursor,
    output: Cursor,
}

impl<T> Operands<T> {
    fn take(&mut self, weights: usize, inputs: usize, outputs: usize) -> (&[T], &[T], &mut [T]) {
        let weights = self.weight.take(self.weights.len(), weights);
        let inputs = self.input.take(self.inputs.len(), inputs);
        let outputs = self.output.take(self.outputs.len(), outputs);
        (&self.weights[weights], &self.inputs[inputs], &mut self.outputs[outputs])
    }
}

/// What a task does with its weights, inputs and outputs.
type Kernel<'a> = &'a mut dyn FnMut(&[f32], &[f32], &mut [f32]);

#[derive(Debug)]
pub(super) struct Lane {
    tasks: Vec<Task>,
    /// Beside each task: where its own state begins, where its stream is, and its row numbers.
    places: Vec<Place>,
    single: Operands<f32>,
    double: Operands<f64>,
    scratch: Vec<f32>,
    table: Vec<f32>,
    state: Vec<f32>,
    stream: Vec<f32>,
    copy: [Vec<f32>; 2],
    words: Arc<Vec<AtomicU32>>,
    /// Sum of one result of each task, so that nothing is optimised away and wrong numbers are seen.
    checksum: f64,
}

#[derive(Debug, Default)]
struct Place {
    state: usize,
    cursor: usize,
    rows: Vec<u32>,
}

impl Lane {
    /// Lays out and fills all lanes of a worker.
    pub(super) fn build(plan: &Plan, lanes: usize, ration: &mut Ration) -> Result<Vec<Self>, OutOfMemory> {
        let plans: Vec<Vec<Task>> = (0..lanes)
            .map(|lane| plan.program.ops.iter().map(|op| Task::of(op, lane, lanes)).collect())
            .collect();
        let mut noise = Noise::new(&mut plan.seed.stream("inputs", &[&plan.trial, plan.side.as_str()]));
        let sizes: Vec<Sizes> = plans.iter().map(|plan| Sizes::of(plan)).collect();
        let grow = Sizes::growth(&sizes, ration.limit());
        let shared = sizes.iter().fold(Needs::default(), |shared, sizes| Needs {
            weights: shared.weights.max(sizes.stretched(|needs| needs.weights, grow)),
            double_weights: shared.double_weights.max(sizes.stretched(|needs| needs.double_weights, grow)),
            addresses: shared.addresses.max(sizes.most.addresses),
            ..shared
        });
        let weights = Arc::new(ration.vector("weights", shared.weights, || noise.single())?);
        let double_weights = Arc::new(ration.vector("weights", shared.double_weights, || noise.double())?);
        let words =
            Arc::new(ration.vector("counters", shared.addresses * ADDRESS_STRIDE, || AtomicU32::new(0))?);
        let mut built = Vec::with_capacity(lanes);
        for (lane, (tasks, sizes)) in plans.into_iter().zip(&sizes).enumerate() {
            // Each lane reads weights of its own, as far as there are enough.
            let first = |length: usize| Cursor::at(length / lanes * lane);
            let length = |which: fn(&Needs) -> usize| sizes.stretched(which, grow);
            let single = Operands {
                weights: Arc::clone(&weights),
                inputs: ration.vector("inputs", length(|needs| needs.inputs), || noise.single())?,
                outputs: ration.vector("outputs", length(|needs| needs.outputs), || noise.single())?,
                weight: first(shared.weights),
                input: Cursor::default(),
                output: Cursor::default(),
            };
            let double = Operands {
                weights: Arc::clone(&double_weights),
                inputs: ration.vector("inputs", length(|needs| needs.double_inputs), || noise.double())?,
                outputs: ration.vector("outputs", length(|needs| needs.double_outputs), || noise.double())?,
                weight: first(shared.double_weights),
                input: Cursor::default(),
                output: Cursor::default(),
            };
            let mut places = Vec::with_capacity(tasks.len());
            let mut held = 0;
            for task in &tasks {
                let needs = task.needs();
                let mut rows = Vec::new();
                if let Task::Gather { rows: count, skew, .. } | Task::Scatter { rows: count, skew, .. } =
                    *task
                {
                    let count = u32::try_from(count).unwrap_or(u32::MAX);
                    let factor = spread(count);
                    rows = ration.vector("row numbers", needs.indices, || noise.row(count, skew, factor))?;
                }
                places.push(Place { state: held, cursor: 0, rows });
                held += needs.state;
            }
            built.push(Self {
                tasks,
                places,
                single,
                double,
                scratch: ration.vector("scratch", sizes.most.scratch, || noise.single())?,
                table: ration.vector("tables", sizes.most.table, || noise.single())?,
                // Second moments must not be negative.
                state: ration.vector("optimiser state", held, || noise.single().abs())?,
                stream: ration.vector("stream buffers", sizes.most.stream, || noise.single())?,
                copy: [
                    ration.vector("copy buffers", sizes.most.copy, || noise.single())?,
                    ration.vector("copy buffers", sizes.most.copy, || noise.single())?,
                ],
                words: Arc::clone(&words),
                checksum: 0.0,
            });
        }
        Ok(built)
    }

    /// Tasks of one step; all lanes of a worker have as many.
    pub(super) const fn len(&self) -> usize {
        self.tasks.len()
    }

    pub(super) const fn checksum(&self) -> f64 {
        self.checksum
    }

    /// Makes the checksum wrong, for a test.
    pub(super) const fn spoil(&mut self) {
        self.checksum = f64::NAN;
    }

    /// Does one task and returns the time that only the host was at work.
    pub(super) fn run(&mut self, index: usize) -> Duration {
        let task = self.tasks[index];
        let needs = task.needs();
        let place = &mut self.places[index];
        let single = |operands: &mut Operands<f32>, run: Kernel<'_>| {
            let (weights, input, output) = operands.take(needs.weights, needs.inputs, needs.outputs);
            run(weights, input, output);
            sample(output)
        };
        let check = match task {
            Task::Products { products, shape, is_double: false } => {
                single(&mut self.single, &mut |b, a, c| kernels::products(products, shape, a, b, c, 0.0))
            }
            Task::Products { products, shape, is_double: true } => {
                let operands = &mut self.double;
                let (b, a, c) =
                    operands.take(needs.double_weights, needs.double_inputs, needs.double_outputs);
                kernels::products(products, shape, a, b, c, 0.0);
                c.first().zip(c.last()).map_or(0.0, |(first, last)| first + last)
            }
            Task::Convolution(convolution) => {
                let scratch = &mut self.scratch;
                single(&mut self.single, &mut |weights, input, output| {
                    convolution.run(weights, input, output, scratch);
                })
            }
            Task::Attention(attention) => {
                let scratch = &mut self.scratch;
                single(&mut self.single, &mut |_, input, output| attention.run(input, output, scratch))
            }
            Task::Norm { columns, backward: false, .. } => {
                single(&mut self.single, &mut |_, input, output| {
                    kernels::norm_forward(columns, input, output);
                })
            }
            Task::Norm { columns, backward: true, .. } => {
                single(&mut self.single, &mut |_, input, output| {
                    let (input, gradient) = input.split_at(input.len() / 2);
                    kernels::norm_backward(columns, input, gradient, output);
                })
            }
            Task::Softmax { columns, backward: false, .. } => {
                single(&mut self.single, &mut |_, input, output| {
                    kernels::softmax_forward(columns, input, output);
                })
            }
            Task::Softmax { columns, backward: true, .. } => {
                single(&mut self.single, &mut |_, input, output| {
                    let (input, gradient) = input.split_at(input.len() / 2);
                    kernels::softmax_backward(columns, input, gradient, output);
                })
            }
            Task::Elementwise { elements, inputs, outputs, flops } => {
                single(&mut self.single, &mut |_, input, output| {
                    kernels::elementwise(elements, (inputs, outputs), flops, input, output);
                })
            }
            Task::Gather { lookups, columns, pooled, .. } => {
                let rows = place.next_rows(lookups);
                let table = &self.table;
                single(&mut self.single, &mut |_, _, output| {
                    kernels::gather(columns, pooled, rows, table, output);
                })
            }
            Task::Scatter { updates, columns, .. } => {
                let rows = place.next_rows(updates);
                let table = &mut self.table;
                let sum = rows.first().copied();
                single(&mut self.single, &mut |_, input, _| kernels::scatter(columns, rows, input, table));
                sum.map_or(0.0, |row| f64::from(table[row as usize * columns]))
            }
            Task::Adam { parameters } => {
                let state = &mut self.state[place.state..][..3 * parameters];
                single(&mut self.single, &mut |_, input, _| kernels::adam(parameters, input, state));
                sample(state)
            }
            Task::Stream { footprint, moved, access } => {
                stream(&mut self.stream[..footprint], &mut place.cursor, moved, access)
            }
            Task::Fma { passes, is_double: false } => {
                let mut sums = [black_box(0.7_f32); BUNDLE];
                let (factor, addend) = (black_box(0.75_f32), black_box(0.25_f32));
                for _ in 0..passes {
                    for sum in &mut sums {
                        *sum = *sum * factor + addend;
                    }
                }
                sample(&sums)
            }
            Task::Fma { passes, is_double: true } => {
                let mut sums = [black_box(0.7_f64); BUNDLE];
                let (factor, addend) = (black_box(0.75_f64), black_box(0.25_f64));
                for _ in 0..passes {
                    for sum in &mut sums {
                        *sum = *sum * factor + addend;
                    }
                }
                sums[0] + sums[BUNDLE - 1]
            }
            Task::Tile { products } => {
                let operands = &mut self.single;
                let (a, b) = (&operands.inputs[..TILE * TILE], &operands.weights[..TILE * TILE]);
                let c = &mut operands.outputs[..TILE * TILE];
                for _ in 0..products {
                    f32::multiply(Matrix::new(black_box(a), TILE, TILE), Matrix::new(b, TILE, TILE), 0.0, c);
                }
                sample(c)
            }
            Task::Loads { loads } => {
                let buffer = &self.single.inputs[..LOADS];
                let mut sum = 0.0;
                let mut left = loads;
                while left > 0 {
                    let count = left.min(LOADS);
                    sum += sum_of(black_box(&buffer[..count]));
                    left -= count;
                }
                f64::from(sum)
            }
            Task::Atomic { updates, addresses } => {
                for update in 0..updates {
                    self.words[(update % addresses) * ADDRESS_STRIDE].fetch_add(1, Ordering::Relaxed);
                }
                f64::from(self.words[0].load(Ordering::Relaxed) & 1)
            }
            Task::Copy { elements, both } => {
                let [host, device] = &mut self.copy;
                let mut left = elements;
                while left > 0 {
                    let count = left.min(host.len());
                    device[..count].copy_from_slice(black_box(&host[..count]));
                    if both {
                        host[..count].copy_from_slice(black_box(&device[..count]));
                    }
                    left -= count;
                }
                sample(device)
            }
            Task::Launch { count } => {
                let kernel: &dyn Fn(f32) -> f32 = black_box(&empty_kernel);
                f64::from((0..count).fold(0.5, |value, _| black_box(kernel)(black_box(value))))
            }
            Task::Sleep { time } => {
                std::thread::sleep(time);
                0.0
            }
            Task::HostGap { time } => {
                let start = Instant::now();
                std::thread::sleep(time);
                return start.elapsed();
            }
            Task::Nothing => 0.0,
        };
        self.checksum += check;
        Duration::ZERO
    }
}

impl Place {
    fn next_rows(&mut self, count: usize) -> &[u32] {
        if self.cursor + count > self.rows.len() {
            self.cursor = 0;
        }
        let start = self.cursor;
        self.cursor += count;
        &self.rows[start..start + count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::message::SideName;
    use elastico_core::Seed;
    use elastico_workloads::{Catalogue, StepProgram};

    fn plan(program: StepProgram) -> Plan {
        Plan {
            program,
            side: SideName::Subject,
            trial: "t".to_owned(),
            seed: Seed(1),
            cores: vec![0, 1],
            pinned: false,
        }
    }

    fn steps(program: StepProgram, lanes: usize, count: usize) -> (Vec<f64>, u64) {
        let mut ration = Ration::new(600_000_000);
        let mut built = Lane::build(&plan(program), lanes, &mut ration).unwrap();
        for _ in 0..count {
            for lane in &mut built {
                for index in 0..lane.len() {
                    lane.run(index);
                }
            }
        }
        (built.iter().map(Lane::checksum).collect(), ration.used())
    }

    #[test]
    fn every_structure_runs_with_finite_numbers_within_its_ration() {
        let catalogue = Catalogue::bundled();
        let mut families = std::collections::BTreeSet::new();
        for benchmark in catalogue.iter().filter(|benchmark| families.insert(benchmark.family.clone())) {
            for lanes in [1, 2] {
                let (sums, used) = steps(benchmark.cpu_program().clone(), lanes, 2);
                assert!(sums.iter().all(|sum| sum.is_finite()), "{}: {sums:?}", benchmark.id);
                assert!(used <= 600_000_000, "{}: {used}", benchmark.id);
            }
        }
        assert!(families.len() > 10);
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let catalogue = Catalogue::bundled();
        let program = catalogue
            .iter()
            .find(|benchmark| benchmark.family.as_str() == "tr_mlp")
            .unwrap()
            .cpu_program()
            .clone();
        assert_eq!(steps(program.clone(), 2, 2).0, steps(program.clone(), 2, 2).0);
        assert_ne!(steps(program.clone(), 1, 2).0, steps(program, 1, 3).0);
    }

    #[test]
    fn too_small_a_ration_is_refused_by_name() {
        let catalogue = Catalogue::bundled();
        let benchmark = catalogue.iter().find(|benchmark| benchmark.family.as_str() == "tr_mlp").unwrap();
        let plan = plan(benchmark.cpu_program().clone());
        let error = Lane::build(&plan, 1, &mut Ration::new(1000)).unwrap_err();
        assert!(error.to_string().contains("of 1000 bytes are in use"), "{error}");
    }
}
