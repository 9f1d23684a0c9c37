//! What two workloads do to each other on one GPU, asked of the predictor once and then looked up.

use crate::Error;
use crate::cluster::Cluster;
use crate::provenance::ModelIdentity;
use elastico_core::{SharingMode, Slowdown, WorkloadId, chip};
use elastico_models::{FeatureSchema, Predictor, Profiles, Side, WorkloadProfile};
use std::collections::{BTreeMap, BTreeSet};

/// The profile of a workload on a chip.
pub(crate) fn find<'a>(
    profiles: &'a Profiles,
    workload: &WorkloadId,
    device: &str,
) -> Option<&'a WorkloadProfile> {
    if profiles.is_empty() {
        return None;
    }
    let name = chip(device).map_or(device, |chip| chip.name);
    profiles.find(workload.as_str(), name)
}

/// Both slowdowns of a pair under one sharing mode; `a` is the first of the two.
#[derive(Clone, Debug, PartialEq)]
pub struct PairOutcome {
    /// The mode, seen from `a`.
    pub sharing: SharingMode,
    /// Predicted slowdown of `a` and `b`.
    pub slowdown: [f64; 2],
    /// Upper bounds of both, at the model's level.
    pub upper: [f64; 2],
    /// Whether both predictions are within the model's validity domain.
    pub in_domain: bool,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    mode: u16,
    slowdown: [f32; 2],
    upper: [f32; 2],
    in_domain: bool,
}

/// Slowdowns of every pair of workloads on every chip under every sharing mode that was asked for.
///
/// It depends on workloads, not on jobs: jobs come and go, the table stays.
#[derive(Clone, Debug, Default)]
pub struct PairTable {
    workloads: Vec<WorkloadId>,
    devices: Vec<String>,
    modes: Vec<SharingMode>,
    model: Option<ModelIdentity>,
    /// Per device, then upper triangle of workloads, then modes; empty where a profile is missing.
    cells: Vec<Vec<Vec<Cell>>>,
}

/// Rows of one call of the predictor: enough to amortise the call, small enough to stay in memory.
const BATCH: usize = 65_536;

impl PairTable {
    /// Fills the table from a function of (device, a, b, mode as seen from a), for predictors of another kind.
    ///
    /// Both slowdowns, both upper bounds and whether it is within the domain; `None` where nothing is known.
    pub fn from_fn(
        workloads: impl IntoIterator<Item = WorkloadId>,
        devices: impl IntoIterator<Item = String>,
        modes: &[SharingMode],
        mut outcome: impl FnMut(&str, &WorkloadId, &WorkloadId, &SharingMode) -> Option<PairOutcome>,
    ) -> Self {
        let mut table = Self::empty(workloads, devices, modes);
        for device in 0..table.devices.len() {
            let mut cells = Vec::new();
            for a in 0..table.workloads.len() {
                for b in a..table.workloads.len() {
                    let of_mode = |(mode, sharing): (usize, &SharingMode)| {
                        let known = outcome(
                            &table.devices[device],
                            &table.workloads[a],
                            &table.workloads[b],
                            sharing,
                        )?;
                        Some(Cell {
                            mode: mode as u16,
                            slowdown: known.slowdown.map(|ratio| ratio as f32),
                            upper: known.upper.map(|ratio| ratio as f32),
                            in_domain: known.in_domain,
                        })
                    };
                    cells.push(modes.iter().enumerate().filter_map(of_mode).collect());
                }
            }
            table.cells.push(cells);
        }
        table
    }

    fn empty(
        workloads: impl IntoIterator<Item = WorkloadId>,
        devices: impl IntoIterator<Item = String>,
        modes: &[SharingMode],
    ) -> Self {
        Self {
            workloads: workloads.into_iter().collect::<BTreeSet<_>>().into_iter().collect(),
            devices: devices.into_iter().collect::<BTreeSet<_>>().into_iter().collect(),
            modes: modes.to_vec(),
            model: None,
            cells: Vec::new(),
        }
    }

