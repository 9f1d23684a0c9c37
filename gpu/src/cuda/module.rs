//! Compiled kernels.

use super::{Context, CudaError, Memory};
use cudarc::driver::sys::{CUfunction, CUfunction_attribute as Attribute, CUmodule};
use std::borrow::Cow;
use std::ffi::{CString, c_int, c_void};
use std::fmt;
use std::sync::Arc;

/// Compiled kernels, loaded into a context.
#[derive(Clone)]
pub struct Module {
    inner: Arc<Inner>,
}

pub(super) struct Inner {
    context: Context,
    handle: CUmodule,
}

// SAFETY: a module handle may be used from any thread.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Module {
    pub(super) fn new(context: &Context, cubin: &[u8]) -> Result<Self, CudaError> {
        let image = checked_image(cubin).ok_or(CudaError::Call { call: "cuModuleLoadData", code: 200 })?;
        let mut handle = std::ptr::null_mut();
        let api = context.bind()?;
        // SAFETY: `handle` is valid for the write; the image ends where the driver will hold it for ended.
        let code = unsafe { (api.cuModuleLoadData)(&raw mut handle, image.as_ptr().cast()) };
        context.check("cuModuleLoadData", code)?;
        Ok(Self { inner: Arc::new(Inner { context: context.clone(), handle }) })
    }

    /// Looks a kernel up.
    ///
    /// # Errors
    /// [`CudaError::Call`] with code 500 where the module has no such kernel.
    pub fn function(&self, name: &str) -> Result<Function, CudaError> {
        const CALL: &str = "cuModuleGetFunction";
        let context = &self.inner.context;
        let text = CString::new(name).map_err(|_| CudaError::Call { call: CALL, code: 500 })?;
        let mut handle = std::ptr::null_mut();
        let api = context.bind()?;
        // SAFETY: `handle` is valid for the write, `text` ends with a zero.
        let code = unsafe { (api.cuModuleGetFunction)(&raw mut handle, self.inner.handle, text.as_ptr()) };
        context.check(CALL, code)?;
        let mut parameters = Vec::new();
        loop {
            let (mut offset, mut size) = (0_usize, 0_usize);
            // SAFETY: both are valid for the write.
            let code =
                unsafe { (api.cuFuncGetParamInfo)(handle, parameters.len(), &raw mut offset, &raw mut size) };
            // Invalid value: there are no more.
            if code == 1 || parameters.len() > 4096 {
                break;
            }
            context.check("cuFuncGetParamInfo", code)?;
            parameters.push(size);
        }
        let read = |attribute| -> Result<u32, CudaError> {
            let mut value: c_int = 0;
            // SAFETY: `value` is valid for the write.
            let code = unsafe { (api.cuFuncGetAttribute)(&raw mut value, attribute, handle) };
            context.check("cuFuncGetAttribute", code)?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        let attributes = FunctionAttributes {
            registers: read(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            shared_bytes: read(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            local_bytes: read(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            max_threads_per_block: read(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        };
        Ok(Function {
            inner: Arc::new(FunctionInner {
                module: self.inner.clone(),
                handle,
                name: name.to_owned(),
                parameters,
                attributes,
            }),
        })
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module").finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(api) = self.context.bind_for_drop() {
            // SAFETY: loaded in `new`, and no function of it is left. Waiting first keeps a kernel that still runs.
            unsafe {
                if (api.cuCtxSynchronize)() == 0 {
                    (api.cuModuleUnload)(self.handle);
                }
            }
        }
    }
}

/// The bytes as the driver may read them, which is told no length: it reads an ELF file by the sizes in it, so a torn one
/// must not get there, and text (PTX) up to a zero. Other kinds of images are refused.
fn checked_image(bytes: &[u8]) -> Option<Cow<'_, [u8]>> {
    if bytes.starts_with(b"\x7fELF") {
        return is_whole_elf(bytes).then_some(Cow::Borrowed(bytes));
    }
    // Compilers count the zero at the end in.
    let text = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    let is_text = std::str::from_utf8(text).is_ok_and(|text| !text.is_empty() && !text.contains('\0'));
    is_text.then(|| Cow::Owned([text, &[0]].concat()))
}

/// Whether the bytes are one ELF file of 64 bits with its tables and sections inside.
fn is_whole_elf(bytes: &[u8]) -> bool {
    let word = |at: usize, width: usize| -> Option<u64> {
        let field = bytes.get(at..at.checked_add(width)?)?;
        Some(field.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte)))
    };
    let check = || -> Option<bool> {
        if bytes.get(..6)? != [0x7f, b'E', b'L', b'F', 2, 1] {
            return Some(false);
        }
        let (table, entry, count) = (word(0x28, 8)?, word(0x3a, 2)?, word(0x3c, 2)?);
        let (programs, program_entry, program_count) = (word(0x20, 8)?, word(0x36, 2)?, word(0x38, 2)?);
        let length = bytes.len() as u64;
        let fits = |start: u64, size: u64| start.checked_add(size).is_some_and(|end| end <= length);
        if entry != 64 || !fits(table, entry * count) || !fits(programs, program_entry * program_count) {
            return Some(false);
        }
        for index in 0..count {
            let header = usize::try_from(table + index * entry).ok()?;
            // Sections of kind 8 (NOBITS) take no room in the file.
            if word(header + 4, 4)? != 8 && !fits(word(header + 0x18, 8)?, word(header + 0x20, 8)?) {
                return Some(false);
            }
        }
        Some(true)
    };
    check().unwrap_or(false)
}

