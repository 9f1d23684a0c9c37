//! A captured journal as a device.

use crate::{campaign, run_simulated, small};
use elastico_profiler::devices::recorded::Recorded;
use elastico_profiler::{Device, RunOptions, Stopped, assemble, run};
use elastico_workloads::Catalogue;

#[test]
fn a_replay_comes_to_the_same_numbers() {
    let captured = tempfile::tempdir().unwrap();
    run_simulated(&small(), captured.path(), &RunOptions::default());
    let expected = assemble(captured.path()).unwrap();

    let mut device = Recorded::read(captured.path()).unwrap();
    assert_eq!(device.identity().model, "h100");
    let name = captured.path().display().to_string();
    let replayed = campaign(&small().to_toml().replace("sim:h100", &format!("recorded:{name}")));
    let folder = tempfile::tempdir().unwrap();
    let report = run(
        &replayed,
        &Catalogue::bundled(),
        &mut device,
        folder.path(),
        &RunOptions::default(),
        &mut |_| {},
    )
    .unwrap();
    assert_eq!(report.stopped, Stopped::Complete);
    let found = assemble(folder.path()).unwrap();
    assert_eq!(found.pairs.rows(), expected.pairs.rows());
    assert_eq!(found.isolated.rows(), expected.isolated.rows());
    let mut matched = 0;
    for before in expected.pairs.pair_rows().unwrap() {
        let key = (&before.pair_id, &before.side, before.repeat_total, &before.flags);
        let after = found
            .pairs
            .pair_rows()
            .unwrap()
            .find(|row| (&row.pair_id, &row.side, row.repeat_total, &row.flags) == key)
            .unwrap_or_else(|| panic!("{key:?} is missing"));
        assert_eq!(after.device_kind, "recorded");
        assert_eq!(after.outcome, before.outcome, "{before:?}");
        for (a, b) in [
            (before.slowdown_ratio, after.slowdown_ratio),
            (before.slowdown_lower_ratio, after.slowdown_lower_ratio),
            (before.isolated_step_seconds, after.isolated_step_seconds),
        ] {
            assert!((a / b - 1.0).abs() < 1e-5, "{before:?} {after:?}");
        }
        assert_eq!(before.steps_total as u32, after.steps_total as u32);
        matched += 1;
    }
    assert!(matched > 20);
}
