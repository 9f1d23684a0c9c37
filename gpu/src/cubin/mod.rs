//! Kernels compiled at run time for the device that is there.
//!
//! NVRTC compiles to CUBIN, the device's own code, and needs no driver: what it makes is loaded without another
//! compiler. The options are fixed, so that one source, one compute capability and one NVRTC give one set of bytes.

#![expect(unsafe_code, reason = "calls into NVRTC")]

mod cache;

pub use cache::Cache;

use crate::libraries::{CUDA_MAJOR, Libraries, LibraryError, LibraryKind, function_table};
use cudarc::nvrtc::sys::{nvrtcProgram, nvrtcResult};
use elastico_core::Hint;
use std::ffi::{CString, c_char, c_int, c_uint};
use std::path::{Path, PathBuf};

function_table! {
    Api of cudarc::nvrtc::sys returns nvrtcResult as c_uint {
        fn nvrtcVersion(*mut c_int, *mut c_int);
        fn nvrtcGetNumSupportedArchs(*mut c_int);
        fn nvrtcGetSupportedArchs(*mut c_int);
        fn nvrtcCreateProgram(
            *mut nvrtcProgram, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char,
        );
        fn nvrtcDestroyProgram(*mut nvrtcProgram);
        fn nvrtcCompileProgram(nvrtcProgram, c_int, *const *const c_char);
        fn nvrtcGetProgramLogSize(nvrtcProgram, *mut usize);
        fn nvrtcGetProgramLog(nvrtcProgram, *mut c_char);
        fn nvrtcGetCUBINSize(nvrtcProgram, *mut usize);
        fn nvrtcGetCUBIN(nvrtcProgram, *mut c_char);
    }
}

/// Options that every kernel is compiled with, after its architecture. No `--restrict`: operands may be one array.
const OPTIONS: [&str; 1] = ["--std=c++17"];

/// Why a kernel could not be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// NVRTC cannot be opened.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// NVRTC is of another major version than the bindings.
    #[error("`{}` is NVRTC {}.{}, not {CUDA_MAJOR}", library.display(), version.0, version.1)]
    Version {
        /// The file.
        library: PathBuf,
        /// What it says it is.
        version: (i32, i32),
    },
    /// NVRTC does not know the compute capability.
    #[error("NVRTC {}.{} makes no code for compute capability {}.{}, only for {}",
        version.0, version.1, compute_capability.0, compute_capability.1, list(supported))]
    Architecture {
        /// The version of NVRTC.
        version: (i32, i32),
        /// What was asked for.
        compute_capability: (i32, i32),
        /// What it knows, as in `sm_90`.
        supported: Vec<i32>,
    },
    /// The source has errors.
    #[error("{first}\n{log}")]
    Source {
        /// The first error, as `file:line: text`.
        first: String,
        /// The whole log.
        log: String,
    },
    /// A call failed.
    #[error("{call} failed with NVRTC error {code} ({})", meaning(*code))]
    Call {
        /// The function.
        call: &'static str,
        /// `nvrtcResult`.
        code: i32,
    },
    /// The source or its name contains a zero byte.
    #[error("{0} contains a zero byte")]
    Zero(&'static str),
}

fn list(architectures: &[i32]) -> String {
    let names: Vec<String> =
        architectures.iter().map(|number| format!("{}.{}", number / 10, number % 10)).collect();
    names.join(", ")
}

const fn meaning(code: i32) -> &'static str {
    match code {
        1 => "out of memory",
        2 => "program creation failed",
        3 => "invalid input",
        4 => "invalid program",
        5 => "invalid option",
        6 => "compilation failed",
        7 => "builtins library missing",
        _ => "see nvrtcResult in nvrtc.h",
    }
}

