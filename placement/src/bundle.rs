//! Prices by a scaled level bundle on the Lagrangian dual.
//!
//! D(λ) = λ·C + Σ_j π_j(λ) is convex and piecewise linear; every answer of the oracle gives a plane below it. The next
//! prices are the projection of the best ones onto the set where all planes are under a level between the best dual
//! value and the optimum of the planes (Lemaréchal, Nemirovskii & Nesterov 1995). Everything is scaled: prices by what
//! the pool would cost in total over the value at the start, since unscaled bundles fail on large instances.

use crate::matching::{Edge, Matcher};
use crate::problem::{Choice, PriceTable, Problem};
use crate::resources::{Amounts, RESOURCES};
use crate::simplex;
use elastico_core::parallel;

/// Jobs of a chunk: fixed, so that sums over chunks do not depend on the number of threads.
const CHUNK: usize = 2_048;

/// The answer of the oracle at some prices.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    /// What each job gains at least: with the cost of capacity a bound on every placement.
    pub(crate) surplus: Vec<f64>,
    /// Value and use of the chosen, perhaps fractional, columns.
    pub(crate) value: f64,
    pub(crate) used: Vec<Amounts>,
    /// The chosen columns, made integral.
    pub(crate) choices: Vec<Choice>,
}

/// What the oracle reads again and again: the columns with what is scarce alone, close together.
pub(crate) struct Oracle<'a> {
    problem: &'a Problem,
    /// Scarce resources per pool, in order.
    scarce: Vec<Vec<usize>>,
    /// Demands of a column: as many as the pool with most scarce resources has.
    width: usize,
    values: Vec<f64>,
    pools: Vec<u32>,
    demands: Vec<f64>,
    /// Per job and pool: the slot price from which on no shape is worth it. Most jobs of a long queue are seen no closer.
    entries: Vec<f64>,
}

/// What the best single shapes of some jobs come to.
struct Best {
    surplus: Vec<f64>,
    choices: Vec<Choice>,
    value: f64,
    used: Vec<Amounts>,
}

impl<'a> Oracle<'a> {
    pub(crate) fn new(problem: &'a Problem, scarce_of_all: &[(usize, usize)]) -> Self {
        let mut scarce = vec![Vec::new(); problem.capacity.len()];
        for (pool, resource) in scarce_of_all {
            scarce[*pool].push(*resource);
        }
        let width = scarce.iter().map(Vec::len).max().unwrap_or(0);
        let columns = problem.singles.all();
        let mut values = Vec::with_capacity(columns.len());
        let mut pools_of = Vec::with_capacity(columns.len());
        let mut demands = vec![0.0; columns.len() * width];
        for (at, column) in columns.iter().enumerate() {
            values.push(column.value);
            pools_of.push(column.pool as u32);
            let lean = &mut demands[at * width..(at + 1) * width];
            for (demand, resource) in lean.iter_mut().zip(&scarce[column.pool]) {
                *demand = column.demand[*resource];
            }
        }
        let pools = problem.capacity.len();
        let slots_are_scarce: Vec<bool> = scarce.iter().map(|scarce| scarce.first() == Some(&0)).collect();
        let mut entries = vec![0.0_f64; problem.jobs() * pools];
        for (columns, entries) in problem.singles.iter().zip(entries.chunks_mut(pools.max(1))) {
            for column in columns {
                let is_scarce = slots_are_scarce[column.pool];
                let price = if is_scarce { column.value / column.demand[0] } else { f64::INFINITY };
                entries[column.pool] = entries[column.pool].max(price);
            }
        }
        Self { problem, entries, width, values, pools: pools_of, demands, scarce }
    }

