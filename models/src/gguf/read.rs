//! Header, metadata and table of tensors.

use super::MAGIC;
use super::cursor::{Cursor, Fault};
use super::types::TensorType;
use super::value::Value;
use std::collections::BTreeMap;
use std::ops::Range;

/// The key that says what tensors are aligned to.
const ALIGNMENT: &str = "general.alignment";
/// Longest name of a tensor, in bytes.
const LONGEST_NAME: usize = 64;
/// Most dimensions of a tensor.
const MOST_DIMENSIONS: u32 = 4;

/// What the file describes.
pub(super) struct Contents {
    pub(super) metadata: BTreeMap<String, Value>,
    pub(super) tensors: BTreeMap<String, TensorInfo>,
    /// Where the type and the value of each key are.
    pub(super) values: BTreeMap<String, Range<usize>>,
}

/// A tensor in the table.
#[derive(Debug, Clone)]
pub struct TensorInfo {
    /// How its elements are stored.
    pub dtype: TensorType,
    /// Sizes, the length of a row last: the file has them the other way round.
    pub shape: Vec<usize>,
    /// Its bytes within the file.
    pub range: Range<usize>,
}

/// A tensor as the table has it, with the place of its entry.
struct Listed {
    entry: usize,
    name: String,
    dtype: TensorType,
    shape: Vec<usize>,
    offset: u64,
    bytes: u64,
}

pub(super) fn read(file: &[u8]) -> Result<Contents, Fault> {
    let mut cursor = Cursor::new(file, 0);
    if cursor.take(4, "the magic number")? != MAGIC {
        return Err(Fault::new(0, "it does not begin with GGUF".to_owned()));
    }
    check_version(cursor.u32("the version")?)?;
    // A tensor takes 32 bytes in the table at least, a key with its value 13.
    let tensors = cursor.count("tensors", 32)?;
    let keys = cursor.count("keys", 13)?;
    let (mut metadata, mut values) = (BTreeMap::new(), BTreeMap::new());
    for _ in 0..keys {
        let at = cursor.offset();
        let key = cursor.string("a key")?;
        let first = cursor.offset();
        let value = Value::read(&mut cursor).map_err(|fault| of_key(fault, key))?;
        values.insert(key.to_owned(), first..cursor.offset());
        if metadata.insert(key.to_owned(), value).is_some() {
            return Err(Fault::new(at, format!("key {key} is there twice")));
        }
    }
    let alignment = alignment(&metadata)?;
    let mut listed = Vec::new();
    for _ in 0..tensors {
        listed.push(tensor(&mut cursor, alignment)?);
    }
    let data = (cursor.offset() as u64).next_multiple_of(alignment);
    Ok(Contents { metadata, tensors: place(listed, data, file.len())?, values })
}

fn of_key(fault: Fault, key: &str) -> Fault {
    let shown: String = key.chars().take(100).collect();
    fault.within(&format!("key {shown:?}"))
}

fn check_version(version: u32) -> Result<(), Fault> {
    let problem = match version {
        2 | 3 => return Ok(()),
        1 => "version 1 is obsolete; versions 2 and 3 are read: convert the file again".to_owned(),
        _ if (1..=3).contains(&version.swap_bytes()) => {
            "the file is big-endian; only little-endian files are read".to_owned()
        }
        _ => format!("version {version} is not supported; versions 2 and 3 are"),
    };
    Err(Fault::new(4, problem))
}

fn alignment(metadata: &BTreeMap<String, Value>) -> Result<u64, Fault> {
    /// What a file that does not say is aligned to.
    const DEFAULT: u64 = 32;
    /// More than any file system or device asks for.
    const LARGEST: u64 = 1 << 20;
    match metadata.get(ALIGNMENT) {
        None => Ok(DEFAULT),
        Some(Value::Integer(value)) => u64::try_from(*value)
            .ok()
            .filter(|value| value.is_power_of_two() && *value <= LARGEST)
            .ok_or_else(|| Fault::new(0, format!("{ALIGNMENT} is {value}, expected a power of two up to {LARGEST}"))),
        Some(value) => Err(Fault::new(0, format!("{ALIGNMENT} is {}, expected a power of two", value.describe()))),
    }
}

