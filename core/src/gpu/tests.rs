use super::pool::{Pool, size_class};

#[test]
fn sizes_of_buffers_waste_at_most_a_quarter() {
    for bytes in [0, 1, 255, 256, 257, 300, 1000, 1024, 1025, 1 << 20, (1 << 20) + 1, 3_000_000_001] {
        let size = size_class(bytes);
        assert!(size >= bytes.max(256) && size.is_multiple_of(4), "{bytes} {size}");
        assert!(size as f64 <= 1.25 * bytes.max(256) as f64, "{bytes} {size}");
        assert_eq!(size_class(size), size);
    }
}

#[test]
fn what_was_freed_is_kept_up_to_twice_what_was_in_use() {
    let mib = 1 << 20;
    let mut pool = Pool::default();
    pool.count(100 * mib);
    assert!(!pool.is_wasteful(1000 * mib));
    (pool.memory.used, pool.memory.held) = (0, 100 * mib);
    assert!(!pool.is_wasteful(100 * mib));
    pool.memory.held = 164 * mib;
    assert!(!pool.is_wasteful(100 * mib));
    pool.memory.held = 165 * mib;
    assert!(pool.is_wasteful(100 * mib));
    pool.trim();
    assert!(!pool.is_wasteful(100 * mib));
}
