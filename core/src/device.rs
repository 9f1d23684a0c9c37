//! Devices: what kind they are, how they are named, and the table of chips.

use crate::units::{Bytes, BytesPerSecond, FlopsPerSecond, Hertz, Watts};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Where numbers come from. Data of different kinds never mix in one training set unless asked for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// Measured on a real GPU.
    Cuda,
    /// Measured on CPU cores: real contention, but not a GPU's.
    Cpu,
    /// Computed by the fluid model; never a measurement.
    Simulated,
    /// Replayed from a journal captured on a real device.
    Recorded,
    /// Measured by others and imported.
    Imported,
}

impl DeviceKind {
    /// Every kind, in order of declaration.
    pub const ALL: [Self; 5] = [Self::Cuda, Self::Cpu, Self::Simulated, Self::Recorded, Self::Imported];

    /// The name in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Cpu => "cpu",
            Self::Simulated => "simulated",
            Self::Recorded => "recorded",
            Self::Imported => "imported",
        }
    }

    /// Whether the numbers were measured rather than computed.
    pub const fn is_measured(self) -> bool {
        !matches!(self, Self::Simulated)
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for DeviceKind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| format!("`{text}` is no device kind"))
    }
}

/// A device as a user names it: `cuda:0`, `cpu`, `sim:h100`, `recorded:journal/`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DeviceName {
    /// The GPU of this index, as `nvidia-smi` counts.
    Cuda(u32),
    /// CPU cores of this host.
    Cpu,
    /// A simulated chip, a name of [`CHIPS`].
    Simulated(String),
    /// The folder of a captured journal.
    Recorded(String),
}

impl DeviceName {
    /// A list with commas, in which `cuda:0-3` stands for four GPUs.
    ///
    /// ```
    /// use elastico_core::DeviceName;
    /// let names = DeviceName::list("cuda:0-2,cpu")?;
    /// assert_eq!(names, [DeviceName::Cuda(0), DeviceName::Cuda(1), DeviceName::Cuda(2), DeviceName::Cpu]);
    /// assert!(DeviceName::list("cuda:3-1").is_err());
    /// # Ok::<(), elastico_core::DeviceNameError>(())
    /// ```
    ///
    /// # Errors
    /// [`DeviceNameError`] for the first part that names no device.
    pub fn list(text: &str) -> Result<Vec<Self>, DeviceNameError> {
        let mut names = Vec::new();
        for part in text.split(',').map(str::trim) {
            let range = part.strip_prefix("cuda:").and_then(|range| range.split_once('-'));
            match range.map(|(first, last)| (first.parse::<u32>(), last.parse::<u32>())) {
                Some((Ok(first), Ok(last))) if first <= last && last - first < 64 => {
                    names.extend((first..=last).map(Self::Cuda));
                }
                Some(_) => return Err(DeviceNameError::Form(part.to_owned())),
                None => names.push(part.parse()?),
            }
        }
        Ok(names)
    }

    /// The kind of numbers that the device yields.
    pub const fn kind(&self) -> DeviceKind {
        match self {
            Self::Cuda(_) => DeviceKind::Cuda,
            Self::Cpu => DeviceKind::Cpu,
            Self::Simulated(_) => DeviceKind::Simulated,
            Self::Recorded(_) => DeviceKind::Recorded,
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cuda(index) => f.pad(&format!("cuda:{index}")),
            Self::Cpu => f.pad("cpu"),
            Self::Simulated(chip) => f.pad(&format!("sim:{chip}")),
            Self::Recorded(folder) => f.pad(&format!("recorded:{folder}")),
        }
    }
}

/// A text that names no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceNameError {
    /// Neither of the four forms.
    #[error("`{0}` is no device (cuda:0, cpu, sim:h100, recorded:folder)")]
    Form(String),
    /// `sim:` with a chip that the table lacks.
    #[error("there is no chip `{name}` to simulate{}", suggestion.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default())]
    Chip {
        /// The name as given.
        name: String,
        /// The nearest chip.
        suggestion: Option<&'static str>,
    },
}

