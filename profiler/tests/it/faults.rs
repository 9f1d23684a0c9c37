//! A device that breaks on purpose: every fault gives its outcome, and the campaign goes on.

use crate::campaign;
use elastico_core::{Outcome, SharingMode};
use elastico_profiler::devices::recorded::Recorded;
use elastico_profiler::devices::simulated::Simulated;
use elastico_profiler::{
    Active, Campaign, CounterReading, Device, DeviceIdentity, Fault, Phase, RunOptions, Session,
    SessionRequest, Stopped, Window, assemble, run,
};
use elastico_workloads::Catalogue;
use std::collections::BTreeMap;

/// What breaks in sessions of pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Break {
    Nothing,
    Open(Outcome),
    Run(Outcome),
    Slow,
    Drift,
    LowOverlap,
    Throttle,
    Counters,
}

/// A simulated chip whose pair sessions break in one way for the first so many sessions of each trial.
struct Faulty {
    inner: Simulated,
    fault: Break,
    /// Sessions, or attempts within one, that break.
    times: usize,
    opened: BTreeMap<String, usize>,
    total: usize,
}

impl Faulty {
    fn new(fault: Break, times: usize) -> Self {
        Self { inner: Simulated::new("h100").unwrap(), fault, times, opened: BTreeMap::new(), total: 0 }
    }
}

impl Device for Faulty {
    fn identity(&self) -> &DeviceIdentity {
        self.inner.identity()
    }

    fn open<'a>(&'a mut self, request: &SessionRequest<'_>) -> Result<Box<dyn Session + 'a>, Fault> {
        let before = self.opened.entry(request.trial.to_string()).or_insert(0);
        let breaks = request.co_runner.is_some() && *before < self.times;
        *before += 1;
        self.total += 1;
        let fault = if breaks { self.fault } else { Break::Nothing };
        if let Break::Open(outcome) = fault {
            return Err(Fault { outcome, detail: "planted".to_owned() });
        }
        let left = self.times;
        Ok(Box::new(FaultySession { inner: self.inner.open(request)?, fault, left, co_runs: 0, timed: 0 }))
    }
}

struct FaultySession<'a> {
    inner: Box<dyn Session + 'a>,
    fault: Break,
    left: usize,
    co_runs: usize,
    timed: usize,
}

impl Session for FaultySession<'_> {
    fn effective_sharing(&self) -> SharingMode {
        self.inner.effective_sharing()
    }

    fn run(&mut self, active: Active, window: Window) -> Result<Phase, Fault> {
        let is_timed = window.min_steps > 4;
        let mut phase = self.inner.run(active, window)?;
        if !is_timed {
            return Ok(phase);
        }
        self.timed += 1;
        self.co_runs += usize::from(active == Active::Both);
        let attempt = (self.timed - 1) / 5;
        if attempt >= self.left {
            return Ok(phase);
        }
        match self.fault {
            Break::Run(outcome) if active == Active::Both => {
                return Err(Fault { outcome, detail: "planted".to_owned() });
            }
            Break::Slow => {
                // The clock jumps: the trial's deadline passes.
                for step in phase.subject.iter_mut().chain(&mut phase.co_runner) {
                    step.start += 1e6;
                    step.end += 1e6;
                }
            }
            Break::Drift if active != Active::Both && (self.timed - 1) % 5 >= 3 => {
                for steps in [&mut phase.subject, &mut phase.co_runner] {
                    let start = steps.first().map_or(0.0, |step| step.start);
                    for step in steps.iter_mut() {
                        step.start = start + (step.start - start) * 1.1;
                        step.end = start + (step.end - start) * 1.1;
                    }
                }
            }
            Break::LowOverlap if active == Active::Both => {
                // The co-runner stutters: it works half of the time.
                for step in &mut phase.co_runner {
                    step.start = f64::midpoint(step.start, step.end);
                }
            }
            Break::Throttle if active == Active::Both => phase.telemetry.throttled_ratio = Some(0.5),
            _ => {}
        }
        Ok(phase)
    }

    fn counters(&mut self, active: Active) -> Result<CounterReading, Fault> {
        if self.fault == Break::Counters {
            return Err(Fault { outcome: Outcome::CountersUnavailable, detail: "no permission".to_owned() });
        }
        self.inner.counters(active)
    }
}

fn one_pair() -> Campaign {
    campaign(
        "schema = 1\nname = \"faults\"\ndevice = \"sim:h100\"\nsharing = [\"mps\"]\nmax_pairs = 2\n[workloads]\nsubjects = [\"training\"]\n[protocol]\nretries = 2\n",
    )
}

struct Told {
    stopped: Stopped,
    pair_outcomes: BTreeMap<String, u64>,
    isolated_outcomes: BTreeMap<String, u64>,
    exclusions: BTreeMap<String, u64>,
    opened: usize,
    folder: tempfile::TempDir,
}

fn tell(mut device: Faulty) -> Told {
    let folder = tempfile::tempdir().unwrap();
    let report = run(
        &one_pair(),
        &Catalogue::bundled(),
        &mut device,
        folder.path(),
        &RunOptions::default(),
        &mut |_| {},
    )
    .unwrap();
    let dataset = assemble(folder.path()).unwrap();
    let count = |outcomes: Vec<String>| {
        let mut counts = BTreeMap::new();
        for outcome in outcomes {
            *counts.entry(outcome).or_default() += 1;
        }
        counts
    };
    let pair_outcomes = count(dataset.pairs.pair_rows().unwrap().map(|row| row.outcome).collect());
    let isolated_outcomes = count(dataset.isolated.isolated_rows().unwrap().map(|row| row.outcome).collect());
    let exclusions = dataset
        .manifest
        .exclusions_by_reason()
        .into_iter()
        .map(|(reason, rows)| (reason.to_owned(), rows))
        .collect();
    assert!(elastico_datasets::validate(&folder.path().join("dataset")).unwrap().is_empty());
    Told {
        stopped: report.stopped,
        pair_outcomes,
        isolated_outcomes,
        exclusions,
        opened: device.total,
        folder,
    }
}

