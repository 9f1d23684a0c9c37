//! Tables to Parquet bytes and back: the only module that names polars.
//!
//! Writing is deterministic: fixed order of columns, fixed row groups, one compression, one thread, no time stamps.
//! Reading goes column by column, so that never more than a few columns exist twice.

use crate::error::Error;
use crate::schema::{Column, ColumnKind, TableKind};
use crate::table::{Table, Values};
use crate::text::TextColumn;
use elastico_core::suggest;
use polars_core::prelude as polars;
use polars_core::prelude::{DataType, IntoColumn as _, IntoSeries as _, NewChunkedArray as _};
use polars_io::SerReader as _;
use polars_io::parquet::read::{FileMetadata, ParallelStrategy, ParquetReader};
use polars_io::parquet::write::{ParquetCompression, ParquetWriter};
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

/// Rows per row group: small enough that a group's dictionary pays, large enough that its header does not matter.
const ROW_GROUP: usize = 1 << 16;

/// Codes are `u32` with one value for null; polars counts rows in `u32` too.
const MAX_ROWS: usize = u32::MAX as usize - 1;

/// Encodes a table; equal tables give equal bytes.
pub(crate) fn encode(table: &Table) -> Result<Vec<u8>, Error> {
    let failed = |error: polars::PolarsError| Error::Encode {
        table: table.kind().as_str(),
        reason: error.to_string(),
    };
    let schema: polars::Schema = table
        .columns()
        .iter()
        .map(|column| (polars::PlSmallStr::from_static(column.name), data_type(column.kind)))
        .collect();
    let mut bytes = Vec::new();
    let mut writer = ParquetWriter::new(&mut bytes)
        .with_compression(ParquetCompression::Zstd(None))
        .set_parallel(false)
        .batched(&schema)
        .map_err(failed)?;
    for start in (0..table.rows()).step_by(ROW_GROUP) {
        let rows = start..(start + ROW_GROUP).min(table.rows());
        let columns =
            table.entries().map(|(column, values)| encode_column(column, values, rows.clone())).collect();
        let frame = polars::DataFrame::new(rows.len(), columns).map_err(failed)?;
        writer.write_batch(&frame).map_err(failed)?;
    }
    writer.finish().map_err(failed)?;
    drop(writer);
    Ok(bytes)
}

fn data_type(kind: ColumnKind) -> DataType {
    match kind {
        ColumnKind::Number => DataType::Float64,
        ColumnKind::Text => DataType::String,
    }
}

fn encode_column(column: &Column, values: &Values, rows: std::ops::Range<usize>) -> polars::Column {
    let name = polars::PlSmallStr::from_static(column.name);
    let series = match values {
        Values::Number(numbers) => {
            let cells = numbers[rows].iter().map(|number| Some(*number).filter(|number| !number.is_nan()));
            polars::Float64Chunked::from_iter_options(name, cells).into_series()
        }
        Values::Text(texts) => {
            polars::StringChunked::from_iter_options(name, rows.map(|row| texts.get(row))).into_series()
        }
    };
    series.into_column()
}

/// Decodes one part of a table that was written under a version of the schema.
///
/// Polars asserts on some damaged files where it could report, and on some it aborts: a flipped bit in a run length
/// becomes a huge allocation. So only bytes with the digest of the manifest come here, and what can be checked
/// cheaply is checked before (see [`check_shape`]). For files that others wrote and listed, `catch_unwind` is the last line:
/// polars' reader holds no state of ours, so nothing is left half-changed by an unwind.
pub(crate) fn decode(bytes: &[u8], file: &Path, kind: TableKind, version: u32) -> Result<Table, Error> {
    let damaged = |reason: String| Error::Parquet { file: file.to_owned(), reason };
    check_envelope(bytes).map_err(|reason| damaged(reason.to_owned()))?;
    let (metadata, schema) = guarded(|| {
        let mut reader = ParquetReader::new(Cursor::new(bytes));
        let metadata = reader.get_metadata()?.clone();
        Ok((metadata, reader.schema()?))
    })
    .map_err(damaged)?;
    check_shape(&metadata, bytes.len()).map_err(damaged)?;

    let fields: Vec<(&str, DataType)> = guarded(|| {
        Ok(schema.iter().map(|(name, field)| (name.as_str(), DataType::from_arrow_field(field))).collect())
    })
    .map_err(damaged)?;
    let indices = match_columns(&fields, file, kind, version)?;

    let there = kind.columns().iter().zip(&indices).filter_map(|(column, index)| Some((column, (*index)?)));
    let wanted: Vec<(&Column, usize)> = there.collect();
    let mut decoded = decode_columns(bytes, &metadata, &wanted).map_err(damaged)?.into_iter();
    let rows = metadata.num_rows;
    let values = kind.columns().iter().zip(&indices).map(|(column, index)| match index {
        Some(_) => decoded.next().expect("one column was decoded for each index"),
        None => Values::nulls(column.kind, rows),
    });
    Ok(Table::from_values(kind, values.collect()))
}

