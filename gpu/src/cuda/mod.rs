//! A thin, safe face of the CUDA driver.
//!
//! [`Driver::load`] is the preflight: it opens the chosen library, looks up every function that this program calls and
//! asks for the version. What it returns can be used without a surprise; what it refuses is a typed error. Types
//! and constants are cudarc's, generated from NVIDIA's headers; its loader and its error texts, which panic without a
//! driver, are not used.
//!
//! A [`Context`] is the primary context of one device. [`Memory`], [`Pinned`], [`Module`], [`Stream`], [`Event`] and
//! [`Graph`] hold their context, so nothing is freed too early whatever the order of drops; a graph holds the
//! memory and the functions that it uses. After a fault of the device nothing is freed any more: the driver would fail
//! or wait, and the end of the process frees all.
//!
//! # What is trusted
//! Every copy is checked against the sizes of its memory, and every launch against the parameters of the function. What a
//! kernel itself does is not checked: a module is code that this program compiled, and is trusted like the program.
//!
//! # Loading of kernels
//! With `CUDA_MODULE_LOADING=LAZY` ([`LOADING`]), the driver's default, a kernel is loaded when it is looked up or first
//! launched, and that may synchronize the device. No such moment falls into a measurement: [`Module::function`] loads its
//! kernel, and [`crate::gemm::Gemm::new`] runs the product once. `EAGER` would load all kernels of cuBLASLt into
//! each worker, which costs seconds of its start and hundreds of megabytes of device memory.

#![expect(unsafe_code, reason = "calls into the driver")]

mod api;
mod context;
mod driver;
mod error;
mod event;
mod green;
mod memory;
mod module;
mod stream;

pub use context::Context;
pub use driver::{ComputeMode, DeviceFacts, Driver};
pub use error::{CudaError, OUTCOMES, OutcomeRow};
pub use event::Event;
pub use green::GreenContext;
pub use memory::{Memory, Pinned};
pub use module::{Argument, Function, FunctionAttributes, Module};
pub use stream::{Graph, Stream};

pub(crate) use api::Api;

/// The variable, and its value, that a worker's environment should have; see the module's text.
pub const LOADING: (&str, &str) = ("CUDA_MODULE_LOADING", "LAZY");
