//! One area in a process of its own.

use super::{Area, Check, Finding, ProbeOptions, Status, TIME_LIMIT, look};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// The child's side: reads the options from stdin, and writes one JSON line per finding to stdout. `look_at` looks at the areas
/// that this crate does not know.
pub fn child_main(area: Area, look_at: impl Fn(Area, &mut dyn FnMut(Finding))) -> ExitCode {
    // A crash is told by the parent; a core file of a driver helps nobody.
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
    let mut text = String::new();
    let options: ProbeOptions = match std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| error.to_string())
        .and_then(|_| serde_json::from_str(&text).map_err(|error| error.to_string()))
    {
        Ok(options) => options,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "the options cannot be read: {error}");
            return ExitCode::from(2);
        }
    };
    let mut tell = |finding: Finding| {
        if let Ok(line) = serde_json::to_string(&finding) {
            let mut stdout = std::io::stdout().lock();
            // Written at once: what was found before a crash stays known.
            let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
        }
    };
    look(area, &options, &mut tell);
    look_at(area, &mut tell);
    ExitCode::SUCCESS
}

/// The parent's side: starts `command`, and makes of its death or its silence one more finding.
pub fn isolate(command: Command, area: Area, options: &ProbeOptions) -> Vec<Finding> {
    isolate_for(command, area, options, options.time_limit.unwrap_or(TIME_LIMIT))
}

fn isolate_for(mut command: Command, area: Area, options: &ProbeOptions, limit: Duration) -> Vec<Finding> {
    let id = format!("{}.probe", area.as_str());
    let trouble = |finding: String| Check::new(id.clone(), area, Status::Blocked, finding);
    let input = serde_json::to_vec(options).unwrap_or_default();
    // Indices as nvidia-smi counts, and as workers count them.
    command.env("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    // A group of its own, so that what the child started ends with it.
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let check = trouble(format!("the probe cannot be started: {error}"));
            return vec![Finding::Check(check.fix("check the limits of processes and memory (ulimit -a)"))];
        }
    };
    if let Some(mut stdin) = child.stdin.take() {
        // A child that died already says so below.
        let _ = stdin.write_all(&input);
    }
    let (sender, receiver) = channel();
    if let Some(stdout) = child.stdout.take() {
        read_lines(stdout, Line::Out, sender.clone());
    }
    if let Some(stderr) = child.stderr.take() {
        read_lines(stderr, Line::Error, sender);
    }
    let (findings, last_error, ending) = collect(&mut child, &receiver, limit);
    let mut findings = findings;
    let ending = match ending {
        // A library's constructor may end the process without a word, and with the code of success.
        Some(status) if status.success() && !findings.is_empty() => return findings,
        Some(status) if status.success() => "ended without an answer".to_owned(),
        Some(status) => describe(status),
        None => format!("did not end within {} s and was stopped", limit.as_secs_f64()),
    };
    let after = findings.iter().rev().find_map(|finding| match finding {
        Finding::Check(check) => Some(format!(" after `{}`", check.id)),
        Finding::Device(_) => None,
    });
    let words = last_error.map_or_else(String::new, |line| format!(": {line}"));
    let check = trouble(format!("the probe {ending}{}{words}", after.unwrap_or_default()));
    findings.push(Finding::Check(check.fix(remedy(area))));
    findings
}

fn remedy(area: Area) -> String {
    match area {
        Area::Cuda | Area::Nvml => {
            "check `nvidia-smi` and `dmesg | grep -iE 'nvrm|xid'`; the driver's files may be damaged: install it again"
                .to_owned()
        }
        Area::Mps => "the control program does not answer: see what MPS processes run (`ps -C nvidia-cuda-mps`)".to_owned(),
        Area::Cupti => "install the CUPTI that fits this driver: pip install nvidia-cuda-cupti==13.0.85".to_owned(),
        Area::Models => "install ONNX Runtime again, or go on with the native back end".to_owned(),
        _ => "the library may be damaged: install it again".to_owned(),
    }
}

