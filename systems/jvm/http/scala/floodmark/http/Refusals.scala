package floodmark.http

import akka.http.scaladsl.model.ContentTypes.`application/json`
import akka.http.scaladsl.model.headers.{Allow, RawHeader}
import akka.http.scaladsl.model.{EntityStreamSizeException, HttpEntity, HttpHeader, HttpResponse}
import akka.http.scaladsl.server.Directives._
import akka.http.scaladsl.server._
import akka.pattern.AskTimeoutException
import spray.json.DeserializationException

import floodmark.jvm.Refusal

/** One line of JSON for every refusal. */
object Refusals {
  private def refused(refusal: Refusal, headers: HttpHeader*) =
    HttpResponse(refusal.status, headers.toList, HttpEntity(`application/json`, refusal.json))

  val rejections: RejectionHandler = RejectionHandler
    .newBuilder()
    .handleAll[MethodRejection](rejected => complete(refused(Refusal.METHOD, Allow(rejected.map(_.supported)))))
    .handle {
      case MalformedRequestContentRejection(_, _: EntityStreamSizeException) => complete(refused(Refusal.TOO_LONG))
      case _: UnsupportedRequestContentTypeRejection => complete(refused(Refusal.TYPE))
      // Only this path takes a body. The body has an invalid number or is other JSON.
      case _: ValidationRejection | MalformedRequestContentRejection(_, _: DeserializationException) =>
        complete(refused(Refusal.NO_SCORE))
      case _: MalformedRequestContentRejection | RequestEntityExpectedRejection => complete(refused(Refusal.NOT_JSON))
    }
    .handleNotFound(complete(refused(Refusal.NO_PATH)))
    .result()

  val exceptions: ExceptionHandler = ExceptionHandler {
    case late: AskTimeoutException =>
      logged(late)(complete(refused(Refusal.NOT_STORED, RawHeader("Retry-After", Refusal.RETRY_AFTER.toString))))
    case _: EntityStreamSizeException => complete(refused(Refusal.TOO_LONG))
    case other => logged(other)(complete(refused(Refusal.FAILED)))
  }

  /** Refuses a body by its declared length, even on paths that read none. */
  val tooLong: Directive0 = extractRequestEntity.flatMap { entity =>
    if (entity.contentLengthOption.exists(_ > Refusal.LONGEST_BODY)) complete(refused(Refusal.TOO_LONG)) else pass
  }

  private def logged(why: Throwable): Directive0 = extractLog.flatMap { log =>
    log.error("{}: {}", why.getClass.getSimpleName, why.getMessage)
    pass
  }
}
