package floodmark.play

import java.sql.SQLException

import scala.concurrent.Future

import play.api.Logger
import play.api.http.HttpErrorHandler
import play.api.http.Status._
import play.api.mvc.{RequestHeader, Result, Results}

import floodmark.jvm.Refusal

/** One line of JSON for every refusal. */
object Refusals extends HttpErrorHandler {
  private val log = Logger("floodmark.play")

  def refused(refusal: Refusal, headers: (String, String)*): Result =
    Results.Status(refusal.status)(refusal.json).as("application/json").withHeaders(headers: _*)

  def onClientError(request: RequestHeader, status: Int, message: String): Future[Result] = Future.successful {
    status match {
      case NOT_FOUND => refused(Refusal.NO_PATH)
      case REQUEST_ENTITY_TOO_LARGE => refused(Refusal.TOO_LONG)
      case UNSUPPORTED_MEDIA_TYPE => refused(Refusal.TYPE)
      case _ => refused(Refusal.NOT_JSON)
    }
  }

  def onServerError(request: RequestHeader, why: Throwable): Future[Result] = Future.successful {
    log.error(s"${request.method} ${request.path}: ${why.getClass.getSimpleName}: ${why.getMessage}")
    if (fromDatabase(why)) refused(Refusal.NOT_STORED, "Retry-After" -> Refusal.RETRY_AFTER.toString)
    else refused(Refusal.FAILED)
  }

  /** Whether the database or its connection pool failed: Ebean wraps their exceptions. */
  private def fromDatabase(why: Throwable): Boolean =
    Iterator.iterate(why)(_.getCause).takeWhile(_ != null).take(10).exists(_.isInstanceOf[SQLException])
}
