//! The store: versions on disk through crashes, full disks, damage, pruning and publishing.

mod crash;
mod damage;
mod disk;
mod local;
mod maintenance;
mod matrix;
mod powercut;
mod publish;
mod steps;
mod tracer;
