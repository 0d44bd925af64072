//! Counts what the protocol allocates: a queue pair has all its memory from its creation on.

use crate::oracle::{Breach, Oracle};

/// Calls the protocol, which must not allocate meanwhile.
pub fn without_allocation<T>(call: impl FnOnce() -> T) -> Result<T, Breach> {
    let mut result = None;
    let seen = allocation_counter::measure(|| result = Some(call()));
    match result {
        Some(result) if seen.count_total == 0 => Ok(result),
        _ => Err(Breach(
            Oracle::Allocation,
            format!(
                "{} allocations, {} bytes, after creation",
                seen.count_total, seen.bytes_total
            ),
        )),
    }
}

/// What the simulator does on behalf of the protocol, and may allocate for.
pub fn unmetered(call: impl FnOnce()) {
    allocation_counter::opt_out(call);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_is_a_breach_unless_it_is_the_simulators_own() {
        assert_eq!(without_allocation(|| 1 + 1), Ok(2));
        assert!(without_allocation(|| vec![1; 10]).is_err());
        let own = || {
            std::hint::black_box(vec![1; 10]);
        };
        assert!(without_allocation(|| unmetered(own)).is_ok());
    }
}
