//! `elastico doctor`

mod self_test;
mod text;

use crate::failure::Ending;
use crate::output::{self, Format};
use anyhow::Context as _;
use elastico_gpu::libraries::Libraries;
use elastico_gpu::probe::{
    Area, Check, Finding, Findings, Machine, ProbeOptions, Status, child_main, isolate, probe,
};
use elastico_report::{Column, Table, Value};
use serde::Serialize;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

const SCHEMA: &str = "elastico.doctor/1";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code 0: a campaign on a GPU can run here. 1: it cannot, and the fixes are listed; `sim:<chip>` and
`cpu` devices, training, prediction and placement work all the same.")]
pub(crate) struct Arguments {
    /// Form of the answer
    #[arg(long, value_enum, default_value_t)]
    format: Format,

    /// Look at this GPU only, as `cuda:0`
    #[arg(long, value_name = "DEVICE", value_parser = device)]
    device: Option<usize>,

    /// Run the kernels, clocks, null pair and counters of one GPU instead, for about a minute
    #[arg(long)]
    self_test: bool,

    #[command(flatten)]
    libraries: LibraryArguments,

    /// Look at one area and write findings for the parent process
    #[arg(long, hide = true, value_name = "AREA")]
    child: Option<Area>,
}

/// Where the driver's libraries are. Each is searched for where it is not given.
#[derive(Debug, clap::Args)]
struct LibraryArguments {
    /// The CUDA driver, libcuda.so.1
    #[arg(long, value_name = "FILE", env = "ELASTICO_CUDA", value_parser = path())]
    cuda_library: Option<PathBuf>,

    /// NVML, libnvidia-ml.so.1
    #[arg(long, value_name = "FILE", env = "ELASTICO_NVML", value_parser = path())]
    nvml_library: Option<PathBuf>,

    /// NVRTC, libnvrtc.so.13
    #[arg(long, value_name = "FILE", env = "ELASTICO_NVRTC", value_parser = path())]
    nvrtc_library: Option<PathBuf>,

    /// cuBLASLt, libcublasLt.so.13
    #[arg(long, value_name = "FILE", env = "ELASTICO_CUBLASLT", value_parser = path())]
    cublas_lt_library: Option<PathBuf>,

    /// The folder of libcupti.so.13 and libnvperf_host.so
    #[arg(long, value_name = "FOLDER", env = "ELASTICO_CUPTI_DIR", value_parser = path())]
    cupti_dir: Option<PathBuf>,
}

impl LibraryArguments {
    fn libraries(&self) -> Libraries {
        let given = |path: &Option<PathBuf>| path.clone().filter(|path| !path.as_os_str().is_empty());
        Libraries {
            cuda: given(&self.cuda_library),
            nvml: given(&self.nvml_library),
            nvrtc: given(&self.nvrtc_library),
            cublas_lt: given(&self.cublas_lt_library),
            cupti_folder: given(&self.cupti_dir),
        }
    }
}

/// A path that may be empty: a variable that is set to nothing is not set.
fn path() -> impl clap::builder::TypedValueParser<Value = PathBuf> {
    use clap::builder::TypedValueParser as _;
    clap::builder::OsStringValueParser::new().map(PathBuf::from)
}

fn device(text: &str) -> Result<usize, String> {
    text.strip_prefix("cuda:")
        .and_then(|index| index.parse().ok())
        .ok_or_else(|| "name a GPU of this machine, as `cuda:0`".to_owned())
}

#[derive(Serialize)]
struct Answer<'a> {
    schema: &'static str,
    /// Whether a campaign on a GPU can run here.
    gpu_campaign: bool,
    /// Ids of the checks that stand in its way.
    blocked_by: Vec<&'a str>,
    machine: &'a Machine,
    devices: &'a [elastico_gpu::probe::Device],
    abilities: &'a [Ability],
    checks: &'a [Check],
}