    /// Best columns at the prices: a single shape per job, then an assignment on what pairs gain over that.
    fn answer(&self, prices: &PriceTable, matcher: &mut Matcher) -> Answer {
        let problem = self.problem;
        let jobs = problem.jobs();
        let mut surplus = Vec::with_capacity(jobs);
        let mut choices = Vec::with_capacity(jobs);
        let mut value = 0.0;
        let mut used = vec![[0.0; RESOURCES]; problem.capacity.len()];
        for best in self.best_singles(prices) {
            surplus.extend(best.surplus);
            choices.extend(best.choices);
            value += best.value;
            for (used, of_chunk) in used.iter_mut().zip(best.used) {
                used.iter_mut().zip(of_chunk).for_each(|(sum, amount)| *sum += amount);
            }
        }
        if problem.pairs.is_empty() {
            return Answer { surplus, value, used, choices };
        }
        let mut edges = Vec::new();
        for (pair, column) in problem.pairs.iter().enumerate() {
            let gain = column.reduced(prices) - surplus[column.a] - surplus[column.b];
            if gain > 0.0 {
                edges.push(Edge { a: column.a, b: column.b, gain, pair });
            }
        }
        let matching = matcher.solve(&surplus, &edges);
        let mut take = |pool: usize, demand: &Amounts, worth: f64, part: f64| {
            value += worth * part;
            for (sum, amount) in used[pool].iter_mut().zip(demand) {
                *sum += amount * part;
            }
        };
        // As far as a job is in a pair it is not alone.
        for (edge, part) in &matching.chosen {
            let pair = &problem.pairs[edges[*edge].pair];
            take(pair.pool, &pair.demand, pair.value, *part);
            for job in [pair.a, pair.b] {
                if let Choice::Single(at) = choices[job] {
                    let column = &problem.singles[job][at];
                    take(column.pool, &column.demand, column.value, -part);
                }
            }
        }
        for edge in matching.whole(jobs, &edges) {
            let edge = &edges[edge];
            choices[edge.a] = Choice::Pair(edge.pair);
            choices[edge.b] = Choice::Pair(edge.pair);
        }
        for (sum, price) in surplus.iter_mut().zip(&matching.price) {
            *sum += price;
        }
        Answer { surplus, value, used, choices }
    }

    /// Of each job what its best single shape gains, and which that is.
    fn best_singles(&self, prices: &PriceTable) -> Vec<Best> {
        let (width, pools) = (self.width, prices.len());
        let mut lean = vec![0.0; pools * width];
        for (pool, scarce) in self.scarce.iter().enumerate() {
            for (at, resource) in scarce.iter().enumerate() {
                lean[pool * width + at] = prices[pool][*resource];
            }
        }
        parallel::chunks(self.problem.jobs(), CHUNK, |jobs| {
            let mut best = Best {
                surplus: Vec::with_capacity(jobs.len()),
                choices: Vec::with_capacity(jobs.len()),
                value: 0.0,
                used: vec![[0.0; RESOURCES]; self.problem.capacity.len()],
            };
            for job in jobs {
                let entries = &self.entries[job * pools..(job + 1) * pools];
                if entries.iter().zip(prices).all(|(entry, prices)| prices[0] >= *entry) {
                    best.surplus.push(0.0);
                    best.choices.push(Choice::Waiting);
                    continue;
                }
                let range = self.problem.singles.range(job);
                let (mut most, mut chosen) = (0.0, None);
                let mut take = |at: usize, reduced: f64| {
                    if reduced > most {
                        (most, chosen) = (reduced, Some(at));
                    }
                };
                // A price of 0 may stand beside a demand without bound.
                let cost = |price: f64, demand: f64| if price > 0.0 { price * demand } else { 0.0 };
                if width == 1 {
                    for at in range.clone() {
                        let price = lean[self.pools[at] as usize];
                        take(at, self.values[at] - cost(price, self.demands[at]));
                    }
                } else {
                    for at in range.clone() {
                        let prices = &lean[self.pools[at] as usize * width..][..width];
                        let demands = &self.demands[at * width..][..width];
                        let costs = prices.iter().zip(demands).map(|(price, demand)| cost(*price, *demand));
                        take(at, self.values[at] - costs.sum::<f64>());
                    }
                }
                best.surplus.push(most);
                best.choices.push(chosen.map_or(Choice::Waiting, |at| Choice::Single(at - range.start)));
                if let Some(at) = chosen {
                    let column = &self.problem.singles.all()[at];
                    best.value += column.value;
                    for (sum, amount) in best.used[column.pool].iter_mut().zip(&column.demand) {
                        *sum += amount;
                    }
                }
            }
            best
        })
    }
}

