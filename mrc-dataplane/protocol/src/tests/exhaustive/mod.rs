//! Rules with so few cases that all of them, or all up to a bound, can be tried.

mod received;
mod schedule;
