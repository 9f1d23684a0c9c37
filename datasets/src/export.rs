//! Tables as CSV.

use crate::error::Error;
use crate::table::{Table, Values};
use std::io::Write;

/// Writes a table as CSV: a header, then one line per row. Null is an empty field; numbers are the shortest decimals
/// that read back to the same bits.
///
/// # Errors
/// [`Error::Output`] where the receiver fails.
pub fn export_csv(table: &Table, out: impl Write) -> Result<(), Error> {
    let failed = |source| Error::Output { table: table.kind().as_str(), source };
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(table.columns().iter().map(|column| column.name)).map_err(failed)?;
    let mut number = String::new();
    for row in 0..table.rows() {
        for (_, values) in table.entries() {
            match values {
                Values::Text(texts) => writer.write_field(texts.get(row).unwrap_or_default()),
                Values::Number(numbers) => {
                    number.clear();
                    if !numbers[row].is_nan() {
                        use std::fmt::Write as _;
                        write!(number, "{}", numbers[row]).expect("a string takes any text");
                    }
                    writer.write_field(&number)
                }
            }
            .map_err(failed)?;
        }
        writer.write_record(None::<&[u8]>).map_err(failed)?;
    }
    writer.flush().map_err(|error| failed(error.into()))
}
