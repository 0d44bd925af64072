//! Decode MRC packets.
fn main() {}
