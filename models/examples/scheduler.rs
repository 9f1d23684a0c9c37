//! A scheduler in one function: which workload should run beside this one?
//!
//! ```sh
//! cargo run --release -p elastico-models --example scheduler -- \
//!     model.onnx profiles.json h100 "mps(0.5,0.5)" tr_mlp.b64_h512_bf16
//! ```

use elastico_models::{Backend, Profiles, load};
use std::error::Error;
use std::path::Path;

/// The co-runner that slows the subject down least by the safe bound, among those that the model can judge.
pub(crate) fn choose(
    model: &Path,
    profiles: &Path,
    device: &str,
    sharing: &str,
    subject: &str,
) -> Result<Option<(f64, String)>, Box<dyn Error>> {
    let predictor = load(model, Backend::Auto)?;
    let sharing = sharing.parse()?;
    let metadata = predictor.metadata();
    if !metadata.knows_device(device) || !metadata.knows_sharing(&sharing) {
        return Ok(None); // a model does not transfer
    }
    let profiles = Profiles::read(profiles)?;
    let subject = profiles.get(subject, device)?;
    let others = profiles.iter().filter(|p| p.device == device && p.workload != subject.workload);
    let (mut rows, mut names) = (Vec::new(), Vec::new());
    for other in others {
        predictor.metadata().features.encode(subject, other, &sharing, &mut rows);
        names.push(other.workload.to_string());
    }
    let predictions = predictor.predict(&rows)?;
    let judged = predictions.iter().zip(names).filter(|(prediction, _)| prediction.in_domain);
    let bounds = judged.map(|(prediction, name)| (prediction.upper.get(), name));
    Ok(bounds.min_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1))))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, profiles, device, sharing, subject] = &arguments[..] else {
        return Err("wanted: MODEL PROFILES DEVICE SHARING SUBJECT".into());
    };
    let answer = match choose(model.as_ref(), profiles.as_ref(), device, sharing, subject)? {
        None => "run it alone".to_owned(),
        Some((upper, name)) => format!("{name} {upper:.4}"),
    };
    use std::io::Write as _;
    writeln!(std::io::stdout(), "{answer}")?;
    Ok(())
}
