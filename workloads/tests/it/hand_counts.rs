//! Whole steps against counts by hand.

use elastico_core::units::{Bytes, Flops};
use elastico_workloads::{Catalogue, Op, StepProgram};
use std::path::Path;

fn step(structure: &str, axes: &str) -> StepProgram {
    let text = format!(
        "schema = 1\n[[family]]\nid = \"one\"\nstructure = \"{structure}\"\nsummary = \"one\"\nconfigurations = [{{ {axes} }}]\n"
    );
    let catalogue = Catalogue::from_toml(&text, Path::new("one.toml")).expect("valid axes");
    catalogue.iter().next().expect("one configuration").program().clone()
}

fn part<'a>(program: &'a StepProgram, name: &str) -> &'a [Op] {
    program.parts().find(|(known, _)| *known == name).expect("a part of the step").1
}

fn tensor(ops: &[Op]) -> Flops {
    ops.iter().map(|op| op.demand().tensor_flops).sum()
}

#[test]
fn a_transformer_block_is_24_b_s_h2_and_4_b_s2_h() {
    let program =
        step("transformer_training", "batch = 4, sequence = 256, hidden = 512, layers = 3, dtype = \"bf16\"");
    let (b, s, h, l) = (4.0, 256.0, 512.0, 3.0);
    // Query, key, value 6 b s h^2; scores and values 4 b s^2 h; projection 2; perceptron 16.
    let forward = l * (24.0 * b * s * h * h + 4.0 * b * s * s * h);
    assert_eq!(tensor(part(&program, "forward")), Flops(forward));
    assert_eq!(tensor(part(&program, "backward")), Flops(2.0 * forward));
    // 12 h^2 + 13 h parameters at 16 bytes: 2 weight, 2 gradient, 4 master, 8 moments.
    let parameters = l * (12.0 * h * h + 13.0 * h);
    let memory = program.memory;
    assert_eq!(memory.weights + memory.gradients + memory.optimiser, Bytes(16.0 * parameters));
    let optimiser: Vec<_> = part(&program, "optimiser").iter().map(Op::demand).collect();
    assert_eq!(optimiser[0].dram_bytes(), Bytes(28.0 * parameters));
    // Written by the forward pass, in units of b s h elements: norm 1, qkv 3, values 1, projection 1, sum 1, norm 1,
    // perceptron 4 + 4 + 1, sum 1 = 18; scores and probabilities 2 a s / h with 8 heads. Token numbers of 8 bytes.
    let kept = l * 2.0 * b * s * h * (18.0 + 2.0 * 8.0 * s / h) + 8.0 * b * s;
    assert_eq!(memory.activations, Bytes(kept));
}

#[test]
fn a_perceptron_is_6_b_h2_per_layer() {
    let program = step("mlp_training", "batch = 32, hidden = 256, layers = 5, dtype = \"fp16\"");
    let products: Flops = program.ops.iter().map(|op| op.demand().tensor_flops).sum();
    assert_eq!(products, Flops(5.0 * 6.0 * 32.0 * 256.0 * 256.0));
}

#[test]
fn momentum_keeps_a_third_number_and_adam_a_fourth() {
    // 128^2 weights and 128 biases.
    let per_parameter = |bytes: f64| Bytes(bytes * 129.0 / 128.0);
    let hold = |optimiser: &str, dtype: &str| {
        let axes =
            format!("batch = 8, hidden = 128, layers = 1, optimiser = \"{optimiser}\", dtype = \"{dtype}\"");
        let memory = step("mlp_training", &axes).memory;
        (memory.weights + memory.gradients + memory.optimiser) * (1.0 / (128.0 * 128.0))
    };
    for dtype in ["fp32", "fp16"] {
        assert_eq!(hold("adam", dtype), per_parameter(16.0), "{dtype}");
        assert_eq!(hold("sgd", dtype), per_parameter(12.0), "{dtype}");
    }
}

#[test]
fn an_lstm_is_16_b_t_h2_forward_and_twice_that_backward() {
    let program = step("lstm_training", "batch = 8, sequence = 12, hidden = 64, dtype = \"bf16\"");
    // Input and recurrent product to four gates: 2 * 2 * 4 h^2 per token.
    let forward = 16.0 * 8.0 * 12.0 * 64.0 * 64.0;
    assert_eq!(tensor(part(&program, "forward")), Flops(forward));
    assert_eq!(tensor(part(&program, "backward")), Flops(2.0 * forward));
    // One product and one cell per time step, and the input product before them.
    assert_eq!(part(&program, "forward").len(), 25);
}

