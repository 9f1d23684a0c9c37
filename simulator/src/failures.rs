//! When nodes fail, and when they are back.

use crate::{ClusterSpec, Options};
use elastico_core::Stream;
use rand::RngExt;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What happens to a node.
pub(crate) enum Change {
    Fails { pool: usize, node: u32 },
    Back { pool: usize, node: u32 },
}

/// The next change of every node. Each node has a stream of its own, so that what a policy does changes no failure.
pub(crate) struct Failures {
    mtbf: f64,
    repair: f64,
    // (time, pool, node, whether it fails)
    events: BinaryHeap<Reverse<(u64, usize, u32, bool)>>,
    streams: Vec<Vec<Stream>>,
}

impl Failures {
    pub(crate) fn new(cluster: &ClusterSpec, options: &Options, mtbf: f64) -> Self {
        let mut failures =
            Self { mtbf, repair: options.repair_seconds, events: BinaryHeap::new(), streams: Vec::new() };
        for (index, pool) in cluster.pools().iter().enumerate() {
            let stream =
                |node: u32| options.seed.stream("node failures", &[pool.id.as_str(), &node.to_string()]);
            failures.streams.push((0..pool.nodes).map(stream).collect());
            for node in 0..pool.nodes {
                failures.schedule(index, node, 0.0);
            }
        }
        failures
    }

    fn schedule(&mut self, pool: usize, node: u32, after: f64) {
        let draw: f64 = self.streams[pool][node as usize].random();
        let time = after - self.mtbf * (1.0 - draw).ln();
        self.events.push(Reverse((time.to_bits(), pool, node, true)));
    }

    pub(crate) fn next(&self) -> Option<f64> {
        self.events.peek().map(|Reverse((time, ..))| f64::from_bits(*time))
    }

    /// The next change up to a time.
    pub(crate) fn pop(&mut self, until: f64) -> Option<Change> {
        if self.next()? > until {
            return None;
        }
        let Reverse((time, pool, node, fails)) = self.events.pop()?;
        let time = f64::from_bits(time);
        if fails {
            self.events.push(Reverse(((time + self.repair).to_bits(), pool, node, false)));
            Some(Change::Fails { pool, node })
        } else {
            self.schedule(pool, node, time);
            Some(Change::Back { pool, node })
        }
    }
}
