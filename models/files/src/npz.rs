//! numpy's `.npz`: a zip archive of `.npy` arrays.
//!
//! The `.npy` format is a magic string, a version, the length of a header, the header (a Python dictionary of type, order
//! and shape) and the values: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.

use super::arrays::{Array, BEYOND_WHOLE, NamedArrays, Precision, whole};
use super::error::{Result, WeightsError};
use hankel_io::input;
use std::io::{Cursor, Read, Write};
use std::path::Path;
use zip::write::SimpleFileOptions;

const MAGIC: &[u8] = b"\x93NUMPY";

/// Parses an npz file held in memory; `path` is for messages.
///
/// # Errors
/// A corrupt archive, an element type other than floats and integers, a value that is not finite.
pub fn parse(path: &Path, bytes: &[u8]) -> Result<NamedArrays> {
    let malformed = |reason: String| WeightsError::Malformed { path: path.to_path_buf(), kind: "npz file", reason };
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).map_err(|e| malformed(e.to_string()))?;
    let mut arrays = NamedArrays::new();
    // Of the archive as a whole: its entries may be many.
    let mut left = input::unpacked_limit(bytes.len() as u64);
    for i in 0..archive.len() {
        let entry = archive.by_index(i).map_err(|e| malformed(e.to_string()))?;
        let file = entry.name().map_err(|e| malformed(e.to_string()))?.into_owned();
        let name = file.strip_suffix(".npy").ok_or_else(|| malformed(format!("the entry {file} is not an array")))?;
        let mut content = Vec::new();
        entry.take(left + 1).read_to_end(&mut content).map_err(|e| malformed(format!("{file}: {e}")))?;
        left = left.checked_sub(content.len() as u64).ok_or_else(|| hankel_io::Error::Unpacked {
            path: path.to_path_buf(),
            limit: input::unpacked_limit(bytes.len() as u64),
        })?;
        let array = parse_npy(&content).map_err(|reason| malformed(format!("{file}: {reason}")))?;
        if let Some((index, value)) = array.first_non_finite() {
            return Err(WeightsError::content(
                path,
                format!("{name} holds {value} at {index:?}; every value must be finite"),
            ));
        }
        arrays.insert(name.to_string(), array);
    }
    Ok(arrays)
}

/// The bytes of an npz file with these arrays in f64, or as truth values; the same arrays give the same bytes.
pub fn serialize(arrays: &NamedArrays) -> Vec<u8> {
    // Neither compression nor a time stamp, so that hashes are reproducible.
    let options = SimpleFileOptions::default()
        .compression_method(zip::CompressionMethod::Stored)
        .last_modified_time(zip::DateTime::default());
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let mut write = || -> zip::result::ZipResult<()> {
        for (name, array) in arrays {
            writer.start_file(format!("{name}.npy"), options)?;
            writer.write_all(&header(&array.shape, if array.is_bool { "|b1" } else { "<f8" }))?;
            for value in &array.data {
                if array.is_bool {
                    writer.write_all(&[u8::from(*value != 0.0)])?;
                } else {
                    writer.write_all(&value.to_le_bytes())?;
                }
            }
        }
        Ok(())
    };
    write().expect("writing to memory does not fail");
    writer.finish().expect("writing to memory does not fail").into_inner()
}

fn header(shape: &[usize], descr: &str) -> Vec<u8> {
    // A tuple in Python needs its comma only with one entry, and may have it with more.
    let extents: Vec<String> = shape.iter().map(ToString::to_string).chain([String::new()]).collect();
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}), }}", extents.join(","));
    // Magic, version, length and header together fill whole blocks of 64 bytes, the last of which is a line break.
    while !(MAGIC.len() + 4 + text.len() + 1).is_multiple_of(64) {
        text.push(' ');
    }
    text.push('\n');
    let mut out = MAGIC.to_vec();
    out.extend([1, 0]);
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text.as_bytes());
    out
}

