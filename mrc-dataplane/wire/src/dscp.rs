//! Traffic classes and congestion marks (wire-format.md §4).

/// The code points of a deployment. All that are configured must differ: [`Dscps::validate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dscps {
    /// Requests that switches must not trim.
    pub no_trim: u8,
    /// First transmissions of writes, if the fabric trims.
    pub trimmable: Option<u8>,
    /// Retransmitted writes; `trimmable` if not configured.
    pub trimmable_retx: Option<u8>,
    /// Set by a switch that trims.
    pub trimmed: u8,
    /// Set by the last switch on the path when it trims.
    pub trimmed_lasthop: Option<u8>,
    /// SACK, NACK, Transport ACK and NAK, endpoint responses.
    pub control: u8,
}

impl Default for Dscps {
    /// The defaults of wire-format.md §4 (W7).
    fn default() -> Self {
        Self {
            no_trim: 0,
            trimmable: Some(4),
            trimmable_retx: Some(8),
            trimmed: 12,
            trimmed_lasthop: Some(16),
            control: 46,
        }
    }
}

/// What a packet asks of the fabric; [`Dscps::of`] gives the code point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TrafficClass {
    /// Data that must not be trimmed.
    NoTrim,
    /// Data that may be trimmed.
    Trimmable,
    /// Repeated data that may be trimmed.
    TrimmableRetx,
    /// Answers.
    Control,
}

/// A set of code points that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DscpError {
    /// A code point has six bits.
    #[error("{name} is {value}, but a DSCP has six bits: give a number from 0 to 63")]
    TooLarge {
        /// Which one.
        name: &'static str,
        /// Its value.
        value: u8,
    },
    /// Two meanings on one code point.
    #[error("{first} and {second} are both {value}: give every DSCP a value of its own")]
    NotDistinct {
        /// One of the two.
        first: &'static str,
        /// The other.
        second: &'static str,
        /// Their value.
        value: u8,
    },
    /// Retransmissions that may be trimmed need first transmissions that may be trimmed.
    #[error("trimmable_retx is {value}, but trimmable is not set: set both or neither")]
    RetxAlone {
        /// The value of `trimmable_retx`.
        value: u8,
    },
}

impl Dscps {
    /// The code point for a class. A fabric that does not trim has one class for all data.
    #[inline]
    pub const fn of(&self, class: TrafficClass) -> u8 {
        match (class, self.trimmable, self.trimmable_retx) {
            (TrafficClass::Control, ..) => self.control,
            (TrafficClass::TrimmableRetx, _, Some(dscp))
            | (TrafficClass::Trimmable | TrafficClass::TrimmableRetx, Some(dscp), _) => dscp,
            (TrafficClass::NoTrim | TrafficClass::Trimmable | TrafficClass::TrimmableRetx, ..) => self.no_trim,
        }
    }

    /// Is it the code point of trimmed packets? `Some(true)` = trimmed by the last hop.
    #[inline]
    pub fn trimmed(&self, dscp: u8) -> Option<bool> {
        if dscp == self.trimmed {
            Some(false)
        } else if self.trimmed_lasthop == Some(dscp) {
            Some(true)
        } else {
            None
        }
    }

    /// The configured code points with their names.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u8)> {
        [
            ("no_trim", Some(self.no_trim)),
            ("trimmable", self.trimmable),
            ("trimmable_retx", self.trimmable_retx),
            ("trimmed", Some(self.trimmed)),
            ("trimmed_lasthop", self.trimmed_lasthop),
            ("control", Some(self.control)),
        ]
        .into_iter()
        .filter_map(|(name, value)| value.map(|value| (name, value)))
    }

    /// All values in range, all different.
    pub fn validate(&self) -> Result<(), DscpError> {
        for (at, (second, value)) in self.named().enumerate() {
            if value > 63 {
                return Err(DscpError::TooLarge { name: second, value });
            }
            if let Some((first, _)) = self.named().take(at).find(|(_, earlier)| *earlier == value) {
                return Err(DscpError::NotDistinct { first, second, value });
            }
        }
        match (self.trimmable, self.trimmable_retx) {
            (None, Some(value)) => Err(DscpError::RetxAlone { value }),
            _ => Ok(()),
        }
    }
}

/// The two ECN bits of an IP header (RFC 3168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// Not capable: answers.
    #[default]
    NotEct = 0,
    /// Capable, code point 1.
    Ect1 = 1,
    /// Capable, code point 0: requests (W9).
    Ect0 = 2,
    /// Congestion experienced.
    Ce = 3,
}

impl Ecn {
    /// From the low two bits of an IPv4 TOS or IPv6 traffic class.
    #[inline]
    pub const fn from_tos(tos: u8) -> Self {
        match tos & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// TOS or traffic class of a code point with this mark.
    #[inline]
    pub const fn tos(self, dscp: u8) -> u8 {
        dscp << 2 | self as u8
    }

    /// Does a packet with this inner mark, under an outer header with that one, count as marked (W10, after RFC 6040)?
    #[inline]
    pub const fn marked(self, outer: Option<Self>) -> bool {
        match self {
            Self::Ce => true,
            // Outer CE over a packet that did not say it can be marked: kept and not counted.
            Self::NotEct => false,
            Self::Ect0 | Self::Ect1 => matches!(outer, Some(Self::Ce)),
        }
    }
}
