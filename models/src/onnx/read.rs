//! Reads a file back into the model that it was written from.

use super::body::{BASE, GATE, GATE_VALUES, HARMONIC_MEAN_OF_TREES, MEAN_OF_TREES, RESIDUAL, SUM_OF_TREES};
use super::domain::NEVER_MISSING;
use super::proto::{AttributeProto, ModelProto, NodeProto, TensorProto};
use super::{check_seal, decode, export::export};
use crate::native::{Constant, Native};
use crate::{
    Aggregate, Body, Calibrated, DomainDistance, Error, Forest, Gate, Link, ModelMetadata, ModelSpec,
    PhysicsSpec, Predictor as _, Shrunk, Tree, TreeNode, physics,
};

impl ModelSpec {
    /// Reads a file that [`export`](crate::export) wrote, for example to calibrate it.
    ///
    /// Parameters come back as the file holds them, in single precision, and a model of averaged trees with its leaves
    /// rounded: `export(&ModelSpec::from_onnx(bytes)?)? == bytes`, byte for byte.
    ///
    /// # Errors
    /// Whatever is wrong with the file, and [`Error::NotReadBack`] for a sound file that this version of ElastiCo would
    /// not write.
    pub fn from_onnx(bytes: &[u8]) -> Result<Self, Error> {
        let model = decode(bytes)?;
        let seal = check_seal(bytes, &model)?;
        let metadata = Native::new(&model)?.metadata().clone();
        seal.expect_some()?;
        let spec = read(&model, metadata)?;
        match export(&spec) {
            Ok(again) if again == bytes => Ok(spec),
            Ok(_) => Err(unread(format!(
                "written again, it is another file (it is by {} {})",
                name(&model.producer_name),
                name(&model.producer_version)
            ))),
            Err(error) => Err(unread(error.to_string())),
        }
    }
}

fn unread(reason: impl Into<String>) -> Error {
    Error::NotReadBack { reason: reason.into() }
}

/// A text of a file, cut to what an error should show.
fn name(text: &str) -> String {
    text.chars().take(40).collect()
}

/// The parts of a graph by name.
struct Parts<'a> {
    nodes: &'a [NodeProto],
    tensors: &'a [TensorProto],
}

impl<'a> Parts<'a> {
    fn node(&self, name: &str) -> Option<&'a NodeProto> {
        self.nodes.iter().find(|node| node.name == name)
    }

    fn tensor(&self, name: &str) -> Result<Constant, Error> {
        let tensor = self.tensors.iter().find(|tensor| tensor.name == name);
        Constant::read(tensor.ok_or_else(|| unread(format!("it has no tensor `{name}`")))?)
    }

    fn floats(&self, name: &str) -> Result<Vec<f32>, Error> {
        match self.tensor(name)? {
            Constant::Floats { values, .. } => Ok(values),
            Constant::Integers { .. } => Err(unread(format!("its tensor `{name}` holds whole numbers"))),
        }
    }

    fn scalar(&self, name: &str) -> Result<f32, Error> {
        match self.floats(name)?[..] {
            [value] => Ok(value),
            _ => Err(unread(format!("its tensor `{name}` is not one number"))),
        }
    }

    /// The columns that the node of this name gathers.
    fn columns(&self, node: &str) -> Result<Vec<usize>, Error> {
        let name = format!("{node}_columns");
        let Constant::Integers { values } = self.tensor(&name)? else {
            return Err(unread(format!("its tensor `{name}` holds no whole numbers")));
        };
        let columns = values.into_iter().map(usize::try_from).collect::<Result<_, _>>();
        columns.map_err(|_| unread(format!("its tensor `{name}` holds no columns")))
    }
}