/// What a user may want to do, and whether this machine can.
#[derive(Serialize)]
struct Ability {
    command: &'static str,
    possible: bool,
    reason: String,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Ending> {
    if let Some(area) = arguments.child {
        // A probe speaks its own protocol on stdout and ends with its own code.
        let code = child_main(area, |area, tell| {
            if area == Area::Models {
                tell(Finding::Check(onnx_runtime()));
            }
        });
        std::process::exit(i32::from(code != ExitCode::SUCCESS));
    }
    if arguments.self_test {
        let index = u32::try_from(arguments.device.unwrap_or(0)).unwrap_or(u32::MAX);
        return self_test::run(index, arguments.libraries.libraries(), arguments.format);
    }
    let options = ProbeOptions {
        libraries: arguments.libraries.libraries(),
        device: arguments.device,
        ..ProbeOptions::default()
    };
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let command = |area: Area| {
        let mut command = Command::new(&program);
        command.args(["doctor", "--child", area.as_str()]);
        command
    };
    let (mut findings, models) = std::thread::scope(|scope| {
        let models = scope.spawn(|| isolate(command(Area::Models), Area::Models, &options));
        let findings = probe(&options, &command);
        (findings, models.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    findings.checks.extend(models.into_iter().filter_map(|finding| match finding {
        Finding::Check(check) => Some(check),
        Finding::Device(_) => None,
    }));
    let blockers = blockers(&findings);
    let abilities = abilities(&findings);
    match arguments.format {
        Format::Table => {
            output::print(&text::render(&findings, &abilities, &blockers, output::Paper::stdout()))?;
        }
        format => {
            let answer = Answer {
                schema: SCHEMA,
                gpu_campaign: blockers.is_empty(),
                blocked_by: blockers.iter().map(|check| check.id.as_str()).collect(),
                machine: &findings.machine,
                devices: &findings.devices,
                abilities: &abilities,
                checks: &findings.checks,
            };
            let tables = [ability_table(&abilities), check_table(&findings.checks)];
            output::answer(format, &answer, &tables)?;
        }
    }
    Ok(if blockers.is_empty() { Ending::Done } else { Ending::Negative })
}

/// ONNX Runtime is optional: the native back end reads the same files.
fn onnx_runtime() -> Check {
    let (status, finding, fix) = match elastico_models::runtime_library(None) {
        Ok(path) => (Status::Ok, format!("`{}`", path.display()), None),
        Err(error) => (
            if matches!(error, elastico_models::Error::LibraryMissing { .. }) {
                Status::Absent
            } else {
                Status::Warn
            },
            format!("{error}; the native back end is used"),
            elastico_core::Hint::hint(&error),
        ),
    };
    Check { fix, ..Check::new("models.onnx_runtime", Area::Models, status, finding) }
}

/// Beginnings of ids without which there is no campaign on a GPU.
const NEEDED: [&str; 8] = [
    "cuda.",
    "nvml.library",
    "nvrtc.",
    "cublas_lt.",
    "cupti.library",
    "host.shared_memory",
    "host.disk",
    "host.cores",
];

/// What stands in the way of a campaign on a GPU: what it needs and is not here, and all that is blocked.
fn blockers(findings: &Findings) -> Vec<&Check> {
    findings
        .checks
        .iter()
        .filter(|check| {
            let is_needed = NEEDED.iter().any(|prefix| check.id.starts_with(prefix));
            let is_blocked = check.status == Status::Blocked && check.area != Area::Models;
            is_blocked || (is_needed && !check.status.is_usable())
        })
        .collect()
}

fn abilities(findings: &Findings) -> Vec<Ability> {
    // What is possible is told by the first check; what is not, by the names of those that stand in its way.
    let usable = |prefixes: &[&str]| {
        let looked_at: Vec<&Check> = findings
            .checks
            .iter()
            .filter(|check| prefixes.iter().any(|prefix| check.id.starts_with(prefix)))
            .collect();
        let lacking: Vec<&str> = looked_at
            .iter()
            .filter(|check| !check.status.is_usable())
            .map(|check| check.id.as_str())
            .collect();
        match looked_at.first() {
            _ if !lacking.is_empty() => (false, format!("see {}", lacking.join(", "))),
            Some(check) => (true, check.finding.clone()),
            None => (false, "not looked at".to_owned()),
        }
    };
    let ability = |command, (possible, reason)| Ability { command, possible, reason };
    let cuda = usable(&["cuda.", "nvrtc.", "cublas_lt.", "host.shared_memory"]);
    let cuda = if cuda.0 { (true, devices_text(findings)) } else { cuda };
    let and_cuda = |(possible, reason): (bool, String)| {
        if cuda.0 { (possible, reason) } else { (false, cuda.1.clone()) }
    };
    let counters = match (usable(&["cupti."]), findings.worst("cupti.sampling")) {
        ((true, _), Some(sampling)) => (true, sampling.finding.clone()),
        ((_, reason), _) if findings.devices.iter().any(|device| device.gpm == Some(true)) => {
            (true, format!("fewer of them, by NVML GPM; for all of them, {reason}"))
        }
        ((_, reason), _) => (false, reason),
    };
    let instances: usize = findings.devices.iter().map(|device| device.mig_instances.len()).sum();
    let mig = match instances {
        0 => (false, "no MIG instance on this machine".to_owned()),
        1 => (false, "1 MIG instance; a pair needs two".to_owned()),
        count => (true, format!("{count} MIG instances")),
    };
    vec![
        ability("profile on sim:<chip>", (true, "the fluid model needs no device".to_owned())),
        ability("profile on cpu", usable(&["host.cores"])),
        ability("profile on cuda:N", cuda.clone()),
        ability("hardware counters", and_cuda(counters)),
        ability("clocks and power", usable(&["nvml.library"])),
        ability("sharing by MPS", and_cuda(usable(&["mps.control"]))),
        ability("sharing by MIG", and_cuda(mig)),
        ability("train, predict, place", (true, "need no device".to_owned())),
    ]
}

fn devices_text(findings: &Findings) -> String {
    let names: Vec<&str> = findings.devices.iter().filter_map(|device| device.name.as_deref()).collect();
    match names.as_slice() {
        [first, ..] if names.iter().all(|name| name == first) => format!("{} x {first}", names.len()),
        _ => names.join(", "),
    }
}

fn ability_table(abilities: &[Ability]) -> Table {
    let mut table = Table::new(
        SCHEMA,
        "what this machine can do",
        vec![Column::text("command"), Column::text("possible"), Column::text("reason")],
    );
    for ability in abilities {
        table.push(vec![
            ability.command.into(),
            Value::Flag(ability.possible),
            ability.reason.as_str().into(),
        ]);
    }
    table
}

fn check_table(checks: &[Check]) -> Table {
    let mut table = Table::new(
        SCHEMA,
        "what was looked at",
        vec![Column::text("check"), Column::text("status"), Column::text("finding"), Column::text("fix")],
    );
    for check in checks {
        table.push(vec![
            check.id.as_str().into(),
            check.status.as_str().into(),
            check.finding.as_str().into(),
            check.fix.as_deref().map_or(Value::Missing, Value::from),
        ]);
    }
    table
}
