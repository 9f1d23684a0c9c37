//! JSON schemas of the files that users write.

use crate::cluster::Cluster;
use crate::jobs::Jobs;
use crate::options::Options;

/// The JSON schemas of `cluster.toml`, `jobs.toml` and the options: (file name, JSON text). They are committed in
/// `placement/schemas`, and a test fails when those are stale.
pub fn schemas() -> Vec<(&'static str, String)> {
    let text = |schema: &schemars::Schema| {
        let mut text = serde_json::to_string_pretty(schema).expect("a schema is plain JSON");
        text.push('\n');
        text
    };
    vec![
        ("cluster.json", text(&schemars::schema_for!(Cluster))),
        ("jobs.json", text(&schemars::schema_for!(Jobs))),
        ("options.json", text(&schemars::schema_for!(Options))),
    ]
}
