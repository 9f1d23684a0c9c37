//! Which pairs a campaign draws when it may not measure all.

use crate::{Campaign, Error};
use elastico_core::{FamilyId, Stream, WorkloadId};
use elastico_workloads::{Benchmark, Catalogue};
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};

type Pair = (WorkloadId, WorkloadId);

/// Two workloads to be paired, and which of them is the subject: both orders where both are asked for.
///
/// The order matters under uneven shares alone, where the subject gets the first one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Drawn {
    /// The lesser id first.
    pair: Pair,
    pub(crate) orders: BTreeSet<Pair>,
}

impl Drawn {
    fn new(subject: &Benchmark, co_runner: &Benchmark) -> Self {
        let order = (subject.id.clone(), co_runner.id.clone());
        let pair = if order.0 <= order.1 { order.clone() } else { (order.1.clone(), order.0.clone()) };
        Self { pair, orders: BTreeSet::from([order]) }
    }
}

/// The pairs of a campaign, those by name before those drawn.
///
/// All pairs of subjects and co-runners are grouped by their pair of families. Groups that bring a family not seen
/// yet are drawn from first, then each group in turn, one random pair at a time, up to `max_pairs`.
pub(crate) fn pairs(campaign: &Campaign, catalogue: &Catalogue) -> Result<Vec<Drawn>, Error> {
    let mut chosen: Vec<Drawn> = Vec::new();
    for [subject, co_runner] in &campaign.workloads.pairs {
        let find = |id: &String| catalogue.get(id).map_err(|source| refuse(campaign, id, source));
        let drawn = Drawn::new(find(subject)?, find(co_runner)?);
        match chosen.iter_mut().find(|known| known.pair == drawn.pair) {
            Some(known) => known.orders.extend(drawn.orders),
            None => chosen.push(drawn),
        }
    }
    let subjects = select(campaign, catalogue, &campaign.workloads.subjects)?;
    let co_runners = if campaign.workloads.co_runners.is_empty() {
        subjects.clone()
    } else {
        select(campaign, catalogue, &campaign.workloads.co_runners)?
    };
    let named: BTreeSet<Pair> = chosen.iter().map(|drawn| drawn.pair.clone()).collect();
    let mut groups: BTreeMap<(FamilyId, FamilyId), BTreeMap<Pair, Drawn>> = BTreeMap::new();
    for subject in subjects.values() {
        for co_runner in co_runners.values() {
            let drawn = Drawn::new(subject, co_runner);
            if !named.contains(&drawn.pair) {
                let mut families = (subject.family.clone(), co_runner.family.clone());
                if families.1 < families.0 {
                    families = (families.1, families.0);
                }
                let known = groups.entry(families).or_default().entry(drawn.pair.clone());
                known.or_insert_with(|| drawn.clone()).orders.extend(drawn.orders);
            }
        }
    }
    let limit = campaign.max_pairs.map_or(usize::MAX, |limit| limit as usize);
    let mut stream = campaign.seed.stream("pairs", &[]);
    let mut groups: Vec<((FamilyId, FamilyId), Vec<Drawn>)> = groups
        .into_iter()
        .map(|(families, pairs)| {
            let mut pairs: Vec<Drawn> = pairs.into_values().collect();
            shuffle(&mut pairs, &mut stream);
            (families, pairs)
        })
        .collect();
    shuffle(&mut groups, &mut stream);

    let mut seen: BTreeSet<FamilyId> = BTreeSet::new();
    for unseen in [2, 1] {
        for ((first, second), pairs) in &mut groups {
            let news = [&*first, &*second].into_iter().collect::<BTreeSet<_>>();
            let news = news.into_iter().filter(|family| !seen.contains(*family)).count();
            if news >= unseen && chosen.len() < limit {
                chosen.extend(pairs.pop());
                seen.extend([first.clone(), second.clone()]);
            }
        }
    }
    while chosen.len() < limit && groups.iter().any(|(_, pairs)| !pairs.is_empty()) {
        for (_, pairs) in &mut groups {
            if chosen.len() < limit {
                chosen.extend(pairs.pop());
            }
        }
    }
    Ok(chosen)
}

/// The sentinel of a campaign, if it names one.
pub(crate) fn sentinel(campaign: &Campaign, catalogue: &Catalogue) -> Result<Option<Pair>, Error> {
    let find = |id: &String| {
        let found = catalogue.get(id).map_err(|source| refuse(campaign, id, source))?;
        Ok::<WorkloadId, Error>(found.id.clone())
    };
    campaign.sentinel.as_ref().map(|[subject, co_runner]| Ok((find(subject)?, find(co_runner)?))).transpose()
}

fn select<'a>(
    campaign: &Campaign,
    catalogue: &'a Catalogue,
    patterns: &[String],
) -> Result<BTreeMap<WorkloadId, &'a Benchmark>, Error> {
    let mut found = BTreeMap::new();
    for pattern in patterns {
        let matches = catalogue.select(pattern).map_err(|source| refuse(campaign, pattern, source))?;
        found.extend(matches.into_iter().map(|benchmark| (benchmark.id.clone(), benchmark)));
    }
    Ok(found)
}

fn refuse(campaign: &Campaign, pattern: &str, source: elastico_workloads::Error) -> Error {
    let (file, line) = campaign.place_of(pattern);
    Error::Workload { file, line, pattern: pattern.to_owned(), source: Box::new(source) }
}

/// Fisher and Yates, in our own few lines because the one of `rand` may change between versions.
pub(crate) fn shuffle<T>(items: &mut [T], stream: &mut Stream) {
    for last in (1..items.len()).rev() {
        let other = (u128::from(stream.next_u64()) * (last as u128 + 1)) >> 64;
        items.swap(last, other as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn campaign(limit: u32, seed: u64) -> Campaign {
        let text = format!(
            "schema = 1\nname = \"t\"\nseed = {seed}\ndevice = \"sim:h100\"\nsharing = [\"mps\"]\nmax_pairs = {limit}\n[workloads]\nsubjects = [\"*\"]\n"
        );
        Campaign::parse(&text, Path::new("c.toml")).unwrap()
    }

    #[test]
    fn every_family_appears_where_the_number_allows() {
        let catalogue = Catalogue::bundled();
        let families: BTreeSet<_> = catalogue.iter().map(|benchmark| benchmark.family.clone()).collect();
        for seed in 0..20 {
            let drawn = pairs(&campaign(families.len() as u32, seed), &catalogue).unwrap();
            assert_eq!(drawn.len(), families.len());
            let covered: BTreeSet<_> = drawn
                .iter()
                .flat_map(|drawn| [&drawn.pair.0, &drawn.pair.1])
                .map(|id| catalogue.get(id.as_str()).unwrap().family.clone())
                .collect();
            assert_eq!(covered, families, "seed {seed}");
        }
    }

    #[test]
    fn a_draw_has_no_pair_twice_and_repeats_for_its_seed() {
        let catalogue = Catalogue::bundled();
        let drawn = pairs(&campaign(150, 3), &catalogue).unwrap();
        let distinct: BTreeSet<_> = drawn.iter().map(|drawn| &drawn.pair).collect();
        assert_eq!(distinct.len(), 150);
        // Everything is beside everything here, so both orders are asked for.
        assert!(
            drawn.iter().all(|drawn| drawn.orders.len() == if drawn.pair.0 == drawn.pair.1 { 1 } else { 2 })
        );
        assert_eq!(pairs(&campaign(150, 3), &catalogue).unwrap(), drawn);
        assert_ne!(pairs(&campaign(150, 4), &catalogue).unwrap(), drawn);
    }
}