/// What the compiler gave a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionAttributes {
    /// Registers of one thread.
    pub registers: u32,
    /// Shared memory that is declared in the kernel, in bytes.
    pub shared_bytes: u32,
    /// Local memory of one thread in bytes; more than 0 means spilled registers or arrays.
    pub local_bytes: u32,
    /// The most threads of one block.
    pub max_threads_per_block: u32,
}

/// One kernel. It keeps its module.
#[derive(Clone)]
pub struct Function {
    inner: Arc<FunctionInner>,
}

pub(super) struct FunctionInner {
    module: Arc<Inner>,
    handle: CUfunction,
    name: String,
    parameters: Vec<usize>,
    attributes: FunctionAttributes,
}

// SAFETY: a function handle may be used from any thread.
unsafe impl Send for FunctionInner {}
// SAFETY: as above.
unsafe impl Sync for FunctionInner {}

impl Function {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// What the compiler gave it.
    pub fn attributes(&self) -> FunctionAttributes {
        self.inner.attributes
    }

    /// Sizes of its parameters in bytes.
    pub fn parameter_bytes(&self) -> &[usize] {
        &self.inner.parameters
    }

    /// Lets launches ask for up to `bytes` of dynamic shared memory; without it, 48 KiB is the limit.
    ///
    /// # Errors
    /// [`CudaError::Call`] where the device has less.
    pub fn allow_shared_bytes(&self, bytes: u32) -> Result<(), CudaError> {
        const CALL: &str = "cuFuncSetAttribute";
        let value = c_int::try_from(bytes).map_err(|_| CudaError::Call { call: CALL, code: 1 })?;
        let context = self.context();
        let api = context.bind()?;
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the handle is valid while `self` lives.
        context.check(CALL, unsafe { (api.cuFuncSetAttribute)(self.inner.handle, attribute, value) })
    }

    /// How many blocks of this size one SM holds at once.
    ///
    /// # Errors
    /// [`CudaError::Call`].
    pub fn blocks_per_multiprocessor(&self, threads: u32, shared_bytes: u32) -> Result<u32, CudaError> {
        const CALL: &str = "cuOccupancyMaxActiveBlocksPerMultiprocessor";
        let threads = c_int::try_from(threads).map_err(|_| CudaError::Call { call: CALL, code: 1 })?;
        let context = self.context();
        let api = context.bind()?;
        let mut blocks = 0;
        // SAFETY: `blocks` is valid for the write, the handle while `self` lives.
        let code = unsafe {
            (api.cuOccupancyMaxActiveBlocksPerMultiprocessor)(
                &raw mut blocks,
                self.inner.handle,
                threads,
                shared_bytes as usize,
            )
        };
        context.check(CALL, code)?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }

