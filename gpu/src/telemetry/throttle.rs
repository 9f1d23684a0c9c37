//! Why a clock is lower than it could be.

use serde::{Deserialize, Serialize};

const GPU_IDLE: u64 = 0x1;
const APPLICATION_SETTING: u64 = 0x2;
const POWER_CAP: u64 = 0x4;
const HARDWARE_SLOWDOWN: u64 = 0x8;
const SYNC_BOOST: u64 = 0x10;
const SOFTWARE_THERMAL: u64 = 0x20;
const HARDWARE_THERMAL: u64 = 0x40;
const POWER_BRAKE: u64 = 0x80;
const DISPLAY_SETTING: u64 = 0x100;

/// NVML's throttle reasons, sorted by what they mean for a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "the reasons are independent bits")]
pub struct Throttling {
    /// Heat, found by software or hardware.
    pub thermal: bool,
    /// A slowdown by hardware: too much current, or the supply's brake.
    pub hardware: bool,
    /// The power limit. Neighbours share it, so it is a way in which they slow each other down.
    pub power_cap: bool,
    /// Clocks that somebody set, or another GPU of the sync boost group.
    pub setting: bool,
    /// Nothing runs.
    pub idle: bool,
}

impl Throttling {
    /// Sorts the bits of `nvmlDeviceGetCurrentClocksThrottleReasons`; unknown ones are passed over.
    pub const fn from_bits(bits: u64) -> Self {
        Self {
            thermal: bits & (SOFTWARE_THERMAL | HARDWARE_THERMAL) != 0,
            hardware: bits & (HARDWARE_SLOWDOWN | POWER_BRAKE) != 0,
            power_cap: bits & POWER_CAP != 0,
            setting: bits & (APPLICATION_SETTING | DISPLAY_SETTING | SYNC_BOOST) != 0,
            idle: bits & GPU_IDLE != 0,
        }
    }

    /// Whether what was measured meanwhile says more about the cooling than about the pair.
    pub const fn spoils(self) -> bool {
        self.thermal || self.hardware
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heat_and_hardware_spoil_and_the_power_cap_does_not() {
        for (bits, spoils) in [
            (0, false),
            (GPU_IDLE, false),
            (POWER_CAP, false),
            (APPLICATION_SETTING | SYNC_BOOST, false),
            (SOFTWARE_THERMAL, true),
            (HARDWARE_THERMAL | POWER_CAP, true),
            (HARDWARE_SLOWDOWN, true),
            (POWER_BRAKE, true),
            (1 << 40, false),
        ] {
            assert_eq!(Throttling::from_bits(bits).spoils(), spoils, "{bits:#x}");
        }
        let both = Throttling::from_bits(POWER_CAP | SOFTWARE_THERMAL);
        assert!(both.power_cap && both.thermal && !both.hardware && !both.idle);
    }

    /// The bits are NVML's own.
    #[test]
    fn bits_are_those_of_the_wrapper() {
        use nvml_wrapper::bitmasks::device::ThrottleReasons as Reasons;
        assert_eq!(Reasons::SW_POWER_CAP.bits(), POWER_CAP);
        assert_eq!(Reasons::HW_SLOWDOWN.bits(), HARDWARE_SLOWDOWN);
        assert_eq!(Reasons::SYNC_BOOST.bits(), SYNC_BOOST);
        assert_eq!(Reasons::SW_THERMAL_SLOWDOWN.bits(), SOFTWARE_THERMAL);
        assert_eq!(Reasons::HW_THERMAL_SLOWDOWN.bits(), HARDWARE_THERMAL);
        assert_eq!(Reasons::HW_POWER_BRAKE_SLOWDOWN.bits(), POWER_BRAKE);
        assert_eq!(Reasons::DISPLAY_CLOCK_SETTING.bits(), DISPLAY_SETTING);
    }
}
