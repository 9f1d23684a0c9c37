//! The engine: segments of captured work, host gaps between them, events around them.

use super::super::engine::{Engine, Failure};
use super::super::message::CudaWork;
use super::clock::{Pace, pause, wait};
use super::load::{Kernels, Loaded, Ready};
use super::target;
use elastico_core::Seed;
use elastico_gpu::cuda::{Context, Event, Graph, Stream};
use elastico_workloads::StepProgram;
use elastico_workloads::launch::LaunchPlan;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Steps in flight: the next is queued before the last ends, so that the device never waits for the host.
const DEPTH: usize = 2;

/// A part of a step.
enum Segment {
    /// Captured work, once for each step in flight: no launch waits for the one before it to leave its graph.
    Graph([Graph; DEPTH]),
    /// Actions that are launched one by one.
    Single(Range<usize>),
    /// The host pauses after the device has finished.
    Gap(Duration),
}

/// Events of one step in flight.
struct Slot {
    /// Begin and end of each segment with device work.
    marks: Vec<(Event, Event)>,
    /// When it was submitted.
    submitted: Instant,
}

/// The steps of one side on a stream of its own.
pub(in crate::worker) struct CudaEngine {
    segments: Vec<Segment>,
    slots: Vec<Slot>,
    submitted: u64,
    completed: u64,
    /// When the last step ended, and how long steps take at least.
    ended: Instant,
    pace: Pace,
    duty: f64,
    is_spoilt: bool,
    checks: super::checks::Checks,
    stream: Stream,
    copies: Stream,
    loaded: Loaded,
    context: Context,
}

impl CudaEngine {
    /// Plans, allocates, fills, loads and captures.
    pub(super) fn build(
        context: &Context,
        stream: Stream,
        kernels: &mut Kernels<'_>,
        work: &CudaWork,
        program: &StepProgram,
        seed: Seed,
    ) -> Result<Self, Failure> {
        let plan = LaunchPlan::new(program, &target(context, stream.multiprocessors()), seed)?;
        Self::of_plan(context, stream, kernels, work, &plan)
    }

    /// Allocates, fills, loads and captures what a plan says.
    pub(super) fn of_plan(
        context: &Context,
        stream: Stream,
        kernels: &mut Kernels<'_>,
        work: &CudaWork,
        plan: &LaunchPlan,
    ) -> Result<Self, Failure> {
        let loaded = Loaded::new(context, &stream, kernels, work, plan)?;
        let copies = context.stream()?;
        let mut segments = Vec::new();
        let mut start = 0;
        for (index, action) in loaded.actions.iter().enumerate() {
            if let Ready::HostGap(seconds) = action {
                segments.extend(segment(context, &stream, &copies, &loaded, start..index, plan.is_graph)?);
                segments.push(Segment::Gap(Duration::from_secs_f64(seconds.max(0.0))));
                start = index + 1;
            }
        }
        let rest = start..loaded.actions.len();
        segments.extend(segment(context, &stream, &copies, &loaded, rest, plan.is_graph)?);
        let worked = segments.iter().filter(|segment| !matches!(segment, Segment::Gap(_))).count();
        let mut slots = Vec::new();
        for _ in 0..DEPTH {
            let marks = (0..worked).map(|_| Ok((context.event()?, context.event()?)));
            slots.push(Slot { marks: marks.collect::<Result<_, Failure>>()?, submitted: Instant::now() });
        }
        Ok(Self {
            checks: super::checks::Checks::new(plan),
            segments,
            slots,
            submitted: 0,
            completed: 0,
            ended: Instant::now(),
            pace: Pace::default(),
            duty: plan.duty,
            is_spoilt: false,
            stream,
            copies,
            loaded,
            context: context.clone(),
        })
    }

    /// SMs that the side may use.
    pub(super) fn multiprocessors(&self) -> u32 {
        self.stream.multiprocessors()
    }

    /// Device memory that it allocated.
    pub(super) const fn allocated(&self) -> u64 {
        self.loaded.allocated
    }

    /// Buffers and actions.
    pub(super) const fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    /// Whether the host takes part in a step, so that the next cannot be queued before it ends.
    fn is_stepwise(&self) -> bool {
        self.is_idling() || self.segments.iter().any(|segment| matches!(segment, Segment::Gap(_)))
    }

