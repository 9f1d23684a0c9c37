//! What work asks of a device, by arithmetic alone.

use elastico_core::Dtype;
use elastico_core::units::{Bytes, Flops, Seconds};
use serde::{Deserialize, Serialize};
use std::iter::Sum;
use std::ops::Add;

/// What one op, or a whole step, asks of a device.
///
/// Quantities follow from the sizes of the op; nothing in here was measured. DRAM traffic is *compulsory*: each
/// operand crosses once. `l2_bytes` counts every request that reaches L2, so `l2_bytes` less the DRAM traffic is what
/// a cache of sufficient size keeps from DRAM.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// Work of the tensor pipe; a multiply-add counts two.
    pub tensor_flops: Flops,
    /// Work of the FP32 FMA pipe.
    pub fp32_flops: Flops,
    /// Work of the FP64 pipe.
    pub fp64_flops: Flops,
    /// The format of most of the work.
    pub dtype: Dtype,
    /// Traffic between the SMs and L2, re-reads included.
    pub l2_bytes: Bytes,
    /// Compulsory reads from DRAM.
    pub dram_read: Bytes,
    /// Compulsory writes to DRAM.
    pub dram_write: Bytes,
    /// Distinct data that competes for L2 while the op runs: the panels of a product that are in flight together, the
    /// rows of a table that are drawn, all that a stream touches. Re-reads hit as far as it fits. A sum keeps the
    /// largest.
    pub working_set: Bytes,
    /// Traffic between shared memory and the SMs' load-store units, replays of bank conflicts included.
    pub shared_bytes: Bytes,
    /// The longest chain of atomic updates on one address; they serialise.
    pub atomic_chain: u64,
    /// Copies to the device over the host link.
    pub host_to_device: Bytes,
    /// Copies from the device over the host link.
    pub device_to_host: Bytes,
    /// Time on the host during which the device has nothing to do.
    pub host: Seconds,
    /// Time on the device that no speed shortens: sleeping blocks.
    pub resident: Seconds,
    /// Kernel launches.
    pub launches: u64,
    /// Thread blocks of all launches.
    pub blocks: u64,
    /// Warps of one block. A sum keeps the largest.
    pub warps_per_block: u32,
}

impl Default for Demand {
    fn default() -> Self {
        Self {
            tensor_flops: Flops(0.0),
            fp32_flops: Flops(0.0),
            fp64_flops: Flops(0.0),
            dtype: Dtype::Fp32,
            l2_bytes: Bytes(0.0),
            dram_read: Bytes(0.0),
            dram_write: Bytes(0.0),
            working_set: Bytes(0.0),
            shared_bytes: Bytes(0.0),
            atomic_chain: 0,
            host_to_device: Bytes(0.0),
            device_to_host: Bytes(0.0),
            host: Seconds(0.0),
            resident: Seconds(0.0),
            launches: 0,
            blocks: 0,
            warps_per_block: 0,
        }
    }
}

impl Demand {
    /// Work of all pipes.
    pub fn flops(&self) -> Flops {
        self.tensor_flops + self.fp32_flops + self.fp64_flops
    }

    /// Compulsory reads and writes.
    pub fn dram_bytes(&self) -> Bytes {
        self.dram_read + self.dram_write
    }

    /// FLOPs per compulsory DRAM byte, the abscissa of the roofline (Williams, Waterman & Patterson, CACM 2009).
    ///
    /// Infinite for work without DRAM traffic, `None` where there is neither.
    pub fn arithmetic_intensity(&self) -> Option<f64> {
        let (flops, bytes) = (self.flops().get(), self.dram_bytes().get());
        if bytes > 0.0 {
            Some(flops / bytes)
        } else if flops > 0.0 {
            Some(f64::INFINITY)
        } else {
            None
        }
    }
}

/// One after the other: amounts add up, `working_set`, `atomic_chain` and `warps_per_block` keep the larger, `dtype`
/// is that of the side with more FLOPs.
impl Add for Demand {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        let larger = |a: Bytes, b: Bytes| if b > a { b } else { a };
        Self {
            tensor_flops: self.tensor_flops + other.tensor_flops,
            fp32_flops: self.fp32_flops + other.fp32_flops,
            fp64_flops: self.fp64_flops + other.fp64_flops,
            dtype: if other.flops() > self.flops() { other.dtype } else { self.dtype },
            l2_bytes: self.l2_bytes + other.l2_bytes,
            dram_read: self.dram_read + other.dram_read,
            dram_write: self.dram_write + other.dram_write,
            working_set: larger(self.working_set, other.working_set),
            shared_bytes: self.shared_bytes + other.shared_bytes,
            atomic_chain: self.atomic_chain.max(other.atomic_chain),
            host_to_device: self.host_to_device + other.host_to_device,
            device_to_host: self.device_to_host + other.device_to_host,
            host: self.host + other.host,
            resident: self.resident + other.resident,
            launches: self.launches.saturating_add(other.launches),
            blocks: self.blocks.saturating_add(other.blocks),
            warps_per_block: self.warps_per_block.max(other.warps_per_block),
        }
    }
}

/// The sum of a step; unlike a chain of additions, `dtype` is the format with the most FLOPs over all parts.
impl Sum for Demand {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        let mut by_dtype: Vec<(Dtype, f64)> = Vec::new();
        let mut total = Self::default();
        for part in parts {
            match by_dtype.iter_mut().find(|(dtype, _)| *dtype == part.dtype) {
                Some((_, flops)) => *flops += part.flops().get(),
                None => by_dtype.push((part.dtype, part.flops().get())),
            }
            total = total + part;
        }
        let most = by_dtype.into_iter().max_by(|a, b| a.1.total_cmp(&b.1).then_with(|| b.0.cmp(&a.0)));
        total.dtype = most.map_or(Dtype::Fp32, |(dtype, _)| dtype);
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(dtype: Dtype, flops: f64, bytes: f64) -> Demand {
        Demand {
            fp32_flops: Flops(flops),
            dtype,
            dram_read: Bytes(bytes),
            working_set: Bytes(bytes),
            ..Demand::default()
        }
    }

    #[test]
    fn amounts_add_and_the_working_set_is_the_largest() {
        let sum = part(Dtype::Fp32, 2.0, 10.0) + part(Dtype::Bf16, 5.0, 4.0);
        assert_eq!(sum.flops(), Flops(7.0));
        assert_eq!(sum.dram_bytes(), Bytes(14.0));
        assert_eq!(sum.working_set, Bytes(10.0));
        assert_eq!(sum.dtype, Dtype::Bf16);
        assert_eq!(sum.arithmetic_intensity(), Some(0.5));
    }

    #[test]
    fn the_sum_takes_the_format_with_most_work_in_all() {
        let parts = [part(Dtype::Fp32, 3.0, 1.0), part(Dtype::Bf16, 4.0, 1.0), part(Dtype::Fp32, 3.0, 1.0)];
        assert_eq!(parts.into_iter().sum::<Demand>().dtype, Dtype::Fp32);
    }

    #[test]
    fn intensity_without_traffic() {
        assert_eq!(Demand::default().arithmetic_intensity(), None);
        assert_eq!(part(Dtype::Fp32, 1.0, 0.0).arithmetic_intensity(), Some(f64::INFINITY));
    }
}
