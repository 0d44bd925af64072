//! The public face of MRC as software: Rust API.
