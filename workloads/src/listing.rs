//! A step program as an aligned listing.

use crate::demand::Demand;
use crate::op::Op;
use crate::program::StepProgram;
use std::fmt;

/// The longest run of ops that is recognised as repeating.
const LONGEST_PERIOD: usize = 24;

/// A run of ops and how often it is repeated.
struct Repeat<'a> {
    ops: &'a [Op],
    count: usize,
}

/// Splits ops into runs; at each place the period that covers most ops wins, the shorter one in a tie.
fn repeats(ops: &[Op]) -> Vec<Repeat<'_>> {
    let mut runs: Vec<Repeat<'_>> = Vec::new();
    let mut rest = ops;
    while !rest.is_empty() {
        let count = |period: usize| {
            let (first, _) = rest.split_at(period);
            rest.chunks_exact(period).take_while(|chunk| *chunk == first).count()
        };
        let (mut period, mut times) = (1, count(1));
        for candidate in 2..=LONGEST_PERIOD.min(rest.len() / 2) {
            let found = count(candidate);
            if found > 1 && found * candidate > period * times {
                (period, times) = (candidate, found);
            }
        }
        let (first, after) = (&rest[..period], &rest[period * times..]);
        runs.push(Repeat { ops: first, count: times });
        rest = after;
    }
    runs
}

fn amounts(demand: &Demand) -> String {
    let launch = if demand.launches > 0 {
        format!("{} x {} x {}", demand.launches, demand.blocks / demand.launches, demand.warps_per_block)
    } else {
        "-".to_owned()
    };
    let cell = |value: f64, text: String| if value > 0.0 { text } else { "-".to_owned() };
    let host = demand.host + demand.resident;
    let link = demand.host_to_device + demand.device_to_host;
    format!(
        "{:>12} {:>10} {:>10} {:>10} {:>10} {:>10} {:>18}",
        cell(demand.flops().get(), format!("{:.1}", demand.flops())),
        cell(demand.dram_read.get(), format!("{:.1}", demand.dram_read)),
        cell(demand.dram_write.get(), format!("{:.1}", demand.dram_write)),
        cell(demand.l2_bytes.get(), format!("{:.1}", demand.l2_bytes)),
        cell(link.get(), format!("{link:.1}")),
        cell(host.get(), format!("{host:.1}")),
        launch,
    )
}

/// One op a line with its demand, by section; runs that repeat are listed once. Ends without a line break.
impl fmt::Display for StepProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shapes = self.ops.iter().map(|op| op.shape().len()).max().unwrap_or(0);
        let width = shapes.max(20);
        writeln!(
            f,
            "{:<13} {:<width$} {:>12} {:>10} {:>10} {:>10} {:>10} {:>10} {:>18}",
            "op", "sizes", "work", "DRAM read", "write", "L2", "link", "waits", "launch x block x w"
        )?;
        for (name, ops) in self.parts() {
            writeln!(f, "{name}")?;
            for run in repeats(ops) {
                let indent = if run.count > 1 && run.ops.len() > 1 {
                    writeln!(f, " {} times:", run.count)?;
                    "  "
                } else {
                    " "
                };
                for op in run.ops {
                    let name = format!("{indent}{}", op.name());
                    write!(f, "{name:<13} {:<width$} {}", op.shape(), amounts(&op.demand()))?;
                    if run.ops.len() == 1 && run.count > 1 {
                        write!(f, "  {} times", run.count)?;
                    }
                    writeln!(f)?;
                }
            }
        }
        let demand = self.demand();
        writeln!(f, "{:<13} {:<width$} {}", "step", format!("{} ops", self.ops.len()), amounts(&demand))?;
        write!(f, "footprint {:.1}, largest working set {:.1}", self.footprint(), demand.working_set)?;
        if let Some(intensity) = demand.arithmetic_intensity().filter(|intensity| intensity.is_finite()) {
            write!(f, ", {intensity:.1} FLOP/B")?;
        }
        if self.duty < 1.0 {
            write!(f, ", duty {}", self.duty)?;
        }
        Ok(())
    }
}
