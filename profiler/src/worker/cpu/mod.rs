//! Steps on CPU cores: one lane per core, each with its part of every op.

mod arena;
mod kernels;
mod lane;
mod sizes;
mod task;
mod team;

use super::engine::{Engine, Failure};
use super::message::{Seat, SideName, Work};
use arena::Ration;
use elastico_core::{Outcome, Seed};
use elastico_workloads::StepProgram;
use team::Team;

/// What the lanes are built from.
#[derive(Debug, Clone)]
struct Plan {
    program: StepProgram,
    side: SideName,
    trial: String,
    seed: Seed,
    cores: Vec<usize>,
    /// Whether lane `i` stays on core `i`, rather than anywhere in the set.
    pinned: bool,
}

/// The lanes of one side.
#[derive(Debug)]
pub(super) struct CpuEngine {
    team: Team,
    allocated: u64,
}

impl CpuEngine {
    /// Allocates, touches and fills everything, and starts the lanes.
    pub(super) fn build(
        work: &Work,
        seat: &Seat,
        pinned: bool,
        memory_limit: u64,
        refuse_all: bool,
    ) -> Result<Self, Failure> {
        let plan = Plan {
            program: seat.program.clone(),
            side: seat.side,
            trial: work.trial.clone(),
            seed: work.seed,
            cores: work.cores.clone(),
            pinned,
        };
        let mut ration = Ration::new(memory_limit);
        if refuse_all {
            ration.refuse_all();
        }
        let team =
            Team::start(&plan, &mut ration).map_err(|error| Failure::new(Outcome::Oom, error.to_string()))?;
        Ok(Self { team, allocated: ration.used() })
    }

    pub(super) const fn allocated(&self) -> u64 {
        self.allocated
    }

    /// Ends the lanes.
    pub(super) fn stop(self) {
        self.team.stop();
    }
}

impl Engine for CpuEngine {
    /// The host does the work itself: the next step begins when this one is done.
    fn depth(&self) -> usize {
        1
    }

    fn submit(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn complete(&mut self, beat: &dyn Fn()) -> Result<u64, Failure> {
        Ok(self.team.step(beat))
    }

    fn check(&mut self) -> Result<(), Failure> {
        if self.team.checksum().is_finite() {
            Ok(())
        } else {
            Err(Failure::crash("computed numbers that are not finite"))
        }
    }

    fn checksum(&self) -> f64 {
        self.team.checksum()
    }

    fn spoil(&mut self) {
        self.team.spoil();
    }
}
