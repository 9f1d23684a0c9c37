//! Tables that are read and updated at random.

use super::{Lowering, dtype_of};
use crate::launch::call::{Call, THREADS, View, typed};
use crate::launch::error::LaunchError;
use crate::launch::fill::Fill;
use crate::launch::format::Format;
use crate::op::Op;

/// How much of a gradient one step adds to a table.
const RATE: f64 = 1e-2;
const WARPS: u64 = (THREADS / 32) as u64;

impl Lowering<'_> {
    pub(super) fn gather(&mut self, op: &Op) -> Result<(), LaunchError> {
        let Op::Gather { lookups, columns, table_rows, pooled, skew, dtype } = *op else { return Ok(()) };
        let (format, pooled) = (Format::of(dtype), pooled.max(1));
        check("gather", "rows that are added up", pooled)?;
        check("gather", "a row", columns)?;
        let table = self.table(table_rows, columns, format);
        let indices = self.row_numbers(table_rows, skew, lookups);
        let outputs = lookups.div_ceil(pooled);
        let out = self.output(format, outputs * columns);
        let width = if columns % 4 == 0 { 4 } else { 1 };
        let lanes = columns.div_ceil(width).next_power_of_two().clamp(1, 32);
        let call = Call::new(typed!("sparse", "gather", format, "gather")?)
            .read(table)
            .read(indices)
            .write(out)
            .u64(lookups)
            .u32(pooled)
            .u32(columns)
            .u32(lanes)
            .flops(op.demand().flops().get())
            .grid("gather", [outputs.div_ceil(WARPS), 1, 1])?;
        self.kernel(call);
        self.record(op, vec![table, indices], out, false, false);
        Ok(())
    }

    pub(super) fn scatter(&mut self, op: &Op) -> Result<(), LaunchError> {
        let Op::Scatter { updates, columns, table_rows, skew, dtype } = *op else { return Ok(()) };
        let format = Format::of(dtype);
        check("scatter", "a row", columns)?;
        Self::require_trained("scatter", format)?;
        let (table, indices, rows) = match self.forward_of(op) {
            Some((record, _)) => {
                let record = &self.records[record];
                (record.inputs[0], record.inputs[1], record.output.elements / columns.max(1))
            }
            None => (
                self.table(table_rows, columns, format),
                self.row_numbers(table_rows, skew, updates),
                updates,
            ),
        };
        // The gradient of a pooled row is that of each row in the pool.
        let available = rows.clamp(1, updates.max(1));
        let gradient = self.operand(format, available * columns);
        let state = self.buffer("scatter state", 8, Fill::Zero);
        let state = View { buffer: state, offset: 0, elements: 2, format: Format::I32 };
        let call = Call::new(typed!("sparse", "scatter", format, "scatter")?)
            .write(table)
            .read(indices)
            .read(gradient)
            .u64(updates)
            .u64(available)
            .u32(columns)
            .f32(RATE)
            .write(state)
            .flops(op.demand().flops().get())
            .grid("scatter", [updates.div_ceil(WARPS), 1, 1])?;
        self.kernel(call);
        Ok(())
    }

    fn table(&mut self, rows: u64, columns: u64, format: Format) -> View {
        let elements = rows * columns;
        let buffer = match self.tables.get(&(rows, columns, format)) {
            Some(buffer) => *buffer,
            None => {
                let fill = Fill::Normal { dtype: dtype_of(format), deviation: 1.0 };
                let buffer = self.buffer("table", elements * format.bytes(), fill);
                self.tables.insert((rows, columns, format), buffer);
                buffer
            }
        };
        View { buffer, offset: 0, elements, format }
    }

    fn row_numbers(&mut self, rows: u64, skew: f64, count: u64) -> View {
        let key = (rows, skew.to_bits(), count);
        let buffer = match self.indices.get(&key) {
            Some(buffer) => *buffer,
            None => {
                let buffer = self.buffer("row numbers", count * 8, Fill::Rows { rows, skew });
                self.indices.insert(key, buffer);
                buffer
            }
        };
        View { buffer, offset: 0, elements: count, format: Format::U64 }
    }
}

fn check(op: &'static str, what: &'static str, found: u64) -> Result<(), LaunchError> {
    let limit = u64::from(u32::MAX);
    if found <= limit { Ok(()) } else { Err(LaunchError::Size { op, what, found, limit }) }
}
