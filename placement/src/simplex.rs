//! The master of the bundle: which mixture of earlier answers is best within capacity.

/// The optimum of `max values·α, uses·α <= 1 per resource, Σα <= 1, α >= 0` and its prices.
#[derive(Clone, Debug)]
pub(crate) struct Master {
    /// The optimum: what no dual value can fall below.
    pub(crate) value: f64,
    /// The price of each resource.
    pub(crate) prices: Vec<f64>,
}

/// Solves by the dense tableau; α = 0 is feasible, so there is no first phase.
///
/// `uses` holds one row of relative use per answer.
pub(crate) fn solve(values: &[f64], uses: &[Vec<f64>], resources: usize) -> Master {
    let answers = values.len();
    let rows = resources + 1;
    let width = answers + rows + 1;
    let mut tableau = vec![vec![0.0; width]; rows + 1];
    for (answer, (value, used)) in values.iter().zip(uses).enumerate() {
        for (row, amount) in used.iter().enumerate() {
            tableau[row][answer] = *amount;
        }
        tableau[resources][answer] = 1.0;
        tableau[rows][answer] = -value;
    }
    for row in 0..rows {
        tableau[row][answers + row] = 1.0;
        tableau[row][width - 1] = 1.0;
    }
    let mut basis: Vec<usize> = (0..rows).map(|row| answers + row).collect();
    let scale = values.iter().fold(1e-12_f64, |most, value| most.max(value.abs()));
    for pivot in 0..4_000 {
        let costs = &tableau[rows][..width - 1];
        let improving = costs.iter().enumerate().filter(|(_, cost)| **cost < -1e-11 * scale);
        // Bland's rule after a while, so that ties cannot cycle.
        let entering = if pivot < 1_000 {
            improving.min_by(|a, b| a.1.total_cmp(b.1)).map(|(column, _)| column)
        } else {
            improving.map(|(column, _)| column).next()
        };
        let Some(entering) = entering else { break };
        let leaving = (0..rows).filter(|row| tableau[*row][entering] > 1e-12).min_by(|a, b| {
            let ratio = |row: usize| tableau[row][width - 1] / tableau[row][entering];
            ratio(*a).total_cmp(&ratio(*b)).then(basis[*a].cmp(&basis[*b]))
        });
        let Some(leaving) = leaving else { break };
        let factor = tableau[leaving][entering];
        tableau[leaving].iter_mut().for_each(|entry| *entry /= factor);
        let pivot_row = tableau[leaving].clone();
        for (row, entries) in tableau.iter_mut().enumerate() {
            let factor = entries[entering];
            if row != leaving && factor != 0.0 {
                entries.iter_mut().zip(&pivot_row).for_each(|(entry, pivot)| *entry -= factor * pivot);
            }
        }
        basis[leaving] = entering;
    }
    Master {
        value: tableau[rows][width - 1],
        prices: (0..resources).map(|row| tableau[rows][answers + row].max(0.0)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_two_answers_within_capacity() {
        // One answer is worth 4 but uses twice the capacity, the other is worth 1 and uses half of it.
        let master = solve(&[4.0, 1.0], &[vec![2.0], vec![0.5]], 1);
        // α = (1/3, 2/3): value 2, and the price of capacity is 2.
        assert!((master.value - 2.0).abs() < 1e-12);
        assert!((master.prices[0] - 2.0).abs() < 1e-12);
    }
}
