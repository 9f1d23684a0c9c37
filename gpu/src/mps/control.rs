//! One run of the control program, with a time limit.

use super::DaemonOptions;
use super::folder::Folder;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Settings of clients that a daemon must not take over from our own environment.
const FOREIGN: [&str; 4] = [
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "CUDA_MPS_CLIENT_PRIORITY",
];

/// The control program, ready to be run for one daemon.
#[derive(Debug)]
pub(super) struct Control {
    program: PathBuf,
    environment: Vec<(String, String)>,
    output: PathBuf,
    timeout: Duration,
}

/// What the program said.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) is_success: bool,
    pub(super) text: String,
}

impl Answer {
    pub(super) fn last_line(&self) -> String {
        let line = self.text.lines().rfind(|line| !line.trim().is_empty());
        line.map_or_else(|| "it says nothing".to_owned(), |line| line.trim().to_owned())
    }
}

/// Why it said nothing.
#[derive(Debug)]
pub(super) enum Failure {
    Start(std::io::Error),
    Timeout,
}

impl Control {
    pub(super) fn new(program: PathBuf, folder: &Folder, options: &DaemonOptions) -> Self {
        let mut environment = folder.environment();
        if let Some(uuid) = &options.device_uuid {
            environment.push(("CUDA_VISIBLE_DEVICES".to_owned(), uuid.clone()));
        }
        Self { program, environment, output: folder.output(), timeout: options.timeout }
    }

    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// Runs it; `command` goes to its standard input. Output goes through a file: a daemon keeps a pipe open for ever.
    pub(super) fn run(&self, arguments: &[&str], command: Option<&str>) -> Result<Answer, Failure> {
        let start = || -> std::io::Result<Child> {
            let output = File::create(&self.output)?;
            let mut process = Command::new(&self.program);
            process.args(arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
            for name in FOREIGN {
                process.env_remove(name);
            }
            process
                .stdin(if command.is_some() { Stdio::piped() } else { Stdio::null() })
                .stdout(output.try_clone()?)
                .stderr(output)
                // An interrupt at the terminal is for the coordinator alone, which then stops the daemon in order.
                .process_group(0)
                .spawn()
        };
        let mut child = start().map_err(Failure::Start)?;
        if let (Some(command), Some(mut input)) = (command, child.stdin.take()) {
            // A program that ended early has said why; the pipe's own error says less.
            let _ = writeln!(input, "{command}");
        }
        let is_success = wait(&mut child, self.timeout).ok_or(Failure::Timeout)?;
        let text = std::fs::read(&self.output).unwrap_or_default();
        Ok(Answer { is_success, text: String::from_utf8_lossy(&text).into_owned() })
    }

    /// `13.0` out of what `-v` prints.
    pub(super) fn version(&self) -> Option<String> {
        let answer = self.run(&["-v"], None).ok().filter(|answer| answer.is_success)?;
        version_in(&answer.text)
    }
}

/// The first number with a point in what a program prints.
pub(crate) fn version_in(text: &str) -> Option<String> {
    text.split(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .map(|word| word.trim_matches('.'))
        .find_map(|word| {
            let parts: Vec<&str> = word.split('.').collect();
            (parts.len() >= 2 && parts.iter().all(|part| !part.is_empty())).then(|| word.to_owned())
        })
}

/// Whether the child ended well; `None` where it did not end, and was killed.
fn wait(child: &mut Child, timeout: Duration) -> Option<bool> {
    let started = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.success()),
            Ok(None) if started.elapsed() < timeout => {}
            // A child whose state cannot be asked is treated as one that hangs.
            Ok(None) | Err(_) => break,
        }
        // Calls take a few milliseconds; a hanging one need not be looked at often.
        std::thread::sleep(Duration::from_millis(if started.elapsed().as_millis() < 100 { 2 } else { 20 }));
    }
    let _ = child.kill();
    // One that hangs in the driver does not even die; it is left to the system.
    super::process::wait_for(Duration::from_secs(1), || !matches!(child.try_wait(), Ok(None)));
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_any_sentence() {
        for (text, version) in [
            ("13.0\n", Some("13.0")),
            ("CUDA MPS Control, version: 12.8.1", Some("12.8.1")),
            ("version 580", None),
            ("", None),
            ("v13.1.", Some("13.1")),
        ] {
            assert_eq!(version_in(text).as_deref(), version, "{text}");
        }
    }

    #[test]
    fn a_child_that_hangs_is_killed() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let begin = Instant::now();
        assert_eq!(wait(&mut child, Duration::from_millis(50)), None);
        assert!(begin.elapsed() < Duration::from_secs(5));
        assert!(child.try_wait().unwrap().is_some(), "it is gone");
    }
}
