//! Shapes from measured points, of the job or of its profile, and from the scaling law where there are none.

use super::{Candidate, FULL, Origin, PerGpu, ScalingLaw, counts};
use crate::cluster::Pool;
use crate::jobs::Job;
use crate::settings::Settings;
use elastico_core::{DeviceKind, WorkloadKind};
use elastico_models::WorkloadProfile;
use std::collections::BTreeMap;

#[derive(Clone)]
struct Point {
    seconds: f64,
    origin: Origin,
    per_gpu: PerGpu,
    settings: Settings,
}

/// Known performance, by GPUs and share in millionths; several points where settings differ.
type Points = BTreeMap<(u32, u32), Vec<Point>>;

fn millionths(share: f64) -> u32 {
    (share * f64::from(FULL)).round() as u32
}

fn points(job: &Job, pool: &Pool, profile: Option<&WorkloadProfile>, per_gpu: &PerGpu) -> Points {
    let mut points = Points::new();
    let mut profiled = None;
    if let Some(profile) = profile {
        let origin =
            if profile.device_kind == DeviceKind::Simulated { Origin::Simulated } else { Origin::Measured };
        profiled = profile
            .fields
            .get("step_seconds")
            .copied()
            .filter(|seconds| seconds.is_finite() && *seconds > 0.0);
        let full = profiled.map(|seconds| (1.0, seconds));
        let shares = profile.shares.iter().map(|point| (point.share_ratio, point.step_seconds));
        for (share, seconds) in shares.chain(full) {
            if seconds.is_finite() && seconds > 0.0 && share > 0.0 && share <= 1.0 {
                let point = Point { seconds, origin, per_gpu: per_gpu.clone(), settings: Settings::new() };
                points.insert((1, millionths(share)), vec![point]);
            }
        }
    }
    let shares_of_profile: Vec<(u32, u32)> = points.keys().copied().filter(|key| key.1 < FULL).collect();
    // Shapes for every pool first, so that those for this pool replace them.
    for general in [true, false] {
        let mut of_round = Points::new();
        for shape in job.shape.iter().filter(|shape| shape.pool.is_none() == general) {
            if shape.pool.as_ref().is_none_or(|id| *id == pool.id)
                && let Some(seconds) = shape.seconds()
            {
                of_round.entry((shape.gpus, millionths(shape.share_ratio))).or_default().push(Point {
                    seconds,
                    origin: Origin::Measured,
                    per_gpu: per_gpu.with(shape),
                    settings: shape.settings.clone(),
                });
            }
        }
        points.extend(of_round);
    }
    // The step of the job's own shapes need not be the profile's: the shares of the profile keep their ratio to the whole.
    let own = points.get(&(1, FULL)).and_then(|points| fastest(points)).map(|point| point.seconds);
    if let (Some(profiled), Some(own)) = (profiled, own) {
        for key in shares_of_profile {
            if job.shape.iter().all(|shape| (shape.gpus, millionths(shape.share_ratio)) != key) {
                points.entry(key).or_default().iter_mut().for_each(|point| point.seconds *= own / profiled);
            }
        }
    }
    points
}

fn fastest(points: &[Point]) -> Option<&Point> {
    points.iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds))
}

pub(super) fn candidates(
    job: &Job,
    kind: WorkloadKind,
    pool: &Pool,
    profile: Option<&WorkloadProfile>,
    law: ScalingLaw,
) -> Result<Vec<Candidate>, String> {
    let points = points(job, pool, profile, &PerGpu::of(job, profile));
    let whole: Vec<(u32, &Point)> = points
        .iter()
        .filter(|((_, share), _)| *share == FULL)
        .filter_map(|((gpus, _), points)| Some((*gpus, fastest(points)?)))
        .collect();
    let seconds: Vec<(u32, f64)> = whole.iter().map(|(gpus, point)| (*gpus, point.seconds)).collect();
    let law = law.fitted(&seconds, pool.gpus_per_node);
    let candidate = |gpus: u32, share: u32, point: &Point| Candidate {
        gpus,
        share,
        seconds: point.seconds,
        origin: point.origin,
        per_gpu: point.per_gpu.clone(),
        settings: point.settings.clone(),
    };
    let mut candidates = Vec::new();
    for gpus in counts(job, pool, whole.iter().map(|(gpus, _)| *gpus)) {
        if let Some(known) = points.get(&(gpus, FULL)) {
            candidates.extend(known.iter().map(|point| candidate(gpus, FULL, point)));
            continue;
        }
        let nearest = whole.iter().min_by_key(|(known, _)| (known.abs_diff(gpus), *known));
        if let (WorkloadKind::Training, Some((known, point))) = (kind, nearest) {
            let growth = law.growth(gpus, pool.gpus_per_node) / law.growth(*known, pool.gpus_per_node);
            candidates.push(Candidate {
                seconds: point.seconds / growth,
                origin: Origin::Assumed,
                ..candidate(gpus, FULL, point)
            });
        }
    }
    if job.gpus_min == 1 {
        for ((gpus, share), points) in &points {
            if *gpus == 1 && *share < FULL {
                candidates.extend(points.iter().map(|point| candidate(1, *share, point)));
            }
        }
    }
    match (candidates.is_empty(), points.is_empty()) {
        (true, true) => Err(format!("no profile or measured shape on `{}`", pool.device)),
        (true, false) => {
            Err("its GPU count was never measured, and only training is extrapolated".to_owned())
        }
        (false, _) => Ok(candidates),
    }
}