    /// Asks the predictor for every pair of the workloads on every chip of the cluster. Nothing is in the domain on a chip
    /// that the model was not trained on: its features may look familiar, and still it does not transfer.
    ///
    /// # Errors
    /// [`Error::Predictor`] where the model fails.
    pub fn predict(
        workloads: impl IntoIterator<Item = WorkloadId>,
        cluster: &Cluster,
        modes: &[SharingMode],
        profiles: &Profiles,
        predictor: &dyn Predictor,
    ) -> Result<Self, Error> {
        let devices =
            cluster.pool.iter().filter_map(crate::cluster::Pool::chip).map(|chip| chip.name.to_owned());
        let mut table = Self::empty(workloads, devices, modes);
        table.model = Some(ModelIdentity::of(predictor));
        let schema = predictor.metadata().features.clone();
        let mut batch =
            Batch { schema: &schema, predictor, is_known: true, rows: Vec::new(), wanted: Vec::new() };
        let count = table.workloads.len();
        for device in 0..table.devices.len() {
            table.cells.push(vec![Vec::new(); count * (count + 1) / 2]);
            let name = table.devices[device].clone();
            let known: Vec<Option<&WorkloadProfile>> =
                table.workloads.iter().map(|workload| find(profiles, workload, &name)).collect();
            for (mode, sharing) in modes.iter().enumerate() {
                batch.flush(&mut table.cells[device])?;
                let metadata = predictor.metadata();
                batch.is_known = metadata.knows_device(&name) && metadata.knows_sharing(sharing);
                let views = [sharing.clone(), sharing.swapped()];
                let context = views.each_ref().map(|view| schema.context_values(&name, view));
                // `[view][side]` of each workload: a million rows need no look-up by name.
                let parts: Vec<_> = known
                    .iter()
                    .map(|profile| {
                        profile.map(|profile| {
                            views.each_ref().map(|view| {
                                [Side::Subject, Side::CoRunner]
                                    .map(|side| schema.side_values(profile, side, view))
                            })
                        })
                    })
                    .collect();
                for a in 0..count {
                    for b in a..count {
                        let (Some(part_a), Some(part_b)) = (&parts[a], &parts[b]) else { continue };
                        schema.assemble(&part_a[0][0], &part_b[0][1], &context[0], &mut batch.rows);
                        schema.assemble(&part_b[1][0], &part_a[1][1], &context[1], &mut batch.rows);
                        batch.wanted.push((triangle(count, a, b), mode as u16));
                        if batch.wanted.len() * 2 >= BATCH {
                            batch.flush(&mut table.cells[device])?;
                        }
                    }
                }
            }
            batch.flush(&mut table.cells[device])?;
        }
        Ok(table)
    }

    /// The number of a workload in the table.
    pub(crate) fn class(&self, workload: &WorkloadId) -> Option<usize> {
        self.workloads.binary_search(workload).ok()
    }

    pub(crate) fn device(&self, name: &str) -> Option<usize> {
        let name = chip(name).map_or(name, |chip| chip.name);
        self.devices.binary_search_by(|known| known.as_str().cmp(name)).ok()
    }

    pub(crate) fn classes(&self) -> usize {
        self.workloads.len()
    }

    /// Every known outcome of the pair on the chip, from `a`'s view.
    pub(crate) fn outcomes(&self, device: usize, a: usize, b: usize) -> impl Iterator<Item = PairOutcome> {
        let swapped = a > b;
        let (low, high) = if swapped { (b, a) } else { (a, b) };
        self.cells[device][triangle(self.workloads.len(), low, high)].iter().map(move |cell| {
            let sharing = &self.modes[usize::from(cell.mode)];
            let mut slowdown = cell.slowdown.map(f64::from);
            let mut upper = cell.upper.map(f64::from);
            if swapped {
                slowdown.reverse();
                upper.reverse();
            }
            PairOutcome {
                sharing: if swapped { sharing.swapped() } else { sharing.clone() },
                slowdown,
                upper,
                in_domain: cell.in_domain,
            }
        })
    }

