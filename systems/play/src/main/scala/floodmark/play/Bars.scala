package floodmark.play

import java.sql.{Connection, Statement}
import javax.sql.DataSource

import scala.jdk.CollectionConverters._
import scala.util.Using

import io.ebean.config.DatabaseConfig
import io.ebean.{Database, DatabaseFactory}

final case class Bar(id: Long, name: String)

/** The bars in the database. Every call blocks its thread until the database responds. */
trait Bars {

  /** Returns all bars in the order of their ids. */
  def all(): Seq[Bar]

  /** Stores a bar. */
  def add(name: String): Bar
}

/** JDBC only; each statement is a transaction. */
final class JdbcBars(source: DataSource) extends Bars {
  def all(): Seq[Bar] = Using.resource(source.getConnection) { connection =>
    Using.resource(connection.prepareStatement("SELECT id, name FROM bar ORDER BY id")) { statement =>
      Using.resource(statement.executeQuery()) { rows =>
        Iterator.continually(rows).takeWhile(_.next()).map(row => Bar(row.getLong(1), row.getString(2))).toVector
      }
    }
  }

  def add(name: String): Bar = Using.resource(source.getConnection)(insert(_, name))

  private def insert(connection: Connection, name: String): Bar =
    Using.resource(connection.prepareStatement("INSERT INTO bar (name) VALUES (?)", Statement.RETURN_GENERATED_KEYS)) { statement =>
      statement.setString(1, name)
      statement.executeUpdate()
      Using.resource(statement.getGeneratedKeys) { keys =>
        keys.next()
        Bar(keys.getLong(1), name)
      }
    }
}

/** Ebean, as published. */
final class EbeanBars(source: DataSource) extends Bars {
  private val database: Database = {
    val config = new DatabaseConfig
    config.setDataSource(source)
    config.setRegister(false)
    config.addClass(classOf[StoredBar])
    DatabaseFactory.create(config)
  }

  def all(): Seq[Bar] =
    database.find(classOf[StoredBar]).orderBy("id").findList().asScala.map(row => Bar(row.getId, row.getName)).toVector

  def add(name: String): Bar = {
    val row = new StoredBar(name)
    database.save(row)
    Bar(row.getId, row.getName)
  }
}

object Bars {

  /** Creates a missing table, and fills an empty one with `count` bars: two give a response of 51 bytes, as published. */
  def prepare(source: DataSource, count: Int): Unit = Using.resource(source.getConnection) { connection =>
    connection.setAutoCommit(true)
    Using.resource(connection.createStatement()) { statement =>
      statement.execute("CREATE TABLE IF NOT EXISTS bar (id bigserial PRIMARY KEY, name varchar(255) NOT NULL)")
      statement.execute(
        s"""INSERT INTO bar (name)
           |SELECT 'bar-' || lpad(i::text, 2, '0') FROM generate_series(1, $count) AS i
           |WHERE NOT EXISTS (SELECT 1 FROM bar)""".stripMargin
      )
    }
  }
}
