//! The folder of one daemon: pipes, logs, and a record of whose it is.

use super::MpsError;
use super::process::{MpsProcess, Process, mps_processes};
use std::collections::BTreeSet;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// How names of these folders begin.
const PREFIX: &str = "mps-";
/// `sun_path` holds 108 bytes with the closing zero.
const SOCKET_PATH: usize = 107;
/// The longest name that MPS gives to a pipe.
const LONGEST_PIPE: &str = "control_privileged";
/// Bytes of each log that are kept for messages.
const LOG_TAIL: u64 = 4096;
/// Lines of each log.
const LOG_LINES: usize = 10;

#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes a folder of its own inside `parent`, with the coordinator's identity in it.
    pub(super) fn create(parent: &Path, program: &Path) -> Result<Self, MpsError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let fail = |folder: &Path| {
            let folder = folder.to_owned();
            move |source| MpsError::Folder { folder, source }
        };
        std::fs::create_dir_all(parent).map_err(fail(parent))?;
        let parent = parent.canonicalize().map_err(fail(parent))?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = Self { path: parent.join(format!("{PREFIX}{}-{number}", std::process::id())) };
        let longest = folder.pipes().join(LONGEST_PIPE).as_os_str().len();
        if longest > SOCKET_PATH {
            return Err(MpsError::TooLong { folder: parent, excess: longest - SOCKET_PATH });
        }
        // A former process of the same id may have left one that the sweep could not remove.
        let _ = std::fs::remove_dir_all(&folder.path);
        let owner = Process::this().map(Process::to_text).unwrap_or_default();
        std::fs::DirBuilder::new().mode(0o700).create(&folder.path).map_err(fail(&folder.path))?;
        // Written before anything is started, so that whatever comes to run here has an owner.
        let record = format!("{owner}\n{}\n", program.display());
        std::fs::write(folder.path.join("owner"), record).map_err(fail(&folder.path))?;
        for part in [folder.pipes(), folder.logs()] {
            std::fs::create_dir(&part).map_err(fail(&part))?;
        }
        Ok(folder)
    }

    /// The folders inside `parent` whose coordinator is gone, each with the control program that it used.
    pub(super) fn abandoned(parent: &Path) -> Vec<(Self, PathBuf)> {
        let Ok(parent) = parent.canonicalize() else { return Vec::new() };
        let mut left: Vec<(Self, PathBuf)> = std::fs::read_dir(parent)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX)))
            .filter_map(|entry| {
                let record = std::fs::read_to_string(entry.path().join("owner")).ok()?;
                let (owner, program) = record.split_once('\n')?;
                let is_abandoned = !Process::from_text(owner)?.is_alive();
                is_abandoned.then(|| (Self { path: entry.path() }, PathBuf::from(program.trim_end())))
            })
            .collect();
        left.sort_by(|first, second| first.0.path.cmp(&second.0.path));
        left
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn pipes(&self) -> PathBuf {
        self.path.join("pipe")
    }

    fn logs(&self) -> PathBuf {
        self.path.join("log")
    }

    /// Where the control program's output goes.
    pub(super) fn output(&self) -> PathBuf {
        self.path.join("output")
    }

    pub(super) fn has_pipe(&self) -> bool {
        self.pipes().join("control").exists()
    }

    pub(super) fn environment(&self) -> Vec<(String, String)> {
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        vec![
            ("CUDA_MPS_PIPE_DIRECTORY".to_owned(), text(self.pipes())),
            ("CUDA_MPS_LOG_DIRECTORY".to_owned(), text(self.logs())),
        ]
    }

    /// Keeps the daemon's identity for a coordinator that comes later.
    pub(super) fn record(&self, daemon: Process) {
        // Without it the daemon is still found by its environment.
        let _ = std::fs::write(self.path.join("daemon"), daemon.to_text());
    }

    /// The control daemon that serves this folder.
    pub(super) fn daemon(&self) -> Option<Process> {
        let pipes = self.pipes();
        let ours =
            mps_processes().into_iter().find(|found| found.is_of(&pipes) && found.name().contains("control"));
        ours.map(|found| found.process()).or_else(|| self.recorded()).or_else(|| self.written())
    }

    /// The process whose id the daemon wrote beside its pipes, for a system that hides environments.
    fn written(&self) -> Option<Process> {
        let text = std::fs::read_to_string(self.pipes().join("nvidia-cuda-mps-control.pid")).ok()?;
        let id: u32 = text.trim().parse().ok()?;
        let hidden = mps_processes().into_iter().filter(MpsProcess::is_hidden);
        hidden.map(|found| found.process()).find(|process| process.id() == id)
    }

    fn recorded(&self) -> Option<Process> {
        let text = std::fs::read_to_string(self.path.join("daemon")).ok()?;
        Process::from_text(&text).filter(|process| process.is_alive())
    }

    /// All processes that run for this folder: the daemon and its servers.
    pub(super) fn processes(&self) -> Vec<Process> {
        let pipes = self.pipes();
        let mut seen = BTreeSet::new();
        mps_processes()
            .into_iter()
            .filter(|found| found.is_of(&pipes))
            .map(|found| found.process())
            .chain(self.recorded())
            .chain(self.written())
            .filter(|process| seen.insert(process.id()))
            .collect()
    }

    /// The last lines of both logs.
    pub(super) fn log_tail(&self) -> String {
        let mut text = String::new();
        for name in ["server.log", "control.log"] {
            let tail = tail(&self.logs().join(name)).unwrap_or_default();
            for line in &tail[tail.len().saturating_sub(LOG_LINES)..] {
                text.push_str(line);
                text.push('\n');
            }
        }
        text
    }

    pub(super) fn remove(&self) {
        // What cannot be removed now is found by the next sweep.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn tail(path: &Path) -> std::io::Result<Vec<String>> {
    let mut file = std::fs::File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL)))?;
    let mut bytes = Vec::new();
    file.take(LOG_TAIL).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_whose_owner_lives_is_not_abandoned() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::create(parent.path(), Path::new("/bin/control")).unwrap();
        assert!(Folder::abandoned(parent.path()).is_empty());
        let this = Process::this().unwrap().to_text();
        let (id, started) = this.split_once(' ').unwrap();
        let former = format!("{id} {}\n/bin/control\n", started.parse::<u64>().unwrap() - 1);
        std::fs::write(folder.path.join("owner"), former).unwrap();
        let left = Folder::abandoned(parent.path());
        assert_eq!(left.len(), 1, "the same id at another time is another owner");
        assert_eq!(left[0].1, Path::new("/bin/control"));
        // A folder without a record is nobody's.
        std::fs::create_dir(parent.path().join("mps-1-0")).unwrap();
        assert_eq!(Folder::abandoned(parent.path()).len(), 1);
    }

    #[test]
    fn a_long_path_is_refused_before_a_socket_is() {
        let parent = tempfile::tempdir().unwrap();
        let deep = parent.path().join("a".repeat(90));
        let error = Folder::create(&deep, Path::new("/bin/control")).unwrap_err();
        assert!(matches!(error, MpsError::TooLong { .. }), "{error}");
    }

    #[test]
    fn the_tail_of_a_log_is_its_last_lines() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::create(parent.path(), Path::new("/bin/control")).unwrap();
        assert_eq!(folder.log_tail(), "");
        let lines = (0..1000).map(|line| format!("line {line}")).collect::<Vec<_>>().join("\n") + "\n";
        std::fs::write(folder.logs().join("control.log"), lines).unwrap();
        let tail = folder.log_tail();
        assert!(tail.ends_with("line 998\nline 999\n"), "{tail}");
        assert_eq!(tail.lines().count(), LOG_LINES);
    }
}
