//! One op on one chip: how long it keeps each resource busy.

use elastico_core::units::BytesPerSecond;
use elastico_core::{Chip, Dtype};
use elastico_workloads::{Op, StepProgram};

/// Share of the data-sheet rate that good kernels reach on the tensor pipe: 0.7 to 0.8 for large bf16 products on
/// Ampere and Hopper (CUTLASS and cuBLAS benchmarks; 788 of 989 TFLOP/s on an H200 with random data).
const TENSOR_EFFICIENCY: f64 = 0.78;
/// The same for the FMA pipes (SGEMM in cuBLAS: 0.85 to 0.95).
const FMA_EFFICIENCY: f64 = 0.9;
/// The same for DRAM (BabelStream: 0.90 to 0.93 of the pin bandwidth on V100, A100 and H100).
const DRAM_EFFICIENCY: f64 = 0.92;
/// The same for L2: published microbenchmarks see 60 to 70 % of slices x width x clock (about 5.7 TB/s on an H100).
const L2_EFFICIENCY: f64 = 0.62;
/// The same for the host link (12 of 15.75 GB/s, 25 of 31.5 GB/s, 55 of 63 GB/s in bandwidthTest).
const LINK_EFFICIENCY: f64 = 0.85;
/// Host time to issue one launch into a stream: 2 to 5 us published for cudaLaunchKernel; the low end, as launches
/// pipeline.
const ISSUE_SECONDS: f64 = 2.2e-6;
/// Device time between two dependent kernels of one stream: about 1 us (drain, front end, fill).
const GAP_SECONDS: f64 = 1.0e-6;
/// Bytes of shared memory per clock and SM on all chips since Maxwell (32 banks of 4 bytes).
const SHARED_BYTES_PER_CLOCK: f64 = 128.0;
/// Share of the SMs that can pull the whole DRAM bandwidth; an assumption in line with published SM sweeps.
const SMS_FOR_DRAM: f64 = 0.5;
/// Resident warps of an SM that keep enough loads in flight for its part of the bandwidth (Little's law with four
/// outstanding 16-byte loads per thread).
const WARPS_FOR_MEMORY: f64 = 8.0;

/// The constants of the model for one chip, with the SI rates that kernels can reach.
#[derive(Debug, Clone)]
pub(super) struct Rates {
    pub(super) chip: &'static Chip,
    pub(super) dram: f64,
    pub(super) l2: f64,
    pub(super) l2_peak: f64,
    link: f64,
}

impl Rates {
    pub(super) fn of(chip: &'static Chip) -> Self {
        let l2_peak = l2_bandwidth(chip).get();
        Self {
            chip,
            dram: chip.dram_bandwidth.get() * DRAM_EFFICIENCY,
            l2: l2_peak * L2_EFFICIENCY,
            l2_peak,
            link: chip.link_bandwidth.get() * LINK_EFFICIENCY,
        }
    }
}

/// L2 slices x width x clock. A100: 5120 B/clk, V100: 2048 B/clk (A100 white paper); other chips by SM as the nearer
/// of the two.
fn l2_bandwidth(chip: &Chip) -> BytesPerSecond {
    let per_sm = match chip.name {
        "k80" | "p100" | "v100" | "t4" => 2048.0 / 80.0,
        _ => 5120.0 / 108.0,
    };
    BytesPerSecond(per_sm * f64::from(chip.sm_count) * chip.clock.get())
}

/// Seconds for which one op alone would keep each resource of the full device busy, at boost clock.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct OpCost {
    pub(super) tensor: f64,
    pub(super) fma: f64,
    pub(super) fp64: f64,
    pub(super) shared: f64,
    pub(super) l2: f64,
    /// Compulsory DRAM traffic.
    pub(super) dram: f64,
    /// DRAM traffic if every L2 re-read missed.
    pub(super) reread: f64,
    pub(super) to_device: f64,
    pub(super) to_host: f64,
    /// The host thread that launches.
    pub(super) issue: f64,
    /// Device latency that nothing shortens: gaps between kernels, chains of atomics, sleeping blocks.
    pub(super) latency: f64,
    /// Host time in which the device waits.
    pub(super) host: f64,
    /// Bytes that should stay in L2.
    pub(super) working_set: f64,
    /// Share of the SMs that one launch can fill.
    pub(super) width: f64,
    /// Resident warps over the most that fit, device-wide, for one launch.
    pub(super) occupancy: f64,
    /// Share of the slots that the rate needs: all for sleeping blocks, a fraction for others.
    pub(super) slots: f64,
    pub(super) launches: f64,
    pub(super) bytes_l2: f64,
    pub(super) bytes_to_device: f64,
    pub(super) bytes_to_host: f64,
}