fn read(model: &ModelProto, metadata: ModelMetadata) -> Result<ModelSpec, Error> {
    let graph = model.graph.as_ref().ok_or_else(|| unread("it has no graph"))?;
    let parts = Parts { nodes: &graph.node, tensors: &graph.initializer };
    let schema = metadata.features.clone();
    let physics = if metadata.physics_features.is_empty() { PhysicsSpec::none() } else { physics(&schema) };
    let impute = parts.floats("impute")?;
    let (domain_lower, domain_upper) = metadata.training_ranges.iter().copied().unzip();
    Ok(ModelSpec {
        body: read_body(&parts)?,
        domain_missing: parts.floats("domain_fill")?.iter().map(|fill| *fill < NEVER_MISSING).collect(),
        domain_distance: read_distance(&parts, &impute)?,
        upper_offset_log: metadata.upper_offset_log,
        schema,
        impute,
        physics,
        domain_lower,
        domain_upper,
        metadata,
    })
}

fn read_body(parts: &Parts<'_>) -> Result<Body, Error> {
    if parts.node("calibration_scaled").is_none() {
        return read_shrunk(parts, "");
    }
    let offsets = if parts.node("offset_values").is_some() {
        let columns = parts.columns("offset_values")?;
        let weights = parts.floats("offset_weights")?;
        columns.into_iter().zip(weights).map(|(column, weight)| (column as u32, f64::from(weight))).collect()
    } else {
        Vec::new()
    };
    Ok(Body::Calibrated(Box::new(Calibrated {
        base: read_shrunk(parts, BASE)?,
        scale: parts.scalar("calibration_scale")?.into(),
        shift: parts.scalar("calibration_shift")?.into(),
        offsets,
        residual: read_forest(parts, RESIDUAL)?,
        gate: read_gate(parts)?,
    })))
}

fn read_gate(parts: &Parts<'_>) -> Result<Option<Gate>, Error> {
    if parts.node(GATE).is_none() {
        return Ok(None);
    }
    let columns = parts.columns(GATE_VALUES)?.into_iter().map(|column| column as u32).collect();
    let upper_offset_log_elsewhere = parts.scalar("upper_offset_log")?.into();
    Ok(Some(Gate { columns, upper_offset_log_elsewhere }))
}

fn read_shrunk(parts: &Parts<'_>, prefix: &str) -> Result<Body, Error> {
    let base = read_plain(parts, prefix)?;
    if parts.node(&format!("{prefix}shrunk")).is_none() {
        return Ok(base);
    }
    let families = parts.columns(&format!("{prefix}family_values"))?;
    Ok(Body::Shrunk(Box::new(Shrunk {
        base,
        families: families.into_iter().map(|column| column as u32).collect(),
        center: parts.scalar(&format!("{prefix}center"))?.into(),
        factor: parts.scalar(&format!("{prefix}belief"))?.into(),
    })))
}

fn read_plain(parts: &Parts<'_>, prefix: &str) -> Result<Body, Error> {
    let has = |name: &str| parts.node(&format!("{prefix}{name}")).is_some();
    let scalar = |name: &str| parts.scalar(&format!("{prefix}{name}")).map(f64::from);
    let floats = |name: &str| parts.floats(&format!("{prefix}{name}"));
    if let Some(forest) = read_forest(parts, prefix)? {
        return Ok(Body::Forest(forest));
    }
    if has("constant") {
        return Ok(Body::Constant(scalar("constant_value")?));
    }
    if !has("linear") {
        return Err(unread(format!("it has no body of a known kind under `{prefix}`")));
    }
    let link = if has("ratio") { Link::Ratio { least: scalar("least_ratio")? } } else { Link::Log };
    Ok(Body::Linear {
        mean: floats("mean")?,
        scale: floats("scale")?,
        weights: floats("weights")?.into_iter().map(f64::from).collect(),
        bias: scalar("bias")?,
        link,
    })
}

fn read_forest(parts: &Parts<'_>, prefix: &str) -> Result<Option<Forest>, Error> {
    let kinds = [
        (MEAN_OF_TREES, Aggregate::Mean),
        (SUM_OF_TREES, Aggregate::Sum),
        (HARMONIC_MEAN_OF_TREES, Aggregate::Harmonic),
    ];
    for (kind, aggregate) in kinds {
        if let Some(node) = parts.node(&format!("{prefix}{kind}")) {
            return read_trees(node, aggregate).map(Some);
        }
    }
    Ok(None)
}

