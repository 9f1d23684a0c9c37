//! What a job is worth in a shape: objective, weight, and what a restart costs.

use crate::jobs::{Current, Job};
use crate::objective::Objective;
use crate::options::Options;
use crate::shapes::{Shape, ShapeFamily};

/// Values one job's throughput.
///
/// A job that runs loses `switch_seconds` of work when it is moved to another shape. Over the time that it is expected to
/// stay, the horizon or its remaining time if that is shorter, only the part 1 − switch / horizon of the utility of a new
/// shape is left, as Sia discounts every configuration other than the current one (Jayaram Subramanya et al., SOSP 2023)
/// and Pollux those that re-allocate (REALLOC_FACTOR; Qiao et al., OSDI 2021). Without it ties would flip in every round. A job that does not run has to be started anyway, and pays nothing.
#[derive(Clone, Debug)]
pub(crate) struct Worth {
    objective: Objective,
    weight: f64,
    current: Option<Box<Current>>,
    /// Part of the utility that is left after a restart, 0 to 1.
    kept: f64,
}

/// One side of a pair: its value function, its throughput inside the pair, whether it stays in its shape.
pub(crate) type Side<'a> = (&'a Worth, f64, bool);

impl Worth {
    pub(crate) fn of(job: &Job, family: &ShapeFamily, options: &Options) -> Self {
        let stay = job
            .remaining_seconds(family.reference_hertz)
            .map_or(options.horizon_seconds, |remaining| remaining.min(options.horizon_seconds));
        let kept = if job.switch_seconds > 0.0 { (1.0 - job.switch_seconds / stay).max(0.0) } else { 1.0 };
        Self {
            objective: options.objective,
            weight: options.objective.weight(job, family.reference_hertz),
            current: job.current.clone().map(Box::new),
            kept: if job.current.is_some() { kept } else { 1.0 },
        }
    }

    /// Whether the job runs now.
    pub(crate) const fn runs(&self) -> bool {
        self.current.is_some()
    }

    /// Whether the job must be restarted to run in a shape.
    pub(crate) fn restarts(&self, shape: &Shape) -> bool {
        self.current.as_ref().is_some_and(|current| !current.is(shape))
    }

    /// What is lost of a value where the job keeps its shape and yet is moved to other GPUs.
    pub(crate) fn lost_by_moving(&self, value: f64) -> f64 {
        value * (1.0 - self.kept)
    }

    fn utility(&self, throughput: f64) -> f64 {
        self.weight * self.objective.utility(throughput)
    }

    /// What a shape without a co-runner is worth.
    pub(crate) fn alone(&self, shape: &Shape) -> f64 {
        let utility = self.utility(shape.normalized_throughput);
        if self.restarts(shape) { utility * self.kept } else { utility }
    }

    /// The same for a throughput that is not of a family, for a shape that the job is in or not.
    fn kept(&self, utility: f64, stays: bool) -> f64 {
        if stays { utility } else { utility * self.kept }
    }

    /// What a side of a pair is worth at most: where it is not the one that has to be restarted.
    pub(crate) fn halved(&self, throughput: f64, stays: bool) -> f64 {
        self.kept(self.utility(throughput), stays)
    }

    /// What both sides of a pair are worth, and which of them must be restarted.
    ///
    /// Who joins a running job does not restart it. Two jobs that run on different GPUs come together when one of them
    /// moves: the one that loses less.
    pub(crate) fn pair(sides: [Side<'_>; 2], together: bool) -> ([f64; 2], [bool; 2]) {
        let utility = sides.map(|(worth, throughput, _)| worth.utility(throughput));
        let mut stays = sides.map(|(_, _, stays)| stays);
        if stays == [true, true] && sides.iter().all(|side| side.0.current.is_some()) && !together {
            let lost = [0, 1].map(|at| utility[at] * (1.0 - sides[at].0.kept));
            stays[usize::from(lost[1] < lost[0])] = false;
        }
        let values = [0, 1].map(|at| sides[at].0.kept(utility[at], stays[at]));
        (values, stays.map(|stays| !stays))
    }
}
