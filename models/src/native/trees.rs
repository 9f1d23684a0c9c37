//! The trees of a forest as one flat array of nodes, and the walk through them.

/// Walks that go on side by side, so that their waits for memory overlap.
const LANES: usize = 8;
/// Steps of a walk before it is looked at whether all lanes have arrived.
const STEPS: u32 = 4;

/// A split, whose children stand at `child` (left) and `child + 1`, or a leaf.
///
/// A leaf leads to itself: no value is at most its threshold, which is NaN, and its right child is the leaf. So a step is the
/// same for all nodes, without a branch that depends on the data.
#[derive(Debug, Clone, Copy)]
struct Node {
    threshold: f32,
    feature: u32,
    child: u32,
    /// What the leaf adds to the sum.
    value: f32,
}

#[derive(Debug, Clone, Copy)]
struct Root {
    node: u32,
    /// Steps from the root to the deepest leaf.
    depth: u32,
}

/// All trees, each breadth first from its root.
#[derive(Debug, Clone)]
pub(super) struct Trees {
    roots: Vec<Root>,
    nodes: Vec<Node>,
    base: f32,
}

/// A tree that is being laid out, from its root downwards.
#[derive(Debug)]
pub(super) struct TreeLayout<'a> {
    trees: &'a mut Trees,
    /// The first node of the next level; where splits are set beyond it, the tree is one level deeper.
    next_level: usize,
}

impl Trees {
    pub(super) fn new(nodes: usize, base: f32) -> Self {
        Self { roots: Vec::new(), nodes: Vec::with_capacity(nodes), base }
    }

    /// Begins another tree.
    pub(super) fn tree(&mut self) -> TreeLayout<'_> {
        let root = self.nodes.len();
        self.roots.push(Root { node: root as u32, depth: 0 });
        self.nodes.push(Node::leaf(root, 0.0));
        TreeLayout { trees: self, next_level: root }
    }

    /// Writes the sum of all trees, in their order, for each row; rows have `width` values.
    pub(super) fn run(&self, rows: &[f32], width: usize, out: &mut [f32]) {
        if out.len() < LANES {
            for (row, out) in rows.chunks_exact(width).zip(out) {
                *out = self.row(row) + self.base;
            }
            return;
        }
        // Groups of rows, column by column: lanes that read one feature read one stretch of memory.
        let mut groups = vec![[0.0; LANES]; out.len().div_ceil(LANES) * width];
        for (rows, group) in rows.chunks(LANES * width).zip(groups.chunks_exact_mut(width)) {
            for (lane, row) in rows.chunks_exact(width).enumerate() {
                for (values, value) in group.iter_mut().zip(row) {
                    values[lane] = *value;
                }
            }
        }
        let mut sums = vec![[0.0; LANES]; groups.len() / width];
        for root in &self.roots {
            for (group, sums) in groups.chunks_exact(width).zip(&mut sums) {
                let leaves =
                    self.walk([root.node; LANES], root.depth, |feature, lane| group[feature as usize][lane]);
                for (sum, leaf) in sums.iter_mut().zip(leaves) {
                    *sum += leaf;
                }
            }
        }
        for (out, sum) in out.iter_mut().zip(sums.as_flattened()) {
            *out = sum + self.base;
        }
    }

    /// The sum over one row: the lanes are trees.
    fn row(&self, row: &[f32]) -> f32 {
        let mut sum = 0.0;
        for roots in self.roots.chunks(LANES) {
            let at = std::array::from_fn(|lane| roots[lane.min(roots.len() - 1)].node);
            let depth = roots.iter().map(|root| root.depth).max().unwrap_or(0);
            let leaves = self.walk(at, depth, |feature, _| row[feature as usize]);
            for leaf in &leaves[..roots.len()] {
                sum += leaf;
            }
        }
        sum
    }

    /// Walks from roots to leaves, at most `depth` steps; `value` gives a feature of the row of a lane.
    #[inline]
    fn walk(&self, mut at: [u32; LANES], depth: u32, value: impl Fn(u32, usize) -> f32) -> [f32; LANES] {
        let step = |at: &mut [u32; LANES]| {
            for (lane, at) in at.iter_mut().enumerate() {
                let node = &self.nodes[*at as usize];
                let goes_left = value(node.feature, lane) <= node.threshold;
                *at = node.child.wrapping_add(u32::from(!goes_left));
            }
        };
        let mut left = depth;
        while left >= STEPS {
            for _ in 1..STEPS {
                step(&mut at);
            }
            let before = at;
            step(&mut at);
            if at == before {
                left = 0;
                break;
            }
            left -= STEPS;
        }
        for _ in 0..left {
            step(&mut at);
        }
        at.map(|at| self.nodes[at as usize].value)
    }
}

