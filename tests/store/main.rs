//! The store: versions on disk through crashes, full disks, damage, pruning and publishing.

#![allow(clippy::disallowed_methods)] // it connects to servers of its own

mod crash;
mod damage;
mod disk;
mod local;
mod maintenance;
mod markdown_file;
mod matrix;
mod powercut;
mod publish;
mod search_helpers;
mod search_index;
mod search_interruptions;
mod search_on_demand;
mod steps;
mod tracer;