#[test]
fn decoding_reads_all_weights_and_the_whole_cache() {
    let program = step(
        "transformer_decode",
        "batch = 4, context = 1000, hidden = 1024, layers = 3, vocabulary = 5000, dtype = \"bf16\"",
    );
    let h = 1024.0;
    // Heads of 128, four query heads to a key head: keys and values are h / 4 wide.
    // Query h^2, keys and values 2 h h/4, output h^2, perceptron 8 h^2, and the head.
    let weights = 2.0 * (3.0 * (2.0 * h * h + h * h / 2.0 + 8.0 * h * h) + 5000.0 * h);
    let cache = 2.0 * 3.0 * 4.0 * 1000.0 * (2.0 * h / 4.0);
    assert_eq!((program.memory.weights, program.memory.cache), (Bytes(weights), Bytes(cache)));
    let read = program.demand().dram_read.get();
    assert!(read > weights + cache && read < (weights + cache) * 1.02, "{read} for {}", weights + cache);
    // 2 FLOPs per weight and sequence, and 4 c h per layer and sequence in attention.
    let flops = 2.0 * 4.0 * weights / 2.0 + 3.0 * 4.0 * 4.0 * 1000.0 * h;
    assert_eq!(tensor(&program.ops), Flops(flops));
}

#[test]
fn experts_read_only_the_weights_of_those_that_are_hit() {
    let axes = |batch: u64| {
        format!(
            "batch = {batch}, context = 64, hidden = 512, experts = 64, chosen = 2, layers = 1, dtype = \"bf16\""
        )
    };
    let (few, many) = (step("experts_decode", &axes(1)), step("experts_decode", &axes(512)));
    // Two experts of 64 against all of them: 2 * 2 * 512 * 1024 * 2 bytes against 32 times that.
    let expert = 2.0 * 512.0 * 1024.0 * 2.0;
    assert_eq!(few.memory.weights, many.memory.weights);
    assert!(few.demand().dram_read < Bytes(4.0 * expert), "{}", few.demand().dram_read);
    assert!(many.demand().dram_read > Bytes(60.0 * expert), "{}", many.demand().dram_read);
}

#[test]
fn a_residual_stage_is_two_convolutions_per_block() {
    let program =
        step("convolution_training", "batch = 2, channels = 16, image = 8, blocks = 3, dtype = \"fp16\"");
    // 2 * pixels * c^2 * 9, two per block.
    let forward = 3.0 * 2.0 * 2.0 * (2.0 * 64.0) * 16.0 * 16.0 * 9.0;
    assert_eq!(tensor(part(&program, "forward")), Flops(forward));
    assert_eq!(tensor(part(&program, "backward")), Flops(2.0 * forward));
}

#[test]
fn a_recommender_moves_its_rows_and_its_indices() {
    let program = step(
        "recommender_training",
        "batch = 100, rows = 1000000, dim = 32, tables = 10, pool = 4, skew = 0.0, dtype = \"fp32\"",
    );
    let demand = program.demand();
    // 100 * 10 * 4 numbers of 8 bytes and 13 dense inputs of 4.
    assert_eq!(demand.host_to_device, Bytes(4_000.0 * 8.0 + 100.0 * 13.0 * 4.0));
    // Rows of 32 numbers and one of Adagrad, four bytes each, are most of the memory.
    let tables = 1e6 * 33.0 * 4.0;
    assert!(program.footprint() > Bytes(tables) && program.footprint() < Bytes(tables * 1.1));
    let names: Vec<_> = program.ops.iter().map(Op::name).collect();
    assert!(names.contains(&"gather") && names.contains(&"scatter"));
}

#[test]
fn programs_survive_the_way_to_a_worker() {
    for benchmark in Catalogue::bundled().iter() {
        let program = benchmark.program();
        let text = serde_json::to_string(program).unwrap();
        let read: StepProgram = serde_json::from_str(&text).unwrap();
        // Sizes are exact; a JSON reader may be off by the last bit of a fraction of a second.
        assert_eq!(
            (read.ops.len(), &read.sections),
            (program.ops.len(), &program.sections),
            "{}",
            benchmark.id
        );
        assert_eq!(read.to_string(), program.to_string(), "{}", benchmark.id);
    }
}
