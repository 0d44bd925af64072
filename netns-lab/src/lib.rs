//! Multi-path fabrics in network namespaces on one machine.
