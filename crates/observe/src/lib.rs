//! What the machine says while a load runs: counters of the network, the CPUs, control groups, processes and sockets.
//!
//! Each file reads one source of the kernel. Parsers take text, readers take a [`Root`], so that both are tested on texts of
//! other kernels.
//!
//! Invariant: this crate never judges. It hands over figures, and names what it could not read.

mod account;
pub mod cgroup;
pub mod clock;
pub mod cpu;
pub mod environment;
mod figures;
mod group;
mod host;
pub mod io_uring;
mod jvm;
mod kept;
mod kinds;
pub mod limits;
pub mod listener;
mod namespace;
pub mod netstat;
pub mod observer;
mod perf_data;
pub mod process;
pub mod root;
pub mod sampler;
mod samples;
mod series;
pub mod server;
mod sides;
mod sock_diag;
mod sockets;
pub mod sockstat;
mod store;
pub mod sysctl;
pub mod system_check;
mod threads;
pub mod time_wait;
mod tree;
mod upstreams;
mod wall_clock;
pub mod watch;
mod watcher;
mod watching;

pub use environment::environment;
pub use observer::Observer;
pub use root::Root;
pub use sampler::Sampler;
pub use system_check::facts;
pub use tree::family;
pub use watch::{StoreKind, UsedCpu, Watch, WatchedStore};
