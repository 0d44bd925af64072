//! Memory regions.
mod copy;
mod mapping;
