//! Rows of a table: `y[..., :] = table[token[...], :]`, and the same added onto a stream.
//!
//! `tokens` u32 `[...]` in main memory, where they are checked; `table` `[vocabulary, width]`, output and `base` `[..., width]`. The
//! gradient of the table adds up the rows of the output's gradient in the order of the tokens; that of `base` is the output's. A frozen table may be `bf16`,
//! `f16` or in a block format; the output is `f32` then.

#[cfg(any(test, feature = "testing"))]
pub(crate) mod cases;
mod cpu;
pub(crate) mod gpu;

use crate::check;
use crate::dispatch::on_device;
use hankel_core::{DType, Error, Result, Tensor};

const NAME: &str = "embedding";

/// Looks up every token.
///
/// # Errors
/// When the table is not a matrix of floats, or a token is not below its number of rows.
pub fn embedding(tokens: &Tensor, table: &Tensor) -> Result<Tensor> {
    gather(None, tokens, table)
}

/// `base + table[tokens]`, in one pass.
///
/// # Errors
/// As [`embedding`], and when `base` has not the shape and type of its output.
pub fn add_embedding(base: &Tensor, tokens: &Tensor, table: &Tensor) -> Result<Tensor> {
    gather(Some(base), tokens, table)
}

fn gather(base: Option<&Tensor>, tokens: &Tensor, table: &Tensor) -> Result<Tensor> {
    let &[vocabulary, width] = &table.shape()[..] else {
        let problem = format!("table has shape {}, expected [vocabulary, width]", table.shape());
        return Err(Error::shape(NAME, problem));
    };
    let found = table.dtype();
    if !found.is_float() && !matches!(found, DType::BF16 | DType::F16 | DType::Blocks(_)) {
        let expected = "a table in f32, f64, bf16, f16 or a block format";
        return Err(Error::DType { operator: NAME, expected, found });
    }
    let ids = check::tokens(NAME, "token", tokens, vocabulary)?;
    let mut shape = tokens.shape().to_vec();
    shape.push(width);
    if let Some(base) = base {
        check::device(NAME, "base", base, table)?;
        check::dtype(NAME, "base", base, if found.is_float() { found } else { DType::F32 })?;
        check::shape(NAME, "base", base, &shape)?;
    }
    let y = on_device!(table, forward(base, ids, table))?.reshape(shape)?;
    let tokens = tokens.clone();
    y.from_operator(NAME, &[base, Some(table)], move |g, wanted| {
        let of_table = wanted[1].then(|| on_device!(g, backward(tokens.data()?, &g, [vocabulary, width])));
        Ok(vec![wanted[0].then_some(g), of_table.transpose()?])
    })
}
