//! Shapes from measured points, of the job or of its profile, and from the scaling law where there are none.

use super::{Candidate, FULL, Origin, PerGpu, ScalingLaw, counts};
use crate::cluster::Pool;
use crate::jobs::{Job, MeasuredShape};
use elastico_core::{DeviceKind, WorkloadKind};
use elastico_models::WorkloadProfile;
use std::borrow::Cow;

struct Point<'a> {
    gpus: u32,
    /// In millionths of a GPU.
    share: u32,
    seconds: f64,
    /// Which source it is from; of the same GPUs and share only those of the last source count.
    source: Source,
    /// The job's own; the others are of its profile.
    shape: Option<&'a MeasuredShape>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Profile,
    /// A shape of the job for every pool.
    General,
    /// A shape of the job for this pool.
    Own,
}

fn millionths(share: f64) -> u32 {
    (share * f64::from(FULL)).round() as u32
}

/// Known performance, by GPUs and share; several points where settings differ.
fn points<'a>(job: &'a Job, pool: &Pool, profile: Option<&WorkloadProfile>) -> Vec<Point<'a>> {
    let mut points: Vec<Point<'a>> = Vec::with_capacity(job.shape.len());
    let mut profiled = None;
    if let Some(profile) = profile {
        profiled = profile
            .fields
            .get("step_seconds")
            .copied()
            .filter(|seconds| seconds.is_finite() && *seconds > 0.0);
        let full = profiled.map(|seconds| (1.0, seconds));
        let shares = profile.shares.iter().map(|point| (point.share_ratio, point.step_seconds));
        for (share, seconds) in shares.chain(full) {
            if seconds.is_finite() && seconds > 0.0 && share > 0.0 && share <= 1.0 {
                let share = millionths(share);
                points.retain(|point| point.share != share);
                points.push(Point { gpus: 1, share, seconds, source: Source::Profile, shape: None });
            }
        }
    }
    for shape in &job.shape {
        let source = if shape.pool.is_none() { Source::General } else { Source::Own };
        if shape.pool.as_ref().is_none_or(|id| *id == pool.id)
            && let Some(seconds) = shape.seconds()
        {
            points.push(Point {
                gpus: shape.gpus,
                share: millionths(shape.share_ratio),
                seconds,
                source,
                shape: Some(shape),
            });
        }
    }
    // Stable: points that differ in their settings stay in the order of the file.
    points.sort_by_key(|point| (point.gpus, point.share, std::cmp::Reverse(point.source)));
    let mut last: Option<((u32, u32), Source)> = None;
    points.retain(|point| {
        let key = (point.gpus, point.share);
        let kept = last.filter(|last| last.0 == key).map_or(point.source, |last| last.1);
        last = Some((key, kept));
        point.source == kept
    });
    // The step of the job's own shapes need not be the profile's: the shares of the profile keep their ratio to the whole.
    let own = fastest(of(&points, 1, FULL)).map(|point| point.seconds);
    if let (Some(profiled), Some(own)) = (profiled, own) {
        for point in points.iter_mut().filter(|point| point.source == Source::Profile && point.share < FULL) {
            let key = (point.gpus, point.share);
            if job.shape.iter().all(|shape| (shape.gpus, millionths(shape.share_ratio)) != key) {
                point.seconds *= own / profiled;
            }
        }
    }
    points
}

/// The points of so many GPUs and this share.
fn of<'p, 'a>(points: &'p [Point<'a>], gpus: u32, share: u32) -> &'p [Point<'a>] {
    let first = points.partition_point(|point| (point.gpus, point.share) < (gpus, share));
    let count = points[first..].iter().take_while(|point| (point.gpus, point.share) == (gpus, share)).count();
    &points[first..first + count]
}

fn fastest<'p, 'a>(points: &'p [Point<'a>]) -> Option<&'p Point<'a>> {
    points.iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds))
}

pub(super) fn candidates<'a>(
    job: &'a Job,
    kind: WorkloadKind,
    pool: &Pool,
    profile: Option<&WorkloadProfile>,
    law: ScalingLaw,
) -> Result<Vec<Candidate<'a>>, String> {
    let points = points(job, pool, profile);
    let per_gpu = PerGpu::of(job, profile);
    let of_profile = || match profile {
        Some(profile) if profile.device_kind == DeviceKind::Simulated => Origin::Simulated,
        _ => Origin::Measured,
    };
    let candidate = |gpus: u32, point: &Point<'a>| Candidate {
        gpus,
        share: point.share,
        seconds: point.seconds,
        origin: if point.source == Source::Profile { of_profile() } else { Origin::Measured },
        per_gpu: point.shape.map_or(per_gpu, |shape| per_gpu.with(shape)),
        settings: point.shape.map_or_else(Cow::default, |shape| Cow::Borrowed(&shape.settings)),
    };
    // The fastest whole point of every number of GPUs.
    let whole: Vec<(u32, &Point<'a>)> = points
        .chunk_by(|a, b| (a.gpus, a.share) == (b.gpus, b.share))
        .filter(|same| same[0].share == FULL)
        .filter_map(|same| Some((same[0].gpus, fastest(same)?)))
        .collect();
    let mut fitted: Option<ScalingLaw> = None;
    let known = whole.iter().map(|(gpus, _)| *gpus);
    // Only training is extrapolated.
    let counts = if kind == WorkloadKind::Training { counts(job, pool, known) } else { known.collect() };
    let mut candidates = Vec::with_capacity(points.len().max(counts.len()));
    for gpus in counts {
        let known = of(&points, gpus, FULL);
        if !known.is_empty() {
            candidates.extend(known.iter().map(|point| candidate(gpus, point)));
            continue;
        }
        let nearest = whole.iter().min_by_key(|(known, _)| (known.abs_diff(gpus), *known));
        if let (WorkloadKind::Training, Some((known, point))) = (kind, nearest) {
            let law = fitted.get_or_insert_with(|| {
                let seconds: Vec<(u32, f64)> =
                    whole.iter().map(|(gpus, point)| (*gpus, point.seconds)).collect();
                law.fitted(&seconds, pool.gpus_per_node)
            });
            let growth = law.growth(gpus, pool.gpus_per_node) / law.growth(*known, pool.gpus_per_node);
            candidates.push(Candidate {
                seconds: point.seconds / growth,
                origin: Origin::Assumed,
                ..candidate(gpus, point)
            });
        }
    }
    if job.gpus_min == 1 {
        let shares = points.iter().filter(|point| point.gpus == 1 && point.share < FULL);
        candidates.extend(shares.map(|point| candidate(1, point)));
    }
    match (candidates.is_empty(), points.is_empty()) {
        (true, true) => Err(format!("no profile or measured shape on `{}`", pool.device)),
        (true, false) => {
            Err("its GPU count was never measured, and only training is extrapolated".to_owned())
        }
        (false, _) => Ok(candidates),
    }
}