    pub(super) fn context(&self) -> &Context {
        &self.inner.module.context
    }

    pub(super) fn handle(&self) -> CUfunction {
        self.inner.handle
    }

    pub(super) fn keep(&self) {
        self.context().keep(|| self.inner.clone());
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function")
            .field("name", &self.inner.name)
            .field("parameters", &self.inner.parameters)
            .field("attributes", &self.inner.attributes)
            .finish_non_exhaustive()
    }
}

/// One argument of a launch.
#[derive(Clone, Copy, Debug)]
pub enum Argument<'a> {
    /// The address of memory, and an offset into it in bytes.
    Memory(&'a Memory, u64),
    /// A 32-bit number.
    U32(u32),
    /// A 64-bit number.
    U64(u64),
    /// A signed 32-bit number.
    I32(i32),
    /// A 32-bit float.
    F32(f32),
    /// A 64-bit float.
    F64(f64),
}

impl Argument<'_> {
    /// Its size as a parameter.
    pub(super) const fn bytes(&self) -> usize {
        match self {
            Self::Memory(..) | Self::U64(_) | Self::F64(_) => 8,
            Self::U32(_) | Self::I32(_) | Self::F32(_) => 4,
        }
    }

    /// Its bytes, in the first places of a word.
    pub(super) fn word(&self) -> Result<u64, CudaError> {
        let narrow = |bytes: [u8; 4]| {
            let mut word = [0; 8];
            word[..4].copy_from_slice(&bytes);
            u64::from_ne_bytes(word)
        };
        Ok(match self {
            Self::Memory(memory, offset) => memory.range("kernel argument", *offset, 0)?,
            Self::U64(value) => *value,
            Self::F64(value) => value.to_bits(),
            Self::U32(value) => narrow(value.to_ne_bytes()),
            Self::I32(value) => narrow(value.to_ne_bytes()),
            Self::F32(value) => narrow(value.to_ne_bytes()),
        })
    }
}

/// Checks arguments against the parameters and lays them out: words, to which the launch passes pointers.
pub(super) fn lay_out(function: &Function, arguments: &[Argument<'_>]) -> Result<Vec<u64>, CudaError> {
    let parameters = function.parameter_bytes();
    if !arguments.iter().map(Argument::bytes).eq(parameters.iter().copied()) {
        return Err(CudaError::Arguments {
            function: function.name().to_owned(),
            expected: parameters.iter().map(|size| *size as u64).collect(),
            given: arguments.iter().map(|argument| argument.bytes() as u64).collect(),
        });
    }
    for argument in arguments {
        if let Argument::Memory(memory, _) = argument {
            if !memory.context().is_same(function.context()) {
                return Err(CudaError::Foreign { what: "the memory of a kernel argument" });
            }
            memory.keep();
        }
    }
    arguments.iter().map(Argument::word).collect()
}

/// Pointers to each word.
pub(super) fn pointers(words: &mut [u64]) -> Vec<*mut c_void> {
    words.iter_mut().map(|word| std::ptr::from_mut(word).cast()).collect()
}

#[cfg(test)]
mod tests {
    use super::{checked_image, is_whole_elf};

    #[test]
    fn torn_and_foreign_images_are_refused() {
        assert!(!is_whole_elf(b""));
        assert_eq!(checked_image(b".version 9.0\n").as_deref(), Some(&b".version 9.0\n\0"[..]));
        for image in [&b""[..], b"text\0more", b"\x50\xed\x55\xba", b"\x7fELF"] {
            assert_eq!(checked_image(image), None);
        }
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(is_whole_elf(&own), "the test itself is a whole ELF file");
        for part in [own.len() - 1, own.len() / 2, 64, 63, 5] {
            assert!(!is_whole_elf(&own[..part]), "{part} of {} bytes", own.len());
        }
    }
}