fn parse_npy(bytes: &[u8]) -> std::result::Result<Array, String> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("no numpy array")?;
    let (version, rest) = rest.split_at_checked(2).ok_or("it ends inside its header")?;
    let width = if version[0] == 1 { 2 } else { 4 };
    let (length, rest) = rest.split_at_checked(width).ok_or("it ends inside its header")?;
    let length = length.iter().rev().fold(0, |n, &b| n << 8 | usize::from(b));
    let (text, data) = rest.split_at_checked(length).ok_or("it ends inside its header")?;
    let text = std::str::from_utf8(text).map_err(|e| e.to_string())?;
    let field = |key: &str| {
        let start = text.find(&format!("'{key}':")).ok_or_else(|| format!("its header has no {key}"))?;
        Ok::<_, String>(text[start + key.len() + 3..].trim_start())
    };
    let descr = field("descr")?.trim_start_matches('\'').split('\'').next().unwrap_or_default();
    let fortran = field("fortran_order")?.starts_with("True");
    let shape = field("shape")?.strip_prefix('(').and_then(|s| s.split_once(')')).ok_or("its shape is unreadable")?.0;
    let shape: Vec<usize> = shape
        .split(',')
        .map(str::trim)
        .filter(|s| !s.is_empty())
        .map(|s| s.parse().map_err(|_| format!("its shape is unreadable: {s}")))
        .collect::<std::result::Result<_, _>>()?;
    crate::arrays::check_extents(&shape)?;
    let (kind, size) = ElementType::parse(descr)?;
    let count = shape.iter().try_fold(1usize, |n, &s| n.checked_mul(s)).ok_or("its shape is too large")?;
    if count.checked_mul(size) != Some(data.len()) {
        return Err(format!("shape {shape:?} needs {count} values of {size} bytes, there are {} bytes", data.len()));
    }
    let big_endian = descr.starts_with('>');
    let values: Vec<f64> = data
        .chunks_exact(size)
        .map(|bytes| kind.value(bytes, big_endian))
        .collect::<Option<_>>()
        .ok_or(BEYOND_WHOLE)?;
    let precision = match (kind, size) {
        (ElementType::Float, 2) => Precision::F16,
        (ElementType::Float, 4) => Precision::F32,
        _ => Precision::F64,
    };
    let values = if fortran { from_fortran_order(&values, &shape) } else { values };
    Ok(Array { is_bool: descr.ends_with("b1"), ..Array::new(shape, values, precision) })
}

/// The kinds of numbers that numpy names by a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ElementType {
    Float,
    Signed,
    Unsigned,
}

impl ElementType {
    /// The kind and its bytes per number.
    fn parse(descr: &str) -> std::result::Result<(Self, usize), String> {
        let kind_and_size = descr.trim_start_matches(['<', '>', '|', '=']);
        Ok(match kind_and_size {
            "f8" => (Self::Float, 8),
            "f4" => (Self::Float, 4),
            "f2" => (Self::Float, 2),
            "i8" => (Self::Signed, 8),
            "i4" => (Self::Signed, 4),
            "i2" => (Self::Signed, 2),
            "i1" => (Self::Signed, 1),
            "u8" => (Self::Unsigned, 8),
            "u4" => (Self::Unsigned, 4),
            "u2" => (Self::Unsigned, 2),
            // Python's True is the number 1.
            "u1" | "b1" => (Self::Unsigned, 1),
            "c8" | "c16" => {
                return Err(
                    "it is complex; a system has real matrices: save its real part, where that is all of it".into()
                );
            }
            "O" => return Err("it holds Python objects (None?); leave it out, or save numbers".into()),
            _ => return Err(format!("element type {descr:?}; save it as float64, float32 or integers")),
        })
    }

    /// The number in `bytes`, of which there are 1, 2, 4 or 8; `None` for an integer that no f64 is equal to.
    fn value(self, bytes: &[u8], big_endian: bool) -> Option<f64> {
        let fold = |bits: u64, &byte: &u8| bits << 8 | u64::from(byte);
        let bits = if big_endian { bytes.iter().fold(0, fold) } else { bytes.iter().rev().fold(0, fold) };
        match (self, bytes.len()) {
            (Self::Float, 2) => Some(half::f16::from_bits(bits as u16).to_f64()),
            (Self::Float, 4) => Some(f64::from(f32::from_bits(bits as u32))),
            (Self::Float, _) => Some(f64::from_bits(bits)),
            (Self::Unsigned, _) => whole(bits),
            (Self::Signed, size) => {
                let unused = 64 - 8 * size as u32;
                whole(((bits << unused) as i64) >> unused)
            }
        }
    }
}

