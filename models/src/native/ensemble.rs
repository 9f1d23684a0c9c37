//! From the attributes of a `TreeEnsembleRegressor` to trees; nothing in them is trusted.

use super::trees::Trees;
use crate::Error;
use crate::onnx::proto::{AttributeProto, NodeProto};
use std::collections::VecDeque;

/// The attribute lists of one `TreeEnsembleRegressor`, of equal length where they must be.
struct Lists<'a> {
    trees: &'a [i64],
    nodes: &'a [i64],
    features: &'a [i64],
    modes: &'a [prost::bytes::Bytes],
    thresholds: &'a [f32],
    lefts: &'a [i64],
    rights: &'a [i64],
}

/// Checks and compiles the attributes of a `TreeEnsembleRegressor` over rows of `width` values.
pub(super) fn compile(node: &NodeProto, width: usize) -> Result<Trees, Error> {
    let attributes = Attributes { node };
    attributes.check_names()?;
    attributes.expect_integer("n_targets", 1)?;
    attributes.expect_text("aggregate_function", b"SUM")?;
    attributes.expect_text("post_transform", b"NONE")?;
    let base = match attributes.floats("base_values") {
        [] => 0.0,
        [base] if base.is_finite() => *base,
        _ => return Err(attributes.refuse("base_values", "must be one finite number")),
    };
    let lists = Lists {
        trees: attributes.integers("nodes_treeids"),
        nodes: attributes.integers("nodes_nodeids"),
        features: attributes.integers("nodes_featureids"),
        modes: attributes.find("nodes_modes").map_or(&[], |a| &a.strings),
        thresholds: attributes.floats("nodes_values"),
        lefts: attributes.integers("nodes_truenodeids"),
        rights: attributes.integers("nodes_falsenodeids"),
    };
    let total = lists.trees.len();
    let lengths = [
        ("nodes_nodeids", lists.nodes.len()),
        ("nodes_featureids", lists.features.len()),
        ("nodes_modes", lists.modes.len()),
        ("nodes_values", lists.thresholds.len()),
        ("nodes_truenodeids", lists.lefts.len()),
        ("nodes_falsenodeids", lists.rights.len()),
    ];
    for (name, length) in lengths {
        if length != total {
            return Err(attributes.refuse(name, format!("has {length} entries for {total} nodes")));
        }
    }
    if total == 0 || u32::try_from(total).is_err() {
        return Err(attributes.refuse("nodes_treeids", format!("names {total} nodes")));
    }
    let starts = tree_starts(&lists).map_err(|reason| attributes.refuse("nodes_nodeids", reason))?;
    let leaves = leaf_values(&attributes, &lists, &starts)?;
    let mut trees = Trees::new(total, base);
    for (index, start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(total);
        push_tree(&mut trees, &lists, &leaves, *start..end, width)
            .map_err(|reason| attributes.refuse("nodes_truenodeids", format!("in tree {index}: {reason}")))?;
    }
    Ok(trees)
}

/// Lays one tree out breadth first; a node that is reached twice, or never, is refused.
fn push_tree(
    trees: &mut Trees,
    lists: &Lists<'_>,
    leaves: &[Option<f32>],
    range: std::ops::Range<usize>,
    width: usize,
) -> Result<(), String> {
    let mut tree = trees.tree();
    let mut queue = VecDeque::from([(range.start, tree.root())]);
    let mut visited = vec![false; range.len()];
    while let Some((source, place)) = queue.pop_front() {
        let id = source - range.start;
        if std::mem::replace(&mut visited[id], true) {
            return Err(format!("node {id} is reached twice"));
        }
        if let Some(value) = leaves[source] {
            tree.set_leaf(place, value);
            continue;
        }
        let feature = u32::try_from(lists.features[source]).ok().filter(|f| (*f as usize) < width);
        let Some(feature) = feature else {
            return Err(format!("node {id} splits on feature {} of {width}", lists.features[source]));
        };
        let threshold = lists.thresholds[source];
        if !threshold.is_finite() {
            return Err(format!("node {id} has the threshold {threshold}"));
        }
        let children = tree.set_split(place, feature, threshold);
        for (child, next) in children.into_iter().zip([lists.lefts[source], lists.rights[source]]) {
            let next = usize::try_from(next).ok().filter(|next| *next < range.len());
            let Some(next) = next else {
                return Err(format!("node {id} has a child outside the tree"));
            };
            // A node that is reached twice would also outgrow the array; visited stops it first.
            if visited[next] {
                return Err(format!("node {next} is reached twice"));
            }
            queue.push_back((range.start + next, child));
        }
    }
    match visited.iter().position(|reached| !reached) {
        None => Ok(()),
        Some(id) => Err(format!("node {id} is never reached")),
    }
}

