//! A device that drops work without a word, in a process of its own: nothing can be done with it afterwards.

use hankel_core::gpu::{GpuStorage, for_tests};

#[test]
fn work_that_was_not_done_is_an_error() {
    let Some(gpu) = for_tests() else { return };
    let bytes: Vec<u8> = (0..255).collect();
    let data = gpu.upload(&bytes).unwrap();
    // Nothing is recorded: nothing is lost.
    gpu.flush();
    gpu.lose_recorded();
    assert_eq!(gpu.download(&data, 255).unwrap(), bytes);
    let filled = GpuStorage::filled(gpu, 64, 1.0).unwrap();
    assert_eq!(gpu.download(&filled.buffer, 256).unwrap(), 1.0_f32.to_ne_bytes().repeat(64));
    let lost = GpuStorage::filled(gpu, 64, 2.0).unwrap();
    gpu.lose_recorded();
    let told = gpu.download(&lost.buffer, 256).unwrap_err().to_string();
    assert!(told.starts_with(&gpu.facts().name) && told.contains("has not run all that it was given"), "{told}");
    assert!(gpu.download(&data, 255).is_err(), "what comes later may depend on it");
}
