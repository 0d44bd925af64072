//! MRC endpoints in a simulated network with virtual time.
//!
//! A [`scenario::Scenario`] is drawn from a seed; a [`world::World`] runs it: hosts with the shipped queue pairs
//! ([`host`], [`turn`](self)), a [`fabric`] with faults between them, and [`oracle`]s that judge every step by the
//! specification alone. Everything follows from the seed, so a failure replays:
//!
//! ```
//! let outcome = mrc_sim::run_seed(1).expect("no promise of the protocol is broken");
//! assert!(outcome.packets >= 500);
//! ```

mod applications;
pub mod baseline;
pub mod codec;
pub mod compare;
mod controller;
pub mod coverage;
mod deeds;
pub mod endpoint;
pub mod fabric;
pub mod forge;
pub mod harness;
pub mod host;
mod link_news;
pub mod measure;
pub mod memory;
pub mod meter;
pub mod onlooker;
pub mod oracle;
pub mod outline;
pub mod plot;
pub mod progress;
pub mod queue;
pub mod reference;
mod reverse;
pub mod rng;
pub mod rules;
pub mod run;
pub mod sabotage;
pub mod scenario;
pub mod series;
pub mod shell;
mod shortage;
mod tally;
pub mod tap;
pub mod trace;
mod transmit;
mod turn;
pub mod upset;
mod verdict;
pub mod workload;
pub mod world;

pub use harness::run_seed;
