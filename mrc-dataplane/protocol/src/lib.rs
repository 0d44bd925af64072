//! The MRC state machines, without input or output.
