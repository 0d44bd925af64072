//! Keys: drawn at random, looked up fast.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;

use rand_core::{OsRng, TryRngCore};

/// A map whose keys are random numbers that this side drew. Nobody outside chooses them, so nobody can make them collide, and
/// a multiplication spreads them well enough.
pub(crate) type KeyMap<V> = HashMap<u32, V, BuildHasherDefault<KeyHasher>>;

#[derive(Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, key: u32) {
        // Golden ratio; the map takes its bucket from the low and its tag from the high bits, so both get a mix.
        let product = (self.0 ^ u64::from(key)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Random bytes from the operating system.
pub(crate) fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    OsRng
        .try_fill_bytes(&mut bytes)
        .map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}

/// A random number from the operating system.
pub(crate) fn random_u32() -> io::Result<u32> {
    random_bytes().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_keys_spread() {
        let mut map = KeyMap::default();
        for key in 0..10_000 {
            map.insert(key, key * 2);
        }
        assert!((0..10_000).all(|key| map.get(&key) == Some(&(key * 2))));
        let high_bits = |key: u32| {
            let mut hasher = KeyHasher::default();
            hasher.write_u32(key);
            hasher.finish() >> 57
        };
        let distinct: std::collections::HashSet<_> = (0..1000).map(high_bits).collect();
        assert!(distinct.len() > 100);
    }

    #[test]
    fn two_draws_differ() {
        assert_ne!(random_bytes::<16>().unwrap(), random_bytes::<16>().unwrap());
    }
}
