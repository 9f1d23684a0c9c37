//! Processor sharing: two workloads that together need more than the device slow down by just that much.

use super::{Bounds, Fitted, Learner, Training};
use crate::Error;
use elastico_core::Seed;

/// No fit at all: slowdown = max(1, u₁ + u₂), the load a processor-sharing queue would give.
pub(crate) struct ProcessorSharing;

/// Busy shares, the most telling first.
const BUSY: [&str; 2] = ["kernel_active_ratio", "sm_active_ratio"];

impl Learner for ProcessorSharing {
    fn fit(&self, training: &Training<'_>, _: &Bounds, _: Seed) -> Result<Fitted, Error> {
        let column = |name: String| training.names.iter().position(|known| *known == name);
        BUSY.iter()
            .find_map(|counter| {
                let subject = column(format!("subject_{counter}"))?;
                let co_runner = column(format!("co_runner_{counter}"))?;
                Some(Fitted::Sharing { subject, co_runner })
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
    use crate::matrix::Matrix;

    #[test]
    fn load_over_one_is_the_slowdown() {
        let names = vec!["co_runner_sm_active_ratio".to_owned(), "subject_sm_active_ratio".to_owned()];
        let features = Matrix::new(2, vec![0.75, 0.75, 0.25, 0.25]);
        let training = Training { features: &features, names: &names, target: &[0.0, 0.0], weights: None };
        let fitted = ProcessorSharing.fit(&training, &Bounds::default(), Seed(1)).unwrap();
        assert_eq!(fitted.predict(&features), vec![1.5_f64.ln(), 0.0]);
        let training = Training { names: &[], ..training };
        assert!(ProcessorSharing.fit(&training, &Bounds::default(), Seed(1)).is_err());
    }
}
