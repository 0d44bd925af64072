//! MRC packets: bytes to headers and back, ICRC and entropy values.