/// Where each tree's nodes begin; nodes must be grouped by tree and numbered from 0 within it.
fn tree_starts(lists: &Lists<'_>) -> Result<Vec<usize>, String> {
    let mut starts = Vec::new();
    let is = |id: i64, wanted: usize| usize::try_from(id) == Ok(wanted);
    for (index, (tree, node)) in lists.trees.iter().zip(lists.nodes).enumerate() {
        if *node == 0 && is(*tree, starts.len()) {
            starts.push(index);
            continue;
        }
        let inside =
            starts.last().is_some_and(|start| is(*tree, starts.len() - 1) && is(*node, index - start));
        if !inside {
            return Err(format!("entry {index} is node {node} of tree {tree}, out of order"));
        }
    }
    Ok(starts)
}

/// The value of each leaf by position, `None` for a split.
fn leaf_values(
    attributes: &Attributes<'_>,
    lists: &Lists<'_>,
    starts: &[usize],
) -> Result<Vec<Option<f32>>, Error> {
    let trees = attributes.integers("target_treeids");
    let nodes = attributes.integers("target_nodeids");
    let targets = attributes.integers("target_ids");
    let weights = attributes.floats("target_weights");
    for (name, length) in
        [("target_nodeids", nodes.len()), ("target_ids", targets.len()), ("target_weights", weights.len())]
    {
        if length != trees.len() {
            return Err(attributes.refuse(name, format!("has {length} entries for {} leaves", trees.len())));
        }
    }
    let mut leaves = vec![None; lists.trees.len()];
    for (index, ((tree, node), (target, weight))) in
        trees.iter().zip(nodes).zip(targets.iter().zip(weights)).enumerate()
    {
        let position = usize::try_from(*tree).ok().and_then(|tree| {
            let start = *starts.get(tree)?;
            let end = starts.get(tree + 1).copied().unwrap_or(lists.trees.len());
            start.checked_add(usize::try_from(*node).ok()?).filter(|position| *position < end)
        });
        let slot = position.filter(|_| *target == 0 && weight.is_finite()).and_then(|p| leaves.get_mut(p));
        if let Some(slot @ None) = slot {
            *slot = Some(*weight);
        } else {
            let reason =
                format!("entry {index} gives target {target} of node {node} of tree {tree} {weight}");
            return Err(attributes.refuse("target_nodeids", reason));
        }
    }
    for (index, (mode, leaf)) in lists.modes.iter().zip(&leaves).enumerate() {
        let sound = match &mode[..] {
            b"LEAF" => leaf.is_some(),
            b"BRANCH_LEQ" => leaf.is_none(),
            other => {
                let mode = String::from_utf8_lossy(&other[..other.len().min(40)]);
                return Err(Error::Operator {
                    node: attributes.node.name.clone(),
                    operator: format!("TreeEnsembleRegressor with mode {mode}"),
                });
            }
        };
        if !sound {
            return Err(attributes.refuse("nodes_modes", format!("entry {index} and the leaf values differ")));
        }
    }
    Ok(leaves)
}

struct Attributes<'a> {
    node: &'a NodeProto,
}

impl<'a> Attributes<'a> {
    const KNOWN: [&'static str; 15] = [
        "n_targets",
        "aggregate_function",
        "post_transform",
        "base_values",
        "nodes_treeids",
        "nodes_nodeids",
        "nodes_featureids",
        "nodes_modes",
        "nodes_values",
        "nodes_truenodeids",
        "nodes_falsenodeids",
        "target_treeids",
        "target_nodeids",
        "target_ids",
        "target_weights",
    ];

    fn refuse(&self, attribute: &str, reason: impl Into<String>) -> Error {
        Error::graph(format!("attribute {attribute} of node `{}`", self.node.name), reason)
    }

    /// Attributes that we do not write could change the meaning, so none is passed over.
    fn check_names(&self) -> Result<(), Error> {
        for (index, attribute) in self.node.attribute.iter().enumerate() {
            let twice = self.node.attribute[..index].iter().any(|other| other.name == attribute.name);
            if twice || !Self::KNOWN.contains(&attribute.name.as_str()) {
                return Err(self.refuse(&attribute.name, "is unknown here or occurs twice"));
            }
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Option<&'a AttributeProto> {
        self.node.attribute.iter().find(|attribute| attribute.name == name)
    }

    fn integers(&self, name: &str) -> &'a [i64] {
        self.find(name).map_or(&[], |attribute| &attribute.ints)
    }

    fn floats(&self, name: &str) -> &'a [f32] {
        self.find(name).map_or(&[], |attribute| &attribute.floats)
    }

    fn expect_integer(&self, name: &str, wanted: i64) -> Result<(), Error> {
        match self.find(name).and_then(|attribute| attribute.i) {
            Some(value) if value == wanted => Ok(()),
            found => Err(self.refuse(name, format!("is {found:?}, not {wanted}"))),
        }
    }

    /// An absent text means the standard's default, which is the one that we accept.
    fn expect_text(&self, name: &str, wanted: &[u8]) -> Result<(), Error> {
        match self.find(name).map(|attribute| attribute.s.as_deref().unwrap_or_default()) {
            Some(value) if value != wanted => {
                let value = String::from_utf8_lossy(&value[..value.len().min(40)]).into_owned();
                let operator = format!("TreeEnsembleRegressor with {name} {value}");
                Err(Error::Operator { node: self.node.name.clone(), operator })
            }
            _ => Ok(()),
        }
    }
}
