//! Tests that run the command against real servers.
#![allow(clippy::unwrap_used, reason = "test helpers are test code too")]

mod addresses;
mod agents;
mod api_check;
mod backend;
mod bad_input;
mod budget;
mod capacity;
mod changing;
mod compare;
mod death;
mod disk;
mod disk_set;
mod doctor;
mod earlier_records;
mod endings;
mod exactness;
mod folder;
mod help;
mod hold;
mod https;
mod installed;
mod launchers;
mod live_view;
mod mix;
mod observe;
mod report;
mod request;
mod run;
mod scoring;
mod serve;
mod support;
mod terminal;
mod watching;
mod why;
