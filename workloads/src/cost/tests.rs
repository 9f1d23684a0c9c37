//! The formulae against counts by hand; each test writes its count out.

use super::distinct_rows;
use crate::demand::Demand;
use crate::op::{Access, ConvolutionPass, Direction, Op, Pass, Pipe};
use elastico_core::Dtype;
use elastico_core::units::{Bytes, Flops, Seconds};
use proptest::prelude::*;

fn gemm(m: u64, n: u64, k: u64, batch: u64, dtype: Dtype) -> Demand {
    Op::Gemm { m, n, k, batch, dtype }.demand()
}

#[test]
fn a_product_is_two_m_n_k() {
    let demand = gemm(256, 384, 512, 1, Dtype::Bf16);
    // 2 * 256 * 384 * 512.
    assert_eq!(demand.tensor_flops, Flops(100_663_296.0));
    assert_eq!((demand.fp32_flops, demand.fp64_flops), (Flops(0.0), Flops(0.0)));
    // A is 256 x 512, B is 512 x 384, C is 256 x 384, two bytes each.
    assert_eq!(demand.dram_read, Bytes(2.0 * (131_072.0 + 196_608.0)));
    assert_eq!(demand.dram_write, Bytes(2.0 * 98_304.0));
    // Tiles of 128 x 128 make 2 rows of 3: A is read 3 times, B twice, C written once.
    assert_eq!(demand.l2_bytes, Bytes(2.0 * (3.0 * 131_072.0 + 2.0 * 196_608.0 + 98_304.0)));
    // 512 is one split; 6 tiles.
    assert_eq!((demand.launches, demand.blocks, demand.warps_per_block), (1, 6, 8));
}

#[test]
fn formats_choose_the_pipe() {
    assert_eq!(gemm(16, 16, 16, 1, Dtype::Fp32).fp32_flops, Flops(8_192.0));
    assert_eq!(gemm(16, 16, 16, 1, Dtype::Fp64).fp64_flops, Flops(8_192.0));
    for dtype in [Dtype::Tf32, Dtype::Fp16, Dtype::Bf16, Dtype::Fp8, Dtype::Int8] {
        assert_eq!(gemm(16, 16, 16, 1, dtype).tensor_flops, Flops(8_192.0));
    }
}

#[test]
fn few_tiles_are_split_along_the_inner_dimension() {
    // One row of tiles of 16 x 128: 32 tiles; 128 / 32 = 4 splits, and 4096 / 512 = 8 would allow them.
    assert_eq!(gemm(1, 4096, 4096, 1, Dtype::Bf16).blocks, 128);
    // The depth of 512 allows no split.
    assert_eq!(gemm(1, 4096, 512, 1, Dtype::Bf16).blocks, 32);
    assert_eq!(gemm(128, 128, 64, 10, Dtype::Bf16).blocks, 10);
}

#[test]
fn a_convolution_counts_its_output_pixels_times_its_filter() {
    let op = |pass| Op::Convolution {
        batch: 2,
        channels_in: 8,
        channels_out: 16,
        size: 10,
        kernel: 3,
        stride: 2,
        pass,
        dtype: Dtype::Fp32,
    };
    // 2 images of 5 x 5 pixels of 16 channels, each 8 * 3 * 3 multiply-adds.
    let flops = Flops(2.0 * (2.0 * 25.0 * 16.0) * 72.0);
    // Input 2*8*100, filter 8*16*9, output 2*16*25, four bytes each.
    let (input, filter, output) = (Bytes(6_400.0), Bytes(4_608.0), Bytes(3_200.0));
    for (pass, read, write) in [
        (ConvolutionPass::Forward, input + filter, output),
        (ConvolutionPass::DataGradient, output + filter, input),
        (ConvolutionPass::FilterGradient, input + output, filter),
    ] {
        let demand = op(pass).demand();
        assert_eq!(
            (demand.fp32_flops, demand.dram_read, demand.dram_write),
            (flops, read, write),
            "{pass:?}"
        );
    }
}