impl Hint for CompileError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Library(error) => error.hint(),
            Self::Version { .. } => Some(LibraryKind::Nvrtc.install().to_owned()),
            Self::Architecture { compute_capability, supported, .. } => {
                Some(if supported.first().is_some_and(|oldest| number(*compute_capability) < *oldest) {
                    "CUDA 13 dropped this GPU; use one of compute capability 7.5 or newer".to_owned()
                } else {
                    "install a newer NVRTC of major version 13 (pip install -U nvidia-cuda-nvrtc)".to_owned()
                })
            }
            Self::Call { code: 7, .. } => Some(
                "libnvrtc-builtins.so.13.0 must lie beside libnvrtc.so.13; both are in nvidia-cuda-nvrtc"
                    .to_owned(),
            ),
            Self::Source { .. } | Self::Call { .. } | Self::Zero(_) => None,
        }
    }
}

const fn number(compute_capability: (i32, i32)) -> i32 {
    compute_capability.0 * 10 + compute_capability.1
}

fn architecture(compute_capability: (i32, i32)) -> String {
    format!("sm_{}", number(compute_capability))
}

/// Compiles CUDA C++ to a CUBIN for one compute capability. `name` stands in messages as the file's name.
///
/// # Errors
/// [`CompileError`]; [`CompileError::Source`] carries the compiler's log.
pub fn compile(
    libraries: &Libraries,
    source: &str,
    name: &str,
    compute_capability: (i32, i32),
) -> Result<Vec<u8>, CompileError> {
    Compiler::open(libraries)?.compile(source, name, compute_capability)
}

/// An open NVRTC.
#[derive(Debug)]
pub struct Compiler {
    api: Api,
    path: &'static Path,
    version: (i32, i32),
}

impl Compiler {
    /// Opens NVRTC.
    ///
    /// # Errors
    /// [`CompileError::Library`], or [`CompileError::Version`] for another major version.
    pub fn open(libraries: &Libraries) -> Result<Self, CompileError> {
        let loaded = libraries.open(LibraryKind::Nvrtc)?;
        let api = Api::load(&loaded)?;
        let mut version = (0, 0);
        // SAFETY: both are valid for the write.
        let code = unsafe { (api.nvrtcVersion)(&raw mut version.0, &raw mut version.1) };
        check("nvrtcVersion", code)?;
        if version.0 != CUDA_MAJOR.cast_signed() {
            return Err(CompileError::Version { library: loaded.path().to_owned(), version });
        }
        Ok(Self { api, path: loaded.path(), version })
    }

    /// Its version, for example `(13, 0)`.
    pub const fn version(&self) -> (i32, i32) {
        self.version
    }

    /// The file that was opened.
    pub const fn path(&self) -> &Path {
        self.path
    }

    /// The compute capabilities it makes code for, as numbers: 90 is 9.0.
    ///
    /// # Errors
    /// [`CompileError::Call`].
    pub fn architectures(&self) -> Result<Vec<i32>, CompileError> {
        let mut count = 0;
        // SAFETY: `count` is valid for the write.
        let code = unsafe { (self.api.nvrtcGetNumSupportedArchs)(&raw mut count) };
        check("nvrtcGetNumSupportedArchs", code)?;
        let mut numbers = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: the call writes as many numbers as it just said.
        let code = unsafe { (self.api.nvrtcGetSupportedArchs)(numbers.as_mut_ptr()) };
        check("nvrtcGetSupportedArchs", code)?;
        Ok(numbers)
    }

