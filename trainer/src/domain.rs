//! Which rows a model may speak about: the box of its training rows, and how near to one of them.

use crate::evaluate::OutOfFold;
use crate::{Error, Examples};
use elastico_core::Seed;
use elastico_models::{Domain, DomainDistance, fit_domain};

/// The share of rows of held-out families that count as near: on such families the bound was calibrated, and what lies
/// farther than nineteen of twenty of their rows has no support at all.
const INSIDE: f64 = 0.95;

/// Where held-out rows lie as seen from the training rows of their fold, in the order of the predictions.
#[derive(Debug)]
pub(crate) struct Places {
    /// Whether each feature lies in its range.
    pub(crate) is_in_box: Vec<bool>,
    /// Distance to the nearest prototype, in standard deviations.
    pub(crate) distances: Vec<f32>,
}

/// Looks at each fold's test rows from its training rows, which are all others.
pub(crate) fn places(examples: &Examples, held: &OutOfFold, seed: Seed) -> Result<Places, Error> {
    let mut places =
        Places { is_in_box: vec![false; held.rows.len()], distances: vec![0.0; held.rows.len()] };
    for fold in 0..held.held_out.len() as u32 {
        let tested: Vec<usize> = (0..held.rows.len()).filter(|&index| held.fold[index] == fold).collect();
        let mut is_test = vec![false; examples.rows()];
        for &index in &tested {
            is_test[held.rows[index] as usize] = true;
        }
        let train: Vec<f32> = (0..examples.rows())
            .filter(|&row| !is_test[row])
            .flat_map(|row| examples.row(row))
            .copied()
            .collect();
        let domain = fit_domain(&train, examples.schema.width())?;
        let distance = fit(examples, &train, &domain, seed);
        for index in tested {
            let row = examples.row(held.rows[index] as usize);
            places.is_in_box[index] = domain.contains(row);
            places.distances[index] = distance.distances(row)[0];
        }
    }
    Ok(places)
}

fn fit(examples: &Examples, rows: &[f32], domain: &Domain, seed: Seed) -> DomainDistance {
    DomainDistance::fit(&examples.schema, rows, &domain.impute, DomainDistance::MOST_PROTOTYPES, seed)
}

/// The distance up to which a row is near, from those of the rows of held-out families.
pub(crate) fn limit(distances: &[f32]) -> f32 {
    DomainDistance::limit_for(distances, INSIDE)
}

/// The distance of a model of all rows, its limit from held-out families; nothing where no feature has a part in it.
pub(crate) fn domain_distance(
    examples: &Examples,
    domain: &Domain,
    held: &OutOfFold,
    seed: Seed,
) -> Result<Option<DomainDistance>, Error> {
    let whole = fit(examples, &examples.features, domain, seed);
    if whole.dimensions() == 0 {
        return Ok(None);
    }
    Ok(Some(whole.with_limit(limit(&places(examples, held, seed)?.distances))))
}