/// Planes under the dual; they stay valid as long as jobs, capacities and existing columns stay.
#[derive(Clone, Debug, Default)]
pub(crate) struct Planes {
    values: Vec<f64>,
    /// Relative to capacity, per scarce resource.
    uses: Vec<Vec<f64>>,
    /// The value that everything is relative to.
    scale: f64,
}

impl Planes {
    fn add(&mut self, problem: &Problem, scarce: &[(usize, usize)], answer: &Answer) {
        let relative = |(pool, at): &(usize, usize)| answer.used[*pool][*at] / problem.capacity[*pool][*at];
        self.values.push(answer.value);
        self.uses.push(scarce.iter().map(relative).collect());
    }
}

/// The best prices found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Solved {
    pub(crate) prices: PriceTable,
    pub(crate) answer: Answer,
    /// The dual value over the columns that the problem holds.
    pub(crate) upper: f64,
    /// The optimum of the planes: the dual cannot be below it.
    pub(crate) lower: f64,
    pub(crate) calls: u32,
    /// What the oracle chose at the other prices, where there are pairs.
    pub(crate) others: Vec<Vec<Choice>>,
}

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    pub(crate) tolerance: f64,
    pub(crate) calls: u32,
}

struct Scale<'a> {
    problem: &'a Problem,
    scarce: Vec<(usize, usize)>,
    value: f64,
}

impl Scale<'_> {
    fn prices(&self, scaled: &[f64]) -> PriceTable {
        let mut prices = vec![[0.0; RESOURCES]; self.problem.capacity.len()];
        for ((pool, resource), scaled) in self.scarce.iter().zip(scaled) {
            let capacity = self.problem.capacity[*pool][*resource];
            // Nothing can be had of an empty resource, so every column that needs it is priced out.
            prices[*pool][*resource] = if capacity > 0.0 { scaled * self.value / capacity } else { 0.0 };
        }
        prices
    }

    fn scaled(&self, prices: &PriceTable) -> Vec<f64> {
        let of = |(pool, resource): &(usize, usize)| {
            let price = prices.get(*pool).map_or(0.0, |prices| prices[*resource]);
            price * self.problem.capacity[*pool][*resource] / self.value
        };
        self.scarce.iter().map(of).collect()
    }
}

