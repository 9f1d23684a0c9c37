//! `elastico doctor --self-test`: the kernels, clocks and counters of one GPU, for real.

use crate::failure::{Ending, environment};
use crate::output::{self, Format};
use anyhow::Context as _;
use elastico_gpu::libraries::Libraries;
use elastico_profiler::Device as _;
use elastico_profiler::devices::cuda::{CudaDevice, CudaOptions, SelfTest, self_test};
use elastico_report::{Column, Table, Value};
use elastico_workloads::Catalogue;

/// Problems that the table lists.
const LISTED: usize = 10;

pub(super) fn run(index: u32, libraries: Libraries, format: Format) -> anyhow::Result<Ending> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let worker = vec![program.into_os_string(), "worker".into()];
    let refused = |what: &str, detail: &str| {
        environment(format!("cuda:{index} {what}: {detail}"), "see what is missing with: elastico doctor")
    };
    let options = CudaOptions { libraries, ..CudaOptions::default() };
    let mut device = CudaDevice::new(worker, index, options)
        .map_err(|fault| refused("cannot be opened", &fault.detail))?;
    let report = self_test(&mut device, &Catalogue::bundled())
        .map_err(|fault| refused("cannot be tested", &fault.to_string()))?;
    let name = device.identity().facts.get("gpu").cloned().unwrap_or_default();
    output::answer(format, &report, &tables(&report, &name))?;
    Ok(if report.passed { Ending::Done } else { Ending::Negative })
}

fn tables(report: &SelfTest, name: &str) -> Vec<Table> {
    let mut sums = Table::new(
        report.schema,
        format!("self-test of {name}: {}", if report.passed { "passed" } else { "failed" }),
        vec![Column::text("what"), Column::text("found")],
    );
    let run = report.kernels.iter().filter(|kernel| kernel.error_ratio.is_some()).count();
    let right =
        report.kernels.iter().filter(|kernel| kernel.error_ratio.is_some_and(|error| error <= 1.0)).count();
    let mut row = |what: &str, found: String| sums.push(vec![what.into(), found.as_str().into()]);
    row("kernels that agree with the reference", format!("{right} of {run}"));
    row("kernels that this GPU has no instructions for", (report.kernels.len() - run).to_string());
    row("resolution of events", format!("{:.2} us", report.event_resolution_seconds * 1e6));
    row("events over host clock", format!("{:.4}", report.event_over_host_ratio));
    row("host time of a launch", format!("{:.2} us", report.launch_seconds * 1e6));
    row(
        "null pair",
        report
            .null_pair
            .map_or_else(|| "not measured".to_owned(), |pair| format!("{:.4}", pair.interference_ratio)),
    );
    row("counters", report.counters_status.clone());
    for problem in report.problems.iter().take(LISTED) {
        row("wrong", problem.clone());
    }
    if report.problems.len() > LISTED {
        row("wrong", format!("and {} more; see them with --format json", report.problems.len() - LISTED));
    }
    let mut counters = Table::new(
        report.schema,
        "counters against loads of known size",
        vec![
            Column::text("counter"),
            Column::number("expected", ""),
            Column::number("measured", ""),
            Column::text("verdict"),
        ],
    );
    for verdict in &report.counters {
        counters.push(vec![
            verdict.counter.into(),
            Value::number(verdict.expected, 3),
            verdict.measured.map_or(Value::Missing, |measured| Value::number(measured, 3)),
            format!("{:?}", verdict.verdict).to_lowercase().as_str().into(),
        ]);
    }
    if report.counters.is_empty() { vec![sums] } else { vec![sums, counters] }
}
