//! Processor sharing: two workloads that together need more than the device slow down by just that much.

use super::fitted::Linear;
use super::{Fitted, Learner, LearnerOptions, Training};
use crate::Error;
use elastico_core::Seed;

/// No fit at all: slowdown = max(1, u₁ + u₂), the load a processor-sharing queue would give.
pub(crate) struct ProcessorSharing;

/// Busy shares, the most telling first.
const BUSY: [&str; 2] = ["kernel_active_ratio", "sm_active_ratio"];

impl Learner for ProcessorSharing {
    fn fit(&self, training: &Training<'_>, _: &LearnerOptions, _: Seed) -> Result<Fitted, Error> {
        let column = |name: String| training.names.iter().position(|known| *known == name);
        BUSY.iter()
            .find_map(|counter| {
                let subject = column(format!("subject_{counter}"))?;
                let co_runner = column(format!("co_runner_{counter}"))?;
                let terms = [(subject, 1.0), (co_runner, 1.0)];
                Some(Fitted::Linear(Linear::formula(training.features.width, 0.0, &terms)))
            })
            .ok_or_else(|| Error::Learner {
                learner: "processor_sharing",
                reason: format!("neither {} of both sides is a feature", BUSY.join(" nor ")),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learners::tests::Table;

    #[test]
    fn load_over_one_is_the_slowdown() {
        let names = ["co_runner_sm_active_ratio", "subject_sm_active_ratio"];
        let table = Table::of(&names, vec![0.75, 0.75, 0.25, 0.25], vec![0.0, 0.0]);
        let options = LearnerOptions::default();
        let fitted = ProcessorSharing.fit(&table.training(), &options, Seed(1)).unwrap();
        assert_eq!(fitted.predict(&table.training()), vec![1.5_f64.ln(), 0.0]);
        let unnamed = Training { names: &[], ..table.training() };
        assert!(ProcessorSharing.fit(&unnamed, &options, Seed(1)).is_err());
    }
}
