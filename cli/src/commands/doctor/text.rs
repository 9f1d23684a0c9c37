//! What the doctor says to people.

use super::Ability;
use crate::output::{Colour, Paper};
use elastico_gpu::probe::{Check, Device, Findings, Status};
use std::fmt::Write as _;

/// Width of the column of states.
const STATE: usize = 9;

/// Everything, at the width of the paper.
pub(super) fn render(
    findings: &Findings,
    abilities: &[Ability],
    blockers: &[&Check],
    paper: Paper,
) -> String {
    let mut text = String::new();
    for device in &findings.devices {
        text.push_str(&describe(device, paper));
        text.push('\n');
    }
    text.push_str("What this machine can do\n");
    let name_width = abilities.iter().map(|ability| ability.command.len()).max().unwrap_or(0) + 2;
    for ability in abilities {
        let (word, colour) = if ability.possible { ("yes", Colour::Green) } else { ("no", Colour::Yellow) };
        let indent = 2 + 5 + name_width;
        let _ =
            write!(text, "  {}{:name_width$}", paper.paint(&format!("{word:5}"), colour), ability.command);
        text.push_str(&wrap(&ability.reason, indent, paper.width));
    }
    text.push_str("\nWhat was looked at\n");
    let name_width = findings.checks.iter().map(|check| check.id.len()).max().unwrap_or(0) + 2;
    for check in &findings.checks {
        let colour = match check.status {
            Status::Ok => Colour::Green,
            Status::Warn | Status::Absent => Colour::Yellow,
            Status::Blocked => Colour::Red,
        };
        let state = paper.paint(&format!("{:STATE$}", check.status.as_str()), colour);
        let indent = 2 + STATE + name_width;
        let _ = write!(text, "  {state}{:name_width$}", check.id);
        text.push_str(&wrap(&check.finding, indent, paper.width));
        if let Some(fix) = &check.fix {
            let label = "fix: ";
            let _ = write!(text, "{:indent$}{label}", "");
            text.push_str(&wrap(fix, indent + label.len(), paper.width));
        }
    }
    text.push('\n');
    text.push_str(&verdict(blockers, paper));
    text
}

fn verdict(blockers: &[&Check], paper: Paper) -> String {
    if blockers.is_empty() {
        return "A campaign on a GPU can run here.\n".to_owned();
    }
    let names: Vec<&str> = blockers.iter().map(|check| check.id.as_str()).collect();
    let mut text = wrap(
        &format!("No campaign on a GPU can run here; in its way: {}.", names.join(", ")),
        0,
        paper.width,
    );
    text.push_str(&wrap(
        "Simulated and CPU devices, training, prediction and placement work.",
        0,
        paper.width,
    ));
    text
}

/// One GPU in a few lines, in the order of `nvidia-smi`: what it is, what it has, how it is set.
fn describe(device: &Device, paper: Paper) -> String {
    let index = match (device.cuda_index, device.nvml_index) {
        (Some(index), _) => format!("cuda:{index}"),
        (None, Some(index)) => format!("GPU {index} (not for CUDA)"),
        (None, None) => "GPU".to_owned(),
    };
    let on = |value: bool| if value { "on" } else { "off" };
    let megahertz = |hertz: f64| (hertz / 1e6).round();
    let lines: [Vec<Option<String>>; 4] = [
        vec![
            device.name.clone(),
            device.chip.clone(),
            device.compute_capability.map(|(major, minor)| format!("compute capability {major}.{minor}")),
            device.multiprocessors.map(|count| format!("{count} SMs")),
            device
                .l2_bytes
                .filter(|bytes| *bytes > 0)
                .map(|bytes| format!("L2 {:.0} MiB", bytes as f64 / f64::from(1 << 20))),
        ],
        vec![
            match (device.memory_free_bytes, device.memory_bytes) {
                (Some(free), Some(total)) => {
                    Some(format!("{:.1} of {:.1} GB free", free as f64 / 1e9, total as f64 / 1e9))
                }
                (None, Some(total)) => Some(format!("{:.1} GB", total as f64 / 1e9)),
                _ => None,
            },
            match (device.sm_clock_hertz, device.sm_clock_max_hertz) {
                (Some(now), Some(most)) => Some(format!("SM {} of {} MHz", megahertz(now), megahertz(most))),
                (Some(now), None) => Some(format!("SM {} MHz", megahertz(now))),
                _ => None,
            },
            device.memory_clock_hertz.map(|hertz| format!("memory {} MHz", megahertz(hertz))),
            device.power_limit_watts.map(|watts| format!("{watts:.0} W limit")),
            device.temperature_celsius.map(|celsius| format!("{celsius:.0} °C")),
        ],
        vec![
            device.persistence.map(|value| format!("persistence {}", on(value))),
            device.ecc.map(|value| format!("ECC {}", on(value))),
            device.mig.map(|value| match device.mig_instances.len() {
                0 => format!("MIG {}", on(value)),
                count => format!("MIG on, {count} instances"),
            }),
            device.compute_mode.as_ref().map(|mode| format!("compute mode {}", mode.replace('_', " "))),
            device.gpm.map(|value| if value { "GPM" } else { "no GPM" }.to_owned()),
            device.mps_client.and_then(|value| value.then(|| "MPS client".to_owned())),
            device.processes.filter(|count| *count > 0).map(|count| format!("{count} other processes")),
        ],
        vec![
            device.driver.as_ref().map(|driver| format!("driver {driver}")),
            device.vbios.as_ref().map(|vbios| format!("VBIOS {vbios}")),
            device.pci_bus.clone(),
            Some(device.uuid.clone()),
        ],
    ];
    let indent = 8;
    let mut text = format!("{index:indent$}");
    let mut is_first = true;
    for line in lines {
        let facts: Vec<String> = line.into_iter().flatten().collect();
        if facts.is_empty() {
            continue;
        }
        if !std::mem::take(&mut is_first) {
            let _ = write!(text, "{:indent$}", "");
        }
        // A fact is never broken.
        let last = facts.len() - 1;
        let facts =
            facts.into_iter().enumerate().map(|(index, fact)| if index < last { fact + "," } else { fact });
        text.push_str(&wrap_words(facts, indent, paper.width));
    }
    for instance in &device.mig_instances {
        let multiprocessors =
            instance.multiprocessors.map_or_else(String::new, |count| format!(", {count} SMs"));
        let memory = instance.memory_bytes as f64 / 1e9;
        let line = format!("MIG {}{multiprocessors}, {memory:.1} GB, {}", instance.profile, instance.uuid);
        let _ = write!(text, "{:indent$}", "");
        text.push_str(&wrap(&line, indent, paper.width));
    }
    text
}

