//! The reference of the dataset, generated from the schema.

use crate::labels::OWN_HARNESS;
use crate::manifest::SCHEMA;
use crate::schema::{ColumnKind, FLAGS, TableKind};
use elastico_core::{COUNTERS, DeviceKind, Outcome, WorkloadKind};
use std::fmt::Write as _;

/// The mapping file is read by serde and not by a list that could be printed, so its reference is written by hand.
const MAPPING: &str = r#"## Pairs from a CSV file

`elastico dataset import pairs` reads any CSV file with one line per subject of a co-run, given a mapping file. `elastico dataset
import pairs --help` prints one to start from; it and two others are in `datasets/mappings/`. Unknown fields are refused; each
column that is named must be in the CSV file, once.

Each row that this or another import would write is held against the rules above, and a slowdown against 0.5 to 1000, what a
model file can hold: outside it, columns are swapped or a unit is another. The import then names line and column and writes nothing.

| field of the mapping | meaning |
|---|---|
| `schema` | `elastico.pairs_mapping/1` |
| `name` | the `source` of the rows, and their harness; not `elastico` |
| `[facts]` | text for the provenance: `publication`, `repository`, `licence`; `shipping = "forbidden"` keeps numbers and models at home |
| `flags` | flags of each row |
| `one_sided` | `true`: only subjects were measured, each line is a trial of its own, flagged `one_sided` |
| `[columns]` `subject`, `co_runner` | required: columns with the two workloads |
| `[columns]` `subject_family`, `subject_kind`, `subject_batch`, `subject_share_percent`, and the same with `co_runner_` | always both sides; a family that is not given is the workload; shares are whole percentages |
| `[columns]` `device`, `sharing` | or constants |
| `[columns]` `pair` | what the lines of one co-run have in common, beyond workloads, device and sharing |
| `[columns]` `side` | `a` or `b`; otherwise derived from the order of the names |
| `[constants]` `device`, `sharing`, `kind` | values for what has no column |
| `[sharing_names]` | the file's words for sharing; `mps` takes its shares from the share columns |
| `[filter]` | column = list of texts; other lines are left out and counted |
| `[values]` `isolated`, `colocated`, `unit` | columns of the two measured values; `seconds`, `milliseconds` or `per_second` |
| `[values]` `slowdown` | in their place: a column with the slowdown |
| `[values]` `colocated_deviation` | standard deviation of the co-located value; becomes the interval, flagged `interval_one_deviation` |
| `[values]` `isolated_at` | `full` (default), or `share`: measured at the share of the co-run |
| `[values]` `slowdown_is_interference` | with `isolated_at = "share"`: must be said: `true` records the interference as slowdown, flagged `slowdown_at_share`; `false` leaves the slowdown null |
| `[counters]` | isolated column = `{ subject = column, co_runner = column, scale = factor }` |

Lines of one pair are matched in the order of the file: the n-th line of a side is its n-th repeat. A line without its other
side is left out and counted.
"#;

/// The text of `docs/reference/dataset.md`, in Markdown. A test fails where the committed file differs.
pub fn reference() -> String {
    let mut text = String::new();
    write_reference(&mut text).expect("a string takes any text");
    text
}

