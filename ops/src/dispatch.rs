//! The two choices that operators make: by device and by element type.

/// Calls a function of the operator's module `gpu` or `cpu`, whichever `$tensor` is on.
///
/// Both modules export it with the same arguments; that of `gpu` takes the GPU before them. The call is an event of
/// [`hankel_core::trace`].
macro_rules! on_device {
    ($tensor:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        let _event = hankel_core::trace::kernel(module_path!(), stringify!($function));
        match $tensor.gpu() {
            Some(gpu) => gpu::$function(gpu, $($argument),*),
            None => cpu::$function($($argument),*),
        }
    }};
}
pub(crate) use on_device;

/// Runs a body with a type alias for the element type of a tensor (`f32` or `f64`).
macro_rules! for_float {
    ($tensor:expr, $operator:expr, $T:ident => $body:expr) => {
        match $tensor.dtype() {
            hankel_core::DType::F32 => {
                type $T = f32;
                $body
            }
            hankel_core::DType::F64 => {
                type $T = f64;
                $body
            }
            found => Err(hankel_core::Error::DType { operator: $operator, expected: "f32 or f64", found }),
        }
    };
}
pub(crate) use for_float;