impl OpCost {
    /// A pause of the host.
    pub(super) fn pause(seconds: f64) -> Self {
        Self { host: seconds, ..Self::default() }
    }

    fn of(op: &Op, rates: &Rates) -> Self {
        let demand = op.demand();
        let chip = rates.chip;
        let (rate, on_tensor) = chip.peak(demand.dtype);
        // Work meant for a tensor pipe that the chip lacks runs on the FMA pipe.
        let matrix = demand.tensor_flops.get() / rate.get();
        let (tensor, fallback) = if on_tensor { (matrix / TENSOR_EFFICIENCY, 0.0) } else { (0.0, matrix) };
        let fma = demand.fp32_flops.get() / chip.peak(Dtype::Fp32).0.get() + fallback;
        let launches = demand.launches as f64;
        let sms = f64::from(chip.sm_count);
        let blocks = demand.blocks as f64 / launches.max(1.0);
        let warps = f64::from(demand.warps_per_block.max(1));
        let per_sm = (f64::from(chip.warps_per_sm) / warps).floor().clamp(1.0, f64::from(chip.blocks_per_sm));
        let resident = (blocks / sms).min(per_sm);
        let compulsory = demand.dram_bytes().get();
        let runs = launches > 0.0;
        let sleeps = demand.resident.get() > 0.0;
        let occupancy = if runs { (resident * warps / f64::from(chip.warps_per_sm)).min(1.0) } else { 0.0 };
        let waves = if sleeps { (blocks / (sms * per_sm)).ceil().max(1.0) } else { 1.0 };
        Self {
            tensor,
            fma: fma / FMA_EFFICIENCY,
            fp64: demand.fp64_flops.get() / chip.fp64.get() / FMA_EFFICIENCY,
            shared: demand.shared_bytes.get() / (SHARED_BYTES_PER_CLOCK * sms * chip.clock.get()),
            l2: demand.l2_bytes.get() / rates.l2,
            dram: compulsory / rates.dram,
            reread: (demand.l2_bytes.get() - compulsory).max(0.0) / rates.dram,
            to_device: demand.host_to_device.get() / rates.link,
            to_host: demand.device_to_host.get() / rates.link,
            issue: launches * ISSUE_SECONDS,
            // One atomic per clock on one address (the L2 slice's atomic unit).
            latency: launches * GAP_SECONDS
                + demand.atomic_chain as f64 / chip.clock.get()
                + demand.resident.get() * waves,
            host: demand.host.get(),
            working_set: demand.working_set.get(),
            width: if runs { (blocks / sms).clamp(1.0 / sms, 1.0) } else { 0.0 },
            occupancy,
            slots: if sleeps { occupancy } else { 0.4 * occupancy },
            launches,
            bytes_l2: demand.l2_bytes.get(),
            bytes_to_device: demand.host_to_device.get(),
            bytes_to_host: demand.device_to_host.get(),
        }
    }

    /// Share of the pipes that the op can use within an SM share.
    pub(super) fn reach(&self, share: f64) -> f64 {
        if self.width > 0.0 { self.width.min(share) } else { share }
    }

    /// Share of the DRAM bandwidth that the op can draw within an SM share; copy engines need no SM for all of it.
    pub(super) fn memory_reach(&self, share: f64, warps_per_sm: f64) -> f64 {
        if self.width <= 0.0 {
            return 1.0;
        }
        let warps = self.occupancy * warps_per_sm / self.width;
        (self.reach(share) / SMS_FOR_DRAM).min(1.0) * (warps / WARPS_FOR_MEMORY).clamp(1e-3, 1.0)
    }
}

/// A step program on one chip: distinct ops once, and their order.
#[derive(Debug, Clone)]
pub(super) struct Compiled {
    pub(super) classes: Vec<OpCost>,
    /// Class of each op in order.
    pub(super) order: Vec<u32>,
    pub(super) duty: f64,
    pub(super) footprint: f64,
}

impl Compiled {
    pub(super) fn new(program: &StepProgram, rates: &Rates) -> Self {
        let mut classes: Vec<OpCost> = Vec::new();
        let mut order = Vec::new();
        for op in &program.ops {
            let cost = OpCost::of(op, rates);
            let class = classes.iter().position(|known| *known == cost).unwrap_or_else(|| {
                classes.push(cost);
                classes.len() - 1
            });
            order.push(class as u32);
        }
        let idle = classes.iter().all(|class| *class == OpCost::default());
        if order.is_empty() || idle {
            // A workload that asks for nothing: its context idles a millisecond at a time.
            classes = vec![OpCost::pause(1e-3)];
            order = vec![0];
        }
        Self { classes, order, duty: program.duty.clamp(1e-3, 1.0), footprint: program.footprint().get() }
    }
}
