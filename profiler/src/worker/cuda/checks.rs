//! Whether results are numbers, looked at while the side is parked: a faulty GPU must not count as a fast one.

use super::super::engine::Failure;
use super::load::Loaded;
use elastico_workloads::launch::{LaunchPlan, Place, Touch, checksum};

/// Results that are looked at, the last written first.
const MOST_RESULTS: usize = 16;
/// Bytes of each that are read, at its start and at its end.
const PART: u64 = 512;

/// The results of one side.
#[derive(Debug)]
pub(super) struct Checks {
    results: Vec<Touch>,
    scratch: Vec<u8>,
    checksum: u64,
}

impl Checks {
    pub(super) fn new(plan: &LaunchPlan) -> Self {
        let on_device = |touch: &Touch| plan.buffers[touch.buffer].place == Place::Device;
        let results = plan.results().into_iter().filter(on_device).take(MOST_RESULTS).collect();
        Self { results, scratch: vec![0; PART as usize], checksum: 0 }
    }

    /// A number that depends on what was read last.
    pub(super) const fn checksum(&self) -> u64 {
        self.checksum
    }

    /// Reads a part of each result.
    pub(super) fn run(&mut self, loaded: &Loaded) -> Result<(), Failure> {
        let mut sum = 0_u64;
        for result in &self.results {
            let size = result.element_bytes();
            let whole = result.bytes / size * size;
            let part = (PART / size * size).min(whole);
            for offset in [0, whole - part] {
                let bytes = &mut self.scratch[..part as usize];
                loaded.memory(result.buffer)?.read(result.offset + offset, bytes)?;
                if !result.is_finite(bytes) {
                    return Err(Failure::crash("computed numbers that are not finite"));
                }
                sum = sum.wrapping_add(checksum(bytes));
            }
        }
        self.checksum = sum;
        Ok(())
    }
}