enum Line {
    Out(String),
    Error(String),
}

fn read_lines(stream: impl Read + Send + 'static, kind: fn(String) -> Line, sender: Sender<Line>) {
    std::thread::spawn(move || {
        // Lines of libraries may be no UTF-8, and end at any place.
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            if sender.send(kind(String::from_utf8_lossy(&line).into_owned())).is_err() {
                break;
            }
        }
    });
}

/// Reads until both streams end, then waits for the process; `None` where the limit came first and it was killed.
fn collect(
    child: &mut Child,
    lines: &Receiver<Line>,
    limit: Duration,
) -> (Vec<Finding>, Option<String>, Option<ExitStatus>) {
    let deadline = Instant::now() + limit;
    let (mut findings, mut last_error) = (Vec::new(), None);
    let ending = loop {
        match lines.recv_timeout(Duration::from_millis(20)) {
            // What else libraries print is no finding.
            Ok(Line::Out(line)) => findings.extend(serde_json::from_str::<Finding>(&line)),
            Ok(Line::Error(line)) if !line.trim().is_empty() => last_error = Some(line.trim().to_owned()),
            Ok(Line::Error(_)) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(Duration::from_millis(2)),
        }
        // Streams may outlive the child in a process that it started, and must not be waited for then.
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if Instant::now() < deadline => {}
            _ => {
                // A process in the kernel's hands may not die; nothing more can be done about it.
                if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
                    let _ = kill_process_group(group, Signal::KILL);
                }
                let _ = child.try_wait();
                break None;
            }
        }
    };
    // What was written before the end.
    while let Ok(line) = lines.recv_timeout(Duration::from_millis(100)) {
        match line {
            Line::Out(line) => findings.extend(serde_json::from_str::<Finding>(&line)),
            Line::Error(line) if !line.trim().is_empty() => last_error = Some(line.trim().to_owned()),
            Line::Error(_) => {}
        }
    }
    (findings, last_error, ending)
}

fn describe(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => {
            let name =
                Signal::from_named_raw(signal).map_or_else(|| signal.to_string(), |name| format!("{name:?}"));
            format!("was ended by signal {name}")
        }
        (None, Some(code)) => format!("ended with code {code}"),
        (None, None) => "ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Vec<Finding> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        isolate_for(command, Area::Cuda, &ProbeOptions::default(), limit)
    }

    fn check(id: &str) -> String {
        let check = Check::new(id, Area::Cuda, Status::Ok, "fine");
        serde_json::to_string(&Finding::Check(check)).unwrap()
    }

    fn last(findings: &[Finding]) -> &Check {
        match findings.last() {
            Some(Finding::Check(check)) => check,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn findings_before_a_crash_stay_and_the_crash_is_one_more() {
        let script = format!("echo noise; echo '{}'; echo oops >&2; kill -SEGV $$", check("cuda.driver"));
        let findings = shell(&script, Duration::from_secs(10));
        assert_eq!(findings.len(), 2, "{findings:?}");
        let crash = last(&findings);
        assert_eq!((crash.id.as_str(), crash.status), ("cuda.probe", Status::Blocked));
        assert!(crash.finding.contains("after `cuda.driver`: oops"), "{crash:?}");
        assert!(crash.fix.is_some());
    }

    #[test]
    fn a_hang_is_stopped_and_told() {
        let start = Instant::now();
        let findings = shell("sleep 60", Duration::from_millis(300));
        assert!(start.elapsed() < Duration::from_secs(5));
        assert!(last(&findings).finding.contains("did not end within 0.3 s"), "{findings:?}");
    }

    #[test]
    fn the_child_gets_the_options_and_a_good_end_adds_nothing() {
        let script = format!("grep -q ring_folder && echo '{}'", check("cuda.driver"));
        let findings = shell(&script, Duration::from_secs(10));
        assert_eq!(findings.len(), 1, "{findings:?}");
        let findings = shell("exit 3", Duration::from_secs(10));
        assert!(last(&findings).finding.contains("ended with code 3"), "{findings:?}");
    }
}
