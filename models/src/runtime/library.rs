//! Finds the ONNX Runtime library and looks at its bytes before anything executes it.
//!
//! Loading a shared object runs its constructors, and a truncated one kills the process with a bus error. So the ELF
//! headers are checked first: kind, machine, every segment inside the file, the entry symbol of ONNX Runtime in the
//! dynamic string table, and the version there (`VERS_1.32.0`) or in the file's name.

use crate::Error;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// How the list of tried places marks a variable without a value.
pub(super) const UNSET: &str = "is not set";
const VARIABLES: [&str; 2] = ["ELASTICO_ORT_LIBRARY", "ORT_DYLIB_PATH"];
const ENTRY: &[u8] = b"OrtGetApiBase";
/// A string table larger than any library's.
const MAX_TABLE_BYTES: u64 = 256 * 1024 * 1024;

/// Where the library is: the path given, else the first variable that is set. A place that is named but empty is an
/// error, not a reason to look elsewhere.
pub(super) fn find(
    path: Option<&Path>,
    variable: impl Fn(&str) -> Option<PathBuf>,
) -> Result<PathBuf, Error> {
    let mut tried = Vec::new();
    let candidates = std::iter::once(("the option", path.map(Path::to_owned)))
        .filter(|(_, path)| path.is_some())
        .chain(VARIABLES.into_iter().map(|name| (name, variable(name))));
    for (origin, candidate) in candidates {
        match candidate.filter(|path| !path.as_os_str().is_empty()) {
            None => tried.push(format!("{origin} {UNSET}")),
            Some(path) if path.is_file() => {
                return path.canonicalize().map_err(|source| Error::Read { path, source });
            }
            Some(path) => {
                tried.push(format!("{origin} names {}, which is no file", path.display()));
                break;
            }
        }
    }
    Err(Error::LibraryMissing { tried })
}

/// Refuses a file that is no ONNX Runtime of at least minor version `needed`; nothing of it is executed.
pub(super) fn inspect(path: &Path, needed: u32) -> Result<(), Error> {
    let broken = |reason: String| Error::LibraryBroken { path: path.to_owned(), reason };
    let mut file = File::open(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let strings = dynamic_strings(&mut file).map_err(broken)?;
    if !strings.split(|byte| *byte == 0).any(|name| name == ENTRY) {
        return Err(broken("it does not export OrtGetApiBase".into()));
    }
    let version = strings
        .split(|byte| *byte == 0)
        .find_map(|name| version(std::str::from_utf8(name).ok()?.strip_prefix("VERS_")?))
        .or_else(|| version(path.file_name()?.to_str()?.split_once(".so.")?.1));
    match version {
        // ONNX Runtime has only ever had the major version 1; the interface counts by the minor one.
        Some((major, minor, _)) if (major, minor) < (1, needed) => Err(Error::LibraryTooOld {
            path: path.to_owned(),
            found: version.map(|(_, _, text)| text).unwrap_or_default(),
            needed: format!("1.{needed}"),
        }),
        // A private build without a version: the library itself is asked when it is loaded.
        _ => Ok(()),
    }
}

fn version(text: &str) -> Option<(u32, u32, String)> {
    let mut parts = text.split('.');
    let (major, minor) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some((major, minor, text.to_owned()))
}

struct Header<'a>(&'a [u8]);

impl Header<'_> {
    fn number(&self, offset: usize, bytes: usize) -> u64 {
        let mut value = [0_u8; 8];
        value[..bytes].copy_from_slice(&self.0[offset..offset + bytes]);
        u64::from_le_bytes(value)
    }
}

/// The dynamic string table of a whole ELF64 shared object of this machine. Layout: System V ABI, chapter 4.
fn dynamic_strings(file: &mut File) -> Result<Vec<u8>, String> {
    const SHARED_OBJECT: u64 = 3;
    const LOADABLE: u64 = 1;
    const DYNAMIC_SYMBOLS: u64 = 11;
    let machine = match std::env::consts::ARCH {
        "x86_64" => 62,
        "aarch64" => 183,
        other => return Err(format!("libraries of {other} cannot be checked")),
    };
    let size = file.seek(SeekFrom::End(0)).map_err(|error| error.to_string())?;
    let whole = |offset: u64, length: u64| offset.checked_add(length).is_some_and(|end| end <= size);
    let read = |file: &mut File, offset: u64, length: u64| {
        if !whole(offset, length) || length > MAX_TABLE_BYTES {
            return Err("it is cut short".to_owned());
        }
        let mut bytes = vec![0; length as usize];
        file.seek(SeekFrom::Start(offset)).map_err(|error| error.to_string())?;
        file.read_exact(&mut bytes).map_err(|error| error.to_string())?;
        Ok(bytes)
    };
    if size == 0 {
        return Err("it is empty".to_owned());
    }
    let magic = read(file, 0, size.min(6))?;
    if magic != [0x7f, b'E', b'L', b'F', 2, 1] {
        return Err("it is no 64-bit ELF file".to_owned());
    }
    let bytes = read(file, 0, 64)?;
    let header = Header(&bytes);
    if header.number(16, 2) != SHARED_OBJECT {
        return Err("it is no shared object".to_owned());
    }
    if header.number(18, 2) != machine {
        return Err(format!("it is built for another machine (ELF machine {})", header.number(18, 2)));
    }
    let segments = read(file, header.number(32, 8), header.number(54, 2) * header.number(56, 2))?;
    for segment in
        segments.chunks_exact(header.number(54, 2).max(1) as usize).filter(|s| s.len() >= 56).map(Header)
    {
        if segment.number(0, 4) == LOADABLE && !whole(segment.number(8, 8), segment.number(32, 8)) {
            return Err("it is cut short".to_owned());
        }
    }
    let sections = read(file, header.number(40, 8), header.number(58, 2) * header.number(60, 2))?;
    let sections: Vec<_> = sections
        .chunks_exact(header.number(58, 2).max(1) as usize)
        .filter(|section| section.len() >= 64)
        .map(Header)
        .collect();
    let table = sections
        .iter()
        .find(|section| section.number(4, 4) == DYNAMIC_SYMBOLS)
        .and_then(|section| sections.get(section.number(40, 4) as usize))
        .ok_or("it has no dynamic symbols")?;
    read(file, table.number(24, 8), table.number(32, 8))
}
