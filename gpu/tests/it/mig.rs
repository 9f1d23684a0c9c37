//! MIG instances as the stand-in NVML tells them.

use crate::support::alone;
use elastico_core::Hint as _;
use elastico_gpu::libraries::Libraries;
use elastico_gpu::mig::{MigError, instances};

#[test]
fn instances_are_listed_with_their_profiles() {
    let script = "devices 2\n\
        mig MIG-11111111-2222-3333-4444-000000000001 3g.71gb 60 71000000000 1\n\
        mig MIG-11111111-2222-3333-4444-000000000002 1c.3g.71gb 16 71000000000 1\n";
    alone("mig::instances_are_listed_with_their_profiles", script, || {
        let found = instances(&Libraries::from_environment(), 1).unwrap();
        let told: Vec<_> = found
            .iter()
            .map(|instance| {
                (instance.uuid.as_str(), instance.profile.as_str(), instance.memory, instance.is_shared())
            })
            .collect();
        assert_eq!(
            told,
            [
                ("MIG-11111111-2222-3333-4444-000000000001", "3g.71gb", 71_000_000_000, false),
                ("MIG-11111111-2222-3333-4444-000000000002", "1c.3g.71gb", 71_000_000_000, true),
            ]
        );
        assert!(found.iter().all(|instance| instance.device_index == 1));
        assert_eq!(found[0].multiprocessors, Some(60));
    });
}

#[test]
fn a_gpu_that_is_not_divided_is_refused_with_what_an_administrator_can_do() {
    alone(
        "mig::a_gpu_that_is_not_divided_is_refused_with_what_an_administrator_can_do",
        "mig_off 1\n",
        || {
            let error = instances(&Libraries::from_environment(), 0).unwrap_err();
            assert!(matches!(error, MigError::Off { device_index: 0, is_pending: false }), "{error}");
            assert!(error.hint().unwrap().contains("nvidia-smi -i 0 -mig 1"));
            let error = instances(&Libraries::from_environment(), 7).unwrap_err();
            assert!(matches!(error, MigError::Nvml(_)), "{error}");
        },
    );
}

#[test]
fn a_gpu_without_the_function_has_no_mig() {
    let script = "fault nvmlDeviceGetMigMode 3 always\n";
    alone("mig::a_gpu_without_the_function_has_no_mig", script, || {
        let error = instances(&Libraries::from_environment(), 0).unwrap_err();
        assert!(matches!(error, MigError::Unsupported { device_index: 0 }), "{error}");
        assert!(error.hint().unwrap().contains("mps"));
    });
}
