//! `elastico profile exec`

use crate::failure::{Ending, environment, usage};
use crate::output::{self, Format, Talk};
use anyhow::Context as _;
use clap::ValueEnum;
use elastico_core::{DeviceName, Seed, SharingMode, WorkloadId, WorkloadKind};
use elastico_profiler::devices::cuda::commands::{CommandDevice, CommandOptions};
use elastico_profiler::devices::cuda::{CudaDevice, CudaOptions};
use elastico_profiler::exec::{self, Settings, Summary, UserCommand, name_of};
use elastico_profiler::{Budget, Progress, ProtocolSettings, RunOptions, RunReport, Stopped, Stopping};
use elastico_report::{Column, Table, Value};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// File name of the library that records kernels.
const INJECTION: &str = "libelastico_injection.so";
/// Environment: that library, where it does not lie beside the program.
const INJECTION_VARIABLE: &str = "ELASTICO_INJECTION";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The commands run by `/bin/sh -c` in this folder, unchanged. Steps are found in the repeating
sequence of their kernels. A command must go on until it is ended: give it enough iterations for
its start, a soak of up to 30 s and six windows. `profile resume FOLDER` goes on after an interrupt.

  elastico profile exec --a 'python train.py' --b 'python infer.py' --kind-b inference --out run")]
pub(crate) struct Arguments {
    /// One command
    #[arg(long, value_name = "COMMAND")]
    a: String,
    /// The other command
    #[arg(long, value_name = "COMMAND")]
    b: String,
    /// Name of the first in the dataset; default: of its script or program
    #[arg(long, value_name = "NAME")]
    name_a: Option<String>,
    /// Name of the second in the dataset; default: of its script or program
    #[arg(long, value_name = "NAME")]
    name_b: Option<String>,
    /// What the first is for
    #[arg(long, value_enum, default_value_t)]
    kind_a: Kind,
    /// What the second is for
    #[arg(long, value_enum, default_value_t)]
    kind_b: Kind,
    /// The GPU
    #[arg(long, default_value = "cuda:0")]
    device: DeviceName,
    /// How they share it: time_slice, mps, mps(0.5,0.5), mig(3g.40gb); can be given more than once
    #[arg(long, value_name = "MODE", default_value = "time_slice")]
    sharing: Vec<SharingMode>,
    /// Measure this often in fresh processes; default: 3 to 10 times, until the interval is narrow
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1000))]
    repeats: Option<u32>,
    /// Least seconds of each timed window
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    window: f64,
    /// Most seconds of a timed window, for commands with long steps
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    max_window: f64,
    /// Most seconds of the soak before the windows, in which clocks and steps get steady
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    soak: f64,
    /// Most seconds from the start of a command until its progress is steady
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0)]
    startup: f64,
    /// A line of standard output that matches is a step; used where kernels cannot be recorded
    #[arg(long, value_name = "REGEX")]
    progress_pattern: Option<String>,
    /// Do not load the recording library into the commands
    #[arg(long)]
    no_injection: bool,
    /// Everything random follows from it
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The folder for journal, logs and dataset
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Say what would be measured, and start nothing
    #[arg(long)]
    dry_run: bool,
    /// Form of the answer
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Kind {
    #[default]
    Training,
    Inference,
}

impl From<Kind> for WorkloadKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Training => Self::Training,
            Kind::Inference => Self::Inference,
        }
    }
}

pub(crate) fn run(arguments: &Arguments, talk: Talk) -> anyhow::Result<Ending> {
    let settings = settings(arguments)?;
    if arguments.dry_run {
        talk.say(format!("would write into `{}`; nothing is started", arguments.out.display()));
        return show(&settings, arguments.format);
    }
    measure(&settings, &arguments.out, &RunOptions::default(), arguments.format, talk)
}

/// Goes on in the folder of an earlier call.
pub(crate) fn resume(folder: &Path, force: bool, talk: Talk) -> anyhow::Result<Ending> {
    let settings = Settings::read(&folder.join(exec::FILE))?;
    let options = RunOptions { resume: true, force, ..RunOptions::default() };
    measure(&settings, folder, &options, Format::Table, talk)
}