/// Breaks a text at blanks, each line after the first indented; a word longer than a line stays whole, so that it can be
/// copied.
fn wrap(text: &str, indent: usize, width: usize) -> String {
    wrap_words(text.split_whitespace(), indent, width)
}

fn wrap_words(words: impl IntoIterator<Item = impl AsRef<str>>, indent: usize, width: usize) -> String {
    let room = width.saturating_sub(indent).max(20);
    let mut wrapped = String::new();
    let mut used = 0;
    for word in words {
        let word = word.as_ref();
        let length = word.chars().count();
        if used > 0 && used + 1 + length > room {
            let _ = write!(wrapped, "\n{:indent$}", "");
            used = 0;
        } else if used > 0 {
            wrapped.push(' ');
            used += 1;
        }
        wrapped.push_str(word);
        used += length;
    }
    wrapped.push('\n');
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;
    use elastico_gpu::probe::{Area, Machine};

    #[test]
    fn long_words_stay_whole_and_lines_hang() {
        assert_eq!(wrap("one two three four five six", 4, 24), "one two three four\n    five six\n");
        let path = "/a/very/long/path/that/does/not/fit";
        assert_eq!(wrap(&format!("at {path} now"), 2, 22), format!("at\n  {path}\n  now\n"));
    }

    #[test]
    fn a_healthy_machine_reads_in_eighty_columns() {
        let device = Device {
            uuid: "GPU-00000000-0000-0000-0000-000000000001".to_owned(),
            name: Some("Stand-in H200".to_owned()),
            cuda_index: Some(0),
            chip: Some("GH100".to_owned()),
            compute_capability: Some((9, 0)),
            multiprocessors: Some(132),
            l2_bytes: Some(62_914_560),
            memory_bytes: Some(150_000_000_000),
            memory_free_bytes: Some(149_000_000_000),
            sm_clock_hertz: Some(345e6),
            sm_clock_max_hertz: Some(1980e6),
            ecc: Some(true),
            mig: Some(false),
            ..Device::default()
        };
        let checks = vec![
            Check::new("cuda.driver", Area::Cuda, Status::Ok, "CUDA 13.0"),
            Check::new(
                "cupti.library",
                Area::Cupti,
                Status::Absent,
                "there is no CUPTI library `libcupti.so.13`; tried a, b and more places than fit in one line",
            )
            .fix("pip install nvidia-cuda-cupti==13.0.85"),
        ];
        let machine = Machine { kernel: None, processor: None, virtualization: None, container: None };
        let findings = Findings { machine, devices: vec![device], checks };
        let abilities = [Ability { command: "profile on cuda:N", possible: true, reason: "one".to_owned() }];
        let blockers = [&findings.checks[1]];
        let paper = Paper { width: 80, has_colour: false };
        let expected = "\
cuda:0  Stand-in H200, GH100, compute capability 9.0, 132 SMs, L2 60 MiB
        149.0 of 150.0 GB free, SM 345 of 1980 MHz
        ECC on, MIG off
        GPU-00000000-0000-0000-0000-000000000001

What this machine can do
  yes  profile on cuda:N  one

What was looked at
  ok       cuda.driver    CUDA 13.0
  absent   cupti.library  there is no CUPTI library `libcupti.so.13`; tried a, b
                          and more places than fit in one line
                          fix: pip install nvidia-cuda-cupti==13.0.85

No campaign on a GPU can run here; in its way: cupti.library.
Simulated and CPU devices, training, prediction and placement work.
";
        assert_eq!(render(&findings, &abilities, &blockers, paper), expected);
    }

    #[test]
    fn colour_is_asked_for() {
        let paper = Paper { width: 80, has_colour: true };
        assert_eq!(paper.paint("no", Colour::Red), "\u{1b}[31mno\u{1b}[0m");
        assert_eq!(Paper { has_colour: false, ..paper }.paint("no", Colour::Red), "no");
    }
}
