//! Bandwidth and latency of MRC writes.
fn main() {}