#[test]
fn gradients_of_products_cost_twice_the_product() {
    for op in [
        Op::Gemm { m: 96, n: 160, k: 224, batch: 3, dtype: Dtype::Bf16 },
        Op::Convolution {
            batch: 4,
            channels_in: 32,
            channels_out: 64,
            size: 14,
            kernel: 3,
            stride: 2,
            pass: ConvolutionPass::Forward,
            dtype: Dtype::Fp16,
        },
    ] {
        let backward: Demand = op.gradient().iter().map(Op::demand).sum();
        assert_eq!(backward.flops(), op.demand().flops() * 2.0, "{op}");
    }
}

fn attention(query: u64, context: u64, kv_heads: u64, causal: bool, pass: Pass) -> Demand {
    Op::Attention {
        batch: 2,
        heads: 8,
        kv_heads,
        query,
        context,
        head_dim: 64,
        causal,
        pass,
        dtype: Dtype::Bf16,
    }
    .demand()
}

#[test]
fn attention_counts_two_products() {
    // Scores and their product with the values: 2 * 2 * b a q c d.
    let full = 4.0 * 2.0 * 8.0 * 256.0 * 256.0 * 64.0;
    assert_eq!(attention(256, 256, 8, false, Pass::Forward).tensor_flops, Flops(full));
    // Token i sees i keys: (256 + 1) / 2 of 256 on average.
    assert_eq!(attention(256, 256, 8, true, Pass::Forward).tensor_flops, Flops(full * 128.5 / 256.0));
    // FlashAttention-2: five products in place of two.
    assert_eq!(attention(256, 256, 8, false, Pass::Backward).tensor_flops, Flops(full * 2.5));
}

#[test]
fn decoding_reads_the_cache_once() {
    let demand = attention(1, 4096, 2, false, Pass::Forward);
    // Keys and values: 2 sequences, 2 heads, 4096 positions, 64 wide, two bytes; queries of 2 * 8 * 64.
    let cache = 2.0 * 2.0 * 2.0 * 4096.0 * 64.0 * 2.0;
    let queries = 2.0 * 8.0 * 64.0 * 2.0;
    assert_eq!(demand.dram_read, Bytes(cache + queries));
    assert_eq!(demand.dram_write, Bytes(queries));
    // The four query heads of a key head share one tile, so L2 sees the cache once as well.
    assert_eq!(demand.l2_bytes, Bytes(cache + 2.0 * queries));
    // 4 pairs of sequence and key head; the context allows 4096 / 256 = 16 splits.
    assert_eq!(demand.blocks, 64);
}

#[test]
fn prompts_reread_keys_for_each_tile_of_queries() {
    let demand = attention(512, 512, 8, false, Pass::Forward);
    let (queries, keys) = (2.0 * 8.0 * 512.0 * 64.0 * 2.0, 2.0 * 2.0 * 8.0 * 512.0 * 64.0 * 2.0);
    // 512 / 128 = 4 tiles.
    assert_eq!(demand.l2_bytes, Bytes(2.0 * queries + 4.0 * keys));
    assert_eq!(demand.dram_read, Bytes(queries + keys));
}

#[test]
fn adam_moves_28_bytes_per_parameter() {
    for (dtype, read, write) in [
        // Weight, gradient, two moments; weight and moments back.
        (Dtype::Fp32, 16.0, 12.0),
        // Master, two moments, 2-byte gradient; master, moments and 2-byte weight back.
        (Dtype::Bf16, 14.0, 14.0),
    ] {
        let demand = Op::Adam { parameters: 1_000, dtype }.demand();
        assert_eq!((demand.dram_read, demand.dram_write), (Bytes(read * 1e3), Bytes(write * 1e3)), "{dtype}");
        assert_eq!(demand.fp32_flops, Flops(14e3));
    }
}

