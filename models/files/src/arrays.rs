//! Small safetensors files as named arrays of f64.

use super::error::{Result, WeightsError};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;
use std::path::Path;

/// Element type of a stored array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// 16-bit float with 8 bits of exponent.
    Bf16,
    /// IEEE half precision.
    F16,
    /// IEEE single precision.
    #[default]
    F32,
    /// IEEE double precision.
    F64,
}

impl Precision {
    fn dtype(self) -> Dtype {
        match self {
            Self::Bf16 => Dtype::BF16,
            Self::F16 => Dtype::F16,
            Self::F32 => Dtype::F32,
            Self::F64 => Dtype::F64,
        }
    }

    /// The narrowest type that holds every value of both.
    pub fn join(self, other: Self) -> Self {
        match (self, other) {
            _ if self == other => self,
            (Self::F64, _) | (_, Self::F64) => Self::F64,
            // The 16-bit types do not hold each other.
            _ => Self::F32,
        }
    }

    /// `"bf16"`, `"f16"`, `"f32"` or `"f64"`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }
}

/// A row-major array, widened to f64 (exact from every supported type).
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    /// Extent per dimension.
    pub shape: Vec<usize>,
    /// `product(shape)` values, last dimension fastest.
    pub data: Vec<f64>,
    /// The type it is stored in.
    pub precision: Precision,
    /// Whether the file holds truth values.
    pub is_bool: bool,
}

impl Array {
    /// An array.
    ///
    /// # Panics
    /// When the data do not fill the shape.
    pub fn new(shape: Vec<usize>, data: Vec<f64>, precision: Precision) -> Self {
        assert_eq!(shape.iter().product::<usize>(), data.len(), "the data must fill the shape {shape:?}");
        Self { shape, data, precision, is_bool: false }
    }

    fn bytes(&self) -> Vec<u8> {
        if self.is_bool {
            return self.data.iter().map(|&v| u8::from(v != 0.0)).collect();
        }
        match self.precision {
            Precision::F64 => self.data.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Precision::F32 => self.data.iter().flat_map(|&v| (v as f32).to_le_bytes()).collect(),
            Precision::F16 => self.data.iter().flat_map(|&v| half::f16::from_f32(v as f32).to_le_bytes()).collect(),
            Precision::Bf16 => self.data.iter().flat_map(|&v| half::bf16::from_f32(v as f32).to_le_bytes()).collect(),
        }
    }

    /// Position of the first NaN or infinity, as an index per dimension.
    pub fn first_non_finite(&self) -> Option<(Vec<usize>, f64)> {
        let flat = self.data.iter().position(|v| !v.is_finite())?;
        let mut rest = flat;
        let mut index: Vec<usize> = self
            .shape
            .iter()
            .rev()
            .map(|&n| {
                let i = rest % n;
                rest /= n;
                i
            })
            .collect();
        index.reverse();
        Some((index, self.data[flat]))
    }
}

/// Arrays by name, in the order of their names.
pub type NamedArrays = BTreeMap<String, Array>;

/// Elements that an array may have, an extent of 0 counting as 1: an empty one would be walked along the others for ever.
const MOST: usize = 1 << 32;

/// Refuses shapes beyond what memory holds, of which one without elements needs none.
pub(crate) fn check_extents(shape: &[usize]) -> std::result::Result<(), String> {
    let size = shape.iter().try_fold(1_usize, |size, &extent| size.checked_mul(extent.max(1)));
    match size.filter(|size| *size <= MOST) {
        Some(_) => Ok(()),
        None => Err(format!("its shape {shape:?} is too large")),
    }
}

/// What to say where [`whole`] has no answer.
pub(crate) const BEYOND_WHOLE: &str = "it holds an integer beyond 2^53, which no float64 is equal to";

/// The float that is equal to an integer; `None` beyond 2^53, from where on floats leave some out.
pub(crate) fn whole(integer: impl Into<i128>) -> Option<f64> {
    let integer: i128 = integer.into();
    (integer.unsigned_abs() <= 1 << 53).then_some(integer as f64)
}

/// Integers of 8 bytes as floats.
fn wholes<T: Into<i128>>(data: &[u8], integer: impl Fn([u8; 8]) -> T) -> std::result::Result<Vec<f64>, String> {
    let (integers, _) = data.as_chunks::<8>();
    integers.iter().map(|bytes| whole(integer(*bytes))).collect::<Option<_>>().ok_or_else(|| BEYOND_WHOLE.into())
}

