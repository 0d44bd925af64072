//! The MRC engine: ports, threads, rings and memory regions.
