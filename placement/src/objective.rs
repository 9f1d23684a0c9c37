//! What is maximised.

use crate::Error;
use crate::jobs::Job;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is maximised: Σ weight · utility(x), where x is the throughput of a job over that of its reference shape.
///
/// Every utility is 0 at x = 0, so a job that waits is worth 0, and rises with x.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Objective {
    /// Σ weight · x.
    #[default]
    Throughput,
    /// Σ weight · ln(1 + x): the second GPU of a job is worth less than the first of another. Proportional fairness
    /// (Kelly, Maulloo and Tan, 1998) with 1 added, so that waiting is worth 0 instead of minus infinity.
    Log,
    /// Shortest remaining time first, with ageing: Σ weight · (1 + W / `ageing_seconds`) · 3600 / max(R, `least_seconds`) · x.
    ///
    /// R is the remaining time at the reference shape, `work_steps` / reference; W is `waited_seconds`. The first and
    /// third factor are Smith's rule (weight over processing time, 1956), which for equal weights is the shortest
    /// remaining time (Schrage and Miller, 1966): x · 3600 / R is in completions per hour. The second is the ageing: it
    /// grows without limit while the others are bounded, so no job starves. With `ageing_seconds` = R it is the highest
    /// response ratio, (W + R) / R (Brinch Hansen, 1971). As `ageing_seconds` goes to 0 jobs are ordered by
    /// W / max(R, `least_seconds`), the bounded slowdown less 1 (Feitelson and Rudolph, 1998); as it goes to infinity the
    /// ageing is gone.
    Srpt {
        /// The time after which waiting has doubled the weight of a job.
        #[serde(default = "an_hour")]
        ageing_seconds: f64,
        /// Shorter remaining times count as this, so that a job which is almost done is not worth everything.
        #[serde(default = "ten_seconds")]
        least_seconds: f64,
    },
    /// Σ weight · ((1 + x)^p − 1) / (2^p − 1), the isoelastic utility (Atkinson, 1970; Mo and Walrand, 2000) of 1 + x.
    ///
    /// Scaled so that a job at its reference is worth its weight under every p. p near 1 is `throughput`, p near 0 is `log` up
    /// to the factor ln 2, and as p goes to minus infinity it is max-min fairness: first as many jobs as possible run, then
    /// the slowest of them is made faster. A job that waits counts as one with x = 0, so serving one more at its
    /// reference is worth 1, and the whole rest that a served job can still win is 1 / (1 − 2^p) − 1 for p < 0.
    Power {
        /// Exponent, −30 to 1 without 0 and 1. Below −30 the throughputs of served jobs would differ by less than the
        /// precision of the solver.
        p: f64,
    },
}

const fn an_hour() -> f64 {
    3600.0
}

const fn ten_seconds() -> f64 {
    10.0
}

impl Objective {
    /// [`Self::Srpt`] with its defaults: an hour of waiting doubles the weight, 10 s are the least remaining time.
    pub const SRPT: Self = Self::srpt(an_hour());

    /// [`Self::Srpt`] with another ageing.
    pub const fn srpt(ageing_seconds: f64) -> Self {
        Self::Srpt { ageing_seconds, least_seconds: ten_seconds() }
    }

    /// What a job of weight 1 is worth at a normalised throughput: 0 at 0, and never falling.
    pub fn utility(self, throughput: f64) -> f64 {
        match self {
            Self::Throughput | Self::Srpt { .. } => throughput,
            Self::Log => throughput.ln_1p(),
            // The differences of powers near 1 would lose digits: expm1 and log1p keep them.
            Self::Power { p } => (p * throughput.ln_1p()).exp_m1() / (p * std::f64::consts::LN_2).exp_m1(),
        }
    }

    /// What a unit of utility of the job is worth; `reference_hertz` is the speed of its reference shape in steps per second.
    pub fn weight(self, job: &Job, reference_hertz: f64) -> f64 {
        match self {
            Self::Throughput | Self::Log | Self::Power { .. } => job.weight,
            Self::Srpt { ageing_seconds, least_seconds } => {
                let remaining = job.remaining_seconds(reference_hertz).unwrap_or(f64::INFINITY);
                let ageing = 1.0 + job.waited_seconds / ageing_seconds;
                job.weight * ageing * 3600.0 / remaining.max(least_seconds)
            }
        }
    }

    pub(crate) fn check(self) -> Result<(), Error> {
        let refuse = |field, value: f64, rule| Err(Error::Option { field, value: value.to_string(), rule });
        match self {
            Self::Srpt { ageing_seconds, .. } if !(ageing_seconds.is_finite() && ageing_seconds > 0.0) => {
                refuse("objective.srpt.ageing_seconds", ageing_seconds, "it must be a time above 0")
            }
            Self::Srpt { least_seconds, .. } if !(least_seconds.is_finite() && least_seconds > 0.0) => {
                refuse("objective.srpt.least_seconds", least_seconds, "it must be a time above 0")
            }
            Self::Power { p } if !((-30.0..1.0).contains(&p) && p != 0.0) => refuse(
                "objective.power.p",
                p,
                "it must be at least -30, below 1 and not 0 (1 is `throughput`, 0 is `log`)",
            ),
            _ => Ok(()),
        }
    }

