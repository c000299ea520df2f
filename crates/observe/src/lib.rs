//! What the machine says while a load runs: counters of the network, the CPUs, control groups, processes and sockets.
//!
//! Each file reads one source of the kernel. Parsers take text, readers take a [`Root`], so that both are tested on texts of
//! other kernels.
//!
//! Invariant: this crate never judges. It hands over figures, and names what it could not read.

pub mod cgroup;
pub mod clock;
pub mod cpu;
pub mod environment;
pub mod io_uring;
pub mod limits;
pub mod listener;
pub mod netstat;
pub mod process;
pub mod root;
pub mod sampler;
mod samples;
mod series;
pub mod sockstat;
pub mod sysctl;
pub mod system_check;
pub mod time_wait;

pub use environment::environment;
pub use root::Root;
pub use sampler::Sampler;
pub use system_check::facts;
