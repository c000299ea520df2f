//! All metrics that samplers can produce.

use std::net::SocketAddr;

use floodmark_record::Metric;
use floodmark_record::metric::{
    CassandraFigure, CodeFigure, PoolFigure, PostgresqlFigure, Role, TableFigure, TableOperation,
    UpstreamFigure,
};

use crate::sockets::{Ends, Sockets};
use crate::{host, process_sampler};

/// Returns the patterns of all metrics that a sampler can produce; see [`Metric::pattern`].
#[must_use]
pub fn produced() -> Vec<Metric> {
    let address = SocketAddr::from(([0, 0, 0, 0], 0));
    let upstreams = UpstreamFigure::ALL.iter();
    let postgresql = PostgresqlFigure::ALL.iter().copied();
    let cassandra = CassandraFigure::ALL.iter().copied();
    let pools = PoolFigure::ALL.iter();
    let mut all = host::produced();
    all.extend(Role::ALL.into_iter().flat_map(process_sampler::produced));
    all.extend(CodeFigure::ALL.map(|figure| Metric::Code(Role::Server, figure)));
    all.extend(Sockets::metrics(Ends::Both));
    all.extend(Sockets::listener_metrics());
    all.extend(upstreams.map(|of| Metric::Upstream(address, *of)));
    all.extend(postgresql.map(Metric::Postgresql));
    all.push(Metric::PostgresqlWait(String::new()));
    all.extend(cassandra.map(Metric::Cassandra));
    all.extend(pools.map(|of| Metric::CassandraPool(String::new(), *of)));
    for operation in TableOperation::ALL {
        let of = |figure: &TableFigure| Metric::CassandraTable(operation, None, *figure);
        all.extend(TableFigure::ALL.iter().map(of));
    }
    all
}