    /// Whether every job says what the objective needs.
    pub(crate) fn check_jobs(self, jobs: &[Job]) -> Result<(), Error> {
        match (self, jobs.iter().find(|job| job.work_steps.is_none())) {
            (Self::Srpt { .. }, Some(job)) => Err(Error::Job {
                job: job.id.clone(),
                field: "work_steps",
                rule: "the objective srpt needs the work that is left",
                remedy: "give `work_steps` to every job, or choose another objective",
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use elastico_core::JobId;
    use proptest::prelude::*;

    fn any_objective() -> impl Strategy<Value = Objective> {
        prop_oneof![
            Just(Objective::Throughput),
            Just(Objective::Log),
            Just(Objective::SRPT),
            (-30.0..1.0_f64).prop_filter("not 0", |p| *p != 0.0).prop_map(|p| Objective::Power { p }),
        ]
    }

    fn job(steps: f64, waited: f64, weight: f64) -> Job {
        let mut job = Job::new(JobId::new("j").unwrap(), None);
        (job.work_steps, job.waited_seconds, job.weight) = (Some(steps), waited, weight);
        job
    }

    proptest! {
        #[test]
        fn utility_is_zero_at_rest_rises_and_bends_down(
            objective in any_objective(), x in 0.0..64.0_f64, step in 1e-3..8.0_f64,
        ) {
            let at = |x: f64| objective.utility(x);
            prop_assert!(at(0.0).abs() < f64::MIN_POSITIVE);
            prop_assert!(at(x + step) >= at(x) * (1.0 - 1e-14), "{} then {}", at(x), at(x + step));
            // Strictly, where doubles can still tell.
            prop_assert!(at(step) > 0.0);
            let middle = at(x + step / 2.0);
            prop_assert!(middle >= f64::midpoint(at(x), at(x + step)) - 1e-12 * middle.abs());
        }

        #[test]
        fn a_job_at_its_reference_is_worth_its_weight(p in -30.0..0.99_f64, weight in 0.1..9.0_f64) {
            prop_assume!(p != 0.0);
            let power = Objective::Power { p };
            let worth = power.weight(&job(1.0, 0.0, weight), 2.0) * power.utility(1.0);
            prop_assert!((worth / weight - 1.0).abs() < 1e-12);
        }

        #[test]
        fn srpt_scales_with_weight_and_with_the_unit_of_work(
            steps in 1e3..1e6_f64, waited in 0.0..1e6_f64, weight in 0.1..9.0_f64, scale in 0.5..20.0_f64,
        ) {
            let of = |steps, hertz, weight| Objective::SRPT.weight(&job(steps, waited, weight), hertz);
            let base = of(steps, 1.0, weight);
            prop_assert!((of(steps, 1.0, weight * scale) / (base * scale) - 1.0).abs() < 1e-12);
            // Twice as many steps at twice the speed are the same job.
            prop_assert!((of(steps * scale, scale, weight) / base - 1.0).abs() < 1e-12);
            prop_assert!(of(steps * 2.0, 1.0, weight) < base);
        }

        #[test]
        fn whoever_waits_long_enough_outweighs_every_newcomer(
            long in 10.0..1e6_f64, short in 0.0..1e3_f64, weight in 0.01..1.0_f64,
        ) {
            let (ageing, least) = (3600.0, 10.0);
            let newcomer = Objective::SRPT.weight(&job(short, 0.0, 1.0), 1.0);
            let enough = ageing * (long / (short.max(least) * weight));
            let waiting = Objective::SRPT.weight(&job(long, enough, weight), 1.0);
            prop_assert!(waiting > newcomer, "{waiting} against {newcomer}");
        }
    }

    #[test]
    fn limits_are_the_named_objectives() {
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-6, "{a} and {b}");
        for x in [0.3, 1.0, 4.0] {
            near(Objective::Power { p: 1.0 - 1e-9 }.utility(x), x);
            near(Objective::Power { p: 1e-9 }.utility(x), Objective::Log.utility(x) / std::f64::consts::LN_2);
        }
        // One more job at half speed is worth more than any speed of one that runs.
        let strict = Objective::Power { p: -8.0 };
        assert!(strict.utility(1.0) + strict.utility(0.5) > strict.utility(1000.0) + strict.utility(0.0));
        // Of two allocations the one with the better slowest job wins, however fast the other job is.
        assert!(strict.utility(0.6) * 2.0 > strict.utility(0.4) + strict.utility(1000.0));
        // Ageing: in the limit the order is that of the bounded slowdown.
        let soon = Objective::Srpt { ageing_seconds: 1e-6, least_seconds: 10.0 };
        let (a, b) = (job(100.0, 300.0, 1.0), job(1000.0, 2900.0, 1.0));
        assert!(soon.weight(&a, 1.0) > soon.weight(&b, 1.0), "3 waited for each second against 2.9");
        assert!(soon.weight(&a, 1.0) < soon.weight(&job(1000.0, 3100.0, 1.0), 1.0));
    }

    #[test]
    fn impossible_parameters_are_refused() {
        for p in [0.0, 1.0, 2.0, -31.0, f64::NAN, f64::NEG_INFINITY] {
            assert!(Objective::Power { p }.check().is_err(), "{p}");
        }
        assert!(Objective::Srpt { ageing_seconds: 0.0, least_seconds: 1.0 }.check().is_err());
        assert!(Objective::Srpt { ageing_seconds: 1.0, least_seconds: f64::NAN }.check().is_err());
        assert!(Objective::SRPT.check().is_ok() && Objective::Power { p: -3.0 }.check().is_ok());
    }
}
