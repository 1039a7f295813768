//! Tables as Parquet files: one row group, Snappy compression, every column optional.

use std::sync::Arc;

use ccplane_lab::sweep::{ColumnValues, RunTable, TableColumn};
use parquet::basic::{Compression, LogicalType, Repetition, Type as PhysicalType};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use crate::exit::{Failure, FailureKind};

/// Encodes a table. The same table gives the same bytes.
pub fn encode(table: &RunTable) -> Result<Vec<u8>, Failure> {
    try_encode(table).map_err(|error| Failure::new(FailureKind::Failed, error))
}

fn try_encode(table: &RunTable) -> Result<Vec<u8>, ParquetError> {
    let fields = table
        .columns
        .iter()
        .map(|column| field(column).map(Arc::new));
    let schema = Type::group_type_builder("runs")
        .with_fields(fields.collect::<Result<Vec<_>, _>>()?)
        .build()?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(format!("ccplane {}", env!("CARGO_PKG_VERSION")))
        .build();
    let mut bytes = Vec::new();
    let mut file = SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::new(properties))?;
    let mut group = file.next_row_group()?;
    for column in &table.columns {
        let Some(mut writer) = group.next_column()? else {
            break;
        };
        write_column(writer.untyped(), &column.values)?;
        writer.close()?;
    }
    group.close()?;
    file.close()?;
    Ok(bytes)
}

fn field(column: &TableColumn) -> Result<Type, ParquetError> {
    let (physical, logical) = match column.values {
        ColumnValues::Text(_) => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
        ColumnValues::Integer(_) => (PhysicalType::INT64, Some(LogicalType::integer(64, false))),
        ColumnValues::Number(_) => (PhysicalType::DOUBLE, None),
    };
    Type::primitive_type_builder(&column.name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical)
        .build()
}

fn write_column(writer: &mut ColumnWriter<'_>, values: &ColumnValues) -> Result<(), ParquetError> {
    /// Returns the definition level of each value: 0 is missing.
    fn levels<T>(values: &[Option<T>]) -> Vec<i16> {
        values
            .iter()
            .map(|value| i16::from(value.is_some()))
            .collect()
    }
    match (writer, values) {
        (ColumnWriter::ByteArrayColumnWriter(writer), ColumnValues::Text(values)) => {
            let texts = values.iter().flatten();
            let texts: Vec<ByteArray> = texts.map(|text| text.as_str().into()).collect();
            writer.write_batch(&texts, Some(&levels(values)), None)?;
        }
        (ColumnWriter::Int64ColumnWriter(writer), ColumnValues::Integer(values)) => {
            // An unsigned column stores the same bits.
            let numbers: Vec<i64> = values.iter().flatten().map(|v| v.cast_signed()).collect();
            writer.write_batch(&numbers, Some(&levels(values)), None)?;
        }
        (ColumnWriter::DoubleColumnWriter(writer), ColumnValues::Number(values)) => {
            let numbers: Vec<f64> = values.iter().flatten().copied().collect();
            writer.write_batch(&numbers, Some(&levels(values)), None)?;
        }
        _ => {
            let what = "a column's values differ from its schema".to_owned();
            return Err(ParquetError::General(what));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    use super::*;

    #[test]
    fn a_file_has_the_values_and_the_missing_ones() {
        let column = |name: &str, values| TableColumn {
            name: name.to_owned(),
            values,
        };
        let table = RunTable {
            columns: vec![
                column("word", ColumnValues::Text(vec![Some("a".to_owned()), None])),
                column("count", ColumnValues::Integer(vec![None, Some(u64::MAX)])),
                column("rate_mbit", ColumnValues::Number(vec![Some(0.1), None])),
            ],
        };
        let bytes = encode(&table).unwrap();
        assert_eq!(bytes, encode(&table).unwrap());
        let path = std::env::temp_dir().join(format!("ccplane-{}.parquet", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let rows = reader.get_row_iter(None).unwrap();
        let rows: Vec<Vec<(String, Field)>> = rows
            .map(|row| {
                let row = row.unwrap();
                let cells = row.get_column_iter();
                cells
                    .map(|(name, field)| (name.clone(), field.clone()))
                    .collect()
            })
            .collect();
        let cell = |row: usize, column: usize| rows[row][column].1.clone();
        assert_eq!(cell(0, 0), Field::Str("a".to_owned()));
        assert_eq!((cell(0, 1), cell(1, 0)), (Field::Null, Field::Null));
        assert_eq!(cell(1, 1), Field::ULong(u64::MAX));
        assert_eq!(cell(0, 2), Field::Double(0.1));
    }
}
