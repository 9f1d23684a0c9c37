//! Elastic net (Zou & Hastie 2005) on standardised features, by linfa.

use super::fitted::Linear;
use super::{Fitted, Learner, LearnerOptions, Training};
use crate::Error;
use elastico_core::Seed;
use elastico_models::Link;
use linfa::Dataset;
use linfa::traits::Fit as _;
use ndarray::{Array1, Array2};

/// linfa's solver takes no row weights, so none are used.
pub(crate) struct ElasticNet;

impl Learner for ElasticNet {
    fn fit(&self, training: &Training<'_>, options: &LearnerOptions, _: Seed) -> Result<Fitted, Error> {
        let (rows, width) = (training.features.rows(), training.features.width);
        let mut center = vec![0.0; width];
        let mut scale = vec![0.0; width];
        for row in training.features.iter() {
            for (sum, value) in center.iter_mut().zip(row) {
                *sum += f64::from(*value);
            }
        }
        for sum in &mut center {
            *sum /= rows as f64;
        }
        for row in training.features.iter() {
            for ((sum, value), center) in scale.iter_mut().zip(row).zip(&center) {
                *sum += (f64::from(*value) - center).powi(2);
            }
        }
        for ((scale, center), name) in scale.iter_mut().zip(&center).zip(training.names) {
            let deviation = (*scale / rows as f64).sqrt();
            // A column that is constant here says nothing, and must not blow up elsewhere.
            let varies = deviation > 1e-6 * center.abs().max(1e-12);
            *scale = if varies && is_bounded(name) { deviation } else { f64::INFINITY };
        }
        let records = Array2::from_shape_fn((rows, width), |(row, column)| {
            (f64::from(training.features.row(row)[column]) - center[column]) / scale[column]
        });
        let fitted = linfa_elasticnet::ElasticNet::params()
            .penalty(options.elastic_net.penalty)
            .l1_ratio(options.elastic_net.l1_ratio)
            .fit(&Dataset::new(records, Array1::from_iter(training.target.iter().copied())))
            .map_err(|error| Error::Learner { learner: "elastic_net", reason: error.to_string() })?;
        let weights = fitted.hyperplane().to_vec();
        // Dropped columns get weight 0 and scale 1, which is what the graph can hold.
        for scale in scale.iter_mut().filter(|scale| scale.is_infinite()) {
            *scale = 1.0;
        }
        if weights.iter().any(|weight| !weight.is_finite()) || !fitted.intercept().is_finite() {
            return Err(Error::Learner { learner: "elastic_net", reason: "the solver diverged".to_owned() });
        }
        Ok(Fitted::Linear(Linear { weights, center, scale, bias: fitted.intercept(), link: Link::Log }))
    }
}

/// Whether a feature cannot run away: a ratio or a one-hot, or a constant of the device.
///
/// Rates and bytes span decades between workloads, and a line through them gives a new family slowdowns of hundreds.
fn is_bounded(name: &str) -> bool {
    name.ends_with("_ratio") || name.contains("_family=") || name.starts_with("device_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learners::tests::Table;

    #[test]
    fn a_line_is_found_and_a_constant_column_ignored() {
        let values: Vec<f32> = (0..100).flat_map(|x| [x as f32, 7.0]).collect();
        let target: Vec<f64> = (0..100).map(|x| 0.02 * f64::from(x)).collect();
        let table = Table::of(&["subject_x_ratio", "subject_y_ratio"], values, target);
        let options = LearnerOptions::default();
        let Fitted::Linear(linear) = ElasticNet.fit(&table.training(), &options, Seed(1)).unwrap() else {
            panic!("not linear")
        };
        assert!((linear.predict(&[50.0, 7.0]) - 1.0).abs() < 0.02);
        assert!((linear.predict(&[50.0, 1e6]) - 1.0).abs() < 0.02);
    }
}
