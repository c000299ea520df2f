//! Samples the host during a load: network counters, CPUs, control groups, processes, sockets.
//!
//! Each file reads one kernel source. Parsers take text, and readers take a [`Root`], so that tests
//! can use the files of other kernels.
//!
//! Invariant: this crate never judges. It returns figures, and reports the sources that it could
//! not read.

mod affinity;
mod blocked;
mod busy_processes;
mod cgroup;
mod clock;
mod code_map;
mod code_profile;
pub mod cpu;
mod cpu_speed;
mod descriptors;
pub mod environment;
mod figures;
mod host;
mod jvm;
mod kernel_file;
mod limits;
pub mod listener;
mod monitor;
mod namespace;
mod netstat;
mod observer;
mod perf_data;
pub mod process;
mod process_sampler;
mod produced;
mod root;
mod sample_group;
pub mod sampler;
mod samples;
mod series;
pub mod server;
mod sock_diag;
mod sockets;
mod store;
pub mod sysctl;
pub mod system_check;
mod targets;
#[cfg(test)]
mod testing;
mod threads;
mod time_wait;
mod tree;
mod upstreams;

pub use cpu_speed::{CpuSpeedMonitor, CpuSpeedSample};
pub use environment::environment;
pub use observer::Observer;
pub use produced::produced;
pub use root::Root;
pub use sampler::Sampler;
pub use system_check::facts;
pub use targets::{HostCpu, MonitorTargets, MonitoredStore, StoreKind, UsedCpu};
pub use tree::family;
