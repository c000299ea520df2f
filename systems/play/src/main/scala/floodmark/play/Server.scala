package floodmark.play

import java.nio.charset.StandardCharsets.UTF_8

import scala.concurrent.{ExecutionContext, Future}

import play.api.Mode
import play.api.http.HttpErrorHandler
import play.api.libs.json.{JsValue, Json, OWrites}
import play.api.mvc.{Action, AnyContent, BodyParser, Result, Results}
import play.api.routing.Router
import play.api.routing.sird._
import play.core.server.{DefaultPekkoHttpServerComponents, ServerConfig}

import floodmark.jvm.Refusal

/** `GET /bars` and `POST /bars`; `pool` has the threads for database calls (default: Play's pool). */
final class Server(host: String, port: Int, bars: Bars, pool: Option[ExecutionContext]) extends DefaultPekkoHttpServerComponents {
  private implicit val barWrites: OWrites[Bar] = Json.writes[Bar]
  private lazy val blocking: ExecutionContext = pool.getOrElse(executionContext)

  override lazy val serverConfig: ServerConfig = ServerConfig(port = Some(port), address = host, mode = Mode.Prod)
  override lazy val httpErrorHandler: HttpErrorHandler = Refusals

  override lazy val router: Router = Router.from {
    case GET(p"/bars") => all
    case POST(p"/bars") => add
    case p"/bars" => defaultActionBuilder(Refusals.refused(Refusal.METHOD, "Allow" -> "GET, POST"))
  }

  private val all: Action[AnyContent] = defaultActionBuilder.async {
    Future(Results.Ok(Json.toJson(bars.all())))(blocking)
  }

  private val add: Action[JsValue] = defaultActionBuilder.async(json) { request =>
    (request.body \ "name").asOpt[String].filter(isName) match {
      case Some(name) => Future(created(bars.add(name)))(blocking)
      case None => Future.successful(Refusals.refused(Refusal.NO_NAME))
    }
  }

  private def json: BodyParser[JsValue] = playBodyParsers.when(
    _.contentType.exists(_.equalsIgnoreCase("application/json")),
    playBodyParsers.tolerantJson(Refusal.LONGEST_BODY),
    _ => Future.successful(Refusals.refused(Refusal.TYPE))
  )

  private def created(bar: Bar): Result =
    Results.Created(Json.toJson(bar)).withHeaders("Location" -> s"/bars/${bar.id}")

  /** Whether the database can store a text: PostgreSQL has no NUL, and UTF-8 no lone surrogate. */
  private def isName(name: String): Boolean = {
    val length = name.codePointCount(0, name.length)
    length >= 1 && length <= 255 && name.indexOf(0) < 0 && UTF_8.newEncoder().canEncode(name)
  }
}