/// The trees of a node that the native back end has accepted.
fn read_trees(node: &NodeProto, aggregate: Aggregate) -> Result<Forest, Error> {
    let find = |name: &str| {
        let found = node.attribute.iter().find(|attribute| attribute.name == name);
        found.ok_or_else(|| unread(format!("its node `{}` has no {name}", node.name)))
    };
    let uneven = || unread(format!("its node `{}` has lists of unequal lengths", node.name));
    let integers = |name: &str| find(name).map(|attribute: &AttributeProto| attribute.ints.iter());
    let mut trees: Vec<Tree> = Vec::new();
    let mut starts = Vec::new();
    let (mut features, mut thresholds) = (integers("nodes_featureids")?, find("nodes_values")?.floats.iter());
    let (mut lefts, mut rights) = (integers("nodes_truenodeids")?, integers("nodes_falsenodeids")?);
    let mut places = Vec::new();
    for (index, id) in integers("nodes_nodeids")?.enumerate() {
        if *id == 0 {
            trees.push(Tree::default());
            starts.push(index);
        }
        let number = |list: &mut std::slice::Iter<'_, i64>| {
            list.next().and_then(|value| u32::try_from(*value).ok()).ok_or_else(uneven)
        };
        let split = TreeNode {
            feature: number(&mut features)?,
            threshold: *thresholds.next().ok_or_else(uneven)?,
            left: number(&mut lefts)?,
            right: number(&mut rights)?,
            value: 0.0,
        };
        let tree = trees.len().checked_sub(1).ok_or_else(uneven)?;
        places.push((tree, trees[tree].nodes.len()));
        trees[tree].nodes.push(split);
    }
    let total = trees.len();
    let mut forest = Forest { trees, aggregate, base: 0.0 };
    // Double precision takes each weight of the file back to a leaf that gives the same weight again.
    let weights = &find("target_weights")?.floats;
    for ((tree, id), weight) in
        integers("target_treeids")?.zip(integers("target_nodeids")?).zip(weights.iter())
    {
        let tree = usize::try_from(*tree).ok().filter(|tree| *tree < total).ok_or_else(uneven)?;
        let place = usize::try_from(*id).ok().and_then(|id| places.get(starts[tree].checked_add(id)?));
        match place {
            Some((owner, node)) if *owner == tree => {
                forest.trees[tree].nodes[*node] = TreeNode::leaf(forest.unweigh(f64::from(*weight)));
            }
            _ => return Err(uneven()),
        }
    }
    forest.base = match find("base_values")?.floats[..] {
        [base] => base.into(),
        _ => return Err(uneven()),
    };
    Ok(forest)
}

fn read_distance(parts: &Parts<'_>, impute: &[f32]) -> Result<Option<DomainDistance>, Error> {
    if parts.node("distance_near").is_none() {
        return Ok(None);
    }
    let columns = |node: &str| match parts.node(node) {
        Some(_) => parts.columns(node),
        None => Ok(Vec::new()),
    };
    let (plain, bounded) = (columns("distance_plain")?, columns("distance_bounded")?);
    let medians = if bounded.is_empty() { Vec::new() } else { parts.floats("distance_medians")? };
    let weights = parts.floats("distance_weights")?;
    let dimensions = plain.len() + bounded.len();
    let total = weights.len().checked_div(dimensions).unwrap_or(0);
    let mut prototypes = Vec::with_capacity(weights.len());
    for prototype in 0..total {
        prototypes.extend((0..dimensions).map(|column| weights[column * total + prototype] / -2.0));
    }
    let limit = parts.scalar("distance_limit_squared")?;
    let limit = if limit < f32::MAX { limit } else { f32::INFINITY };
    let (mean, scale) = (parts.floats("distance_mean")?, parts.floats("distance_scale")?);
    DomainDistance::from_parts(impute, plain, bounded, medians, mean, scale, prototypes, limit)
        .map(Some)
        .ok_or_else(|| unread("its distance reads a column that is none"))
}