/// Checks the arguments as far as they can be without a device.
fn settings(arguments: &Arguments) -> anyhow::Result<Settings> {
    let DeviceName::Cuda(_) = arguments.device else {
        return Err(usage(
            format!("`{}` runs no commands of yours", arguments.device),
            "name a GPU: --device cuda:0",
        ));
    };
    for (name, seconds) in [
        ("--window", arguments.window),
        ("--max-window", arguments.max_window),
        ("--soak", arguments.soak),
        ("--startup", arguments.startup),
    ] {
        if !(seconds.is_finite() && (0.1..=86_400.0).contains(&seconds)) {
            return Err(usage(format!("{name} {seconds} is no length of time"), "give seconds, from 0.1 up"));
        }
    }
    if arguments.max_window < arguments.window {
        return Err(usage(
            format!("--max-window {} is less than --window {}", arguments.max_window, arguments.window),
            "give --max-window at least as many seconds",
        ));
    }
    let mut sharing: Vec<SharingMode> = Vec::new();
    for mode in &arguments.sharing {
        match mode {
            SharingMode::Exclusive => {
                return Err(usage(
                    "a pair cannot run `exclusive`",
                    "each is measured alone anyway; leave it out",
                ));
            }
            SharingMode::Streams => {
                return Err(usage(
                    "`streams` takes one process for both sides, and these are two programs",
                    "choose time_slice, mps(0.5,0.5) or mig(3g.40gb)",
                ));
            }
            mode if sharing.contains(mode) => {}
            mode => sharing.push(mode.clone()),
        }
    }
    let side =
        |command: &str, name: Option<&String>, kind: Kind, option: &str| -> anyhow::Result<UserCommand> {
            if command.trim().is_empty() {
                return Err(usage(format!("{option} is empty"), "give the command as you would type it"));
            }
            check_program(command, option)?;
            let name = name.cloned().unwrap_or_else(|| name_of(command));
            let name =
                WorkloadId::new(name).with_context(|| format!("the name for {option} cannot be used"))?;
            Ok(UserCommand { name, kind: kind.into(), command: command.to_owned() })
        };
    let mut a = side(&arguments.a, arguments.name_a.as_ref(), arguments.kind_a, "--a")?;
    let mut b = side(&arguments.b, arguments.name_b.as_ref(), arguments.kind_b, "--b")?;
    if a.name == b.name && a.command != b.command {
        if arguments.name_a.is_some() || arguments.name_b.is_some() {
            return Err(usage(
                format!("two different commands cannot both be named `{}`", a.name),
                "give them different names with --name-a and --name-b",
            ));
        }
        // One script with different arguments.
        for (side, letter) in [(&mut a, "a"), (&mut b, "b")] {
            side.name = WorkloadId::new(format!("{}-{letter}", side.name)).context("the name is too long")?;
        }
    }
    let stopping = arguments.repeats.map_or_else(Stopping::default, |repeats| Stopping {
        min_repeats: repeats,
        max_repeats: repeats,
        ..Stopping::default()
    });
    let protocol = ProtocolSettings {
        min_seconds: Some(arguments.window),
        max_seconds: Some(arguments.max_window),
        soak_seconds: Some(arguments.soak),
        ..ProtocolSettings::default()
    };
    Ok(Settings {
        schema: 1,
        name: format!("{} beside {}", a.name, b.name),
        seed: Seed(arguments.seed),
        device: arguments.device.clone(),
        sharing,
        folder: std::env::current_dir().context("this folder has no path")?,
        progress_pattern: arguments.progress_pattern.clone(),
        injection: !arguments.no_injection,
        startup_seconds: arguments.startup,
        a,
        b,
        stopping,
        protocol,
        budget: Budget::default(),
    })
}

