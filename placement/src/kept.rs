//! A placement that is there already, as a candidate for the next: where nothing better is found, nobody changes.

use crate::instance::Instance;
use crate::placement::Placement;
use crate::problem::{Choice, Single};
use elastico_core::{JobId, parallel};
use std::collections::BTreeMap;

/// Jobs that a thread looks at together.
const JOBS: usize = 256;

/// A placement of some of the jobs, and how much of its value a better one must bring before it is given up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept<'a> {
    pub(crate) placement: &'a Placement,
    /// As a ratio of the bound.
    pub(crate) within: f64,
}

/// Numbers of the pair columns that are there, to which others are added.
struct Columns(BTreeMap<(usize, usize, usize), usize>);

impl Columns {
    fn of(instance: &Instance<'_>) -> Self {
        let pairs = instance.problem.pairs.iter().enumerate();
        Self(pairs.map(|(at, pair)| ((pair.a, pair.b, pair.pool), at)).collect())
    }

    fn pair(&mut self, instance: &mut Instance<'_>, a: usize, b: usize, pool: usize) -> Option<usize> {
        let (a, b) = (a.min(b), a.max(b));
        if let Some(at) = self.0.get(&(a, b, pool)) {
            return Some(*at);
        }
        let value = instance.pair_value(a, b, pool).ok()?;
        let pair = instance.pair(a, b, pool, value);
        instance.problem.pairs.push(pair);
        let at = instance.problem.pairs.len() - 1;
        self.0.insert((a, b, pool), at);
        Some(at)
    }
}

impl Kept<'_> {
    /// The choices of the placement, by the numbers of the jobs of the instance; the others wait.
    pub(crate) fn choices(&self, instance: &mut Instance<'_>, ids: &[&JobId]) -> Vec<Choice> {
        let numbers: BTreeMap<&JobId, usize> = ids.iter().enumerate().map(|(at, id)| (*id, at)).collect();
        let mut columns = Columns::of(instance);
        let mut choices = vec![Choice::Waiting; ids.len()];
        for run in &self.placement.assignments {
            let pool = instance.cluster.pool.iter().position(|pool| pool.id == run.pool);
            let (Some(&job), Some(pool)) = (numbers.get(&run.job), pool) else { continue };
            if choices[job] != Choice::Waiting {
                continue;
            }
            if let Some(beside) = &run.beside {
                let Some(&other) = numbers.get(&beside.job) else { continue };
                if let Some(at) = columns.pair(instance, job, other, pool) {
                    choices[job] = Choice::Pair(at);
                    choices[other] = Choice::Pair(at);
                }
            } else {
                let family = instance.family(job);
                let same = instance.problem.singles[job]
                    .iter()
                    .position(|column| column.pool == pool && family.shapes[column.shape] == run.shape);
                choices[job] = same.map_or(Choice::Waiting, Choice::Single);
            }
        }
        choices
    }
}

/// How the jobs run now, by what they say; `None` where none says that it runs.
pub(crate) fn running(instance: &mut Instance<'_>) -> Option<Vec<Choice>> {
    let jobs = instance.problem.jobs();
    if !instance.worths.iter().any(crate::worth::Worth::runs) {
        return None;
    }
    let mut partners: Vec<Option<usize>> = (0..jobs).map(|job| instance.beside(job)).collect();
    for job in 0..jobs {
        // One of both is enough to say it.
        if let Some(other) = partners[job] {
            partners[other].get_or_insert(job);
        }
    }
    let present: &Instance<'_> = instance;
    let alone = parallel::chunks(jobs, JOBS, |range| {
        let of = |job: usize| {
            let worth = &present.worths[job];
            if !worth.runs() || partners[job].is_some() {
                return Choice::Waiting;
            }
            let family = present.family(job);
            let stays = |column: &Single| column.value > 0.0 && !worth.restarts(&family.shapes[column.shape]);
            let same = present.problem.singles[job].iter().position(stays);
            same.map_or(Choice::Waiting, Choice::Single)
        };
        range.map(of).collect::<Vec<_>>()
    });
    let mut choices = alone.concat();
    let mut columns = Columns::of(instance);
    for (job, other) in partners.into_iter().enumerate() {
        let Some(other) = other.filter(|_| choices[job] == Choice::Waiting) else { continue };
        let stays = |pool: &usize| {
            instance.pair_choice(job, other, *pool).is_ok_and(|pair| pair.restarts == [false, false])
        };
        if choices[other] == Choice::Waiting
            && let Some(pool) = (0..instance.cluster.pool.len()).find(stays)
            && let Some(at) = columns.pair(instance, job, other, pool)
        {
            choices[job] = Choice::Pair(at);
            choices[other] = Choice::Pair(at);
        }
    }
    Some(choices)
}
