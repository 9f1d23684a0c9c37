//! Why a step cannot be lowered, checked or compared.

use elastico_core::{Dtype, Hint};

/// Why a program has no launch plan on a target, or a result is wrong.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The target has no instruction for the format.
    #[error(
        "op `{op}` in {dtype} needs compute capability {}.{}, the target has {}.{}",
        needs.0, needs.1, has.0, has.1
    )]
    Capability {
        /// Name of the op.
        op: &'static str,
        /// Its format.
        dtype: Dtype,
        /// The first compute capability that can.
        needs: (i32, i32),
        /// The target's.
        has: (i32, i32),
    },
    /// No kernel does the op in that format on any target.
    #[error("op `{op}` in {dtype} has no CUDA kernel")]
    Format {
        /// Name of the op.
        op: &'static str,
        /// Its format.
        dtype: Dtype,
    },
    /// A size that no kernel takes.
    #[error("op `{op}`: {what} of {found} is not supported, the limit is {limit}")]
    Size {
        /// Name of the op.
        op: &'static str,
        /// What is too large or too small.
        what: &'static str,
        /// The size.
        found: u64,
        /// The largest (or smallest) that works.
        limit: u64,
    },
    /// The CPU reference met a call that it does not know, or one with other arguments than it expects.
    #[error("the reference cannot follow `{function}`: {why}")]
    Reference {
        /// Function of the kernel.
        function: &'static str,
        /// What is wrong.
        why: &'static str,
    },
    /// A result that differs from the reference.
    #[error(
        "check `{check}`: {label} differs by {error:.3e} from the reference, the limit is {tolerance:.1e}"
    )]
    Mismatch {
        /// Name of the check.
        check: String,
        /// The buffer.
        label: &'static str,
        /// Relative difference: the norm of the difference over the norm of the reference.
        error: f64,
        /// The largest that is right.
        tolerance: f64,
    },
    /// A result that is not a number, or infinite.
    #[error("check `{check}`: {label} holds a value that is not finite at element {element}")]
    NotFinite {
        /// Name of the check.
        check: String,
        /// The buffer.
        label: &'static str,
        /// The first such element.
        element: u64,
    },
    /// What was read back does not have the size of the plan's buffer.
    #[error("check `{check}`: {label} has {found} bytes, the plan says {expected}")]
    Bytes {
        /// Name of the check.
        check: String,
        /// The buffer.
        label: &'static str,
        /// Bytes given.
        found: u64,
        /// Bytes of the plan.
        expected: u64,
    },
}

impl Hint for LaunchError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Capability { .. } => {
                Some("choose a workload in another format, for example bf16 or fp16, or another device".to_owned())
            }
            Self::Format { .. } => Some("formats with kernels: fp32, tf32, fp16, bf16, fp8, int8".to_owned()),
            Self::Size { .. } => Some("choose a smaller configuration of the workload".to_owned()),
            Self::Mismatch { .. } | Self::NotFinite { .. } => Some(
                "the device computes wrong numbers: run `elastico doctor --self-test` again alone on the device"
                    .to_owned(),
            ),
            Self::Reference { .. } | Self::Bytes { .. } => None,
        }
    }
}