/// Refuses a command whose program is not there, before anything is started.
fn check_program(command: &str, option: &str) -> anyhow::Result<()> {
    // Only where the first word is a plain program: what else it may be is the shell's business.
    let word = command.split_ascii_whitespace().next().unwrap_or_default();
    let is_plain = word.chars().all(|letter| letter.is_ascii_alphanumeric() || "/._-+".contains(letter));
    if !is_plain || word.is_empty() {
        return Ok(());
    }
    let found = std::process::Command::new("/bin/sh")
        .args(["-c", "command -v -- \"$1\" >/dev/null 2>&1", "sh", word])
        .status()
        .context("cannot start /bin/sh")?;
    if found.success() {
        return Ok(());
    }
    Err(usage(
        format!("the command of {option} was not found: there is no program `{word}`"),
        "check the spelling, the PATH, and the environment that it needs (a virtual environment, a module)",
    ))
}

/// The recording library of this build.
fn injection() -> anyhow::Result<PathBuf> {
    if let Some(named) = std::env::var_os(INJECTION_VARIABLE).filter(|named| !named.is_empty()) {
        let named = std::path::absolute(PathBuf::from(named)).context("the library has no path")?;
        return if named.is_file() {
            Ok(named)
        } else {
            Err(environment(
                format!("{INJECTION_VARIABLE} names `{}`, which is no file", named.display()),
                format!("name the {INJECTION} of this build, or unset the variable"),
            ))
        };
    }
    let program = std::env::current_exe().context("this program does not know its own path")?;
    // Beside the program, or above the folder of test binaries.
    let places: Vec<PathBuf> =
        program.ancestors().skip(1).take(2).map(|folder| folder.join(INJECTION)).collect();
    places.iter().find(|place| place.is_file()).cloned().ok_or_else(|| {
        environment(
            format!("the recording library `{INJECTION}` is not beside `{}`", program.display()),
            format!(
                "`cargo build --release` builds it there; {INJECTION_VARIABLE} names one elsewhere; --no-injection does without"
            ),
        )
    })
}

fn open(settings: &Settings, folder: &Path) -> anyhow::Result<CommandDevice> {
    let DeviceName::Cuda(index) = settings.device else {
        return Err(usage(format!("`{}` is no GPU", settings.device), "name a GPU: --device cuda:0"));
    };
    let refused =
        |reason: String| elastico_profiler::Error::NoDevice { device: settings.device.to_string(), reason };
    let program = std::env::current_exe().context("this program does not know its own path")?;
    let worker = vec![program.into_os_string(), "worker".into()];
    let options = CommandOptions {
        log_folder: std::path::absolute(folder).context("the folder has no path")?.join("logs"),
        injection: if settings.injection { injection()? } else { PathBuf::new() },
        ring_folder: PathBuf::from("/dev/shm"),
        hold: Duration::from_secs(2),
        hang: Duration::from_secs(30),
    };
    let gpu =
        CudaDevice::new(worker, index, CudaOptions::default()).map_err(|fault| refused(fault.detail))?;
    Ok(CommandDevice::new(gpu, settings, options).map_err(|fault| refused(fault.detail))?)
}

fn show(settings: &Settings, format: Format) -> anyhow::Result<Ending> {
    #[derive(Serialize)]
    struct Answer<'a> {
        schema: &'static str,
        settings: &'a Settings,
        protocol: elastico_profiler::Protocol,
    }
    const SCHEMA: &str = "elastico.profile_exec_plan/1";
    let protocol = settings.protocol();
    let mut table = Table::new(
        SCHEMA,
        format!("{} on {}", settings.name, settings.device),
        vec![
            Column::text("run"),
            Column::text("command"),
            Column::text("kind"),
            Column::text("sharing"),
            Column::text("repeats"),
        ],
    );
    let (least, most) = (settings.stopping.min_repeats, settings.stopping.max_repeats);
    let repeats = if least == most { least.to_string() } else { format!("{least} to {most}") };
    let sides: BTreeMap<&str, &UserCommand> =
        [&settings.a, &settings.b].map(|side| (side.name.as_str(), side)).into();
    for (name, side) in sides {
        table.push(vec![
            format!("{name} alone").into(),
            side.command.as_str().into(),
            side.kind.as_str().into(),
            "exclusive".into(),
            repeats.as_str().into(),
        ]);
    }
    for mode in &settings.sharing {
        table.push(vec![
            format!("{} beside {}", settings.a.name, settings.b.name).into(),
            "both".into(),
            Value::Missing,
            mode.to_string().into(),
            repeats.as_str().into(),
        ]);
    }
    output::answer(format, &Answer { schema: SCHEMA, settings, protocol }, &[table])?;
    Ok(Ending::Done)
}

