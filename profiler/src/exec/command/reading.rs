//! What a command's records, lines and reports tell.

use super::super::progress::{Event, Progress};
use super::{Running, StepSource, short};
use crate::device::{Fault, StepRecord};
use elastico_core::{Hint, Outcome};
use elastico_gpu::activity::{ActivityError, Kind, Report, Status};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// How often new processes of the command are looked for.
const LOOK: Duration = Duration::from_millis(100);

impl Running {
    /// Takes over the records that are there.
    pub(crate) fn fetch(&mut self) -> Result<(), Fault> {
        if self.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            self.looked = Some(Instant::now());
            if let Err(error) = self.rings.look() {
                let hint = error.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
                let outcome = match error {
                    ActivityError::Foreign { .. } => Outcome::Unsupported,
                    _ => Outcome::WorkerCrash,
                };
                return Err(self.fault(outcome, &format!("left records that cannot be read: {error}{hint}")));
            }
        }
        let ticked = self.ticks.lock().unwrap_or_else(PoisonError::into_inner).len();
        if ticked != self.ticked {
            self.ticked = ticked;
            self.heard = Instant::now();
        }
        self.events.resize_with(self.rings.rings.len(), Vec::new);
        let mut records = Vec::new();
        for (index, (ring, events)) in self.rings.rings.iter_mut().zip(&mut self.events).enumerate() {
            let progress = match &self.source {
                StepSource::Kernels { ring, progress } if *ring == index => Some(progress),
                _ => None,
            };
            records.clear();
            ring.drain(&mut records);
            for record in &records {
                let (stopped, resumed) = self.pause;
                if record.end > stopped && record.start < resumed && record.end < resumed {
                    let drained = Duration::from_nanos(record.end - stopped);
                    self.drain = Some(self.drain.unwrap_or(Duration::ZERO).max(drained));
                }
                self.launches += u64::from(record.kind != Kind::Copy);
                let event = Event { start: record.start, end: record.end, signature: record.signature };
                self.done += progress.map_or(0.0, |progress| {
                    let (worth, whole) = progress.worth(&event);
                    worth / whole
                });
                events.push(event);
            }
            if !records.is_empty() {
                self.heard = Instant::now();
            }
        }
        Ok(())
    }

    /// What the processes say of their recording.
    pub(crate) fn reports(&self) -> Vec<Report> {
        self.rings.rings.iter().map(elastico_gpu::activity::Reader::report).collect()
    }

    /// Why no kernels can come; `None` while they can.
    pub(crate) fn why_silent(&self) -> Option<String> {
        let reports = self.reports();
        let is_silent = !reports.is_empty() && reports.iter().all(|report| report.status.is_silent());
        let report = reports.into_iter().next().filter(|_| is_silent)?;
        Some(match report.status {
            Status::Taken => {
                "another profiler holds CUPTI in it (Nsight, or one of the program's own)".to_owned()
            }
            Status::Absent => "no CUPTI could be loaded into it".to_owned(),
            Status::Forbidden => format!("the driver forbids recording (CUPTI error {})", report.code),
            _ => format!("CUPTI refused to record (error {})", report.code),
        })
    }

    /// Records of one ring in order of their ends, at most the last `most`.
    pub(crate) fn sorted(&mut self, ring: usize, most: usize) -> &[Event] {
        let Some(events) = self.events.get_mut(ring) else { return &[] };
        events.sort_unstable_by_key(|event| event.end);
        let excess = events.len().saturating_sub(most);
        events.drain(..excess);
        events
    }

    /// The process whose kernels take most device time.
    pub(crate) fn busiest(&self) -> Option<usize> {
        let time = |events: &Vec<Event>| -> u64 {
            events.iter().map(|event| event.end.saturating_sub(event.start)).sum()
        };
        let rings = self.events.iter().enumerate().filter(|(_, events)| !events.is_empty());
        rings.max_by_key(|(index, events)| (time(events), std::cmp::Reverse(*index))).map(|(index, _)| index)
    }

    /// How its steps are told, in words.
    pub(crate) fn how(&self) -> String {
        match &self.source {
            StepSource::Kernels { progress: Progress::Periodic(period), .. } => {
                let name = self.rings.rings.iter().find_map(|ring| ring.names().remove(&period.anchor));
                let name = name.unwrap_or_else(|| format!("kernel {:016x}", period.anchor));
                let times =
                    if period.per_period > 1 { format!("{} x ", period.per_period) } else { String::new() };
                format!("{times}`{}` in a period of {} records", short(&name), period.records)
            }
            StepSource::Kernels { .. } => "no period; equal device time".to_owned(),
            StepSource::Lines(_) => "lines of output".to_owned(),
            StepSource::Unknown | StepSource::None(_) => "not to be told".to_owned(),
        }
    }

    /// When matching lines came.
    pub(crate) fn ticks(&self) -> Vec<u64> {
        self.ticks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets records and ticks: a new phase begins.
    pub(crate) fn forget(&mut self) {
        self.events.iter_mut().for_each(Vec::clear);
        self.launches = 0;
        self.done = 0.0;
        self.lost_before += self.lost();
        self.heard = Instant::now();
        self.ticked = 0;
        self.ticks.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Steps so far in this phase, roughly.
    pub(crate) fn count(&self) -> u32 {
        match &self.source {
            StepSource::Kernels { .. } => self.done as u32,
            StepSource::Lines(_) => self.ticks().len() as u32,
            StepSource::Unknown | StepSource::None(_) => 0,
        }
    }

    /// Whether something that ended at `instant` or later is known.
    pub(crate) fn knows(&self, instant: u64) -> bool {
        match &self.source {
            StepSource::Kernels { ring, .. } => self
                .events
                .get(*ring)
                .is_some_and(|events| events.iter().rev().take(2_000).any(|event| event.end >= instant)),
            _ => true,
        }
    }

    /// Steps that lie within `from..=to`, on a clock that begins at `epoch`.
    pub(crate) fn steps(&mut self, from: u64, to: u64, epoch: u64) -> Vec<StepRecord> {
        let within = |step: &StepRecord| {
            let at = |instant: u64| instant.saturating_sub(epoch) as f64 * 1e-9;
            step.start >= at(from) && step.end <= at(to)
        };
        let mut steps = match self.source.clone() {
            StepSource::Kernels { ring, progress } => progress.steps(self.sorted(ring, usize::MAX), epoch),
            StepSource::Lines(_) => {
                let at = |instant: u64| instant.saturating_sub(epoch) as f64 * 1e-9;
                let ticks = self.ticks();
                let pairs = ticks.windows(2).filter(|pair| pair[0] < pair[1]);
                pairs.map(|pair| StepRecord { start: at(pair[0]), end: at(pair[1]) }).collect()
            }
            StepSource::Unknown | StepSource::None(_) => Vec::new(),
        };
        steps.retain(within);
        steps
    }

    /// Seconds that a step takes alone; 0 where steps cannot be told.
    pub(crate) fn usual(&self) -> f64 {
        match &self.source {
            StepSource::Kernels { progress, .. } => progress.usual(),
            StepSource::Lines(seconds) => *seconds,
            StepSource::Unknown | StepSource::None(_) => 0.0,
        }
    }

    /// Share of `from..to` in which a kernel or copy of this side ran, and its launches per second.
    pub(crate) fn activity(&self, from: u64, to: u64) -> Option<(f64, f64)> {
        let mut spans: Vec<(u64, u64)> = self
            .events
            .iter()
            .flatten()
            .map(|event| (event.start.max(from), event.end.min(to)))
            .filter(|(start, end)| start < end)
            .collect();
        spans.sort_unstable();
        let (mut busy, mut reached) = (0, from);
        for (start, end) in spans {
            busy += end.saturating_sub(start.max(reached));
            reached = reached.max(end);
        }
        let whole = to.checked_sub(from).filter(|whole| *whole > 0)? as f64;
        let records: usize = self.events.iter().map(Vec::len).sum();
        let rate = self.launches as f64 / (whole * 1e-9);
        (records > 0).then_some((busy as f64 / whole, rate))
    }

    /// Records of this phase that were lost or could not be timed.
    pub(crate) fn lost(&self) -> u64 {
        let all: u64 = self.reports().iter().map(|report| report.dropped + report.untimed).sum();
        all.saturating_sub(self.lost_before)
    }

    /// How long nothing was heard of it.
    pub(crate) fn silence(&self) -> Duration {
        self.heard.elapsed()
    }
}
