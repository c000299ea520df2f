package floodmark.http

import java.net.InetSocketAddress
import java.time.Duration

import com.datastax.oss.driver.api.core.CqlSession
import com.datastax.oss.driver.api.core.config.{DefaultDriverOption, DriverConfigLoader}
import com.datastax.oss.driver.api.core.cql.SimpleStatement

/** Tables of the journal in Cassandra, from the plugin's manual without the unused tag tables. */
object Tables {

  /** Timeout of a statement: three nodes on two CPUs take seconds to create a table. */
  private val Patience = Duration.ofSeconds(20)

  /** Timeout for schema agreement. */
  private val Agreement = Duration.ofSeconds(50)

  /** Default name of the data center. */
  private val DataCenter = "datacenter1"

  private def statements(keyspace: String, replication: Int) = List(
    s"""CREATE KEYSPACE IF NOT EXISTS $keyspace
       |WITH REPLICATION = {'class': 'SimpleStrategy', 'replication_factor': $replication}""".stripMargin,
    s"""CREATE TABLE IF NOT EXISTS $keyspace.messages (
       |  persistence_id text,
       |  partition_nr bigint,
       |  sequence_nr bigint,
       |  timestamp timeuuid,
       |  timebucket text,
       |  writer_uuid text,
       |  ser_id int,
       |  ser_manifest text,
       |  event_manifest text,
       |  event blob,
       |  meta_ser_id int,
       |  meta_ser_manifest text,
       |  meta blob,
       |  tags set<text>,
       |  PRIMARY KEY ((persistence_id, partition_nr), sequence_nr, timestamp))""".stripMargin,
    s"CREATE TABLE IF NOT EXISTS $keyspace.metadata (persistence_id text PRIMARY KEY, deleted_to bigint, properties map<text, text>)",
    s"CREATE TABLE IF NOT EXISTS $keyspace.all_persistence_ids (persistence_id text PRIMARY KEY)"
  )

  /**
   * Creates missing tables through a single node, one after the other. The plugin would send each
   * statement to a different node. A node that does not know the keyspace yet would create a table
   * that other nodes do not know.
   */
  def make(address: InetSocketAddress, keyspace: String, replication: Int): Unit = {
    val node = new InetSocketAddress(address.getHostString, address.getPort)
    val patient = DriverConfigLoader
      .programmaticBuilder()
      .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Patience)
      .withDuration(DefaultDriverOption.CONTROL_CONNECTION_AGREEMENT_TIMEOUT, Agreement)
      .build()
    val session = CqlSession.builder().addContactPoint(node).withLocalDatacenter(DataCenter).withConfigLoader(patient).build()
    try {
      val maker = session.getMetadata.findNode(node).orElse(null)
      statements(keyspace, replication).foreach { statement =>
        session.execute(SimpleStatement.newInstance(statement).setNode(maker))
      }
      if (!session.checkSchemaAgreement()) {
        throw new IllegalStateException(s"the nodes of Cassandra do not agree on its tables after ${Agreement.getSeconds} s")
      }
    } finally session.close()
  }
}
