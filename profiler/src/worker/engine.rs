//! What makes the steps of one side, behind one face for cores and GPUs.

use elastico_core::Outcome;

/// Something went wrong that ends the worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) outcome: Outcome,
    pub(super) detail: String,
}

impl Failure {
    pub(super) fn new(outcome: Outcome, detail: impl Into<String>) -> Self {
        Self { outcome, detail: detail.into() }
    }

    pub(super) fn crash(detail: impl Into<String>) -> Self {
        Self::new(Outcome::WorkerCrash, detail)
    }
}

/// First of the exit codes that stand for outcomes.
const FIRST_CODE: u32 = 20;

/// The code that a worker leaves in its ring for an outcome: it tells even where no message gets through.
pub(crate) fn code_of(outcome: Outcome) -> u32 {
    let place = Outcome::ALL.iter().position(|known| *known == outcome).unwrap_or(0);
    FIRST_CODE + place as u32
}

/// The outcome of a code that [`code_of`] gave.
pub(crate) fn outcome_of(code: u32) -> Option<Outcome> {
    Outcome::ALL.get(code.checked_sub(FIRST_CODE)? as usize).copied()
}

/// Makes the steps of one side. Nothing in it allocates once the engine is built.
pub(super) trait Engine {
    /// Steps that may be submitted before the first of them is complete.
    fn depth(&self) -> usize;

    /// Hands one step to the device, or, where the host does it, notes that it may begin.
    fn submit(&mut self) -> Result<(), Failure>;

    /// Waits for the oldest step in flight; returns the nanoseconds in which the device worked for it.
    ///
    /// `beat` is called whenever the step got on, so that a step without end is told from a long one.
    fn complete(&mut self, beat: &dyn Fn()) -> Result<u64, Failure>;

    /// Whether the results so far are right; asked with nothing in flight.
    fn check(&mut self) -> Result<(), Failure>;

    /// A number that depends on the results.
    fn checksum(&self) -> f64;

    /// Makes the results wrong, for a test.
    fn spoil(&mut self);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_name_their_outcome() {
        for outcome in Outcome::ALL {
            assert_eq!(outcome_of(code_of(outcome)), Some(outcome));
        }
        assert_eq!((outcome_of(0), outcome_of(11), outcome_of(1000)), (None, None, None));
    }
}
