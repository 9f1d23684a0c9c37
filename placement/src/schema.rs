//! JSON schemas of the files that users write, and of the answers that programs read.

use crate::cluster::Cluster;
use crate::explain::Explanation;
use crate::jobs::Jobs;
use crate::options::Options;
use crate::placement::Placement;
use crate::session::SessionAnswer;
use crate::whatif;

/// The JSON schemas of `cluster.toml`, `jobs.toml`, the options, placements, explanations, the answers of a session and those of [`crate::whatif`]: (file name, JSON text). They are committed in
/// `placement/schemas`, and a test fails when those are stale.
pub fn schemas() -> Vec<(&'static str, String)> {
    let text = |schema: &schemars::Schema| {
        let mut text = serde_json::to_string_pretty(schema).expect("a schema is plain JSON");
        text.push('\n');
        text
    };
    vec![
        ("cluster.json", text(&schemars::schema_for!(Cluster))),
        ("explanation.json", text(&schemars::schema_for!(Explanation))),
        ("jobs.json", text(&schemars::schema_for!(Jobs))),
        ("options.json", text(&schemars::schema_for!(Options))),
        ("placement.json", text(&schemars::schema_for!(Placement))),
        ("session.json", text(&schemars::schema_for!(SessionAnswer))),
        ("whatif-admit.json", text(&schemars::schema_for!(whatif::AdmitAnswer))),
        ("whatif-capacity.json", text(&schemars::schema_for!(whatif::CapacityAnswer))),
        ("whatif-charge.json", text(&schemars::schema_for!(whatif::ChargeAnswer))),
        ("whatif-harmed.json", text(&schemars::schema_for!(whatif::HarmedAnswer))),
        ("whatif-pair.json", text(&schemars::schema_for!(whatif::PairAnswer))),
        ("whatif-partners.json", text(&schemars::schema_for!(whatif::PartnersAnswer))),
        ("whatif-price.json", text(&schemars::schema_for!(whatif::PriceAnswer))),
        ("whatif-robust.json", text(&schemars::schema_for!(whatif::RobustAnswer))),
        ("whatif-size.json", text(&schemars::schema_for!(whatif::SizeAnswer))),
    ]
}
