//! The numbers alone: columns, capacities, prices. No names, no files.

use crate::resources::{Amounts, RESOURCES, cost};

/// One job in one shape.
#[derive(Clone, Debug)]
pub(crate) struct Single {
    pub(crate) pool: usize,
    pub(crate) demand: Amounts,
    pub(crate) value: f64,
    /// Index into the job's shape family.
    pub(crate) shape: usize,
}

/// Two jobs on one GPU.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) a: usize,
    pub(crate) b: usize,
    pub(crate) pool: usize,
    pub(crate) demand: Amounts,
    pub(crate) value: f64,
}

/// What a job does in an integral solution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Waiting,
    /// Index into the job's singles.
    Single(usize),
    /// Index into the pairs.
    Pair(usize),
}

/// The columns of every job, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Singles {
    /// Where the columns of each job begin, and where the last ones end.
    starts: Vec<u32>,
    columns: Vec<Single>,
}

impl Default for Singles {
    fn default() -> Self {
        Self { starts: vec![0], columns: Vec::new() }
    }
}

impl Singles {
    /// Nobody yet, with room for so many.
    pub(crate) fn with_capacity(jobs: usize, columns: usize) -> Self {
        let mut starts = Vec::with_capacity(jobs + 1);
        starts.push(0);
        Self { starts, columns: Vec::with_capacity(columns) }
    }

    /// How many jobs there are.
    pub(crate) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Adds a job with these columns.
    pub(crate) fn push(&mut self, columns: impl IntoIterator<Item = Single>) {
        self.columns.extend(columns);
        self.starts.push(self.columns.len() as u32);
    }

    /// Adds the jobs of another list.
    pub(crate) fn append(&mut self, mut other: Self) {
        let first = self.columns.len() as u32;
        self.columns.append(&mut other.columns);
        self.starts.extend(other.starts[1..].iter().map(|start| first + start));
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The columns of each job.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[Single]> {
        self.starts.windows(2).map(|ends| &self.columns[ends[0] as usize..ends[1] as usize])
    }

    /// Where the columns of a job are among all.
    pub(crate) fn range(&self, job: usize) -> std::ops::Range<usize> {
        self.starts[job] as usize..self.starts[job + 1] as usize
    }

    pub(crate) fn all(&self) -> &[Single] {
        &self.columns
    }
}

impl std::ops::Index<usize> for Singles {
    type Output = [Single];

    fn index(&self, job: usize) -> &[Single] {
        &self.columns[self.range(job)]
    }
}

impl std::ops::IndexMut<usize> for Singles {
    fn index_mut(&mut self, job: usize) -> &mut [Single] {
        let range = self.range(job);
        &mut self.columns[range]
    }
}

/// A multiple-choice knapsack with pair columns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problem {
    /// What each pool has.
    pub(crate) capacity: Vec<Amounts>,
    /// The columns of each job.
    pub(crate) singles: Singles,
    /// The pair columns found worth considering.
    pub(crate) pairs: Vec<Pair>,
}

impl Single {
    /// Value less price.
    pub(crate) fn reduced(&self, prices: &PriceTable) -> f64 {
        self.value - cost(&prices[self.pool], &self.demand)
    }
}

impl Pair {
    /// Value less price.
    pub(crate) fn reduced(&self, prices: &PriceTable) -> f64 {
        self.value - cost(&prices[self.pool], &self.demand)
    }
}

/// Prices of every resource of every pool, in value per unit.
pub(crate) type PriceTable = Vec<Amounts>;

impl Problem {
    pub(crate) fn jobs(&self) -> usize {
        self.singles.len()
    }

    /// The (pool, resource) that can ever be short; the others have price 0 and are left out.
    ///
    /// Device memory is always among the others: a slot has it whole, and no column asks for more than its slots have.
    pub(crate) fn scarce(&self) -> Vec<(usize, usize)> {
        let mut most = vec![[0.0; RESOURCES]; self.capacity.len()];
        for columns in self.singles.iter() {
            // The columns of a pool follow each other.
            for of_pool in columns.chunk_by(|a, b| a.pool == b.pool) {
                let mut largest = [0.0_f64; RESOURCES];
                for column in of_pool {
                    for (largest, amount) in largest.iter_mut().zip(&column.demand) {
                        // No comparison of NaN has to be thought of, as `f64::max` does.
                        *largest = if amount > largest { *amount } else { *largest };
                    }
                }
                most[of_pool[0].pool].iter_mut().zip(largest).for_each(|(sum, amount)| *sum += amount);
            }
        }
        let mut scarce = Vec::new();
        for (pool, amounts) in self.capacity.iter().enumerate() {
            for (resource, amount) in amounts.iter().enumerate() {
                if resource != 1 && *amount < most[pool][resource] {
                    scarce.push((pool, resource));
                }
            }
        }
        scarce
    }

    /// What all capacity costs at the prices: the constant part of the dual.
    pub(crate) fn capacity_cost(&self, prices: &PriceTable) -> f64 {
        prices.iter().zip(&self.capacity).map(|(prices, capacity)| cost(prices, capacity)).sum()
    }

    /// Value and use of an integral solution.
    pub(crate) fn evaluate(&self, choices: &[Choice]) -> (f64, Vec<Amounts>) {
        let mut used = vec![[0.0; RESOURCES]; self.capacity.len()];
        let mut value = 0.0;
        for (job, choice) in choices.iter().enumerate() {
            let (pool, demand, worth) = match *choice {
                Choice::Waiting => continue,
                Choice::Single(at) => {
                    let column = &self.singles[job][at];
                    (column.pool, &column.demand, column.value)
                }
                Choice::Pair(at) => {
                    let column = &self.pairs[at];
                    if column.a != job {
                        continue;
                    }
                    (column.pool, &column.demand, column.value)
                }
            };
            value += worth;
            for (sum, amount) in used[pool].iter_mut().zip(demand) {
                *sum += amount;
            }
        }
        (value, used)
    }
}

/// Whether `used` stays within `capacity`, up to rounding.
pub(crate) fn fits(used: &Amounts, capacity: &Amounts) -> bool {
    used.iter().zip(capacity).all(|(used, capacity)| *used <= capacity * (1.0 + 1e-9) + 1e-9)
}
