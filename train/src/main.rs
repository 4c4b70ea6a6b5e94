//! See the crate documentation.

fn main() {}