fn tensor(cursor: &mut Cursor, alignment: u64) -> Result<Listed, Fault> {
    let entry = cursor.offset();
    let name = cursor.string("the name of a tensor")?;
    let fail = |at: usize, reason: String| Err(Fault::new(at, format!("tensor {name}: {reason}")));
    if name.len() > LONGEST_NAME {
        let shown: String = name.chars().take(LONGEST_NAME).collect();
        let reason = format!("a tensor's name {shown}... has {} bytes, at most {LONGEST_NAME} are allowed", name.len());
        return Err(Fault::new(entry, reason));
    }
    let at = cursor.offset();
    let dimensions = cursor.u32("a number of dimensions")?;
    if !(1..=MOST_DIMENSIONS).contains(&dimensions) {
        return fail(at, format!("it has {dimensions} dimensions, expected 1 to {MOST_DIMENSIONS}"));
    }
    let mut sizes = [1_u64; MOST_DIMENSIONS as usize];
    for size in &mut sizes[..dimensions as usize] {
        *size = cursor.u64("a dimension")?;
    }
    let sizes = &sizes[..dimensions as usize];
    // A tensor's number of elements must be that of something addressable in the other types as well.
    let elements = sizes.iter().try_fold(1_u64, |product, &size| product.checked_mul(size));
    let Some(elements) = elements.filter(|&elements| elements <= 1 << 60) else {
        return fail(at, format!("the sizes {sizes:?} are out of range"));
    };
    if elements == 0 {
        return fail(at, format!("one of the sizes {sizes:?} is 0"));
    }
    let at = cursor.offset();
    let number = cursor.u32("the type of a tensor")?;
    let dtype = match TensorType::of(number) {
        Ok(dtype) => dtype,
        Err(problem) => return fail(at, problem),
    };
    let (row, block) = (sizes[0], dtype.block() as u64);
    if !row.is_multiple_of(block) {
        return fail(at, format!("its rows of {row} elements are not whole blocks of {block}, which {dtype} has"));
    }
    let at = cursor.offset();
    let offset = cursor.u64("the offset of a tensor")?;
    if !offset.is_multiple_of(alignment) {
        return fail(at, format!("its offset {offset} is not a multiple of the alignment {alignment}"));
    }
    let bytes = elements / block * dtype.block_bytes() as u64;
    let shape = sizes.iter().rev().map(|&size| size as usize).collect();
    Ok(Listed { entry, name: name.to_owned(), dtype, shape, offset, bytes })
}

/// Where the tensors are in a file of `length` bytes whose data begin at `data`.
fn place(listed: Vec<Listed>, data: u64, length: usize) -> Result<BTreeMap<String, TensorInfo>, Fault> {
    let mut tensors = BTreeMap::new();
    let mut spans = Vec::new();
    for Listed { entry, name, dtype, shape, offset, bytes } in listed {
        let fail = |reason: String| Err(Fault::new(entry, format!("tensor {name} {reason}")));
        let end = data.checked_add(offset).and_then(|start| start.checked_add(bytes));
        let Some(end) = end.filter(|&end| end <= length as u64) else {
            return fail(format!(
                "has {bytes} bytes from {offset} bytes after byte {data} on, beyond the end of the file of {length} bytes: it is cut off or damaged"
            ));
        };
        let end = end as usize;
        let range = end - bytes as usize..end;
        spans.push((range.clone(), name.clone(), entry));
        let info = TensorInfo { dtype, shape, range };
        if tensors.insert(name.clone(), info).is_some() {
            return Err(Fault::new(entry, format!("tensor {name} is there twice")));
        }
    }
    spans.sort_by_key(|(range, ..)| range.start);
    for pair in spans.windows(2) {
        let [(first, one, _), (second, other, entry)] = pair else { unreachable!("windows of two") };
        if second.start < first.end {
            return Err(Fault::new(*entry, format!("tensors {one} and {other} share bytes")));
        }
    }
    Ok(tensors)
}
