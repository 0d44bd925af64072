//! The rules of protocol.md, seen from outside: two queue pairs and a network played by hand.

mod absence;
mod answers;
mod congestion;
mod defaults;
mod errors;
mod examples;
mod exhaustive;
mod hostile;
mod lengths;
mod limits;
mod losses;
mod nacks;
mod pacing;
mod paths;
mod repeats;
mod reset;
mod responder;
mod service_time;
mod shortage;
mod states;
mod tail;
mod timeouts;
mod transfer;
mod violations;
mod window;
