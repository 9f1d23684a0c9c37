//! Regression trees as flat arrays: what a learner hands over.

use crate::Error;

/// A node of a [`Tree`]: a split, or a leaf.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TreeNode {
    /// Column of the prepared row (raw features, then physics features).
    pub feature: u32,
    /// `x <= threshold` goes left.
    pub threshold: f32,
    /// Index of the left child in the tree; 0 for a leaf.
    pub left: u32,
    /// Index of the right child in the tree; 0 for a leaf.
    pub right: u32,
    /// Logarithm of the slowdown at a leaf.
    pub value: f64,
}

impl TreeNode {
    /// A leaf with the logarithm of the slowdown.
    pub const fn leaf(value: f64) -> Self {
        Self { feature: 0, threshold: 0.0, left: 0, right: 0, value }
    }

    /// A split at a threshold of a learner in double precision; see [`round_down`].
    pub fn split(feature: u32, threshold: f64, left: u32, right: u32) -> Self {
        Self { feature, threshold: round_down(threshold), left, right, value: 0.0 }
    }

    /// Whether the node has no children.
    pub const fn is_leaf(&self) -> bool {
        self.left == 0 && self.right == 0
    }
}

/// One tree; the root is node 0.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tree {
    /// The nodes in any order after the root.
    pub nodes: Vec<TreeNode>,
}

/// How the trees of a forest are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregate {
    /// Mean of the trees: bagging and extra trees.
    Mean,
    /// Sum of the trees: boosting.
    Sum,
    /// The harmonic mean of the trees' slowdowns: `-ln(mean(exp(-leaf)))`, the mean of normalized throughput. Where the
    /// trees disagree it lies below [`Mean`](Self::Mean); relative errors are smaller for it, because a slowdown is
    /// skewed and an error of it counts relative to what was measured.
    Harmonic,
}

/// Trees that predict the logarithm of the slowdown.
#[derive(Debug, Clone, PartialEq)]
pub struct Forest {
    /// The trees.
    pub trees: Vec<Tree>,
    /// Mean or sum.
    pub aggregate: Aggregate,
    /// Added to the mean or the sum; 0 for a random forest.
    pub base: f64,
}

/// The largest log slowdown of a leaf whose inverse is averaged: far beyond any slowdown, well within single precision.
const MOST_HARMONIC: f64 = 20.0;

/// The largest single-precision number that is not above `threshold`.
///
/// For every `x` in single precision, `x <= threshold` and `x <= round_down(threshold)` say the same, so a learner that
/// compares in double precision keeps its decisions in the exported file.
pub fn round_down(threshold: f64) -> f32 {
    let nearest = threshold as f32;
    if f64::from(nearest) > threshold { nearest.next_down() } else { nearest }
}

/// The largest single-precision number strictly below `threshold`.
///
/// For every `x` in single precision, `x < threshold` and `x <= round_below(threshold)` say the same: so a learner that
/// goes left on `x < threshold`, as boosting does, keeps its decisions in a file whose trees go left on `x <= t`.
pub fn round_below(threshold: f64) -> f32 {
    let nearest = threshold as f32;
    if f64::from(nearest) >= threshold { nearest.next_down() } else { nearest }
}

impl Tree {
    /// Walks from the root to a leaf. `None` where the nodes contradict themselves.
    pub(crate) fn walk(&self, row: &[f32]) -> Option<f64> {
        let mut index = 0;
        for _ in 0..=self.nodes.len() {
            let node = self.nodes.get(index)?;
            if node.is_leaf() {
                return Some(node.value);
            }
            let value = row.get(node.feature as usize)?;
            index = if *value <= node.threshold { node.left } else { node.right } as usize;
        }
        None
    }

    /// Why the nodes are no tree over `width` features.
    pub(crate) fn fault(&self, width: usize) -> Option<String> {
        let mut visited = vec![false; self.nodes.len()];
        let mut stack = vec![0_usize];
        while let Some(index) = stack.pop() {
            let Some(node) = self.nodes.get(index) else {
                return Some(format!("has no node {index}"));
            };
            if std::mem::replace(&mut visited[index], true) {
                return Some(format!("reaches node {index} twice"));
            }
            if node.is_leaf() {
                if !node.value.is_finite() || node.value.abs() > 1e6 {
                    return Some(format!("has the value {} in leaf {index}", node.value));
                }
                continue;
            }
            if node.feature as usize >= width {
                return Some(format!("splits on feature {} of {width} in node {index}", node.feature));
            }
            if !node.threshold.is_finite() {
                return Some(format!("has the threshold {} in node {index}", node.threshold));
            }
            stack.extend([node.right as usize, node.left as usize]);
        }
        visited.iter().position(|reached| !reached).map(|index| format!("never reaches node {index}"))
    }
}

impl Forest {
    /// The log slowdown of a prepared row, in double precision. `None` where a tree contradicts itself.
    pub fn evaluate(&self, row: &[f32]) -> Option<f64> {
        let sum =
            self.trees.iter().map(|tree| tree.walk(row).map(|leaf| self.weigh(leaf))).sum::<Option<f64>>()?;
        Some(self.conclude(sum))
    }

