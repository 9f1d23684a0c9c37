//! The Multi-Process Service: is its control program here, is its daemon running.

use super::{Area, Check, Finding, ProbeOptions, Status, process_names};
use crate::mps::version_in;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const CONTROL: &str = "nvidia-cuda-mps-control";

pub(super) fn look(options: &ProbeOptions, tell: &mut dyn FnMut(Finding)) {
    let pipes = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").map_or("/tmp/nvidia-mps".into(), PathBuf::from);
    let program = program_on(std::env::var_os("PATH").as_deref());
    tell(Finding::Check(daemon(&options.process_folder, &pipes, program.is_some())));
    // Last: a program that hangs must not hide the rest.
    tell(Finding::Check(control(program.as_deref())));
}

fn program_on(path: Option<&OsStr>) -> Option<PathBuf> {
    std::env::split_paths(path?).map(|folder| folder.join(CONTROL)).find(|program| program.is_file())
}

fn control(program: Option<&Path>) -> Check {
    let check = |status, finding: String| Check::new("mps.control", Area::Mps, status, finding);
    let Some(program) = program else {
        return check(Status::Absent, format!("no {CONTROL} on PATH")).fix(
            "install the driver's compute utilities (nvidia-compute-utils), or measure with time_slice",
        );
    };
    let place = program.display();
    match Command::new(program).arg("-v").stdin(Stdio::null()).output() {
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            match version_in(&String::from_utf8_lossy(&text)) {
                Some(version) => check(Status::Ok, format!("version {version}, {place}")),
                None => check(Status::Ok, format!("{place}, which does not tell its version")),
            }
        }
        Err(error) => check(Status::Blocked, format!("{place} cannot be run: {error}"))
            .fix("install the driver's compute utilities again (nvidia-compute-utils)"),
    }
}

fn daemon(process_folder: &Path, pipes: &Path, has_program: bool) -> Check {
    // Command names are cut to 15 bytes: the daemon and its server look alike.
    let running =
        process_names(process_folder).into_iter().find(|(_, name)| name.starts_with("nvidia-cuda-mps"));
    let has_pipe = pipes.join("control").exists();
    let check = |status, finding: String| Check::new("mps.daemon", Area::Mps, status, finding);
    match (running, has_pipe) {
        (Some((process, _)), true) => {
            check(Status::Ok, format!("process {process} serves {}", pipes.display()))
        }
        (Some((process, _)), false) => check(
            Status::Warn,
            format!(
                "process {process} runs, but not at {}: programs would silently run without MPS",
                pipes.display()
            ),
        )
        .fix("set CUDA_MPS_PIPE_DIRECTORY to the daemon's folder"),
        (None, true) => {
            check(Status::Warn, format!("{} is left over from a daemon that is gone", pipes.display()))
                .fix(format!("remove {} and start {CONTROL} -d", pipes.display()))
        }
        (None, false) if has_program => {
            check(Status::Absent, "no daemon is running; a campaign starts its own".to_owned())
                .fix(format!("{CONTROL} -d"))
        }
        (None, false) => check(Status::Absent, "no daemon is running".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemon_and_pipe_must_both_be_there() {
        let folder = tempfile::tempdir().unwrap();
        let (processes, pipes) = (folder.path().join("proc"), folder.path().join("pipes"));
        std::fs::create_dir_all(processes.join("40")).unwrap();
        std::fs::create_dir(&pipes).unwrap();
        assert_eq!(daemon(&processes, &pipes, true).status, Status::Absent);
        std::fs::write(pipes.join("control"), b"").unwrap();
        assert_eq!(daemon(&processes, &pipes, true).status, Status::Warn);
        std::fs::write(processes.join("40/comm"), "nvidia-cuda-mps\n").unwrap();
        assert_eq!(daemon(&processes, &pipes, true).status, Status::Ok);
        std::fs::remove_file(pipes.join("control")).unwrap();
        assert_eq!(daemon(&processes, &pipes, true).status, Status::Warn);
    }

    #[test]
    fn the_program_is_looked_for_on_the_path() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(program_on(Some(folder.path().as_os_str())), None);
        let program = folder.path().join(CONTROL);
        std::fs::write(&program, b"").unwrap();
        assert_eq!(program_on(Some(folder.path().as_os_str())), Some(program));
        assert_eq!(program_on(None), None);
    }
}
