//! Files as text, and JSON documents in them.

use crate::Error;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// What some editors put before the text of a file. It says nothing.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// A text without the mark.
pub(crate) fn unmarked(text: &str) -> &str {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}

/// The text of a file.
pub(crate) fn read(path: &Path) -> Result<String, Error> {
    let mut text =
        std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.into(), source })?;
    if text.starts_with(BYTE_ORDER_MARK) {
        text.drain(..BYTE_ORDER_MARK.len_utf8());
    }
    Ok(text)
}

/// A file that is too large to be in memory as a whole, as [`read`] would give it.
pub(crate) fn open(path: &Path) -> Result<impl BufRead, Error> {
    let failed = |source| Error::Read { path: path.into(), source };
    let mut reader = BufReader::new(File::open(path).map_err(failed)?);
    let mut mark = [0; BYTE_ORDER_MARK.len_utf8()];
    BYTE_ORDER_MARK.encode_utf8(&mut mark);
    if reader.fill_buf().map_err(failed)?.starts_with(&mark) {
        reader.consume(mark.len());
    }
    Ok(reader)
}

/// The document in a text; `what` it should be and `path` are only named in errors.
pub(crate) fn json<T: DeserializeOwned>(text: &str, path: &Path, what: &'static str) -> Result<T, Error> {
    serde_json::from_str(unmarked(text)).map_err(|source| Error::Json { path: path.into(), what, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn the_mark_is_skipped_once_however_a_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("marked.json");
        for (text, expected) in
            [("[1]", "[1]"), ("\u{feff}[1]", "[1]"), ("\u{feff}\u{feff}", "\u{feff}"), ("", "")]
        {
            std::fs::write(&path, text).unwrap();
            let mut streamed = String::new();
            open(&path).unwrap().read_to_string(&mut streamed).unwrap();
            assert_eq!((read(&path).unwrap().as_str(), streamed.as_str()), (expected, expected));
            assert_eq!(unmarked(text), expected);
        }
        assert_eq!(json::<Vec<u8>>("\u{feff}[1]", &path, "list").unwrap(), [1]);
    }
}
