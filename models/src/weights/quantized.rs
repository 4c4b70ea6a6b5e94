//! 4-bit weights as bitsandbytes stores them.
//!
//! | tensor | content |
//! | --- | --- |
//! | `NAME` | U8 `[bytes, 1]`, two codes to a byte |
//! | `NAME.absmax` | scales: U8 codes with double quantisation, else F32 |
//! | `NAME.quant_map` | F32 `[16]`, what the codes stand for |
//! | `NAME.nested_absmax`, `NAME.nested_quant_map` | F32, with double quantisation |
//! | `NAME.quant_state.bitsandbytes__nf4` | U8, a JSON text: shape, block sizes, former type, offset |

use super::mapped::{Entry, Stored};
use super::model_files::{ModelFiles, borrow, elements};
use super::tensor_file::{Content, Part};
use hankel_core::nf4::{Nf4, Scales};
use hankel_core::{DType, Tensor};
use hankel_files::{Result, WeightsError};
use safetensors::Dtype;
use serde::{Deserialize, Serialize};

/// Suffix of the tensor that describes the others.
const STATE: &str = ".quant_state.bitsandbytes__nf4";

#[derive(Serialize, Deserialize)]
struct State {
    quant_type: String,
    blocksize: usize,
    dtype: String,
    shape: Vec<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nested_blocksize: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nested_dtype: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nested_offset: Option<f64>,
}

impl ModelFiles {
    /// Whether the weight `name` is left and is stored in 4 bits.
    pub(crate) fn is_quantized(&self, name: &str) -> bool {
        self.contains(&format!("{name}{STATE}"))
    }
}

/// Takes the quantised weight `name`; `None` when it is not stored in this form.
///
/// # Errors
/// When a part is missing or does not fit the others.
pub(super) fn take(files: &mut ModelFiles, name: &str, shape: &[usize]) -> Result<Option<Tensor>> {
    if !files.is_quantized(name) {
        return Ok(None);
    }
    let state_entry = files.take_entry(&format!("{name}{STATE}"))?;
    let path = state_entry.path.clone();
    let fail = |reason: String| WeightsError::content(&*path, format!("tensor {name}: {reason}"));
    let state: State =
        serde_json::from_slice(state_entry.bytes()).map_err(|e| fail(format!("its quantisation state: {e}")))?;
    if state.quant_type != "nf4" {
        return Err(fail(format!("quantisation {:?} is not supported; nf4 is", state.quant_type)));
    }
    if state.shape != shape {
        return Err(fail(format!("the quantised matrix has shape {:?}, expected {shape:?}", state.shape)));
    }
    let source = match &state.dtype[..] {
        "float32" => DType::F32,
        "bfloat16" => DType::BF16,
        "float16" => DType::F16,
        other => return Err(fail(format!("a former type of {other:?} is not supported"))),
    };
    let mut part = |suffix: &str, dtype: Dtype| -> Result<Entry> {
        let entry = files.take_entry(&format!("{name}{suffix}"))?;
        if matches!(entry.stored, Stored::Plain(found) if found == dtype) {
            Ok(entry)
        } else {
            Err(fail(format!("{suffix} is {:?}, expected {dtype:?}", entry.stored)))
        }
    };
    let packed = part("", Dtype::U8)?;
    let codebook = elements::<f32>(&part(".quant_map", Dtype::F32)?);
    let codebook =
        <[f32; 16]>::try_from(codebook).map_err(|codebook| fail(format!("quant_map has {} values", codebook.len())))?;
    let scales = if let Some(block) = state.nested_blocksize {
        let nested = elements::<f32>(&part(".nested_absmax", Dtype::F32)?);
        let values = elements::<f32>(&part(".nested_quant_map", Dtype::F32)?);
        let values: Box<[f32; 256]> = values
            .into_boxed_slice()
            .try_into()
            .map_err(|v: Box<[f32]>| fail(format!("nested_quant_map has {} values", v.len())))?;
        let offset = state.nested_offset.ok_or_else(|| fail("nested_offset is missing".to_owned()))?;
        let codes = borrow(&part(".absmax", Dtype::U8)?).map_err(|e| fail(e.to_string()))?;
        Scales::Double { codes, nested: nested.into(), codebook: values, offset: offset as f32, block }
    } else {
        Scales::Plain(elements::<f32>(&part(".absmax", Dtype::F32)?).into())
    };
    let count = shape.iter().product();
    let packed = borrow(&packed).map_err(|e| fail(e.to_string()))?;
    let matrix =
        Nf4::new(packed, scales, codebook, [count, state.blocksize], source).map_err(|e| fail(e.to_string()))?;
    if !codebook.iter().all(|x| x.is_finite()) || !matrix.is_finite() {
        return Err(fail("a scale is not finite".to_owned()));
    }
    Tensor::from_nf4(matrix, shape).map(Some).map_err(|e| fail(e.to_string()))
}

/// What stores `tensor`, which is `matrix`, under `name`.
pub(super) fn parts(name: &str, tensor: &Tensor, matrix: &Nf4) -> Result<Vec<Part>> {
    let bytes = |suffix: &str, dtype: Dtype, count: usize, bytes: &[u8]| Part {
        name: format!("{name}{suffix}"),
        dtype,
        shape: vec![count],
        content: Content::Bytes(bytes.to_vec()),
    };
    let floats = |suffix: &str, x: &[f32]| bytes(suffix, Dtype::F32, x.len(), bytemuck::cast_slice(x));
    let mut state = State {
        quant_type: "nf4".to_owned(),
        blocksize: matrix.block(),
        dtype: match matrix.source() {
            DType::BF16 => "bfloat16",
            DType::F16 => "float16",
            _ => "float32",
        }
        .to_owned(),
        shape: tensor.shape().to_vec(),
        nested_blocksize: None,
        nested_dtype: None,
        nested_offset: None,
    };
    let mut parts = vec![Part::of(name, tensor)?, floats(".quant_map", matrix.codebook())];
    match matrix.scales() {
        Scales::Plain(scales) => parts.push(floats(".absmax", scales)),
        Scales::Double { codes, nested, codebook, offset, block } => {
            state.nested_blocksize = Some(*block);
            state.nested_dtype = Some("float32".to_owned());
            state.nested_offset = Some(f64::from(*offset));
            parts.push(bytes(".absmax", Dtype::U8, codes.len(), codes));
            parts.push(floats(".nested_absmax", nested));
            parts.push(floats(".nested_quant_map", &codebook[..]));
        }
    }
    let text = serde_json::to_vec(&state).expect("numbers and words");
    parts.push(bytes(STATE, Dtype::U8, text.len(), &text));
    Ok(parts)
}
