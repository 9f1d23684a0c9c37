//! `elastico trace` on small files.

use crate::elastico;
use std::fs;
use std::path::Path;

const PODS: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n\
    a,12000,16384,1,1000,,LS,Running,0,7200,0\n\
    b,6000,12288,1,460,V100M16|V100M32,BE,Running,600,4200,600\n\
    c,6000,12288,8,1000,T4,LS,Running,1200,9000,1200\n\
    d,6000,12288,0,0,,LS,Running,1300,9000,1300\n\
    e,6000,12288,4,1000,T4,LS,Running,3600,9000,3700\n";
const NODES: &str = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,V100M16\nn1,64000,262144,8,T4\nn2,64000,262144,0,\n";

#[test]
fn a_trace_is_inspected_at_eighty_columns_and_converted() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let folder = place.path();
    fs::write(folder.join("pods.csv"), PODS).expect("a file");
    fs::write(folder.join("nodes.csv"), NODES).expect("a file");
    let (code, stdout, stderr) = elastico(folder, "trace inspect pods.csv --cluster nodes.csv");
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.lines().all(|line| line.chars().count() <= 80), "{stdout}");
    insta::assert_snapshot!(format!("{stdout}\n{stderr}"));

    // A cluster that can never hold two of the pods is a no.
    let (code, _, stderr) = elastico(folder, "trace inspect pods.csv --cluster T4:n1g2,V100M16:n1g2");
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("2 jobs ask for more T4 GPUs than the 2 there are: c, e"), "{stderr}");

    let (code, _, stderr) = elastico(folder, "trace convert pods.csv --out pods.json --from 600");
    assert_eq!(code, Some(0), "{stderr}");
    let (code, stdout, stderr) = elastico(folder, "trace inspect pods.json --format json");
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(stdout.contains("\"jobs_total\": 3"), "{stdout}");
    let (code, _, stderr) = elastico(folder, "trace convert pods.csv --out pods.json");
    assert_eq!(code, Some(2));
    assert!(stderr.contains("pods.json exists"), "{stderr}");
    let (code, _, stderr) =
        elastico(folder, "simulate run --trace pods.json --cluster T4:n1g8,V100M16:n1g2 --policy fifo");
    assert_eq!(code, Some(0), "{stderr}");
}

#[test]
fn formats_and_mappings_are_listed() {
    let folder = Path::new(".");
    let (code, stdout, _) = elastico(folder, "trace formats");
    assert_eq!(code, Some(0));
    insta::assert_snapshot!(stdout);
    for arguments in ["trace template", "trace template helios"] {
        let (code, stdout, _) = elastico(folder, arguments);
        assert!(code == Some(0) && stdout.contains("schema = \"elastico.trace_mapping/1\""), "{arguments}");
    }
}