impl FromStr for DeviceName {
    type Err = DeviceNameError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || DeviceNameError::Form(text.to_owned());
        match text.split_once(':') {
            None if text == "cpu" => Ok(Self::Cpu),
            None if text == "cuda" => Ok(Self::Cuda(0)),
            Some(("cuda", index)) => index.parse().map(Self::Cuda).map_err(|_| form()),
            Some(("sim", name)) => match chip(name) {
                Some(chip) => Ok(Self::Simulated(chip.name.to_owned())),
                None => Err(DeviceNameError::Chip {
                    name: name.to_owned(),
                    suggestion: crate::suggest(name, CHIPS.iter().map(|chip| chip.name)),
                }),
            },
            Some(("recorded", folder)) if !folder.is_empty() => Ok(Self::Recorded(folder.to_owned())),
            _ => Err(form()),
        }
    }
}

impl TryFrom<String> for DeviceName {
    type Error = DeviceNameError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<DeviceName> for String {
    fn from(name: DeviceName) -> Self {
        name.to_string()
    }
}

/// Number formats that the pipes work in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dtype {
    /// 64-bit float.
    Fp64,
    /// 32-bit float on the FMA pipe.
    Fp32,
    /// 32-bit storage, 19-bit multiply on the tensor pipe.
    Tf32,
    /// 16-bit float.
    Fp16,
    /// bfloat16.
    Bf16,
    /// 8-bit float.
    Fp8,
    /// 8-bit integer.
    Int8,
}

impl Dtype {
    /// Size of one element in memory.
    pub const fn bytes(self) -> f64 {
        match self {
            Self::Fp64 => 8.0,
            Self::Fp32 | Self::Tf32 => 4.0,
            Self::Fp16 | Self::Bf16 => 2.0,
            Self::Fp8 | Self::Int8 => 1.0,
        }
    }

    /// The name in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fp64 => "fp64",
            Self::Fp32 => "fp32",
            Self::Tf32 => "tf32",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Int8 => "int8",
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The constants of one GPU model, dense rates without sparsity. `None` = the chip has no such pipe.
///
/// Peak rates are those of the data sheet, at the data sheet's boost clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Chip {
    /// The name after `sim:` and in `cluster.toml`.
    pub name: &'static str,
    /// The vendor's name.
    pub product: &'static str,
    /// Streaming multiprocessors enabled.
    pub sm_count: u32,
    /// Most resident warps of an SM.
    pub warps_per_sm: u32,
    /// Most resident blocks of an SM.
    pub blocks_per_sm: u32,
    /// Boost clock.
    pub clock: Hertz,
    /// L2 capacity.
    pub l2: Bytes,
    /// Device memory.
    pub memory: Bytes,
    /// Peak DRAM bandwidth.
    pub dram_bandwidth: BytesPerSecond,
    /// Peak host link bandwidth of one direction.
    pub link_bandwidth: BytesPerSecond,
    /// Board power limit.
    pub power: Watts,
    /// FP32 on the FMA pipe.
    pub fp32: FlopsPerSecond,
    /// FP64 outside the tensor pipe.
    pub fp64: FlopsPerSecond,
    /// TF32 on the tensor pipe.
    pub tf32: Option<FlopsPerSecond>,
    /// FP16 or BF16 on the tensor pipe with FP32 accumulation.
    pub half: Option<FlopsPerSecond>,
    /// FP8 on the tensor pipe.
    pub fp8: Option<FlopsPerSecond>,
    /// INT8 on the tensor pipe or as dot products.
    pub int8: Option<FlopsPerSecond>,
    /// Where the constants stand.
    pub source: &'static str,
}

impl Chip {
    /// The peak rate for a format and whether the tensor pipe gives it.
    ///
    /// A format without a pipe of its own falls back to the next one that holds its values: FP8 to half, half and
    /// TF32 to FP32.
    pub fn peak(&self, dtype: Dtype) -> (FlopsPerSecond, bool) {
        let fma = (self.fp32, false);
        let half = self.half.map_or(fma, |rate| (rate, true));
        match dtype {
            Dtype::Fp64 => (self.fp64, false),
            Dtype::Fp32 => fma,
            Dtype::Tf32 => self.tf32.map_or(fma, |rate| (rate, true)),
            Dtype::Fp16 | Dtype::Bf16 => half,
            Dtype::Fp8 => self.fp8.map_or(half, |rate| (rate, true)),
            Dtype::Int8 => self.int8.map_or(half, |rate| (rate, true)),
        }
    }
}

