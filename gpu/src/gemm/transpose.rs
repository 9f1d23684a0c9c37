//! Operands of one byte brought from rows to columns.

use super::GemmError;
use crate::cubin::compile;
use crate::cuda::{Argument, Context, Function, Memory, Stream};
use crate::libraries::Libraries;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

const SOURCE: &str = include_str!("transpose.cu");
const TILE: u32 = 32;
const LINES: u32 = 8;

/// Compiled once per compute capability and process.
static COMPILED: Mutex<BTreeMap<(i32, i32), Vec<u8>>> = Mutex::new(BTreeMap::new());

/// Memory for the other layout, and the kernel that fills it.
#[derive(Debug)]
pub(super) struct Transposed {
    function: Function,
    memory: Memory,
    rows: u32,
    columns: u32,
    grid: [u32; 3],
}

impl Transposed {
    /// For `batch` matrices of `rows` x `columns` bytes, by rows.
    pub(super) fn new(
        context: &Context,
        libraries: &Libraries,
        rows: u64,
        columns: u64,
        batch: u64,
    ) -> Result<Self, GemmError> {
        let capability = context.facts().compute_capability;
        let cubin = {
            let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(cubin) = compiled.get(&capability) {
                cubin.clone()
            } else {
                let cubin = compile(libraries, SOURCE, "transpose.cu", capability)?;
                compiled.insert(capability, cubin.clone());
                cubin
            }
        };
        let function = context.load_module(&cubin)?.function("transpose_bytes")?;
        let memory = context.allocate(rows * columns * batch)?;
        let size = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let (rows, columns) = (size(rows), size(columns));
        // A grid that is too large for the device is refused by the launch, with its numbers.
        let grid = [columns.div_ceil(TILE), rows.div_ceil(TILE), size(batch)];
        Ok(Self { function, memory, rows, columns, grid })
    }

    /// Queues it and gives the address of the other layout.
    pub(super) fn run(&self, stream: &Stream, from: (&Memory, u64)) -> Result<*mut c_void, GemmError> {
        let arguments = [
            Argument::Memory(from.0, from.1),
            Argument::Memory(&self.memory, 0),
            Argument::U32(self.rows),
            Argument::U32(self.columns),
        ];
        stream.launch(&self.function, self.grid, [TILE, LINES, 1], 0, &arguments)?;
        Ok(self.memory.range("product", 0, self.memory.bytes())? as *mut c_void)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.memory.bytes()
    }
}