/// Values with the first dimension fastest, reordered so that the last is.
fn from_fortran_order(values: &[f64], shape: &[usize]) -> Vec<f64> {
    (0..values.len())
        .map(|flat| {
            let (mut rest, mut stride, mut source) = (flat, values.len(), 0);
            for &n in shape.iter().rev() {
                stride /= n;
                source += rest % n * stride;
                rest /= n;
            }
            values[source]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npy(dictionary: &str, data: &[u8]) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend([1, 0]);
        out.extend((dictionary.len() as u16).to_le_bytes());
        out.extend(dictionary.as_bytes());
        out.extend(data);
        out
    }

    #[test]
    fn arrays_survive_a_round_trip() {
        let mut arrays = NamedArrays::new();
        arrays.insert("A".into(), Array::new(vec![2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 0.1], Precision::F64));
        arrays.insert("v".into(), Array::new(vec![2], vec![-1.5, 1e300], Precision::F64));
        let bytes = serialize(&arrays);
        assert_eq!(serialize(&arrays), bytes);
        assert_eq!(parse(Path::new("x.npz"), &bytes).unwrap(), arrays);
        assert_eq!(header(&[2, 3], "<f8").len() % 64, 0);
    }

    #[test]
    fn orders_and_types_of_numpy_are_understood() {
        let data: Vec<u8> = [1f32, 2.0, 3.0, 4.0, 5.0, 6.0].iter().flat_map(|v| v.to_be_bytes()).collect();
        let array = parse_npy(&npy("{'descr': '>f4', 'fortran_order': True, 'shape': (2, 3), }", &data)).unwrap();
        assert_eq!(array.data, [1.0, 3.0, 5.0, 2.0, 4.0, 6.0]);
        for (descr, data, values) in [
            ("<i8", (-3_i64).to_le_bytes().to_vec(), [-3.0].as_slice()),
            ("<f2", vec![0x00, 0x3e, 0x00, 0xc0], &[1.5, -2.0]),
            (">f2", vec![0x3e, 0x00], &[1.5]),
            (">i4", [(-2_i32).to_be_bytes(), 7_i32.to_be_bytes()].concat(), &[-2.0, 7.0]),
            ("<i2", (-300_i16).to_le_bytes().to_vec(), &[-300.0]),
            ("|i1", vec![255, 3], &[-1.0, 3.0]),
            ("|u1", vec![255], &[255.0]),
            ("<u4", u32::MAX.to_le_bytes().to_vec(), &[4_294_967_295.0]),
            ("|b1", vec![1, 0], &[1.0, 0.0]),
        ] {
            let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({},), }}", values.len());
            assert_eq!(parse_npy(&npy(&header, &data)).unwrap().data, values, "{descr}");
        }
        let array =
            parse_npy(&npy("{'shape': (), 'fortran_order': False, 'descr': '<f8'}", &2f64.to_le_bytes())).unwrap();
        assert_eq!((array.shape, array.data), (vec![], vec![2.0]));
    }

    /// Without elements a shape costs nothing in the file, and whoever walks along it would not come to the end.
    #[test]
    fn shapes_without_elements_are_limited() {
        for shape in ["(0, 1152921504606846976)", "(2305843009213693952, 0)", "(0, 0, 99999999999)"] {
            let empty = npy(&format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}"), &[]);
            assert!(parse_npy(&empty).unwrap_err().contains("is too large"), "{shape}");
        }
        let empty = npy("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 3), }", &[]);
        assert_eq!(parse_npy(&empty).unwrap().shape, [0, 3]);
    }

    /// `dt=1` is a sampling time, `dt=True` python-control's step of unknown length.
    #[test]
    fn truth_values_are_told_from_the_number_1() {
        let one = |descr: &str, data: &[u8]| {
            parse_npy(&npy(&format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (), }}"), data)).unwrap()
        };
        assert!(one("|b1", &[1]).is_bool && !one("<i8", &1_i64.to_le_bytes()).is_bool && !one("|u1", &[1]).is_bool);
    }

    #[test]
    fn damage_is_reported() {
        let short = npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }", &[0; 15]);
        assert!(parse_npy(&short).unwrap_err().contains("needs 2 values"));
        let complex = npy("{'descr': '<c16', 'fortran_order': False, 'shape': (1,), }", &[0; 16]);
        assert!(parse_npy(&complex).unwrap_err().contains("it is complex"));
        let none = npy("{'descr': '|O', 'fortran_order': False, 'shape': (), }", b"\x80\x04N.");
        assert!(parse_npy(&none).unwrap_err().contains("Python objects"));
        let large = npy("{'descr': '<i8', 'fortran_order': False, 'shape': (1,), }", &i64::MIN.to_le_bytes());
        assert!(parse_npy(&large).unwrap_err().contains("2^53"));
        let huge = npy("{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", &[]);
        assert!(parse_npy(&huge).unwrap_err().contains("too large"));
        for cut in [0, 3, 7, 9, 20] {
            assert!(parse_npy(&short[..cut]).is_err());
        }
    }
}
