//! The lanes of a worker, in step.
//!
//! Lane 0 is the caller's thread: it takes the time. The others run the same list of tasks, each on its own part. All
//! meet before and after each op that they share, so that one op ends before the next begins, as kernels of one stream
//! do. A lane that waits sleeps; nothing spins.

use super::Plan;
use super::arena::{OutOfMemory, Ration};
use super::lane::Lane;
use super::task::is_split;
use elastico_workloads::Op;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Team {
    leader: Lane,
    shared: Arc<Shared>,
    followers: Vec<JoinHandle<()>>,
    duty: f64,
}

#[derive(Debug)]
struct Shared {
    barrier: Barrier,
    /// After which ops the lanes meet.
    meets: Vec<bool>,
    quit: AtomicBool,
    /// Bits of each follower's checksum after its last step.
    checksums: Vec<AtomicU64>,
}

impl Team {
    /// Allocates and starts one lane per core; one in all where the step has no device work.
    pub(super) fn start(plan: &Plan, ration: &mut Ration) -> Result<Self, OutOfMemory> {
        let ops = &plan.program.ops;
        let host_only = ops.iter().all(|op| matches!(op, Op::HostGap { .. } | Op::Launch { .. }));
        let lanes = if host_only { 1 } else { plan.cores.len() };
        let mut built = Lane::build(plan, lanes, ration)?.into_iter();
        let leader = built.next().expect("a worker has at least one core");
        let is_shared = |index: usize| ops.get(index).is_some_and(|op| is_split(op, lanes));
        let shared = Arc::new(Shared {
            barrier: Barrier::new(lanes),
            meets: (0..ops.len()).map(|index| is_shared(index) || is_shared(index + 1)).collect(),
            quit: AtomicBool::new(false),
            checksums: (1..lanes).map(|_| AtomicU64::new(0)).collect(),
        });
        let core_of = |lane: usize| (plan.pinned && lanes > 1).then(|| plan.cores[lane]);
        let followers = built
            .enumerate()
            .map(|(index, lane)| {
                let (shared, core) = (Arc::clone(&shared), core_of(index + 1));
                std::thread::spawn(move || follow(lane, index, core, &shared))
            })
            .collect();
        join_core(core_of(0));
        Ok(Self { leader, shared, followers, duty: plan.program.duty })
    }

    /// Makes one step and returns the nanoseconds in which the device, not only the host, was at work.
    ///
    /// A step with a duty below 1 ends with the idling that belongs to it.
    pub(super) fn step(&mut self, beat: &dyn Fn()) -> u64 {
        let start = Instant::now();
        let mut host = Duration::ZERO;
        let is_team = !self.followers.is_empty();
        if is_team {
            self.shared.barrier.wait();
        }
        for index in 0..self.leader.len() {
            host += self.leader.run(index);
            if is_team && self.shared.meets[index] {
                self.shared.barrier.wait();
            }
            beat();
        }
        let worked = start.elapsed();
        if self.duty > 0.0 && self.duty < 1.0 {
            std::thread::sleep(worked.mul_f64((1.0 - self.duty) / self.duty));
        }
        worked.saturating_sub(host).as_nanos() as u64
    }

    /// Sum over the lanes; not finite where a result was not.
    pub(super) fn checksum(&self) -> f64 {
        let followers = self.shared.checksums.iter().map(|bits| f64::from_bits(bits.load(Ordering::Relaxed)));
        self.leader.checksum() + followers.sum::<f64>()
    }

    /// Makes the checksum wrong, for a test.
    pub(super) const fn spoil(&mut self) {
        self.leader.spoil();
    }

    /// Ends the other lanes.
    pub(super) fn stop(self) {
        self.shared.quit.store(true, Ordering::Relaxed);
        if !self.followers.is_empty() {
            self.shared.barrier.wait();
        }
        for follower in self.followers {
            // A lane that panicked has ended the process already.
            let _ = follower.join();
        }
    }
}

/// Binds the calling lane to a core of its own, if it shall have one.
fn join_core(core: Option<usize>) {
    if let Some(core) = core {
        // Where the core cannot be had alone, the lane stays in the set that the process was bound to.
        let _ = crate::worker::pin(&[core]);
    }
}

fn follow(mut lane: Lane, index: usize, core: Option<usize>, shared: &Shared) {
    join_core(core);
    loop {
        // The barrier orders the leader's store before this load.
        shared.barrier.wait();
        if shared.quit.load(Ordering::Relaxed) {
            return;
        }
        for task in 0..lane.len() {
            lane.run(task);
            if task + 1 == lane.len() {
                shared.checksums[index].store(lane.checksum().to_bits(), Ordering::Relaxed);
            }
            if shared.meets[task] {
                shared.barrier.wait();
            }
        }
    }
}
