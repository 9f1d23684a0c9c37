//! The MPS daemon's owner against the stand-in control program, with every fault that it can be scripted to have.

#![expect(clippy::unwrap_used, reason = "a case that cannot be set up shall fail")]

use crate::support::{alone, scene, stand_ins};
use elastico_core::{Hint as _, Outcome};
use elastico_gpu::mps::{Daemon, DaemonOptions, MpsError, sweep, without_mps};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Set for a coordinator that is to be killed.
const PROGRAM: &str = "ELASTICO_TEST_MPS_PROGRAM";
const FOLDER: &str = "ELASTICO_TEST_MPS_FOLDER";
/// The first device of the stand-ins.
const GPU: &str = "GPU-57a1d100-e1a5-4c00-8000-000000000000";

/// A control program with a script of its own: the environment of this test's process is all tests' environment.
struct Case {
    folder: TempDir,
    program: PathBuf,
}

impl Case {
    fn new(lines: &str) -> Option<Self> {
        let program = stand_ins()?.join("nvidia-cuda-mps-control");
        let mock = scene(lines).keep();
        let folder = tempfile::Builder::new().prefix("m").tempdir().unwrap();
        std::fs::rename(&mock, folder.path().join("mock")).unwrap();
        let wrapper = folder.path().join("nvidia-cuda-mps-control");
        let text = format!(
            "#!/bin/sh\nELASTICO_MOCK='{}' exec '{}' \"$@\"\n",
            folder.path().join("mock").display(),
            program.display()
        );
        std::fs::write(&wrapper, text).unwrap();
        std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755)).unwrap();
        Some(Self { folder, program: wrapper })
    }

    fn options(&self) -> DaemonOptions {
        DaemonOptions {
            program: Some(self.program.clone()),
            folder: self.parent(),
            device_uuid: Some(GPU.to_owned()),
            timeout: Duration::from_millis(800),
        }
    }

    fn parent(&self) -> PathBuf {
        self.folder.path().join("d")
    }

    fn refusal(&self) -> MpsError {
        let error = Daemon::start(&self.options()).unwrap_err();
        assert!(error.hint().is_some(), "{error}");
        assert_eq!(error.outcome(), Outcome::MpsFault);
        assert_nothing_left(&self.parent());
        error
    }
}

/// MPS processes whose environment names this folder.
fn processes_of(parent: &Path) -> Vec<u32> {
    let wanted = format!("CUDA_MPS_PIPE_DIRECTORY={}", parent.canonicalize().unwrap().display());
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|id| {
            let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            let variables = std::fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
            !stat.contains(") Z ") && String::from_utf8_lossy(&variables).contains(&wanted)
        })
        .collect()
}

fn assert_nothing_left(parent: &Path) {
    assert_eq!(processes_of(parent), [0_u32; 0], "processes are left in {}", parent.display());
    assert_eq!(std::fs::read_dir(parent).unwrap().count(), 0, "folders are left in {}", parent.display());
}

