package floodmark.http

import scala.concurrent.Await
import scala.concurrent.duration._
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import akka.actor.ActorSystem
import akka.http.scaladsl.Http
import akka.http.scaladsl.server.Directives._
import akka.http.scaladsl.server.Route
import com.typesafe.config.{Config, ConfigFactory}

import floodmark.http.Json._
import floodmark.jvm.{Options, Service}

object Main {
  def main(arguments: Array[String]): Unit = {
    val options = Options.read(arguments, Map("journal" -> "none", "store" -> "").asJava)
    val (host, port) = (options.text("host"), options.port)
    val journal = options.word("journal", List("none", "memory", "cassandra").asJava)
    implicit val system: ActorSystem = ActorSystem("HttpServer", config(journal, options))
    try {
      if (journal == "cassandra") {
        val plugin = system.settings.config.getConfig("akka.persistence.cassandra.journal")
        Tables.make(options.address("store"), plugin.getString("keyspace"), plugin.getInt("replication-factor"))
      }
      val scoring = if (journal == "none") new PlainScoring else new PersistentScoring(system)
      Await.result(scoring.recovered, Duration.Inf)
      val binding = Http().newServerAt(host, port).bind(routes(scoring))
      Await.result(binding, Duration.Inf).addToCoordinatedShutdown(2.seconds)
      Service.listening(host, port)
    } catch {
      case NonFatal(why) => Service.failed(s"cannot serve on $host:$port with the journal $journal", why)
    }
    Await.result(system.whenTerminated, Duration.Inf)
  }

  private def config(journal: String, options: Options): Config = {
    val own = journal match {
      case "cassandra" =>
        val store = options.address("store")
        s"""datastax-java-driver.basic.contact-points = ["${store.getHostString}:${store.getPort}"]"""
      case _ => ""
    }
    ConfigFactory.parseString(own).withFallback(ConfigFactory.load(s"journal-$journal"))
  }

  private def routes(scoring: Scoring): Route =
    handleExceptions(Refusals.exceptions) {
      (handleRejections(Refusals.rejections) & Refusals.tooLong) {
        concat(
          pathEndOrSingleSlash {
            get {
              complete("Hello World")
            }
          },
          path("json") {
            get {
              complete(Greeting("Hello, World!"))
            }
          },
          path("scoring") {
            post {
              entity(as[ScoringRequest]) { request =>
                complete(scoring.record(request.score))
              }
            }
          }
        )
      }
    }
}
