//! The places where trials run; each implements [`Device`].

pub mod cpu;
pub mod cuda;
pub(crate) mod processes;
pub mod recorded;
pub mod simulated;

pub use processes::ProcessOptions;

use crate::{Device, Error};
use elastico_core::DeviceName;
use std::path::Path;

/// Opens the device of a name, where the name is all it takes; [`cpu::CpuDevice`] and
/// [`cuda::CudaDevice`] need a worker program as well.
///
/// # Errors
/// [`Error::NoDevice`] where this build or host has none; errors of reading the journal of a recorded one.
pub fn open(name: &DeviceName, _cores: Option<Vec<usize>>) -> Result<Box<dyn Device>, Error> {
    match name {
        DeviceName::Simulated(chip) => Ok(Box::new(simulated::Simulated::new(chip)?)),
        DeviceName::Recorded(folder) => Ok(Box::new(recorded::Recorded::read(Path::new(folder))?)),
        DeviceName::Cpu => Err(Error::NoDevice {
            device: name.to_string(),
            reason: "its workers need a program to start; make it with `CpuDevice::new`".to_owned(),
        }),
        DeviceName::Cuda(_) => Err(Error::NoDevice {
            device: name.to_string(),
            reason: "its workers need a program to start; make it with `CudaDevice::new`".to_owned(),
        }),
    }
}
