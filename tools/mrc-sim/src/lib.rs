//! MRC endpoints in a simulated network with virtual time.
