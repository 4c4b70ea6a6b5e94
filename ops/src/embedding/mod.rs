//! Rows of a table: `y[..., :] = table[token[...], :]`.
//!
//! `tokens` u32 `[...]` in main memory, where they are checked; `table` `[vocabulary, width]`, output `[..., width]`. The
//! gradient of the table adds up the rows of the output's gradient in the order of the tokens. A frozen table may be `bf16`,
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
    let y = on_device!(table, forward(ids, table))?.reshape(shape)?;
    let tokens = tokens.clone();
    y.from_operator(NAME, &[Some(table)], move |g, _| {
        Ok(vec![Some(on_device!(g, backward(tokens.data()?, &g, [vocabulary, width]))?)])
    })
}