/// Parses a safetensors file held in memory; `path` is for messages.
///
/// # Errors
/// A truncated or corrupt file, an element type other than f64, f32, f16, bf16, integers and bool, an integer beyond 2^53, a value that is
/// not finite.
pub fn parse(path: &Path, bytes: &[u8]) -> Result<NamedArrays> {
    let file = SafeTensors::deserialize(bytes).map_err(|e| WeightsError::Malformed {
        path: path.to_path_buf(),
        kind: "safetensors file",
        reason: format!("{e} ({} bytes)", bytes.len()),
    })?;
    let mut arrays = NamedArrays::new();
    for (name, view) in file.iter() {
        let in_array = |reason: String| WeightsError::content(path, format!("{name}: {reason}"));
        check_extents(view.shape()).map_err(in_array)?;
        let data = view.data();
        let (data, precision): (Vec<f64>, _) = match view.dtype() {
            Dtype::F64 => (data.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect(), Precision::F64),
            Dtype::F32 => {
                (data.as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect(), Precision::F32)
            }
            Dtype::F16 => {
                (data.as_chunks().0.iter().map(|b| half::f16::from_le_bytes(*b).to_f64()).collect(), Precision::F16)
            }
            Dtype::BF16 => {
                (data.as_chunks().0.iter().map(|b| half::bf16::from_le_bytes(*b).to_f64()).collect(), Precision::Bf16)
            }
            Dtype::I8 => (data.iter().map(|b| f64::from(b.cast_signed())).collect(), Precision::F64),
            Dtype::U8 => (data.iter().map(|b| f64::from(*b)).collect(), Precision::F64),
            Dtype::I16 => {
                (data.as_chunks().0.iter().map(|b| f64::from(i16::from_le_bytes(*b))).collect(), Precision::F64)
            }
            Dtype::I32 => {
                (data.as_chunks().0.iter().map(|b| f64::from(i32::from_le_bytes(*b))).collect(), Precision::F64)
            }
            Dtype::U16 => {
                (data.as_chunks().0.iter().map(|b| f64::from(u16::from_le_bytes(*b))).collect(), Precision::F64)
            }
            Dtype::U32 => {
                (data.as_chunks().0.iter().map(|b| f64::from(u32::from_le_bytes(*b))).collect(), Precision::F64)
            }
            Dtype::I64 => (wholes(data, i64::from_le_bytes).map_err(in_array)?, Precision::F64),
            Dtype::U64 => (wholes(data, u64::from_le_bytes).map_err(in_array)?, Precision::F64),
            Dtype::BOOL => (data.iter().map(|b| f64::from(u8::from(*b != 0))).collect(), Precision::F64),
            other => {
                return Err(WeightsError::content(
                    path,
                    format!("{name} has element type {other:?}; expected f64, f32, f16, bf16, an integer or bool"),
                ));
            }
        };
        let is_bool = view.dtype() == Dtype::BOOL;
        let array = Array { is_bool, ..Array::new(view.shape().to_vec(), data, precision) };
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

/// The bytes of a safetensors file with these arrays; the same arrays give the same bytes.
pub fn serialize(arrays: &NamedArrays) -> Vec<u8> {
    let stored: Vec<(&str, Vec<u8>, &Array)> = arrays.iter().map(|(n, a)| (n.as_str(), a.bytes(), a)).collect();
    let views = stored.iter().map(|(name, bytes, array)| {
        let dtype = if array.is_bool { Dtype::BOOL } else { array.precision.dtype() };
        let view = TensorView::new(dtype, array.shape.clone(), bytes);
        (*name, view.expect("an array's data fills its shape"))
    });
    safetensors::serialize(views, None).expect("names and sizes of the arrays are valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_survive_a_round_trip_in_every_precision() {
        let mut arrays = NamedArrays::new();
        for precision in [Precision::F64, Precision::F32, Precision::F16, Precision::Bf16] {
            arrays.insert(
                precision.name().into(),
                Array::new(vec![2, 3], vec![1.0, -2.5, 0.0, 4.0, 0.125, 7.0], precision),
            );
        }
        arrays.insert("empty".into(), Array::new(vec![0, 5], vec![], Precision::F64));
        arrays.insert("exact".into(), Array::new(vec![1], vec![0.1], Precision::F64));
        let bytes = serialize(&arrays);
        assert_eq!(parse(Path::new("x"), &bytes).unwrap(), arrays);
        assert_eq!(serialize(&arrays), bytes);
    }

    /// As in npz files.
    #[test]
    fn integers_of_every_size_are_read_as_they_are() {
        let read = |dtype: Dtype, bytes: &[u8], count: usize| {
            let view = TensorView::new(dtype, vec![count], bytes).unwrap();
            let file = safetensors::serialize([("n", view)], None).unwrap();
            parse(Path::new("x"), &file).map(|arrays| arrays["n"].data.clone()).map_err(|error| error.to_string())
        };
        let most = 1_i64 << 53;
        for (dtype, bytes, numbers) in [
            (Dtype::U16, [1_u16, u16::MAX].map(u16::to_le_bytes).concat(), [1.0, 65_535.0]),
            (Dtype::U32, [1_u32, u32::MAX].map(u32::to_le_bytes).concat(), [1.0, 4_294_967_295.0]),
            (Dtype::U64, [1, most as u64].map(u64::to_le_bytes).concat(), [1.0, most as f64]),
            (Dtype::I64, [-most, most].map(i64::to_le_bytes).concat(), [-most as f64, most as f64]),
        ] {
            assert_eq!(read(dtype, &bytes, 2), Ok(numbers.to_vec()), "{dtype:?}");
        }
        for (dtype, bytes) in [
            (Dtype::I64, (most + 1).to_le_bytes()),
            (Dtype::I64, i64::MIN.to_le_bytes()),
            (Dtype::U64, u64::MAX.to_le_bytes()),
        ] {
            let refused = read(dtype, &bytes, 1).unwrap_err();
            assert_eq!(refused, "x: n: it holds an integer beyond 2^53, which no float64 is equal to");
        }
    }

    #[test]
    fn damage_is_reported_with_the_file_and_the_entry() {
        let mut arrays = NamedArrays::new();
        arrays.insert("w".into(), Array::new(vec![2, 2], vec![1.0, 2.0, f64::NAN, 4.0], Precision::F32));
        let bytes = serialize(&arrays);
        let message = |bytes: &[u8]| parse(Path::new("dir/model.safetensors"), bytes).unwrap_err().to_string();
        assert_eq!(message(&bytes), "dir/model.safetensors: w holds NaN at [1, 0]; every value must be finite");
        assert!(
            message(&bytes[..bytes.len() - 1]).starts_with("dir/model.safetensors is not a readable safetensors file")
        );
        assert!(message(b"").contains("0 bytes"));
    }
}
