//! Speed of MRC as software beside bare AF_XDP loops in the same run.
fn main() {}
