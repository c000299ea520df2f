package floodmark.spray

import java.util.Collections

import scala.concurrent.duration._
import scala.util.{Failure, Success}

import akka.actor.{ActorSystem, Props}
import akka.io.{IO, Tcp}
import akka.pattern.ask
import akka.util.Timeout
import spray.can.Http

import floodmark.jvm.{Options, Service}

object Main {
  def main(arguments: Array[String]): Unit = {
    val options = Options.read(arguments, Collections.emptyMap[String, String])
    val (host, port) = (options.text("host"), options.port)
    implicit val system = ActorSystem("on-spray-can")
    import system.dispatcher
    sys.addShutdownHook {
      system.shutdown()
      system.awaitTermination(3.seconds)
    }
    val service = system.actorOf(Props[Answers], "answers")
    implicit val timeout = Timeout(5.seconds)
    (IO(Http) ? Http.Bind(service, interface = host, port = port)) onComplete {
      case Success(_: Tcp.Bound) => Service.listening(host, port)
      case Success(_) => Service.failed(s"cannot listen on $host:$port; see the error above, or choose another port")
      case Failure(why) => Service.failed(s"cannot listen on $host:$port", why)
    }
  }
}
