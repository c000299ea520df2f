package floodmark.play

import java.util.concurrent.Executors

import scala.concurrent.ExecutionContext
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.zaxxer.hikari.{HikariConfig, HikariDataSource}

import floodmark.jvm.{Options, Service}

object Main {

  /** Timeout for connecting to the database, ms. */
  private val Appearance = 50000L

  /** Timeout for a pooled connection, and then for the database's response, s. */
  private val Patience = 5

  def main(arguments: Array[String]): Unit = {
    val defaults = Map("store" -> "", "access" -> "ebean", "threads" -> "0", "connections" -> "30", "bars" -> "2")
    val options = Options.read(arguments, defaults.asJava)
    val (host, port) = (options.text("host"), options.port)
    val access = options.word("access", List("jdbc", "ebean").asJava)
    val threads = options.count("threads", 0, 1024)
    val connections = options.count("connections", 1, 1024)
    val count = options.count("bars", 0, 99)
    val store = options.address("store")
    try {
      val source = connect(store.getHostString, store.getPort, connections, ownTransactions = access == "ebean")
      Bars.prepare(source, count)
      val bars = if (access == "jdbc") new JdbcBars(source) else new EbeanBars(source)
      val pool = Option.when(threads > 0)(ExecutionContext.fromExecutor(Executors.newFixedThreadPool(threads)))
      new Server(host, port, bars, pool).server
      Service.listening(host, port)
    } catch {
      case NonFatal(why) => Service.failed(s"cannot serve on $host:$port with the database at ${store.getHostString}:${store.getPort}", why)
    }
  }

  private def connect(host: String, port: Int, connections: Int, ownTransactions: Boolean): HikariDataSource = {
    val config = new HikariConfig
    config.setJdbcUrl(s"jdbc:postgresql://$host:$port/bars")
    config.setUsername("bars")
    config.setMaximumPoolSize(connections)
    config.setAutoCommit(!ownTransactions)
    config.setInitializationFailTimeout(Appearance)
    config.setConnectionTimeout(Patience * 1000L)
    config.addDataSourceProperty("socketTimeout", Patience.toString)
    new HikariDataSource(config)
  }
}
