//! Products with a weight in blocks never hold a decoded copy of it. A process of its own, which counts what is allocated.

use hankel_core::block_formats::{BlockFormat, BlockMatrix};
use hankel_core::{Random, Tensor};
use hankel_ops::linear;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, data: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(data, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn no_product_decodes_a_whole_weight() {
    const SIZE: usize = 2048;
    let values = |name, n| Random::new(1, name, 0).normal_vec::<f32>(n, 1.0);
    let format = <dyn BlockFormat>::from_name("q4_1").unwrap();
    let weight = BlockMatrix::quantize(format, &values("w", SIZE * SIZE)).unwrap();
    let weight = Tensor::from_blocks(weight, [SIZE, SIZE]).unwrap();
    for rows in [1, 16] {
        let x = Tensor::from_vec(values("x", rows * SIZE), [rows, SIZE]).unwrap().parameter().unwrap();
        PEAK.store(HELD.load(Ordering::Relaxed), Ordering::Relaxed);
        let before = HELD.load(Ordering::Relaxed);
        let y = linear(&x, &weight, None).unwrap();
        let g = Tensor::from_vec(values("g", rows * SIZE), [rows, SIZE]).unwrap();
        y.backward_with(g).unwrap();
        let grown = PEAK.load(Ordering::Relaxed) - before;
        assert!(grown < SIZE * SIZE, "{rows} rows: {grown} bytes on top, a decoded copy has {}", 4 * SIZE * SIZE);
    }
}
