//! The project's chores: set-up, demo, tests.
fn main() {}
