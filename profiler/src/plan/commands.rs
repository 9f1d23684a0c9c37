//! The plan of two programs of the user's: each alone, then both together.

use super::builder::Builder;
use super::{Plan, PlanHeader, Role, SCHEMA, WorkloadFacts, in_order};
use crate::Error;
use crate::device::DeviceIdentity;
use crate::exec::Settings;
use elastico_workloads::Catalogue;
use std::collections::BTreeMap;

impl Plan {
    /// Plans the measuring of two commands on one device.
    ///
    /// There is no null pair and no sentinel: an idle program and a third one would cost as much as the pair itself, and
    /// the bracketing isolated runs show drift.
    ///
    /// # Errors
    /// None today; the signature is that of [`Plan::new`].
    pub fn of_commands(settings: &Settings, device: &DeviceIdentity) -> Result<Self, Error> {
        let header = PlanHeader {
            schema: SCHEMA.to_owned(),
            name: settings.name.clone(),
            campaign: settings.digest(),
            seed: settings.seed,
            device: settings.device.to_string(),
            model: device.model.clone(),
            device_kind: device.kind,
            protocol: settings.protocol(),
            repeats: (settings.stopping.min_repeats, settings.stopping.max_repeats),
            half_width: settings.stopping.half_width,
            level: settings.stopping.level,
        };
        let facts = settings.benchmarks().into_iter().map(|(id, benchmark)| {
            let facts = WorkloadFacts::of(&benchmark, device.kind);
            (id, facts)
        });
        let mut builder = Builder {
            catalogue: &Catalogue::default(),
            header: &header,
            sized_as: device.kind,
            memory: device.memory.get(),
            workloads: facts.collect(),
            cells: BTreeMap::new(),
            skipped: Vec::new(),
            wave: 1,
        };
        for sharing in &settings.sharing {
            builder.pair(&settings.a.name, &settings.b.name, sharing, Role::Pair)?;
        }
        builder.wave = 0;
        for command in [&settings.a, &settings.b] {
            builder.isolated(&command.name, 100)?;
        }
        let Builder { workloads, cells, skipped, .. } = builder;
        Ok(Self { header, workloads: workloads.into_values().collect(), cells: in_order(cells), skipped })
    }
}