/// The chip of a name, upper or lower case.
pub fn chip(name: &str) -> Option<&'static Chip> {
    CHIPS.iter().find(|chip| chip.name.eq_ignore_ascii_case(name))
}

const fn tera(rate: f64) -> FlopsPerSecond {
    FlopsPerSecond(rate * 1e12)
}

const PCIE3: BytesPerSecond = BytesPerSecond(15.75e9);
const PCIE4: BytesPerSecond = BytesPerSecond(31.5e9);
const PCIE5: BytesPerSecond = BytesPerSecond(63.0e9);

/// Chips that can be simulated or placed on; K80 and P100 stand here for imported data.
///
/// Resident limits: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". L2 sizes as in
/// binary megabytes of the named paper, written in bytes.
pub const CHIPS: &[Chip] = &[
    Chip {
        name: "k80",
        product: "Tesla K80 (one GK210)",
        sm_count: 13,
        warps_per_sm: 64,
        blocks_per_sm: 16,
        clock: Hertz(875e6),
        l2: Bytes(1_572_864.0),
        memory: Bytes(12e9),
        dram_bandwidth: BytesPerSecond(240e9),
        link_bandwidth: PCIE3,
        power: Watts(150.0),
        fp32: tera(4.37),
        fp64: tera(1.46),
        tf32: None,
        half: None,
        fp8: None,
        int8: None,
        source: "NVIDIA Tesla K80 board specification BD-07317 (half of the board)",
    },
    Chip {
        name: "p100",
        product: "Tesla P100 SXM2 16 GB",
        sm_count: 56,
        warps_per_sm: 64,
        blocks_per_sm: 32,
        clock: Hertz(1480e6),
        l2: Bytes(4_194_304.0),
        memory: Bytes(16e9),
        dram_bandwidth: BytesPerSecond(732e9),
        link_bandwidth: PCIE3,
        power: Watts(300.0),
        fp32: tera(10.6),
        fp64: tera(5.3),
        tf32: None,
        half: None,
        fp8: None,
        int8: None,
        source: "NVIDIA Tesla P100 white paper WP-08019",
    },
    Chip {
        name: "v100",
        product: "Tesla V100 SXM2 16 GB",
        sm_count: 80,
        warps_per_sm: 64,
        blocks_per_sm: 32,
        clock: Hertz(1530e6),
        l2: Bytes(6_291_456.0),
        memory: Bytes(16e9),
        dram_bandwidth: BytesPerSecond(900e9),
        link_bandwidth: PCIE3,
        power: Watts(300.0),
        fp32: tera(15.7),
        fp64: tera(7.8),
        tf32: None,
        half: Some(tera(125.0)),
        fp8: None,
        int8: None,
        source: "NVIDIA Tesla V100 white paper WP-08608",
    },
    Chip {
        name: "t4",
        product: "Tesla T4",
        sm_count: 40,
        warps_per_sm: 32,
        blocks_per_sm: 16,
        clock: Hertz(1590e6),
        l2: Bytes(4_194_304.0),
        memory: Bytes(16e9),
        dram_bandwidth: BytesPerSecond(320e9),
        link_bandwidth: PCIE3,
        power: Watts(70.0),
        fp32: tera(8.1),
        fp64: tera(0.254),
        tf32: None,
        half: Some(tera(65.0)),
        fp8: None,
        int8: Some(tera(130.0)),
        source: "NVIDIA T4 data sheet; Turing white paper WP-09183",
    },
    Chip {
        name: "a100-40gb",
        product: "A100 SXM4 40 GB",
        sm_count: 108,
        warps_per_sm: 64,
        blocks_per_sm: 32,
        clock: Hertz(1410e6),
        l2: Bytes(41_943_040.0),
        memory: Bytes(40e9),
        dram_bandwidth: BytesPerSecond(1555e9),
        link_bandwidth: PCIE4,
        power: Watts(400.0),
        fp32: tera(19.5),
        fp64: tera(9.7),
        tf32: Some(tera(156.0)),
        half: Some(tera(312.0)),
        fp8: None,
        int8: Some(tera(624.0)),
        source: "NVIDIA A100 white paper, table 4",
    },
    Chip {
        name: "a100-80gb",
        product: "A100 SXM4 80 GB",
        sm_count: 108,
        warps_per_sm: 64,
        blocks_per_sm: 32,
        clock: Hertz(1410e6),
        l2: Bytes(41_943_040.0),
        memory: Bytes(80e9),
        dram_bandwidth: BytesPerSecond(2039e9),
        link_bandwidth: PCIE4,
        power: Watts(400.0),
        fp32: tera(19.5),
        fp64: tera(9.7),
        tf32: Some(tera(156.0)),
        half: Some(tera(312.0)),
        fp8: None,
        int8: Some(tera(624.0)),
        source: "NVIDIA A100 80GB data sheet",
    },
    Chip {
        name: "a10",
        product: "A10",
        sm_count: 72,
        warps_per_sm: 48,
        blocks_per_sm: 16,
        clock: Hertz(1695e6),
        l2: Bytes(6_291_456.0),
        memory: Bytes(24e9),
        dram_bandwidth: BytesPerSecond(600e9),
        link_bandwidth: PCIE4,
        power: Watts(150.0),
        fp32: tera(31.2),
        fp64: tera(0.488),
        tf32: Some(tera(62.5)),
        half: Some(tera(125.0)),
        fp8: None,
        int8: Some(tera(250.0)),
        source: "NVIDIA A10 data sheet; GA102 white paper (FP64 1/64)",
    },
    Chip {
        name: "rtx3090",
        product: "GeForce RTX 3090",
        sm_count: 82,
        warps_per_sm: 48,
        blocks_per_sm: 16,
        clock: Hertz(1695e6),
        l2: Bytes(6_291_456.0),
        memory: Bytes(24e9),
        dram_bandwidth: BytesPerSecond(936e9),
        link_bandwidth: PCIE4,
        power: Watts(350.0),
        fp32: tera(35.6),
        fp64: tera(0.556),
        tf32: Some(tera(35.6)),
        half: Some(tera(71.0)),
        fp8: None,
        int8: Some(tera(284.0)),
        source: "NVIDIA GA102 white paper, appendix A (FP32 accumulation)",
    },
    Chip {
        name: "rtx4090",
        product: "GeForce RTX 4090",
        sm_count: 128,
        warps_per_sm: 48,
        blocks_per_sm: 24,
        clock: Hertz(2520e6),
        l2: Bytes(75_497_472.0),
        memory: Bytes(24e9),
        dram_bandwidth: BytesPerSecond(1008e9),
        link_bandwidth: PCIE4,
        power: Watts(450.0),
        fp32: tera(82.6),
        fp64: tera(1.29),
        tf32: Some(tera(82.6)),
        half: Some(tera(165.2)),
        fp8: Some(tera(330.3)),
        int8: Some(tera(660.6)),
        source: "NVIDIA Ada white paper, appendix A (FP32 accumulation)",
    },
    Chip {
        name: "l40s",
        product: "L40S",
        sm_count: 142,
        warps_per_sm: 48,
        blocks_per_sm: 24,
        clock: Hertz(2520e6),
        l2: Bytes(100_663_296.0),
        memory: Bytes(48e9),
        dram_bandwidth: BytesPerSecond(864e9),
        link_bandwidth: PCIE4,
        power: Watts(350.0),
        fp32: tera(91.6),
        fp64: tera(1.43),
        tf32: Some(tera(183.0)),
        half: Some(tera(362.0)),
        fp8: Some(tera(733.0)),
        int8: Some(tera(733.0)),
        source: "NVIDIA L40S data sheet",
    },
    Chip {
        name: "h100",
        product: "H100 SXM5 80 GB",
        sm_count: 132,
        warps_per_sm: 64,
        blocks_per_sm: 32,
        clock: Hertz(1830e6),
        l2: Bytes(52_428_800.0),
        memory: Bytes(80e9),
        dram_bandwidth: BytesPerSecond(3352e9),
        link_bandwidth: PCIE5,
        power: Watts(700.0),
        fp32: tera(66.9),
        fp64: tera(33.5),
        tf32: Some(tera(494.7)),
        half: Some(tera(989.4)),
        fp8: Some(tera(1978.9)),
        int8: Some(tera(1978.9)),
        source: "NVIDIA H100 white paper, table 2",
    },
    Chip {
        name: "h200",
        product: "H200 SXM5 141 GB",
        sm_count: 132,
        warps_per_sm: 64,
        blocks_per_sm: 32,
        clock: Hertz(1830e6),
        l2: Bytes(52_428_800.0),
        memory: Bytes(141e9),
        dram_bandwidth: BytesPerSecond(4800e9),
        link_bandwidth: PCIE5,
        power: Watts(700.0),
        fp32: tera(66.9),
        fp64: tera(33.5),
        tf32: Some(tera(494.7)),
        half: Some(tera(989.4)),
        fp8: Some(tera(1978.9)),
        int8: Some(tera(1978.9)),
        source: "NVIDIA H200 data sheet; chip as H100",
    },
    Chip {
        name: "b200",
        product: "B200 SXM 180 GB",
        sm_count: 148,
        warps_per_sm: 64,
        blocks_per_sm: 32,
        clock: Hertz(1965e6),
        l2: Bytes(132_644_864.0),
        memory: Bytes(180e9),
        dram_bandwidth: BytesPerSecond(7700e9),
        link_bandwidth: PCIE5,
        power: Watts(1000.0),
        fp32: tera(75.0),
        fp64: tera(37.0),
        tf32: Some(tera(1100.0)),
        half: Some(tera(2250.0)),
        fp8: Some(tera(4500.0)),
        int8: Some(tera(4500.0)),
        source: "NVIDIA HGX B200 data sheet, one eighth; L2 as the device reports it",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Data-sheet FP32 is SMs x lanes x 2 x boost clock; a slip in one column shows here.
    #[test]
    fn fp32_peak_follows_from_sm_count_and_clock() {
        for chip in CHIPS {
            let lanes = match chip.name {
                "k80" => 192.0,
                "p100" | "v100" | "t4" | "a100-40gb" | "a100-80gb" => 64.0,
                _ => 128.0,
            };
            let derived = f64::from(chip.sm_count) * lanes * 2.0 * chip.clock.get();
            let error = (derived / chip.fp32.get() - 1.0).abs();
            assert!(error < 0.09, "{}: {:.3}", chip.name, error);
        }
    }

    #[test]
    fn formats_fall_back_to_a_pipe_that_exists() {
        let k80 = chip("K80").unwrap();
        assert_eq!(k80.peak(Dtype::Bf16), (k80.fp32, false));
        let h100 = chip("h100").unwrap();
        assert_eq!(h100.peak(Dtype::Bf16), (FlopsPerSecond(989.4e12), true));
        let v100 = chip("v100").unwrap();
        assert_eq!(v100.peak(Dtype::Fp8), (v100.half.unwrap(), true));
    }

    #[test]
    fn device_names_parse() {
        for text in ["cuda:3", "cpu", "sim:h100", "recorded:runs/a"] {
            assert_eq!(text.parse::<DeviceName>().unwrap().to_string(), text);
        }
        assert_eq!("sim:H100".parse::<DeviceName>().unwrap().to_string(), "sim:h100");
        let error = "sim:h10".parse::<DeviceName>().unwrap_err();
        assert!(error.to_string().contains("did you mean `h100`"), "{error}");
        for bad in ["", "gpu", "cuda:x", "recorded:", "sim:"] {
            assert!(bad.parse::<DeviceName>().is_err(), "{bad}");
        }
    }
}
