//! Samples the host during a load: network counters, CPUs, control groups, processes and sockets.
//!
//! Each module reads one kernel source. Parsers take text, and readers take a [`Root`], so that
//! tests can use the files of other kernels.
//!
//! Invariant: this crate never judges. It returns figures, and reports the sources that it could
//! not read.

mod blocked;
mod cgroup;
mod clock;
mod code;
mod code_kind;
mod code_map;
mod collector;
pub mod cpu;
pub mod environment;
mod host;
mod jvm;
mod kernel_functions;
pub mod listener;
mod namespace;
pub mod process;
mod process_sampler;
mod root;
pub mod sampler;
mod samples;
mod sock_diag;
mod sockets;
mod store;
pub mod system_check;
#[cfg(test)]
mod testing;
mod threads;
mod tree;

use std::net::SocketAddr;

use floodmark_record::Metric;
use floodmark_record::metric::{
    CassandraFigure, CgroupFigure, CodeFigure, DiskFigure, HostFigure, JvmFigure, ListenerFigure,
    NetworkFigure, PoolFigure, PostgresqlFigure, ProcessFigure, Role, SocketFigure, TableFigure,
    TableOperation, TcpInfoFigure, ThreadGroupFigure, UpstreamFigure, WaitKind, WaitObject,
};

pub use cpu::{CpuSpeedMonitor, CpuSpeedSample};
pub use environment::environment;
pub use root::Root;
pub use sampler::{
    HostCpu, LiveCpu, MonitorTargets, MonitoredStore, Observer, Sampler, StoreKind, UsedCpu,
};
pub use system_check::facts;
pub use tree::family;

/// Returns the patterns of all metrics that a sampler can produce; see [`Metric::pattern`].
#[must_use]
pub fn produced() -> Vec<Metric> {
    let any = String::new;
    let address = SocketAddr::from(([0, 0, 0, 0], 0));
    let mut all = Vec::new();
    for scope in [None, Some(Role::Server), Some(Role::Client)] {
        all.extend(NetworkFigure::ALL.map(|figure| Metric::Network(scope, figure)));
        if scope != Some(Role::Client) {
            all.extend(HostFigure::ALL.map(|figure| Metric::Host(scope, figure)));
            all.extend(CgroupFigure::ALL.map(|figure| Metric::Cgroup(scope, figure)));
            all.extend(DiskFigure::ALL.map(|figure| Metric::Disk(scope, figure)));
        }
    }
    for role in Role::ALL {
        let is_sampled = |figure: &ProcessFigure| match figure {
            ProcessFigure::OpenFiles | ProcessFigure::OpenFilesLimit => role != Role::Client,
            // The `lab` crate reads this counter from the server.
            ProcessFigure::Responses => false,
            _ => true,
        };
        let figures = ProcessFigure::ALL.into_iter().filter(is_sampled);
        all.extend(figures.map(|figure| Metric::Process(role, figure)));
        if role != Role::Client {
            all.extend(JvmFigure::ALL.map(|figure| Metric::Jvm(role, figure)));
            let figures = ThreadGroupFigure::ALL;
            all.extend(figures.map(|figure| Metric::ThreadGroup(role, any(), figure)));
            let (group, function) = (any(), any());
            all.push(Metric::ThreadsWaitingIn {
                role,
                group,
                function,
            });
            let (group, object) = (any(), WaitObject::Kind(WaitKind::Other));
            all.push(Metric::ThreadsBlocked {
                role,
                group,
                object,
            });
        }
    }
    all.extend(CodeFigure::ALL.map(|figure| Metric::Code(Role::Server, figure)));
    for role in [Role::Server, Role::Client] {
        all.extend(SocketFigure::ALL.map(|figure| Metric::Sockets(role, figure)));
    }
    all.extend(TcpInfoFigure::ALL.map(Metric::TcpInfo));
    all.extend(ListenerFigure::ALL.map(Metric::Listener));
    all.extend(UpstreamFigure::ALL.map(|figure| Metric::Upstream(address, figure)));
    all.extend(PostgresqlFigure::ALL.map(Metric::Postgresql));
    all.push(Metric::PostgresqlWait(any()));
    all.extend(CassandraFigure::ALL.map(Metric::Cassandra));
    all.extend(PoolFigure::ALL.map(|figure| Metric::CassandraPool(any(), figure)));
    for operation in TableOperation::ALL {
        let figures = TableFigure::ALL;
        all.extend(figures.map(|figure| Metric::CassandraTable(operation, None, figure)));
    }
    all
}
