use elastico_core::DeviceKind;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Where all the numbers of one figure come from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// Measured, computed, replayed or imported.
    pub kind: DeviceKind,
    /// The device, for example `h100` or `cuda:0`, or the name of the import.
    pub device: String,
}

impl Origin {
    /// An origin of a kind and a device or import name; `sim:h100` and `h100` are one simulated origin.
    pub fn new(kind: DeviceKind, device: impl Into<String>) -> Self {
        let device: String = device.into();
        let device = device.strip_prefix("sim:").map_or_else(|| device.clone(), str::to_owned);
        Self { kind, device }
    }
}

/// The words of the badge: `simulated h100`, `measured on cuda:0`, `imported from gavel`.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = self.device.as_str();
        let text = match self.kind {
            DeviceKind::Simulated => format!("simulated {device}"),
            DeviceKind::Cuda | DeviceKind::Cpu => format!("measured on {device}"),
            DeviceKind::Recorded => {
                format!("replayed from {}", device.strip_prefix("recorded:").unwrap_or(device))
            }
            DeviceKind::Imported => format!("imported from {device}"),
        };
        f.pad(&text)
    }
}
