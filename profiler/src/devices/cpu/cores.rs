//! Which side runs on which cores.

use crate::device::Side;
use elastico_core::SharingMode;

/// The cores of both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placing {
    subject: Vec<usize>,
    co_runner: Vec<usize>,
    /// Whether each lane keeps a core.
    pub(super) pinned: bool,
    /// The mode that these cores amount to.
    pub(super) effective: SharingMode,
}

impl Placing {
    pub(super) fn of(&self, side: Side) -> &[usize] {
        match side {
            Side::Subject => &self.subject,
            Side::CoRunner => &self.co_runner,
        }
    }
}

/// Places both sides, or says why the mode cannot be had.
pub(super) fn place(cores: &[usize], sharing: &SharingMode, is_pair: bool) -> Result<Placing, String> {
    let all =
        |effective| Placing { subject: cores.to_vec(), co_runner: cores.to_vec(), pinned: true, effective };
    match sharing {
        SharingMode::Exclusive if is_pair => Err("`exclusive` has no room for a co-runner".to_owned()),
        SharingMode::Exclusive | SharingMode::TimeSlice => Ok(all(sharing.clone())),
        SharingMode::Mps { .. } => {
            let (subject, co_runner) = shares(sharing, cores.len());
            let percent = |count: usize| (100.0 * count as f64 / cores.len() as f64).round() as u8;
            Ok(Placing {
                subject: cores[..subject].to_vec(),
                co_runner: cores[cores.len() - co_runner..].to_vec(),
                pinned: false,
                effective: SharingMode::Mps {
                    subject_percent: percent(subject),
                    co_runner_percent: percent(co_runner),
                },
            })
        }
        SharingMode::Mig { .. } => {
            Err(format!("CPU cores have no instances, so `{sharing}` cannot be had; use mps with shares"))
        }
        SharingMode::Streams | SharingMode::SplitStreams { .. } => {
            Err("CPU workers are processes, so `streams` cannot be had; use time_slice".to_owned())
        }
    }
}

/// Whole cores of each side, one at least. Sides whose shares fit beside each other never share a core if there are two.
fn shares(sharing: &SharingMode, count: usize) -> (usize, usize) {
    let (subject, co_runner) = sharing.shares();
    let nearest = |share: f64| ((share * count as f64).round() as usize).clamp(1, count);
    let (first, second) = (nearest(subject), nearest(co_runner));
    if subject + co_runner > 1.0 + 1e-9 || first + second <= count || count < 2 {
        return (first, second);
    }
    // Both were rounded up to the same core: it goes to the larger share, by default to the subject, but never all.
    if subject >= co_runner {
        let first = first.min(count - 1);
        (first, count - first)
    } else {
        let second = second.min(count - 1);
        (count - second, second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn placed(cores: usize, sharing: &str) -> Placing {
        let cores: Vec<usize> = (0..cores).collect();
        place(&cores, &sharing.parse().unwrap(), true).unwrap()
    }

    #[test]
    fn shares_become_cores_and_are_reported_as_such() {
        let two = placed(2, "mps(0.5,0.5)");
        assert_eq!((two.of(Side::Subject), two.of(Side::CoRunner)), (&[0][..], &[1][..]));
        assert_eq!(two.effective.to_string(), "mps(0.5,0.5)");
        assert_eq!(placed(2, "mps(0.3,0.7)").effective.to_string(), "mps(0.5,0.5)");
        assert_eq!(placed(10, "mps(0.3,0.7)").effective.to_string(), "mps(0.3,0.7)");
        assert_eq!(placed(3, "mps(0.5,0.5)").of(Side::CoRunner), &[2]);
        assert_eq!(placed(2, "mps(0.01,0.75)").of(Side::Subject), &[0]);
        assert_eq!(placed(1, "mps(0.5,0.5)").effective.to_string(), "mps(1,1)");
        let all = placed(2, "mps(1,1)");
        assert_eq!(
            (all.of(Side::Subject), all.of(Side::CoRunner), all.pinned),
            (&[0, 1][..], &[0, 1][..], false)
        );
        assert!(placed(2, "time_slice").pinned);
    }

    #[test]
    fn what_cores_cannot_do_is_refused_in_words() {
        for (sharing, part) in
            [("mig(1g.10gb)", "no instances"), ("streams", "processes"), ("exclusive", "no room")]
        {
            let error = place(&[0, 1], &sharing.parse().unwrap(), true).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        assert!(place(&[0, 1], &SharingMode::Exclusive, false).is_ok());
    }

    proptest! {
        #[test]
        fn sides_get_cores_and_stay_apart_where_they_fit(count in 1_usize..65, p in 1_u8..101, q in 1_u8..101) {
            let mode = SharingMode::Mps { subject_percent: p, co_runner_percent: q };
            let (subject, co_runner) = shares(&mode, count);
            prop_assert!((1..=count).contains(&subject) && (1..=count).contains(&co_runner));
            if count > 1 && u16::from(p) + u16::from(q) <= 100 {
                prop_assert!(subject + co_runner <= count);
            }
        }
    }
}
