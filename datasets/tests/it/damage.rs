//! Damaged parts: always a typed error that names the file.

use crate::dataset;
use elastico_core::DeviceKind;
use elastico_datasets::{Dataset, Error, validate};
use std::path::{Path, PathBuf};

const PART: &str = "pairs/part-0.parquet";

fn written(root: &Path) -> (PathBuf, Dataset, Vec<u8>) {
    let folder = root.join("set");
    let set = dataset("s", DeviceKind::Cpu, 40);
    set.write(&folder).unwrap();
    let bytes = std::fs::read(folder.join(PART)).unwrap();
    (folder, set, bytes)
}

/// With the digest in the manifest no damage gets as far as the decoder.
#[test]
fn listed_parts_are_refused_by_their_digest() {
    let root = tempfile::tempdir().unwrap();
    let (folder, _, bytes) = written(root.path());
    for offset in (0..bytes.len()).step_by(bytes.len() / 50) {
        let mut flipped = bytes.clone();
        flipped[offset] ^= 0x10;
        for damaged in [&flipped[..], &bytes[..offset]] {
            std::fs::write(folder.join(PART), damaged).unwrap();
            for error in [Dataset::read(&folder).unwrap_err(), validate(&folder).unwrap_err()] {
                assert!(matches!(&error, Error::Changed { file } if file.ends_with(PART)), "{error:?}");
            }
        }
    }
}

/// Parts that were listed after the damage, as if written by others: each cut is seen before the decoder.
#[test]
fn cut_parts_are_refused_without_their_digest() {
    let root = tempfile::tempdir().unwrap();
    let (folder, _, bytes) = written(root.path());
    let length = bytes.len();
    for offset in (0..length).step_by(length / 60 + 1).chain(length - 12..length) {
        std::fs::write(folder.join(PART), &bytes[..offset]).unwrap();
        Dataset::list_parts(&folder).unwrap();
        for error in [Dataset::read(&folder).unwrap_err(), validate(&folder).unwrap_err()] {
            assert!(
                matches!(&error, Error::Parquet { file, .. } if file.ends_with(PART)),
                "{offset}: {error:?}"
            );
        }
    }
}

/// The same for each bit of the magic bytes and the footer's length, and for files that are something else.
#[test]
fn foreign_files_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let (folder, _, bytes) = written(root.path());
    let length = bytes.len();
    let mut foreign = vec![Vec::new(), b"a,b\n1,2\n".repeat(10), vec![0; 4096], b"PAR1PAR1PAR1".to_vec()];
    for place in (0..4).chain(length - 4..length) {
        let mut flipped = bytes.clone();
        flipped[place] ^= 1;
        foreign.push(flipped);
    }
    let mut long_footer = bytes.clone();
    long_footer[length - 5] = 0xff;
    foreign.push(long_footer);
    for (index, damaged) in foreign.iter().enumerate() {
        std::fs::write(folder.join(PART), damaged).unwrap();
        Dataset::list_parts(&folder).unwrap();
        let error = Dataset::read(&folder).unwrap_err();
        assert!(matches!(&error, Error::Parquet { file, .. } if file.ends_with(PART)), "{index}: {error:?}");
    }
}
