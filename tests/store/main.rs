//! The store: versions on disk through crashes, full disks, damage, pruning and publishing.

mod crash;
mod disk;
mod local;
mod maintenance;
mod matrix;
mod powercut;
mod publish;
mod rot;
mod steps;
mod tracer;
