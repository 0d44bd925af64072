//! Two hosts, four planes, one of which dies and comes back.
fn main() {}