/// Minimises the dual from the given prices, or from nothing.
pub(crate) fn minimise(
    problem: &Problem,
    warm: Option<&PriceTable>,
    planes: &mut Planes,
    matcher: &mut Matcher,
    stop: Stop,
) -> Solved {
    let free = vec![[0.0; RESOURCES]; problem.capacity.len()];
    let mut scarce = problem.scarce();
    let oracle = Oracle::new(problem, &scarce);
    scarce.retain(|(pool, resource)| problem.capacity[*pool][*resource] > 0.0);
    let resources = scarce.len();
    let mut solved = Solved { prices: free, upper: f64::INFINITY, ..Solved::default() };
    let mut next = vec![0.0; resources];
    if planes.values.is_empty() || warm.is_none() {
        // The answer at no price gives the scale of values, and the whole solution where nothing is short.
        solved.answer = oracle.answer(&solved.prices, matcher);
        solved.upper = solved.answer.surplus.iter().sum::<f64>().max(0.0);
        solved.calls = 1;
        planes.scale = solved.upper.max(f64::MIN_POSITIVE);
        planes.add(problem, &scarce, &solved.answer);
        if resources == 0 || solved.upper <= 0.0 {
            solved.lower = solved.answer.value;
            return solved;
        }
        let over: Vec<f64> = planes.uses.last().cloned().unwrap_or_default();
        // A half of the value spread over what would be short: prices near which the first real choices differ.
        let short = over.iter().filter(|used| **used > 1.0).count().max(1) as f64;
        next = over.iter().map(|used| if *used > 1.0 { 0.5 / short } else { 0.0 }).collect();
    }
    let value = planes.scale;
    let scale = Scale { problem, scarce, value };
    if let Some(prices) = warm {
        next = scale.scaled(prices);
    }
    let mut best = vec![0.0; resources];
    // Once at least: without an answer there is no bound.
    while solved.calls < stop.calls.max(2) {
        let prices = scale.prices(&next);
        let answer = oracle.answer(&prices, matcher);
        solved.calls += 1;
        let upper = next.iter().sum::<f64>() * value + answer.surplus.iter().sum::<f64>();
        planes.add(problem, &scale.scarce, &answer);
        let has_pairs = !problem.pairs.is_empty();
        if upper >= solved.upper {
            solved.others.extend(has_pairs.then_some(answer.choices));
        } else {
            solved.upper = upper;
            solved.prices = prices;
            let before = std::mem::replace(&mut solved.answer, answer).choices;
            solved.others.extend((has_pairs && !before.is_empty()).then_some(before));
            best.clone_from(&next);
        }
        let scaled: Vec<f64> = planes.values.iter().map(|plane| plane / value).collect();
        let master = simplex::solve(&scaled, &planes.uses, resources);
        solved.lower = solved.lower.max(master.value * value);
        if solved.upper - solved.lower <= stop.tolerance * solved.upper {
            break;
        }
        let (low, high) = (master.value, solved.upper / value);
        let level = low + 0.3 * (high - low);
        next = project(&best, &scaled, &planes.uses, level);
        let moved: f64 = next.iter().zip(&best).map(|(a, b)| (a - b).abs()).sum();
        if moved < 1e-12 {
            next =
                best.iter().zip(&master.prices).map(|(best, price)| f64::midpoint(*best, *price)).collect();
        }
    }
    solved
}

/// The point nearest to `center` with every plane under `level` and no negative price, by Hildreth's method.
///
/// It need not be exact: the bound is computed at whatever point comes out.
fn project(center: &[f64], values: &[f64], uses: &[Vec<f64>], level: f64) -> Vec<f64> {
    let slopes: Vec<Vec<f64>> =
        uses.iter().map(|uses| uses.iter().map(|used| 1.0 - used).collect()).collect();
    let squares: Vec<f64> = slopes.iter().map(|slope| slope.iter().map(|part| part * part).sum()).collect();
    let mut point = center.to_vec();
    let mut of_planes = vec![0.0_f64; values.len()];
    let mut of_signs = vec![0.0_f64; center.len()];
    for _ in 0..300 {
        let mut moved = 0.0_f64;
        for (plane, slope) in slopes.iter().enumerate() {
            if squares[plane] <= 0.0 {
                continue;
            }
            let height: f64 =
                values[plane] + slope.iter().zip(&point).map(|(part, at)| part * at).sum::<f64>();
            let step = of_planes[plane].min((level - height) / squares[plane]);
            if step != 0.0 {
                of_planes[plane] -= step;
                point.iter_mut().zip(slope).for_each(|(at, part)| *at += step * part);
                moved = moved.max(step.abs());
            }
        }
        for (at, multiplier) in point.iter_mut().zip(&mut of_signs) {
            let step = multiplier.min(*at);
            *multiplier -= step;
            *at -= step;
        }
        if moved < 1e-10 {
            break;
        }
    }
    point.iter().map(|at| at.max(0.0)).collect()
}
