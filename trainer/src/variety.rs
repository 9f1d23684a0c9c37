//! Pairs unlike those that were taken already.

use std::collections::BTreeMap;

/// What was measured and taken so far: a pair like those teaches less. Workloads and families by any key.
#[derive(Debug, Default)]
pub(crate) struct Variety<Workload, Family> {
    /// Pairs that each workload has.
    partners: BTreeMap<Workload, u32>,
    families: BTreeMap<Workload, Family>,
    /// Pairs taken of each two families, the lesser first.
    family_pairs: BTreeMap<[Family; 2], u32>,
}

impl<Workload: Ord + Clone, Family: Ord + Clone> Variety<Workload, Family> {
    /// With the pairs that each workload has already, and the family of each.
    pub(crate) fn new(partners: BTreeMap<Workload, u32>, families: BTreeMap<Workload, Family>) -> Self {
        Self { partners, families, family_pairs: BTreeMap::new() }
    }

    /// 1 for a pair of workloads and families that none was taken of; 1 ÷ ((1 + a + b)² (1 + f)) where a and b are the pairs of
    /// the two workloads and f those of their families. See [`propose`](crate::propose) for why.
    pub(crate) fn factor(&self, first: &Workload, second: &Workload) -> f64 {
        let partners = |workload: &Workload| self.partners.get(workload).copied().unwrap_or(0);
        let of_workloads = f64::from(1 + partners(first) + partners(second));
        let families = self.families_of(first, second).and_then(|families| self.family_pairs.get(&families));
        1.0 / (of_workloads * of_workloads * f64::from(1 + families.copied().unwrap_or(0)))
    }

    /// Takes a pair.
    pub(crate) fn add(&mut self, first: &Workload, second: &Workload) {
        for workload in [first, second] {
            *self.partners.entry(workload.clone()).or_default() += 1;
        }
        if let Some(families) = self.families_of(first, second) {
            *self.family_pairs.entry(families).or_default() += 1;
        }
    }

    fn families_of(&self, first: &Workload, second: &Workload) -> Option<[Family; 2]> {
        let [first, second] = [first, second].map(|workload| self.families.get(workload).cloned());
        let mut both = [first?, second?];
        both.sort();
        Some(both)
    }
}
