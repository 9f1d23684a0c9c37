//! Bad files get one error that names the place, the field and a way out.

use elastico_core::Hint as _;
use elastico_workloads::Catalogue;
use std::fmt::Write as _;
use std::path::Path;

fn refusal(text: &str) -> String {
    let error = Catalogue::from_toml(text, Path::new("mine.toml")).expect_err("a refusal");
    let mut report = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        write!(report, "\ncaused by: {cause}").expect("a string takes any text");
        source = cause.source();
    }
    if let Some(hint) = error.hint() {
        write!(report, "\nhint: {hint}").expect("a string takes any text");
    }
    report
}

fn family(body: &str) -> String {
    format!(
        "schema = 1\n[[family]]\nid = \"mine\"\nstructure = \"mlp_training\"\nsummary = \"mine\"\n{body}\n"
    )
}

fn configuration(table: &str) -> String {
    family(&format!("configurations = [{table}]"))
}

#[test]
fn every_refusal_names_place_and_field() {
    let cases = [
        ("no toml", "schema = = 1".to_owned()),
        ("no schema", "family = []".to_owned()),
        ("other schema", "schema = 2\nfamily = []".to_owned()),
        ("unknown top field", "schema = 1\nfamilies = []".to_owned()),
        ("unknown family field", family("configuration = []")),
        ("wrong type", family("configurations = 3")),
        (
            "unknown structure",
            configuration("").replace("mlp_training", "mlp_trainning"),
        ),
        ("unknown axis", configuration("{ batch = 8, hiden = 64, dtype = \"fp32\" }")),
        ("missing axis", configuration("{ batch = 8, dtype = \"fp32\" }")),
        ("negative axis", configuration("{ batch = -8, hidden = 64, dtype = \"fp32\" }")),
        ("zero axis", configuration("{ batch = 0, hidden = 64, dtype = \"fp32\" }")),
        ("fractional axis", configuration("{ batch = 1.5, hidden = 64, dtype = \"fp32\" }")),
        ("unknown word", configuration("{ batch = 8, hidden = 64, dtype = \"fp31\" }")),
        ("empty list", configuration("{ batch = [], hidden = 64, dtype = \"fp32\" }")),
        ("table as value", configuration("{ batch = { a = 1 }, hidden = 64, dtype = \"fp32\" }")),
        ("too large", configuration("{ batch = 1048576, hidden = 65536, layers = 9, dtype = \"fp32\" }")),
        (
            "too much work",
            "schema = 1\n[[family]]\nid = \"mine\"\nstructure = \"transformer_prefill\"\nsummary = \"mine\"\n\
             configurations = [{ batch = 1, sequence = 131072, hidden = 32768, layers = 32, dtype = \"fp8\" }]"
                .to_owned(),
        ),
        (
            "too much traffic",
            "schema = 1\n[[family]]\nid = \"mine\"\nstructure = \"shared_memory\"\nsummary = \"mine\"\n\
             configurations = [{ moved = 10000000, conflict = 32 }]"
                .to_owned(),
        ),
        (
            "not a number",
            "schema = 1\n[[family]]\nid = \"mine\"\nstructure = \"stream\"\nsummary = \"mine\"\n\
             configurations = [{ access = \"read\", footprint = 8, duty = nan }]"
                .to_owned(),
        ),
        (
            "heads do not divide",
            "schema = 1\n[[family]]\nid = \"mine\"\nstructure = \"transformer_training\"\nsummary = \"mine\"\n\
             configurations = [\n  { batch = 1, sequence = 64, hidden = 100, dtype = \"fp32\" },\n]"
                .to_owned(),
        ),
        (
            "duplicate",
            configuration("{ batch = 8, hidden = 64, dtype = \"fp32\" },\n{ batch = [4, 8], hidden = 64, dtype = \"fp32\" }"),
        ),
        ("bad id", configuration("").replace("\"mine\"\nstr", "\"Mine.1\"\nstr")),
        ("empty summary", configuration("").replace("summary = \"mine\"", "summary = \" \"")),
        (
            "two families of one id",
            format!(
                "{}{}",
                configuration("{ batch = 8, hidden = 64, dtype = \"fp32\" }"),
                "[[family]]\nid = \"mine\"\nstructure = \"idle\"\nsummary = \"other\"\nconfigurations = [{}]\n"
            ),
        ),
    ];
    let mut report = String::new();
    for (name, text) in cases {
        writeln!(report, "# {name}\n{}\n", refusal(&text)).unwrap();
    }
    insta::assert_snapshot!(report);
}

#[test]
fn overflowing_numbers_are_refused_not_wrapped() {
    let text = configuration("{ batch = 9223372036854775807, hidden = 64, dtype = \"fp32\" }");
    assert!(refusal(&text).starts_with("mine.toml:6:29: `batch` has to be a whole number from 1 to 1048576"));
    let text = configuration("{ batch = 9223372036854775808, hidden = 64, dtype = \"fp32\" }");
    assert!(refusal(&text).starts_with("mine.toml:6:"));
}

#[test]
fn what_cannot_be_read_is_named() {
    let error = Catalogue::read(Path::new("no/such/catalogue")).expect_err("a refusal");
    assert_eq!(error.to_string(), "cannot read the catalogue no/such/catalogue");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    assert!(
        Catalogue::read(&folder).expect_err("a refusal").to_string().starts_with("there is no .toml file in")
    );
}
