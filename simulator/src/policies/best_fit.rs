use super::Policy;
use crate::Round;

/// The largest waiting job that finds a place, again and again; of equal ones the earliest. Nodes are filled best fit.
#[derive(Debug)]
pub(super) struct BestFit;

impl Policy for BestFit {
    fn decide(&mut self, round: &mut Round<'_, '_>) {
        if round.free_gpus() == 0 {
            return;
        }
        let mut sizes: Vec<u32> = round.waiting_sizes().collect();
        while let Some(gpus) = sizes.pop() {
            let jobs: Vec<usize> = round.waiting_of(gpus).take(round.free_gpus() as usize).collect();
            for job in jobs {
                if !round.try_start(job) {
                    break;
                }
            }
        }
    }
}