/// Decodes columns on all cores; the result does not depend on their number.
fn decode_columns(
    bytes: &[u8],
    metadata: &Arc<FileMetadata>,
    wanted: &[(&Column, usize)],
) -> Result<Vec<Values>, String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some((column, index)) = wanted.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
        {
            done.push((*index, decode_column(bytes, metadata, *index, column)?));
        }
        Ok::<_, String>(done)
    };
    let mut decoded: Vec<(usize, Values)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut all = work()?;
        for worker in workers {
            all.extend(worker.join().map_err(|_| "a reading thread died".to_owned())??);
        }
        Ok::<_, String>(all)
    })?;
    decoded.sort_by_key(|(index, _)| wanted.iter().position(|(_, wanted)| wanted == index));
    Ok(decoded.into_iter().map(|(_, values)| values).collect())
}

fn decode_column(
    bytes: &[u8],
    metadata: &Arc<FileMetadata>,
    index: usize,
    column: &Column,
) -> Result<Values, String> {
    let values = guarded(|| {
        let mut reader = ParquetReader::new(Cursor::new(bytes))
            .read_parallel(ParallelStrategy::None)
            .with_projection(Some(vec![index]));
        reader.set_metadata(metadata.clone());
        let frame = reader.finish()?;
        let series = frame.column(column.name)?;
        Ok(match column.kind {
            ColumnKind::Number => {
                let mut numbers = Vec::with_capacity(series.len());
                for chunk in series.f64()?.downcast_iter() {
                    numbers.extend(chunk.iter().map(|number| number.copied().unwrap_or(f64::NAN)));
                }
                Values::Number(numbers)
            }
            ColumnKind::Text => Values::Text(TextColumn::collect(series.str()?.iter())),
        })
    })
    .map_err(|reason| format!("column `{}`: {reason}", column.name))?;
    if values.len() == metadata.num_rows {
        Ok(values)
    } else {
        Err(format!("column `{}` has {} rows of {}", column.name, values.len(), metadata.num_rows))
    }
}

/// The index in the file of each column of the schema, `None` for one that the file's version did not have yet; the
/// order in the file is free.
fn match_columns(
    fields: &[(&str, DataType)],
    file: &Path,
    kind: TableKind,
    version: u32,
) -> Result<Vec<Option<usize>>, Error> {
    let refuse = |column: &str, problem: String, suggestion| {
        Err(Error::Column { file: file.to_owned(), column: column.to_owned(), problem, suggestion })
    };
    let columns = kind.columns();
    for (name, _) in fields {
        if !columns.iter().any(|column| column.name == *name) {
            let near = suggest(name, columns.iter().map(|column| column.name));
            return refuse(name, format!("is none of the {} table", kind.as_str()), near);
        }
    }
    let mut indices = Vec::with_capacity(columns.len());
    for column in columns {
        let Some(index) = fields.iter().position(|(name, _)| *name == column.name) else {
            if column.since > version {
                indices.push(None);
                continue;
            }
            return refuse(column.name, "is missing".to_owned(), None);
        };
        if fields[index].1 != data_type(column.kind) {
            let problem = format!("holds {:?}, not {}", fields[index].1, column.kind.as_str());
            return refuse(column.name, problem, None);
        }
        indices.push(Some(index));
    }
    Ok(indices)
}

/// Magic bytes and length of the footer: what a truncated file lacks.
fn check_envelope(bytes: &[u8]) -> Result<(), &'static str> {
    const MAGIC: &[u8] = b"PAR1";
    if bytes.len() < 12 {
        return Err("it is too short");
    }
    if !bytes.starts_with(MAGIC) {
        return Err("it does not start with PAR1");
    }
    let Some((footer, MAGIC)) = bytes.split_last_chunk::<4>().map(|(rest, end)| (rest, end.as_slice()))
    else {
        return Err("it does not end with PAR1, so it was cut off");
    };
    let length = footer.last_chunk::<4>().map_or(0, |length| u32::from_le_bytes(*length));
    if length as usize > bytes.len() - 12 {
        return Err("its footer is longer than the file");
    }
    Ok(())
}

/// What the metadata says must fit in the file: polars slices and allocates by it.
fn check_shape(metadata: &FileMetadata, length: usize) -> Result<(), String> {
    if metadata.num_rows > MAX_ROWS {
        return Err(format!("it claims {} rows", metadata.num_rows));
    }
    let mut rows = 0_usize;
    for group in &metadata.row_groups {
        rows = rows.saturating_add(group.num_rows());
        for chunk in group.parquet_columns() {
            if usize::try_from(chunk.num_values()).ok() != Some(group.num_rows()) {
                return Err("its columns have different lengths".to_owned());
            }
            let start = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
            let end = usize::try_from(start).ok().zip(usize::try_from(chunk.compressed_size()).ok());
            if end.and_then(|(start, size)| start.checked_add(size)).is_none_or(|end| end > length) {
                return Err("a column lies outside the file".to_owned());
            }
        }
    }
    if rows == metadata.num_rows { Ok(()) } else { Err("its row groups do not add up".to_owned()) }
}

