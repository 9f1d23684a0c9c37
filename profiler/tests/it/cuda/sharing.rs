//! Each mode is in effect, or the trial says that it is not.

use super::Scene;
use elastico_core::Outcome;

const PAIR: [&str; 2] = ["st_fma.m10k_n66", "tr_mlp.b64_h512_bf16"];

#[test]
fn a_time_sliced_pair_meets_no_daemon() {
    let Some(scene) = Scene::new("") else { return };
    let seen = scene.trials(PAIR, "time_slice", 1);
    assert_eq!(seen[0].outcome, Outcome::Ok, "{:?}", seen[0].attempts);
    assert_eq!(seen[0].effective.as_ref(), Some(&seen[0].sharing));
    println!("{:#?}", seen[0]);
}
