//! Values drawn from bytes. When the bytes are used up, everything is 0.

use arbitrary::{Arbitrary, Unstructured};

/// Bytes that stand for decisions.
pub(crate) struct Draw<'a>(Unstructured<'a>);

impl<'a> Draw<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self(Unstructured::new(data))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn any<T: Arbitrary<'a> + Default>(&mut self) -> T {
        self.0.arbitrary().unwrap_or_default()
    }

    /// 0 to `end`, exclusive.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        self.0.int_in_range(0..=end.saturating_sub(1)).unwrap_or(0)
    }

    /// One of these.
    pub(crate) fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u32) as usize]
    }

    pub(crate) fn maybe<T>(&mut self, draw: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.any::<bool>().then(|| draw(self))
    }

    /// A number whose size is drawn first: small ones come as often as large ones.
    pub(crate) fn magnitude(&mut self) -> u64 {
        let bits = self.below(65);
        let value: u64 = self.any();
        value.checked_shr(64 - bits).unwrap_or(0)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> &'a [u8] {
        let len = len.min(self.0.len());
        self.0.bytes(len).unwrap_or(&[])
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        self.bytes(usize::MAX)
    }
}