#[test]
fn rows_and_points_are_streams() {
    let softmax = |pass| Op::Softmax { rows: 8, columns: 100, pass, dtype: Dtype::Fp16 }.demand();
    // 800 elements of 2 bytes, in and out; backward reads the probabilities and their gradient.
    assert_eq!(softmax(Pass::Forward).l2_bytes, Bytes(3_200.0));
    assert_eq!(softmax(Pass::Backward).dram_read, Bytes(3_200.0));
    assert_eq!(softmax(Pass::Forward).fp32_flops, Flops(4_000.0));
    let norm = Op::Norm { rows: 8, columns: 100, pass: Pass::Forward, dtype: Dtype::Fp32 }.demand();
    assert_eq!((norm.dram_bytes(), norm.blocks), (Bytes(6_400.0), 2));
    let op =
        Op::Elementwise { elements: 2_048, inputs: 2, outputs: 1, flops_per_element: 3, dtype: Dtype::Fp32 };
    let demand = op.demand();
    assert_eq!((demand.dram_read, demand.dram_write), (Bytes(16_384.0), Bytes(8_192.0)));
    assert_eq!((demand.fp32_flops, demand.blocks), (Flops(6_144.0), 2));
}

#[test]
fn a_gather_reads_distinct_rows_from_dram_and_all_from_l2() {
    let op = |skew| Op::Gather {
        lookups: 1_000,
        columns: 16,
        table_rows: 1_000_000,
        pooled: 10,
        skew,
        dtype: Dtype::Fp32,
    };
    let uniform = op(0.0).demand();
    // Rows of 64 bytes, 8-byte numbers, 100 output rows; 1e6 (1 - exp(-1e-3)) = 999.5 rows differ.
    assert_eq!(uniform.l2_bytes, Bytes(64_000.0 + 8_000.0 + 6_400.0));
    assert!((uniform.dram_read.get() - (999.5 * 64.0 + 8_000.0)).abs() < 1.0, "{uniform:?}");
    // 900 additions of 16 columns.
    assert_eq!(uniform.fp32_flops, Flops(14_400.0));
    assert!(op(1.05).demand().dram_read < uniform.dram_read);
    // A row of 4 bytes still moves a sector of 32.
    let narrow =
        Op::Scatter { updates: 10, columns: 1, table_rows: 1_000_000, skew: 0.0, dtype: Dtype::Fp32 };
    assert_eq!(narrow.demand().l2_bytes, Bytes(2.0 * 320.0 + 80.0 + 40.0));
}

#[test]
fn zipf_buckets_agree_with_the_exact_sum() {
    let (table, draws, skew) = (5_000.0_f64, 2_000.0_f64, 1.05_f64);
    let weights: Vec<f64> = (1..=5_000).map(|rank| f64::from(rank).powf(-skew)).collect();
    let total: f64 = weights.iter().sum();
    // Each rank is missed by all draws with probability (1 - p)^draws.
    let exact: f64 = weights.iter().map(|weight| 1.0 - (1.0 - weight / total).powf(draws)).sum();
    let estimate = distinct_rows(draws, table, skew);
    assert!((estimate / exact - 1.0).abs() < 0.01, "{estimate} against {exact}");
}

#[test]
fn streams_split_by_their_access() {
    let stream = |bytes, access| Op::Stream { footprint: 1_200, bytes, access, blocks: 4 }.demand();
    assert_eq!(stream(600, Access::Triad).dram_read, Bytes(400.0));
    assert_eq!(stream(600, Access::Copy).dram_write, Bytes(300.0));
    assert_eq!(stream(600, Access::Write).dram_read, Bytes(0.0));
    // Ten sweeps of one buffer: only the first is compulsory.
    let swept = stream(12_000, Access::Read);
    assert_eq!((swept.dram_read, swept.l2_bytes), (Bytes(1_200.0), Bytes(12_000.0)));
    assert_eq!((swept.working_set, swept.blocks), (Bytes(1_200.0), 4));
}