    /// Slowdowns and upper bounds of the outcomes within the domain and the limit, from the view of the lesser class `a`.
    pub(crate) fn safe(
        &self,
        device: usize,
        a: usize,
        b: usize,
        limit: f64,
    ) -> impl Iterator<Item = ([f64; 2], [f64; 2])> {
        let cells = &self.cells[device][triangle(self.workloads.len(), a, b)];
        let both = |cell: &Cell| (cell.slowdown.map(f64::from), cell.upper.map(f64::from));
        let is_safe =
            move |cell: &&Cell| cell.in_domain && cell.upper.iter().all(|upper| f64::from(*upper) <= limit);
        cells.iter().filter(is_safe).map(both)
    }

    /// The model behind the table, if a predictor filled it.
    pub const fn model(&self) -> Option<&ModelIdentity> {
        self.model.as_ref()
    }

    /// The sharing modes of the table.
    pub fn modes(&self) -> &[SharingMode] {
        &self.modes
    }

    /// The slowdowns of two workloads on a chip, as many as there are modes; empty where nothing is known.
    pub fn get(&self, device: &str, a: &WorkloadId, b: &WorkloadId) -> Vec<PairOutcome> {
        match (self.device(device), self.class(a), self.class(b)) {
            (Some(device), Some(a), Some(b)) => self.outcomes(device, a, b).collect(),
            _ => Vec::new(),
        }
    }
}

fn triangle(count: usize, a: usize, b: usize) -> usize {
    a * (2 * count - a + 1) / 2 + (b - a)
}

struct Batch<'a> {
    schema: &'a FeatureSchema,
    predictor: &'a dyn Predictor,
    /// Whether the model has seen the device and the sharing mode of these rows.
    is_known: bool,
    rows: Vec<f32>,
    wanted: Vec<(usize, u16)>,
}

impl Batch<'_> {
    fn flush(&mut self, cells: &mut [Vec<Cell>]) -> Result<(), Error> {
        debug_assert_eq!(self.rows.len(), self.wanted.len() * 2 * self.schema.width());
        if self.wanted.is_empty() {
            return Ok(());
        }
        let rows = self.wanted.len() * 2;
        let predictions = self
            .predictor
            .predict(&self.rows)
            .map_err(|source| Error::Predictor { rows, source: Box::new(source) })?;
        for ((cell, mode), sides) in self.wanted.drain(..).zip(predictions.chunks_exact(2)) {
            let ratio = |slowdown: Slowdown| slowdown.get() as f32;
            cells[cell].push(Cell {
                mode,
                slowdown: [ratio(sides[0].slowdown), ratio(sides[1].slowdown)],
                upper: [ratio(sides[0].upper), ratio(sides[1].upper)],
                in_domain: self.is_known && sides[0].in_domain && sides[1].in_domain,
            });
        }
        self.rows.clear();
        Ok(())
    }
}

/// Counts by name, in the order of names.
pub(crate) type Counts = BTreeMap<String, u64>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_side_sees_the_same_pair() {
        let ids: Vec<WorkloadId> = ["a", "b", "c"].iter().map(|id| WorkloadId::new(*id).unwrap()).collect();
        let mode: SharingMode = "mps(0.3,0.7)".parse().unwrap();
        let table = PairTable::from_fn(
            ids.clone(),
            ["h100".to_owned()],
            std::slice::from_ref(&mode),
            |_, a, b, sharing| {
                let number = |id: &WorkloadId| f64::from(id.as_str().as_bytes()[0]);
                Some(PairOutcome {
                    sharing: sharing.clone(),
                    slowdown: [number(a), number(b)],
                    upper: [number(a) + 1.0, number(b) + 1.0],
                    in_domain: true,
                })
            },
        );
        for (a, b) in [(0, 1), (1, 2), (0, 2), (1, 1)] {
            let forth = &table.get("h100", &ids[a], &ids[b])[0];
            let back = &table.get("H100", &ids[b], &ids[a])[0];
            assert!((forth.slowdown[0] - back.slowdown[1]).abs() < 1e-9);
            assert!((forth.upper[0] - back.upper[1]).abs() < 1e-9);
            if a != b {
                assert_eq!(forth.sharing, back.sharing.swapped());
            }
        }
        assert!(table.get("t4", &ids[0], &ids[1]).is_empty());
    }
}