    fn is_idling(&self) -> bool {
        self.duty > 0.0 && self.duty < 1.0
    }

    /// Queues or does all parts of a step.
    fn start(&self, place: usize) -> Result<(), Failure> {
        let mut marks = self.slots[place].marks.iter();
        let mut last: Option<&Event> = None;
        for segment in &self.segments {
            if let Segment::Gap(length) = segment {
                if let Some(event) = last {
                    wait(event, self.ended)?;
                }
                pause(*length);
                continue;
            }
            let (begin, end) = marks.next().expect("one pair of events for each segment with work");
            self.stream.record(begin)?;
            match segment {
                Segment::Graph(graphs) => self.stream.launch_graph(&graphs[place])?,
                Segment::Single(range) => {
                    queue(&self.context, &self.stream, &self.copies, &self.loaded, range.clone())?;
                }
                Segment::Gap(_) => {}
            }
            self.stream.record(end)?;
            last = Some(end);
        }
        Ok(())
    }
}

/// The segment of a range of actions; none where it is empty.
fn segment(
    context: &Context,
    stream: &Stream,
    copies: &Stream,
    loaded: &Loaded,
    range: Range<usize>,
    is_graph: bool,
) -> Result<Option<Segment>, Failure> {
    if range.is_empty() {
        return Ok(None);
    }
    if !is_graph {
        return Ok(Some(Segment::Single(range)));
    }
    let capture = || stream.capture(|stream| queue(context, stream, copies, loaded, range.clone()));
    Ok(Some(Segment::Graph([capture()?, capture()?])))
}

/// Queues actions in order; of two overlapped copies the second goes over a stream of its own.
fn queue(
    context: &Context,
    stream: &Stream,
    copies: &Stream,
    loaded: &Loaded,
    range: Range<usize>,
) -> Result<(), Failure> {
    let overlapped = |action: &Ready| {
        matches!(action, Ready::ToDevice { overlapped: true, .. } | Ready::ToHost { overlapped: true, .. })
    };
    let mut index = range.start;
    while index < range.end {
        let pair = loaded.actions.get(index..(index + 2).min(range.end)).unwrap_or_default();
        match pair {
            [first, second] if overlapped(first) && overlapped(second) => {
                let (fork, join) = (context.event()?, context.event()?);
                stream.record(&fork)?;
                copies.wait_for(&fork)?;
                loaded.queue(stream, first)?;
                loaded.queue(copies, second)?;
                copies.record(&join)?;
                stream.wait_for(&join)?;
                index += 2;
            }
            [first, ..] => {
                loaded.queue(stream, first)?;
                index += 1;
            }
            [] => break,
        }
    }
    Ok(())
}

impl Engine for CudaEngine {
    fn depth(&self) -> usize {
        if self.is_stepwise() { 1 } else { DEPTH }
    }

    fn submit(&mut self) -> Result<(), Failure> {
        let place = (self.submitted % DEPTH as u64) as usize;
        self.slots[place].submitted = Instant::now();
        self.start(place)?;
        self.submitted += 1;
        Ok(())
    }

    fn complete(&mut self, beat: &dyn Fn()) -> Result<u64, Failure> {
        let slot = &self.slots[(self.completed % DEPTH as u64) as usize];
        let begin = self.ended.max(slot.submitted);
        if let Some((_, end)) = slot.marks.last() {
            wait(end, begin + self.pace.least())?;
        }
        let now = Instant::now();
        let mut busy = 0.0;
        for (begin, end) in &slot.marks {
            busy += end.seconds_since(begin)?;
        }
        let busy = Duration::try_from_secs_f64(busy).unwrap_or(Duration::ZERO);
        self.pace.see(now.saturating_duration_since(begin));
        beat();
        if self.is_idling() {
            pause(busy.mul_f64((1.0 - self.duty) / self.duty));
        }
        self.ended = Instant::now();
        self.completed += 1;
        Ok(busy.as_nanos() as u64)
    }

    fn check(&mut self) -> Result<(), Failure> {
        if self.is_spoilt {
            return Err(Failure::crash("computed numbers that are not finite"));
        }
        self.checks.run(&self.loaded)
    }

    fn checksum(&self) -> f64 {
        self.checks.checksum() as f64
    }

    fn spoil(&mut self) {
        self.is_spoilt = true;
    }
}