impl Node {
    fn leaf(place: usize, value: f32) -> Self {
        Self { threshold: f32::NAN, feature: 0, child: (place as u32).wrapping_sub(1), value }
    }
}

impl TreeLayout<'_> {
    pub(super) fn root(&self) -> usize {
        self.trees.roots.last().map_or(0, |root| root.node as usize)
    }

    pub(super) fn set_leaf(&mut self, place: usize, value: f32) {
        self.trees.nodes[place] = Node::leaf(place, value);
    }

    /// Makes room for two children and gives their places. Splits are set in the order of their places.
    pub(super) fn set_split(&mut self, place: usize, feature: u32, threshold: f32) -> [usize; 2] {
        let child = self.trees.nodes.len();
        if place >= self.next_level {
            self.next_level = child;
            if let Some(root) = self.trees.roots.last_mut() {
                root.depth += 1;
            }
        }
        self.trees.nodes[place] = Node { threshold, feature, child: child as u32, value: 0.0 };
        self.trees.nodes.extend([Node::leaf(child, 0.0), Node::leaf(child + 1, 0.0)]);
        [child, child + 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree that asks `x <= 0`, `x <= 1`, … one after another; the leaf of level `i` is `i` + 1.
    fn chain(trees: &mut Trees, depth: u32) {
        let mut tree = trees.tree();
        let mut place = tree.root();
        for level in 0..depth {
            let [left, right] = tree.set_split(place, 1, level as f32);
            tree.set_leaf(left, level as f32 + 1.0);
            place = right;
        }
        tree.set_leaf(place, depth as f32 + 1.0);
    }

    #[test]
    fn long_and_short_walks_end_in_their_leaves_alone_and_together() {
        let depths = [37, 0, 1, 4, 5, 8, 3, 12, 7, 9];
        let mut trees = Trees::new(0, 0.5);
        for depth in depths {
            chain(&mut trees, depth);
        }
        assert_eq!(trees.roots.iter().map(|root| root.depth).collect::<Vec<_>>(), depths);
        let values: Vec<f32> = (-1..40).map(|value| value as f32 + 0.5).chain([f32::NAN]).collect();
        let rows: Vec<f32> = values.iter().flat_map(|value| [9.0, *value]).collect();
        let expected: Vec<f32> = values
            .iter()
            .map(|value| {
                let leaf = |depth: u32| (0..depth).find(|level| *value <= *level as f32).unwrap_or(depth) + 1;
                depths.into_iter().map(|depth| leaf(depth) as f32).sum::<f32>() + 0.5
            })
            .collect();
        for count in [1, 7, 8, 9, values.len()] {
            let mut out = vec![0.0; count];
            trees.run(&rows[..2 * count], 2, &mut out);
            assert_eq!(out, expected[..count], "{count} rows");
        }
        let mut last = [0.0];
        trees.run(&rows[rows.len() - 2..], 2, &mut last);
        assert_eq!(last[0].to_bits(), expected[values.len() - 1].to_bits(), "NaN goes right");
    }
}