#[test]
fn each_lasting_fault_gives_its_outcome_and_the_campaign_goes_on() {
    for (fault, outcome, retried) in [
        (Break::Open(Outcome::Oom), Outcome::Oom, false),
        (Break::Open(Outcome::MpsFault), Outcome::MpsFault, true),
        (Break::Run(Outcome::WorkerCrash), Outcome::WorkerCrash, true),
        (Break::Run(Outcome::Hang), Outcome::Hang, true),
        (Break::Run(Outcome::Xid), Outcome::Xid, true),
        // The deadline is one for all attempts.
        (Break::Slow, Outcome::Timeout, false),
        (Break::Drift, Outcome::Drift, true),
        (Break::LowOverlap, Outcome::LowOverlap, true),
        (Break::Throttle, Outcome::Throttled, true),
    ] {
        let told = tell(Faulty::new(fault, usize::MAX));
        assert_eq!(told.stopped, Stopped::Complete, "{fault:?}");
        assert_eq!(told.pair_outcomes.keys().collect::<Vec<_>>(), [outcome.as_str()], "{fault:?}");
        assert_eq!(told.isolated_outcomes.keys().collect::<Vec<_>>(), ["ok"], "{fault:?}");
        let retries: u64 = told.exclusions.values().sum();
        assert_eq!(retries > 0, retried, "{fault:?} {:?}", told.exclusions);
    }
}

#[test]
fn a_passing_fault_is_retried_to_a_good_result() {
    for (fault, fresh_processes) in [
        (Break::Open(Outcome::WorkerCrash), true),
        (Break::Run(Outcome::Hang), true),
        (Break::Drift, false),
        (Break::LowOverlap, false),
        (Break::Throttle, false),
    ] {
        let told = tell(Faulty::new(fault, 1));
        assert_eq!(told.pair_outcomes.keys().collect::<Vec<_>>(), ["ok"], "{fault:?}");
        let reason = told.exclusions.keys().next().unwrap();
        assert!(reason.starts_with("attempt_"), "{reason}");
        let calm = tell(Faulty::new(Break::Nothing, 0));
        assert_eq!(told.opened > calm.opened, fresh_processes, "{fault:?}");
    }
}

#[test]
fn lost_counters_cost_no_times() {
    let told = tell(Faulty::new(Break::Counters, usize::MAX));
    assert_eq!(told.pair_outcomes.keys().collect::<Vec<_>>(), ["ok"]);
    let dataset = assemble(told.folder.path()).unwrap();
    assert!(dataset.pairs.f64("corun_sm_active_ratio").unwrap().iter().all(|value| value.is_nan()));
    assert!(dataset.pairs.pair_rows().unwrap().all(|row| row.flags.unwrap().contains("counters_failed")));
}

#[test]
fn a_lost_device_stops_the_run_and_resuming_finishes_it() {
    let folder = tempfile::tempdir().unwrap();
    let catalogue = Catalogue::bundled();
    let mut lost = Faulty::new(Break::Run(Outcome::DeviceLost), usize::MAX);
    let report =
        run(&one_pair(), &catalogue, &mut lost, folder.path(), &RunOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(report.stopped, Stopped::DeviceLost);
    let mut back = Faulty::new(Break::Nothing, 0);
    let options = RunOptions { resume: true, ..RunOptions::default() };
    let report = run(&one_pair(), &catalogue, &mut back, folder.path(), &options, &mut |_| {}).unwrap();
    assert_eq!(report.stopped, Stopped::Complete);
    let whole = tell(Faulty::new(Break::Nothing, 0));
    let [resumed, whole] =
        [folder.path(), whole.folder.path()].map(|folder| assemble(folder).unwrap().content_digest());
    assert_eq!(resumed, whole);
}

/// Failures are part of what is recorded.
#[test]
fn a_replay_fails_as_the_device_did() {
    for (fault, times) in [
        (Break::Run(Outcome::WorkerCrash), usize::MAX),
        (Break::Open(Outcome::MpsFault), 1),
        (Break::Drift, 1),
        (Break::LowOverlap, usize::MAX),
    ] {
        let told = tell(Faulty::new(fault, times));
        let mut device = Recorded::read(told.folder.path()).unwrap();
        let name = told.folder.path().display().to_string();
        let replayed = campaign(&one_pair().to_toml().replace("sim:h100", &format!("recorded:{name}")));
        let folder = tempfile::tempdir().unwrap();
        run(
            &replayed,
            &Catalogue::bundled(),
            &mut device,
            folder.path(),
            &RunOptions::default(),
            &mut |_| {},
        )
        .unwrap();
        let rows = |folder: &std::path::Path| {
            let mut rows: Vec<_> = assemble(folder)
                .unwrap()
                .pairs
                .pair_rows()
                .unwrap()
                .map(|row| {
                    (row.pair_id, row.side, row.repeat_total as u32, row.outcome, row.attempt_total as u32)
                })
                .collect();
            rows.sort();
            rows
        };
        assert_eq!(rows(folder.path()), rows(told.folder.path()), "{fault:?}");
    }
}