#[test]
fn a_daemon_is_started_asked_and_stopped() {
    let Some(case) = Case::new("mps_version 13.0\n") else { return };
    let daemon = Daemon::start(&case.options()).unwrap();
    assert!(daemon.is_alive() && daemon.is_healthy());
    assert_eq!(daemon.version(), Some("13.0"));
    assert!(daemon.servers().unwrap().is_empty(), "the first client starts it");
    assert!(daemon.log_tail().contains("Starting control daemon"), "{}", daemon.log_tail());
    assert_eq!(processes_of(&case.parent()), [daemon.process_id().unwrap()]);

    let environment = daemon.client_environment(30, Some(8 << 30));
    let value = |name: &str| environment.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    assert_eq!(value("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), Some("30"));
    assert_eq!(value("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), Some("0=8192M"));
    assert!(Path::new(value("CUDA_MPS_PIPE_DIRECTORY").unwrap()).join("control").exists());

    // A client came: the daemon has a server, which is stopped with it.
    std::fs::write(daemon.pipes().join("clients"), format!("{}\n", std::process::id())).unwrap();
    assert_eq!(daemon.servers().unwrap().len(), 1);
    assert_eq!(processes_of(&case.parent()).len(), 2);
    assert!(daemon.is_healthy());
    daemon.stop().unwrap();
    assert_nothing_left(&case.parent());
}

#[test]
fn dropping_and_panicking_stop_it() {
    let Some(case) = Case::new("") else { return };
    drop(Daemon::start(&case.options()).unwrap());
    assert_nothing_left(&case.parent());
    let options = case.options();
    let panicked = std::panic::catch_unwind(|| {
        let _daemon = Daemon::start(&options).unwrap();
        std::panic::resume_unwind(Box::new("a panic without its message"));
    });
    assert!(panicked.is_err());
    assert_nothing_left(&case.parent());
}

#[test]
fn a_daemon_that_does_not_start_is_told_apart() {
    let Some(case) = Case::new("mps_start fail\n") else { return };
    let error = case.refusal();
    let MpsError::Refused { says, log, .. } = &error else { panic!("{error}") };
    assert!(says.contains("cannot be started") && log.contains("prohibited mode"), "{error}");
    assert!(error.to_string().ends_with("device is in prohibited mode"), "{error}");

    let case = Case::new("mps_start hang\n").unwrap();
    let begin = Instant::now();
    let error = case.refusal();
    assert!(matches!(error, MpsError::StartTimeout { .. }), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(6), "{:?}", begin.elapsed());

    let case = Case::new("mps_start no_pipe\n").unwrap();
    let error = case.refusal();
    assert!(matches!(error, MpsError::NoPipe { .. }), "{error}");

    let case = Case::new("mps_start die\n").unwrap();
    let error = case.refusal();
    assert!(matches!(error, MpsError::Died { .. }), "{error}");
    assert!(error.log().unwrap().contains("the driver is gone"), "{error}");

    // A pipe and the id of a dead process are no daemon.
    let case = Case::new("mps_start stale\n").unwrap();
    let error = case.refusal();
    assert!(matches!(error, MpsError::Died { .. }), "{error}");
}

#[test]
fn a_control_program_that_hangs_or_refuses_costs_its_time_limit() {
    let Some(case) = Case::new("mps_control hang\n") else { return };
    let begin = Instant::now();
    let error = case.refusal();
    assert!(
        matches!(&error, MpsError::ControlTimeout { command, .. } if command == "get_server_list"),
        "{error}"
    );
    assert!(begin.elapsed() < Duration::from_secs(9), "{:?}", begin.elapsed());

    let case = Case::new("mps_control refuse\n").unwrap();
    let error = case.refusal();
    assert!(
        matches!(&error, MpsError::Control { says, .. } if says.contains("Permission denied")),
        "{error}"
    );

    // Only `quit` hangs: the daemon serves, and is ended by force.
    let case = Case::new("mps_control hang quit\n").unwrap();
    let daemon = Daemon::start(&case.options()).unwrap();
    assert!(daemon.is_healthy());
    daemon.stop().unwrap();
    assert_nothing_left(&case.parent());
}

#[test]
fn a_daemon_that_ignores_quit_is_killed() {
    let Some(case) = Case::new("mps_quit ignore\n") else { return };
    let daemon = Daemon::start(&case.options()).unwrap();
    daemon.stop().unwrap();
    assert_nothing_left(&case.parent());
}

#[test]
fn a_daemon_that_dies_is_noticed_and_restarted() {
    let Some(case) = Case::new("mps_die_after 2\n") else { return };
    let mut daemon = Daemon::start(&case.options()).unwrap();
    assert!(daemon.is_alive());
    // The second command is its last.
    let _ = daemon.servers();
    let deadline = Instant::now() + Duration::from_secs(2);
    while daemon.is_alive() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!daemon.is_alive() && !daemon.is_healthy());
    let error = daemon.servers().unwrap_err();
    assert!(matches!(&error, MpsError::Control { log, .. } if log.contains("dying as scripted")), "{error}");
    let (before, pipes) = (daemon.process_id(), daemon.pipes());
    daemon.restart().unwrap();
    assert!(daemon.is_alive() && daemon.process_id() != before && daemon.pipes() != pipes);
    drop(daemon);
    assert_nothing_left(&case.parent());
}

#[test]
fn a_server_in_fault_is_not_healthy() {
    let Some(case) = Case::new("mps_server_status FAULT\n") else { return };
    let daemon = Daemon::start(&case.options()).unwrap();
    assert!(daemon.is_healthy(), "without a server there is nothing in fault");
    std::fs::write(daemon.pipes().join("clients"), "1\n").unwrap();
    assert!(daemon.is_alive() && !daemon.is_healthy());
}

#[test]
fn an_unknown_version_is_told_as_it_is() {
    let Some(case) = Case::new("mps_version 12.8\n") else { return };
    assert_eq!(Daemon::start(&case.options()).unwrap().version(), Some("12.8"));
    let case = Case::new("mps_version unknown\n").unwrap();
    assert_eq!(Daemon::start(&case.options()).unwrap().version(), None);
}

/// The coordinator of the next test, which is killed while its daemon runs.
#[test]
fn coordinator() {
    let (Some(program), Some(folder)) = (std::env::var_os(PROGRAM), std::env::var_os(FOLDER)) else { return };
    let options = DaemonOptions {
        program: Some(program.into()),
        folder: folder.into(),
        device_uuid: Some(GPU.to_owned()),
        timeout: Duration::from_secs(2),
    };
    let daemon = Daemon::start(&options).unwrap();
    std::fs::write(daemon.pipes().join("clients"), "1\n").unwrap();
    assert_eq!(daemon.servers().unwrap().len(), 1);
    println!("@{} {}", daemon.process_id().unwrap(), daemon.pipes().parent().unwrap().display());
    std::thread::sleep(Duration::from_secs(30));
}

#[test]
fn what_a_killed_coordinator_left_is_swept_and_nothing_else() {
    let Some(case) = Case::new("") else { return };
    let mut coordinator = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "mps::coordinator", "--nocapture"])
        .env(PROGRAM, &case.program)
        .env(FOLDER, case.parent())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(coordinator.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.split_once('@').map(|(_, said)| said.to_owned()));
    coordinator.kill().unwrap();
    coordinator.wait().unwrap();
    let said = said.expect("it started a daemon");
    let (left, folder) = said.split_once(' ').unwrap();
    let left: u32 = left.parse().unwrap();
    assert_eq!(processes_of(&case.parent()).len(), 2, "the daemon and its server outlive their coordinator");

    // A stranger's daemon beside: same program, other folder.
    let stranger = Case::new("").unwrap();
    let other = Daemon::start(&stranger.options()).unwrap();
    let ours = Daemon::start(&case.options()).unwrap();
    assert!(!Path::new(folder).exists());
    assert_eq!(processes_of(&case.parent()), [ours.process_id().unwrap()]);
    assert_ne!(ours.process_id(), Some(left));
    assert!(ours.is_healthy() && other.is_healthy());
    assert_eq!(sweep(&case.parent(), Duration::from_secs(2)), 0, "a living coordinator's daemon stays");
    assert!(ours.is_healthy());
}

#[test]
fn one_call_at_a_time_answers_all_callers() {
    let Some(case) = Case::new("") else { return };
    let daemon = Daemon::start(&case.options()).unwrap();
    std::thread::scope(|scope| {
        let callers: Vec<_> =
            (0..4).map(|_| scope.spawn(|| (0..5).filter(|_| daemon.servers().is_ok()).count())).collect();
        for caller in callers {
            assert_eq!(caller.join().unwrap(), 5);
        }
    });
}

#[test]
fn without_a_program_there_is_absence_and_without_mps_no_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let options = DaemonOptions {
        program: Some(folder.path().join("none")),
        folder: folder.path().to_owned(),
        device_uuid: None,
        timeout: Duration::from_secs(1),
    };
    let error = Daemon::start(&options).unwrap_err();
    assert!(error.is_absence());
    assert_eq!(error.outcome(), Outcome::Unsupported);
    assert!(error.hint().unwrap().contains("nvidia-compute-utils"));
    let environment = without_mps(folder.path());
    assert_eq!(environment, [("CUDA_MPS_PIPE_DIRECTORY".to_owned(), folder.path().display().to_string())]);
}

#[test]
fn a_strangers_daemon_is_in_the_way_only_where_the_gpu_takes_one_process() {
    const NAME: &str = "mps::a_strangers_daemon_is_in_the_way_only_where_the_gpu_takes_one_process";
    // A GPU of its own, so that the daemons of other tests are not in the way.
    alone(NAME, "devices 2\ncompute_mode 3\n", || {
        let Some(case) = Case::new("") else { return };
        let uuid = Some("GPU-57a1d100-e1a5-4c00-8000-000000000001".to_owned());
        let stranger = Daemon::start(&DaemonOptions { device_uuid: uuid.clone(), ..case.options() }).unwrap();
        let other = Case::new("").unwrap();
        let error = Daemon::start(&DaemonOptions { device_uuid: uuid, ..other.options() }).unwrap_err();
        let MpsError::Foreign { process, .. } = &error else { panic!("{error}") };
        assert_eq!(Some(*process), stranger.process_id());
        assert!(error.hint().unwrap().contains("nvidia-smi -c DEFAULT"));
        assert!(stranger.is_healthy());
    });
}
