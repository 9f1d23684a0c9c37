//! Host cores of one GPU: the submitting threads must not wait for each other, nor for the coordinator.

use crate::device::{Fault, Side};
use elastico_core::Outcome;
use elastico_gpu::probe::allowed_cores;

/// The cores that belong to one GPU's measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cores {
    all: Vec<usize>,
    subject: Vec<usize>,
    co_runner: Vec<usize>,
}

impl Cores {
    /// The given cores, or those of this process that lie beside the GPU, or all.
    pub(super) fn new(given: Option<Vec<usize>>, pci_bus: &str) -> Result<Self, Fault> {
        let unusable = |detail: String| Fault { outcome: Outcome::Unsupported, detail };
        let allowed = allowed_cores()
            .map_err(|error| unusable(format!("the cores of this process cannot be read: {error}")))?;
        let all = match given {
            Some(given) => {
                if let Some(core) = given.iter().find(|core| !allowed.contains(core)) {
                    let detail = format!("core {core} is not among the cores {allowed:?} of this process");
                    return Err(unusable(detail));
                }
                given
            }
            None => {
                let path = format!("/sys/bus/pci/devices/{}/local_cpulist", pci_bus.to_lowercase());
                let near = std::fs::read_to_string(path).map(|text| parse_list(&text)).unwrap_or_default();
                let near: Vec<usize> = near.into_iter().filter(|core| allowed.contains(core)).collect();
                if near.len() >= 3 { near } else { allowed }
            }
        };
        if all.is_empty() {
            return Err(unusable("no core to run on".to_owned()));
        }
        Ok(Self::split(all))
    }

    /// The first core stays with the coordinator where there are three. With five, each worker has a second core for the
    /// driver's own threads, so that they do not share one with the thread that submits.
    fn split(all: Vec<usize>) -> Self {
        let (subject, co_runner) = match all.as_slice() {
            [_, a, b, c, d, ..] => (vec![*a, *b], vec![*c, *d]),
            [_, a, b, ..] | [a, b] => (vec![*a], vec![*b]),
            rest => (rest.to_vec(), rest.to_vec()),
        };
        Self { all, subject, co_runner }
    }

    /// All of them.
    pub(super) fn all(&self) -> &[usize] {
        &self.all
    }

    /// Those that no worker has, for the coordinator's helpers; all where there are too few.
    pub(super) fn coordinator(&self) -> &[usize] {
        if self.all.len() > 5 {
            &self.all[5..]
        } else if self.all.len() > 2 {
            &self.all[..1]
        } else {
            &self.all
        }
    }

    /// Those of a side's worker.
    pub(super) fn of(&self, side: Side) -> &[usize] {
        match side {
            Side::Subject => &self.subject,
            Side::CoRunner => &self.co_runner,
        }
    }

    /// Whether so many submitting threads and the coordinator have to share cores.
    pub(super) fn are_few(&self, sides: usize) -> bool {
        self.all.len() <= sides
    }
}

/// A list as the kernel writes it: `0-3,8`.
fn parse_list(text: &str) -> Vec<usize> {
    text.trim()
        .split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.trim().parse::<usize>().ok()?..=last.trim().parse::<usize>().ok()?)
        })
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_keep_apart_as_far_as_cores_last() {
        let cores = |count: usize| Cores::split((0..count).collect());
        assert_eq!((cores(1).of(Side::Subject), cores(1).of(Side::CoRunner)), (&[0][..], &[0][..]));
        assert_eq!((cores(2).of(Side::Subject), cores(2).of(Side::CoRunner)), (&[0][..], &[1][..]));
        assert_eq!((cores(3).of(Side::Subject), cores(3).of(Side::CoRunner)), (&[1][..], &[2][..]));
        assert_eq!((cores(16).of(Side::Subject), cores(16).of(Side::CoRunner)), (&[1, 2][..], &[3, 4][..]));
        assert!(cores(2).are_few(2) && !cores(2).are_few(1) && !cores(3).are_few(2));
    }

    #[test]
    fn kernel_lists_are_read() {
        assert_eq!(parse_list("0-2,8,10-11\n"), [0, 1, 2, 8, 10, 11]);
        assert!(parse_list("").is_empty() && parse_list("x-y").is_empty());
    }
}