#[test]
fn stressors_press_one_thing() {
    let compute =
        |pipe, dtype| Op::Compute { flops: 100, pipe, dtype, blocks: 2, warps_per_block: 4 }.demand();
    assert_eq!(compute(Pipe::Tensor, Dtype::Int8).tensor_flops, Flops(100.0));
    assert_eq!(compute(Pipe::Tensor, Dtype::Fp32).fp32_flops, Flops(100.0));
    assert_eq!(compute(Pipe::Fp64, Dtype::Fp64).fp64_flops, Flops(100.0));
    let shared = Op::SharedMemory { bytes: 1_000, conflict: 8, blocks: 2, warps_per_block: 4 }.demand();
    // An 8-way conflict takes eight passes.
    assert_eq!((shared.shared_bytes, shared.l2_bytes), (Bytes(8_000.0), Bytes(0.0)));
    let atomics = Op::Atomic { updates: 1_000, addresses: 10 }.demand();
    assert_eq!((atomics.atomic_chain, atomics.l2_bytes), (100, Bytes(64_000.0)));
    let copy = Op::Copy { bytes: 100, direction: Direction::Both }.demand();
    assert_eq!((copy.host_to_device, copy.device_to_host, copy.launches), (Bytes(100.0), Bytes(100.0), 0));
    assert_eq!(Op::Launch { count: 7 }.demand().launches, 7);
    assert_eq!(Op::HostGap { seconds: Seconds(0.5) }.demand().host, Seconds(0.5));
    let resident = Op::Resident { blocks: 3, warps_per_block: 2, shared_bytes: 9, seconds: Seconds(0.25) };
    assert_eq!((resident.demand().resident, resident.demand().blocks), (Seconds(0.25), 3));
}

#[test]
fn empty_sizes_ask_for_nothing_and_do_not_panic() {
    for op in [
        Op::Gemm { m: 0, n: 0, k: 0, batch: 0, dtype: Dtype::Fp32 },
        Op::Attention {
            batch: 0,
            heads: 0,
            kv_heads: 0,
            query: 0,
            context: 0,
            head_dim: 0,
            causal: true,
            pass: Pass::Forward,
            dtype: Dtype::Fp32,
        },
        Op::Gather { lookups: 0, columns: 0, table_rows: 0, pooled: 0, skew: 1.0, dtype: Dtype::Fp32 },
        Op::Atomic { updates: 0, addresses: 0 },
    ] {
        assert_eq!(op.demand().flops(), Flops(0.0), "{op}");
        assert_eq!(op.demand().dram_bytes(), Bytes(0.0), "{op}");
    }
}

proptest! {
    /// L2 sees at least what DRAM does, and the working set is never more than the operands.
    #[test]
    fn l2_traffic_covers_dram_traffic(m in 1_u64..5_000, n in 1_u64..5_000, k in 1_u64..5_000, batch in 1_u64..64) {
        let demand = gemm(m, n, k, batch, Dtype::Bf16);
        prop_assert!(demand.l2_bytes.get() >= demand.dram_bytes().get() * (1.0 - 1e-12));
        prop_assert!(demand.working_set.get() <= demand.dram_bytes().get() * (1.0 + 1e-12));
        prop_assert!(demand.blocks >= batch);
    }

    /// Distinct rows are at most the draws and the table, and grow with the draws.
    #[test]
    fn distinct_rows_are_bounded(draws in 1.0_f64..1e7, table in 1.0_f64..1e8, skew in 0.0_f64..2.0) {
        let table = table.floor();
        let distinct = distinct_rows(draws, table, skew);
        prop_assert!(distinct > 0.0 && distinct <= draws.min(table) * (1.0 + 1e-9), "{}", distinct);
        prop_assert!(distinct_rows(draws * 2.0, table, skew) >= distinct);
    }
}