    /// What a leaf adds to the sum over the trees; the file holds this number in single precision.
    pub fn weigh(&self, leaf: f64) -> f64 {
        match self.aggregate {
            Aggregate::Mean => leaf / self.trees.len().max(1) as f64,
            Aggregate::Sum => leaf,
            Aggregate::Harmonic => (-leaf).exp() / self.trees.len().max(1) as f64,
        }
    }

    /// The leaf that adds this to the sum.
    pub(crate) fn unweigh(&self, weight: f64) -> f64 {
        match self.aggregate {
            Aggregate::Mean => weight * self.trees.len().max(1) as f64,
            Aggregate::Sum => weight,
            Aggregate::Harmonic => -(weight * self.trees.len().max(1) as f64).ln(),
        }
    }

    /// The log slowdown of a sum over the trees.
    pub fn conclude(&self, sum: f64) -> f64 {
        match self.aggregate {
            Aggregate::Mean | Aggregate::Sum => sum + self.base,
            Aggregate::Harmonic => self.base - sum.ln(),
        }
    }

    /// The standard deviation of the trees' values over a prepared row; `None` where the trees are not averaged or a
    /// tree contradicts itself.
    pub(crate) fn spread(&self, row: &[f32]) -> Option<f64> {
        if self.aggregate == Aggregate::Sum {
            return None;
        }
        let values = self.trees.iter().map(|tree| tree.walk(row)).collect::<Option<Vec<_>>>()?;
        Some(elastico_core::sample_deviation(&values))
    }

    /// Why the forest cannot be exported; `part` names it.
    pub(crate) fn check(&self, part: &str, width: usize) -> Result<(), Error> {
        if self.trees.is_empty() {
            return Err(Error::spec(part, "has no tree"));
        }
        if !self.base.is_finite() || self.base.abs() > 1e6 {
            return Err(Error::spec(part, format!("has the base {}", self.base)));
        }
        if self.aggregate == Aggregate::Harmonic {
            let beyond = |node: &&TreeNode| node.is_leaf() && node.value.abs() > MOST_HARMONIC;
            if self.base != 0.0 {
                return Err(Error::spec(part, "averages throughputs and has a base"));
            }
            if let Some(leaf) = self.trees.iter().flat_map(|tree| &tree.nodes).find(beyond) {
                let reason =
                    format!("has the log slowdown {} in a leaf, whose throughput is none", leaf.value);
                return Err(Error::spec(part, reason));
            }
        }
        match self.trees.iter().enumerate().find_map(|(index, tree)| Some((index, tree.fault(width)?))) {
            None => Ok(()),
            Some((index, fault)) => Err(Error::spec(format!("tree {index} of {part}"), fault)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rounding_down_keeps_every_decision(threshold in prop_oneof![-10.0..10.0, -1e30..1e30], steps in -3_i32..3) {
            let rounded = round_down(threshold);
            let mut x = threshold as f32;
            for _ in 0..steps.abs() {
                x = if steps > 0 { x.next_up() } else { x.next_down() };
            }
            prop_assert_eq!(f64::from(x) <= threshold, x <= rounded);
            prop_assert_eq!(f64::from(x) < threshold, x <= round_below(threshold));
        }
    }

    #[test]
    fn rounding_below_is_strict_at_zero_at_single_precision_numbers_and_beyond_the_range() {
        for (threshold, x) in [(0.0, -0.0), (0.0, 0.0), (0.5, 0.5), (-2.0, -2.0)] {
            assert!(x > round_below(threshold), "{x} < {threshold} is false");
        }
        assert_eq!(round_below(0.5).next_up().to_bits(), 0.5_f32.to_bits());
        assert_eq!(round_below(1e300).to_bits(), f32::MAX.to_bits());
        assert_eq!(round_below(0.1 + 1e-17).to_bits(), round_below(0.1).to_bits());
    }

    #[test]
    fn faults_are_named() {
        let tree = |nodes: &[TreeNode]| Tree { nodes: nodes.to_vec() };
        let leaf = TreeNode::leaf(0.1);
        let split = |left, right| TreeNode::split(0, 0.5, left, right);
        assert_eq!(tree(&[split(1, 2), leaf, leaf]).fault(1), None);
        assert!(tree(&[]).fault(1).unwrap().contains("no node 0"));
        assert!(tree(&[split(1, 5), leaf]).fault(1).unwrap().contains("no node 5"));
        assert!(tree(&[split(1, 1), leaf]).fault(1).unwrap().contains("twice"));
        assert!(tree(&[split(1, 0), leaf]).fault(1).unwrap().contains("twice"));
        assert!(tree(&[leaf, leaf]).fault(1).unwrap().contains("never reaches node 1"));
        assert!(tree(&[split(1, 2), leaf, leaf]).fault(0).unwrap().contains("feature 0 of 0"));
        assert!(tree(&[TreeNode::leaf(f64::NAN)]).fault(1).is_some());
        assert_eq!(tree(&[split(1, 0), leaf]).walk(&[0.7]), None, "a cycle ends");
    }
}
