//! Metrics that verdicts and validity checks depend on.

use floodmark_record::Metric;
use floodmark_record::metric::{
    CassandraFigure, CgroupFigure, CodeFigure, HostFigure, JvmFigure, ListenerFigure,
    NetworkFigure, PoolFigure, PostgresqlFigure, ProcessFigure, Role, SocketFigure,
    ThreadGroupFigure, UpstreamFigure, WaitKind, WaitObject,
};

/// Returns the patterns of all metrics that rules may read. See [`Metric::pattern`].
#[must_use]
pub fn consumed() -> Vec<Metric> {
    let any = String::new;
    let address = std::net::SocketAddr::from(([0, 0, 0, 0], 0));
    let waiting = Metric::ThreadsWaitingIn {
        role: Role::Server,
        group: any(),
        function: any(),
    };
    let blocked = Metric::ThreadsBlocked {
        role: Role::Server,
        group: any(),
        object: WaitObject::Kind(WaitKind::Other),
    };
    let client = Metric::Process(Role::Client, ProcessFigure::RunDelay);
    let mut all = vec![waiting, blocked, client, Metric::PostgresqlWait(any())];
    macro_rules! add {
        ($figures:ident, $metric:expr) => {
            all.extend($figures::ALL.iter().copied().map($metric))
        };
    }
    for scope in [None, Some(Role::Server)] {
        add!(HostFigure, |of| Metric::Host(scope, of));
        add!(CgroupFigure, |of| Metric::Cgroup(scope, of));
    }
    for scope in [None, Some(Role::Server), Some(Role::Client)] {
        add!(NetworkFigure, |of| Metric::Network(scope, of));
    }
    for role in [Role::Server, Role::Store] {
        let figures = ProcessFigure::ALL.iter().copied();
        let sampled = figures.filter(|of| *of != ProcessFigure::Responses);
        all.extend(sampled.map(|of| Metric::Process(role, of)));
    }
    for role in [Role::Server, Role::Client] {
        add!(SocketFigure, |of| Metric::Sockets(role, of));
    }
    add!(CodeFigure, |of| Metric::Code(Role::Server, of));
    add!(JvmFigure, |of| Metric::Jvm(Role::Server, of));
    add!(ListenerFigure, Metric::Listener);
    add!(ThreadGroupFigure, |of| Metric::ThreadGroup(
        Role::Server,
        any(),
        of
    ));
    add!(UpstreamFigure, |of| Metric::Upstream(address, of));
    add!(PostgresqlFigure, Metric::Postgresql);
    add!(CassandraFigure, Metric::Cassandra);
    add!(PoolFigure, |of| Metric::CassandraPool(any(), of));
    all
}