fn write_reference(text: &mut String) -> std::fmt::Result {
    writeln!(
        text,
        "<!-- Generated from the schema in datasets/src/schema.rs; do not edit. -->\n\
         # The dataset\n\n\
         Schema `{SCHEMA}`. A dataset is a folder:\n\n\
         ```text\n\
         manifest.json             schema, device kinds, row counts, content digest, exclusions, provenance, parts\n\
         isolated/part-0.parquet   one row per workload x device x share x repeat\n\
         pairs/part-0.parquet      one row per subject per trial: two rows per co-run\n\
         ```\n\n\
         Any number of `*.parquet` parts that the manifest lists is read, in the order of their names. Numbers are 64-bit floats, text is UTF-8; a\n\
         missing value is a Parquet null, never 0 and never NaN. Units are base SI units, ratios are 0..1 and never percent. The\n\
         same dataset is always the same bytes.\n"
    )?;
    writeln!(
        text,
        "## Manifest\n\n\
         | field | meaning |\n|---|---|\n\
         | `schema` | `{SCHEMA}`; of older versions, columns that came later are null; a newer one is refused |\n\
         | `device_kinds` | where the numbers come from; more than one only where a merge was told so |\n\
         | `isolated_rows`, `pairs_rows` | rows of the two tables |\n\
         | `content_digest` | SHA-256 of the rows in their order, whatever the files that hold them |\n\
         | `exclusions` | what was left out: `source`, `reason`, `rows` |\n\
         | `provenance` | version, device, seed, source and its digest, facts such as the licence |\n\
         | `parts` | each file with the SHA-256 of its bytes (preceded by their length, 8 bytes, little-endian); a file that is not listed, or differs, is refused |\n"
    )?;
    for kind in TableKind::ALL {
        let story = match kind {
            TableKind::Isolated => "One row per workload x device x share x repeat.",
            TableKind::Pairs => "One row per subject per trial; the two rows of a trial mirror each other.",
        };
        writeln!(text, "## Table `{}`\n\n{story}\n", kind.as_str())?;
        writeln!(
            text,
            "| column | type | unit | null | must be | meaning | source | since |\n|---|---|---|---|---|---|---|---|"
        )?;
        for column in kind.columns() {
            writeln!(
                text,
                "| `{}` | {} | {} | {} | {} | {} | {} | {} |",
                column.name,
                column.kind.as_str(),
                if column.kind == ColumnKind::Text { "-" } else { column.unit },
                if column.nullable { "yes" } else { "no" },
                column.check.as_str(),
                column.meaning,
                column.source,
                column.since,
            )?;
        }
        writeln!(text)?;
    }
    writeln!(
        text,
        "## Rules over several columns\n\n\
         - `slowdown_ratio` (or `interference_ratio`, where the isolated time at the full device is unknown) and `step_seconds`\n\
         \x20 are present where the outcome has times.\n\
         - lower end <= point <= upper end, for `slowdown_*_ratio` and `step_*_seconds`.\n\
         - `slowdown_ratio` = `partition_effect_ratio` x `interference_ratio` within 1e-6, where all three are present.\n\
         - (`trial_id`, `side`) is unique, each trial has one row of side `a` and one of side `b`, and the two mirror each\n\
         \x20 other: workloads, families, kinds, shares and sharing mode swapped, everything about the trial equal. A trial\n\
         \x20 whose row is flagged `one_sided` has that row alone.\n\
         - `step_seconds` may be missing where a row is flagged `no_step_time`.\n\
         - The row counts, device kinds and content digest of the manifest are those of the rows.\n"
    )?;
    writeln!(text, "## Words\n")?;
    let list = |names: Vec<&str>| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    writeln!(text, "- Device kinds: {}.", list(DeviceKind::ALL.map(DeviceKind::as_str).to_vec()))?;
    writeln!(text, "- Workload kinds: {}.", list(WorkloadKind::ALL.map(WorkloadKind::as_str).to_vec()))?;
    writeln!(
        text,
        "- Sharing modes: `exclusive`, `time_slice`, `mps(0.5,0.5)` (share of the subject, then of the co-runner), `mig(3g.40gb)`, `streams`, `streams(0.5,0.5)` (each side on SMs of its own)."
    )?;
    let (timed, other): (Vec<Outcome>, Vec<Outcome>) =
        Outcome::ALL.into_iter().partition(|outcome| outcome.has_times());
    let names = |outcomes: Vec<Outcome>| list(outcomes.iter().map(|outcome| outcome.as_str()).collect());
    writeln!(text, "- Outcomes with times: {}. Without: {}.", names(timed), names(other))?;
    writeln!(
        text,
        "- `pair_id`: both names sorted, device, sharing mode seen from the first: `a + b @ v100 mps(0.3,0.7)`."
    )?;
    writeln!(
        text,
        "- The *harness* of a row is `{OWN_HARNESS}`, or the `source` of an imported row. Harnesses disagree by more than their \
         noise, so training refuses to mix them unless asked to."
    )?;
    writeln!(text, "- `flags` are separated by `;`:\n\n| flag | meaning |\n|---|---|")?;
    for flag in FLAGS {
        writeln!(text, "| `{}` | {} |", flag.name, flag.meaning)?;
    }
    writeln!(text, "\n{MAPPING}")?;
    writeln!(text, "## Counters in other tools\n\n| column | DCGM | CUPTI, ncu |\n|---|---|---|")?;
    let cell = |names: &str| {
        if names.is_empty() {
            "-".to_owned()
        } else {
            names.split(", ").map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        }
    };
    for counter in COUNTERS {
        writeln!(text, "| `{}` | {} | {} |", counter.name, cell(counter.dcgm), cell(counter.cupti))?;
    }
    Ok(())
}
