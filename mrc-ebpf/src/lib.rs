//! The BPF programs of MRC and their typed loader.
