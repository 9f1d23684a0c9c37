//! Texts that people read.

use elastico_workloads::Catalogue;
use std::fmt::Write as _;

#[test]
fn a_program_is_listed_one_op_a_line() {
    let catalogue = Catalogue::bundled();
    let mut text = String::new();
    for id in [
        "tr_mlp.b64_h512_bf16",
        "tr_lstm.b64_s64_h512_fp16",
        "in_decode.b8_c2048_h4096_bf16",
        "st_dram.read_u25",
    ] {
        let program = catalogue.get(id).unwrap().program();
        writeln!(text, "{id}\n{program}\n").unwrap();
    }
    insta::assert_snapshot!(text);
}

#[test]
fn the_catalogue_in_one_table() {
    let mut text = String::new();
    for benchmark in Catalogue::bundled().iter() {
        let (gpu, cpu) = (benchmark.program(), benchmark.cpu_program());
        let demand = gpu.demand();
        writeln!(
            text,
            "{:<44} {:>4} ops {:>11.1} {:>9.1} dram {:>9.1} l2 {:>9.1} ws {:>9.1} held | cpu {:>8.1} {:>9.1} held",
            benchmark.id,
            gpu.ops.len(),
            demand.flops(),
            demand.dram_bytes(),
            demand.l2_bytes,
            demand.working_set,
            gpu.footprint(),
            cpu.cpu_estimate(),
            cpu.footprint(),
        )
        .unwrap();
    }
    insta::assert_snapshot!(text);
}
