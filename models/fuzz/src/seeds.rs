//! Writes the seeds of the target `read` into the folder that is named: one small file of each kind of body, without the
//! digest at its end.

use elastico_core::Seed;
use elastico_models::{
    Aggregate, Body, Calibrated, DomainDistance, FeatureSchema, Forest, Gate, Link, ModelMetadata, ModelSpec, Tree,
    TreeNode, export, physics,
};
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("wanted: the folder of the seeds")?);
    std::fs::create_dir_all(&folder)?;
    let names = [
        "subject_sm_active_ratio",
        "co_runner_sm_active_ratio",
        "subject_step_seconds",
        "co_runner_step_seconds",
        "sharing_mps_ratio",
    ];
    let schema = FeatureSchema::new(&names.map(String::from))?;
    let physics = physics(&schema);
    let prepared = schema.width() + physics.width();
    let leaf = TreeNode::leaf;
    let nodes =
        vec![TreeNode::split(5, 1.0, 1, 2), leaf(0.1), TreeNode::split(0, 0.5, 3, 4), leaf(0.2), leaf(0.4)];
    let forest = |aggregate| Forest {
        trees: vec![Tree { nodes: nodes.clone() }, Tree { nodes: vec![leaf(0.3)] }],
        aggregate,
        base: 0.0,
    };
    let line = |link| Body::Linear {
        mean: vec![0.5; prepared],
        scale: vec![2.0; prepared],
        weights: vec![0.1; prepared],
        bias: 1.2,
        link,
    };
    let calibrated = |base, residual: Option<Forest>| {
        Body::Calibrated(Box::new(Calibrated {
            base,
            scale: 0.9,
            shift: 0.1,
            offsets: vec![(4, 0.2)],
            gate: residual.is_some().then(|| Gate { columns: vec![4], upper_offset_log_elsewhere: 0.3 }),
            residual,
        }))
    };
    let rows: Vec<f32> =
        (0..20_u8).flat_map(|i| [0.1, 0.7, 1.0, 30.0, 1.0].map(|x| x * f32::from(i))).collect();
    let impute = vec![0.5; schema.width()];
    let distance = DomainDistance::fit(&schema, &rows, &impute, 3, Seed(1)).with_limit(1.5);
    let bodies = [
        ("forest", Body::Forest(forest(Aggregate::Mean)), None),
        ("boosted", Body::Forest(forest(Aggregate::Sum)), Some(distance)),
        ("linear", line(Link::Log), None),
        ("ratio", line(Link::Ratio { least: 1.0 }), None),
        ("constant", Body::Constant(0.2), None),
        ("calibrated", calibrated(line(Link::Log), Some(forest(Aggregate::Mean))), None),
        ("calibrated_forest", calibrated(Body::Forest(forest(Aggregate::Sum)), None), None),
    ];
    for (name, body, domain_distance) in bodies {
        let file = export(&ModelSpec {
            impute: impute.clone(),
            physics: physics.clone(),
            body,
            upper_offset_log: 0.1,
            domain_lower: vec![0.0; schema.width()],
            domain_upper: vec![1.0; schema.width()],
            domain_missing: vec![true; schema.width()],
            domain_distance,
            metadata: ModelMetadata::new(schema.clone(), name),
            schema: schema.clone(),
        })?;
        let key = b"elastico.digest";
        let place = file.windows(key.len()).rposition(|window| window == key).ok_or("a file is sealed")?;
        // The entry's tag and length, then the key's.
        std::fs::write(folder.join(name), &file[..place - 4])?;
    }
    Ok(())
}