fn guarded<T>(read: impl FnOnce() -> polars::PolarsResult<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("its pages contradict its metadata".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values(column: &Column, rows: usize) -> BoxedStrategy<Values> {
        match column.kind {
            ColumnKind::Number => {
                let number = prop_oneof![
                    2 => Just(f64::NAN),
                    2 => any::<f64>(),
                    1 => prop::sample::select(vec![0.0, -0.0, 1.0, f64::INFINITY, f64::MIN_POSITIVE]),
                ];
                prop::collection::vec(number, rows).prop_map(Values::Number).boxed()
            }
            ColumnKind::Text => {
                let text = prop::option::of(prop_oneof!["[ab]{1,2}", "\\PC{0,30}", Just("ok".to_owned())]);
                prop::collection::vec(text, rows)
                    .prop_map(|texts| Values::Text(TextColumn::collect(texts.iter().map(Option::as_deref))))
                    .boxed()
            }
        }
    }

    pub(crate) fn tables(kind: TableKind) -> impl Strategy<Value = Table> {
        (0_usize..30).prop_flat_map(move |rows| {
            kind.columns()
                .iter()
                .map(|column| values(column, rows))
                .collect::<Vec<_>>()
                .prop_map(move |values| Table::from_values(kind, values))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn tables_survive_the_file(table in prop_oneof![tables(TableKind::Isolated), tables(TableKind::Pairs)]) {
            let bytes = encode(&table).unwrap();
            let back = decode(&bytes, Path::new("part"), table.kind(), 2).unwrap();
            prop_assert_eq!(&back, &table);
            prop_assert_eq!(encode(&back).unwrap(), bytes);
        }
    }

    /// Three row groups, nulls and values in each.
    #[test]
    fn more_than_one_row_group() {
        let row = crate::PairRow { trial_id: "t".into(), ..Default::default() };
        let few = Table::pairs(&[crate::PairRow { slowdown_ratio: 2.0, ..row.clone() }, row]);
        let rows: Vec<usize> = (0..2 * ROW_GROUP + 7).map(|row| row % 3 / 2).collect();
        let table = few.take(&rows);
        let bytes = encode(&table).unwrap();
        assert_eq!(decode(&bytes, Path::new("part"), TableKind::Pairs, 2).unwrap(), table);
    }

    /// What version 1 did not have is null under version 1, and missing under version 2.
    #[test]
    fn columns_that_came_later_are_null_in_older_files() {
        let row = crate::PairRow { trial_id: "t".into(), slowdown_ratio: 2.0, ..Default::default() };
        let bytes = encode(&Table::pairs(std::slice::from_ref(&row))).unwrap();
        let mut reader = ParquetReader::new(Cursor::new(&bytes));
        let later: Vec<&Column> =
            TableKind::Pairs.columns().iter().filter(|column| column.since > 1).collect();
        assert!(!later.is_empty() && later.iter().all(|column| column.nullable));
        let old = TableKind::Pairs.columns().iter().enumerate().filter(|(_, column)| column.since == 1);
        let kept = old.map(|(index, _)| index).collect();
        reader = reader.with_projection(Some(kept));
        let mut frame = reader.finish().unwrap();
        let mut bytes = Vec::new();
        ParquetWriter::new(&mut bytes).finish(&mut frame).unwrap();
        let table = decode(&bytes, Path::new("part"), TableKind::Pairs, 1).unwrap();
        assert_eq!(table, Table::pairs(&[row]));
        let error = decode(&bytes, Path::new("part"), TableKind::Pairs, 2).unwrap_err();
        assert_eq!(error.to_string(), format!("`part`: column `{}` is missing", later[0].name));
    }

    fn other_columns(names: &[(&'static str, DataType)]) -> Error {
        let mut columns: Vec<(&str, DataType)> = TableKind::Pairs
            .columns()
            .iter()
            .map(|column| (column.name, data_type(column.kind)))
            .filter(|(name, _)| *name != "side")
            .collect();
        columns.extend(names.iter().cloned());
        let frame = columns
            .iter()
            .map(|(name, kind)| polars::Series::new_empty((*name).into(), kind).into_column())
            .collect();
        let mut frame = polars::DataFrame::new(0, frame).unwrap();
        let mut bytes = Vec::new();
        ParquetWriter::new(&mut bytes).finish(&mut frame).unwrap();
        decode(&bytes, Path::new("pairs/part-0.parquet"), TableKind::Pairs, 2).unwrap_err()
    }

    #[test]
    fn foreign_columns_are_named() {
        use elastico_core::Hint;
        let missing = other_columns(&[]);
        assert_eq!(missing.to_string(), "`pairs/part-0.parquet`: column `side` is missing");
        let extra = other_columns(&[("sides", DataType::String)]);
        assert_eq!(extra.to_string(), "`pairs/part-0.parquet`: column `sides` is none of the pairs table");
        assert_eq!(extra.hint().as_deref(), Some("did you mean `side`?"));
        let wrong = other_columns(&[("side", DataType::Int64)]);
        assert_eq!(wrong.to_string(), "`pairs/part-0.parquet`: column `side` holds Int64, not text");
    }
}