    /// Compiles; see [`compile`].
    ///
    /// # Errors
    /// [`CompileError`].
    pub fn compile(
        &self,
        source: &str,
        name: &str,
        compute_capability: (i32, i32),
    ) -> Result<Vec<u8>, CompileError> {
        let supported = self.architectures()?;
        if !supported.contains(&number(compute_capability)) {
            return Err(CompileError::Architecture { version: self.version, compute_capability, supported });
        }
        let source = CString::new(source).map_err(|_| CompileError::Zero("the source"))?;
        let file = CString::new(name).map_err(|_| CompileError::Zero("the name of the source"))?;
        let option = format!("--gpu-architecture={}", architecture(compute_capability));
        let options: Vec<CString> = std::iter::once(option.as_str())
            .chain(OPTIONS)
            .map(|option| CString::new(option).map_err(|_| CompileError::Zero("an option")))
            .collect::<Result<_, _>>()?;
        let count = c_int::try_from(options.len()).unwrap_or(0);
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();

        let mut program = Program { api: &self.api, handle: std::ptr::null_mut() };
        // SAFETY: the handle is valid for the write, both texts end with a zero, and there are no headers.
        let code = unsafe {
            (self.api.nvrtcCreateProgram)(
                &raw mut program.handle,
                source.as_ptr(),
                file.as_ptr(),
                0,
                std::ptr::null(),
                std::ptr::null(),
            )
        };
        check("nvrtcCreateProgram", code)?;
        // SAFETY: as many options as said, each ends with a zero and lives.
        let code = unsafe { (self.api.nvrtcCompileProgram)(program.handle, count, options.as_ptr()) };
        if code == 6 {
            let log = program.log()?;
            return Err(CompileError::Source { first: first_error(&log, name), log });
        }
        check("nvrtcCompileProgram", code)?;
        program.bytes(
            ("nvrtcGetCUBINSize", self.api.nvrtcGetCUBINSize),
            ("nvrtcGetCUBIN", self.api.nvrtcGetCUBIN),
        )
    }
}

struct Program<'a> {
    api: &'a Api,
    handle: nvrtcProgram,
}

type ReadSize = unsafe extern "C" fn(nvrtcProgram, *mut usize) -> c_uint;
type ReadBytes = unsafe extern "C" fn(nvrtcProgram, *mut c_char) -> c_uint;

impl Program<'_> {
    fn bytes(
        &self,
        size: (&'static str, ReadSize),
        content: (&'static str, ReadBytes),
    ) -> Result<Vec<u8>, CompileError> {
        let mut length = 0;
        // SAFETY: `length` is valid for the write, the handle lives.
        check(size.0, unsafe { (size.1)(self.handle, &raw mut length) })?;
        let mut bytes = vec![0_u8; length];
        // SAFETY: the call writes as many bytes as it just said.
        check(content.0, unsafe { (content.1)(self.handle, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }

    fn log(&self) -> Result<String, CompileError> {
        let bytes = self.bytes(
            ("nvrtcGetProgramLogSize", self.api.nvrtcGetProgramLogSize),
            ("nvrtcGetProgramLog", self.api.nvrtcGetProgramLog),
        )?;
        Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\0').trim_end().to_owned())
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: made by nvrtcCreateProgram for this value.
            unsafe { (self.api.nvrtcDestroyProgram)(&raw mut self.handle) };
        }
    }
}

const fn check(call: &'static str, code: c_uint) -> Result<(), CompileError> {
    if code == 0 { Ok(()) } else { Err(CompileError::Call { call, code: code.cast_signed() }) }
}

/// `name(12): error: text` as `name:12: text`.
fn first_error(log: &str, name: &str) -> String {
    log.lines()
        .find_map(|line| {
            let (file, rest) = line.split_once('(')?;
            let (line, rest) = rest.split_once(')')?;
            let text = rest.split_once("error")?.1;
            let text = text.split_once(": ").map_or(text, |(_, text)| text);
            line.parse::<u32>().ok().map(|line| format!("{file}:{line}: {text}"))
        })
        .unwrap_or_else(|| format!("{name} does not compile"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_named_by_file_and_line() {
        let log = "x.cu(1): warning #1-D: odd\n\nx.cu(7): error: identifier \"y\" is undefined\n\n2 errors";
        assert_eq!(first_error(log, "x.cu"), "x.cu:7: identifier \"y\" is undefined");
        assert_eq!(first_error("ptxas fatal", "x.cu"), "x.cu does not compile");
    }
}