fn measure(
    settings: &Settings,
    folder: &Path,
    options: &RunOptions<'_>,
    format: Format,
    talk: Talk,
) -> anyhow::Result<Ending> {
    let mut device = open(settings, folder)?;
    let interrupted = super::profile::interrupted()?;
    let options = RunOptions { interrupted: Some(&interrupted), ..*options };
    let mut said: BTreeSet<String> = BTreeSet::new();
    let mut progress = |progress: &Progress<'_>| {
        talk.say(super::profile::line(progress));
        // Why a trial failed is what the user can act on; the journal has it, too.
        for detail in progress.observation.attempts.iter().filter_map(|attempt| attempt.detail.as_ref()) {
            if said.insert(detail.clone()) {
                talk.say(format!("  {}", detail.replace('\n', "\n  ")));
            }
        }
    };
    let report = exec::run(settings, &mut device, folder, &options, &mut progress)?;
    let summary = exec::summary(folder, device.progress())?;
    output::answer(format, &summary, &[table(&summary)])?;
    close(&report, folder, talk)
}

fn close(report: &RunReport, folder: &Path, talk: Talk) -> anyhow::Result<Ending> {
    let resume = format!("elastico profile resume {}", folder.display());
    match report.stopped {
        Stopped::DeviceLost => Err(environment(
            format!("the device {} is gone; results so far are saved", report.status.device),
            format!("when it is back: {resume}"),
        )),
        Stopped::Interrupted => {
            talk.say(format!("interrupted, results saved; go on with: {resume}"));
            Ok(Ending::Interrupted)
        }
        Stopped::Complete | Stopped::Budget => {
            talk.say(format!(
                "{} trials measured; dataset in `{}`, output of the commands in `{}`",
                report.measured,
                folder.join("dataset").display(),
                folder.join("logs").display()
            ));
            Ok(if report.status.failed > 0 { Ending::FailedTrials } else { Ending::Done })
        }
    }
}

fn table(summary: &Summary) -> Table {
    let mut table = Table::new(
        summary.schema,
        format!("slowdown on {} ({}), measured", summary.device, summary.model),
        vec![
            Column::text("subject"),
            Column::text("co_runner"),
            Column::text("sharing"),
            Column::number("isolated_step_seconds", "").label("step alone, s"),
            Column::number("slowdown", ""),
            Column::number("slowdown_lower", "").label("lower"),
            Column::number("slowdown_upper", "").label("upper"),
            Column::number("n", ""),
            Column::number("overlap_least", "").label("overlap"),
            Column::number("drift_most", "").label("drift"),
            Column::text("progress"),
            Column::text("remarks"),
        ],
    );
    for side in &summary.sides {
        let number =
            |value: Option<f64>, digits| value.map_or(Value::Missing, |value| Value::number(value, digits));
        let failed = side.outcomes.iter().filter(|(outcome, _)| *outcome != "ok");
        let mut remarks: Vec<String> =
            failed.map(|(outcome, count)| format!("{count} x {outcome}")).collect();
        remarks.extend(side.flags.iter().cloned());
        table.push(vec![
            side.subject.as_str().into(),
            side.co_runner.as_str().into(),
            side.sharing.to_string().into(),
            number(side.isolated_step_seconds, 6),
            number(side.slowdown, 3),
            number(side.slowdown_lower, 3),
            number(side.slowdown_upper, 3),
            side.n.into(),
            number(side.overlap_least, 3),
            number(side.drift_most, 4),
            side.progress.as_deref().map_or(Value::Missing, Into::into),
            remarks.join(", ").into(),
        ]);
    }
    table
}
