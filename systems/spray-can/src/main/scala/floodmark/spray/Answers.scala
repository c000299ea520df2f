package floodmark.spray

import spray.http.HttpHeaders.Allow
import spray.http.HttpMethods.GET
import spray.http.MediaTypes.`application/json`
import spray.http.{HttpEntity, HttpRequest, HttpResponse, Uri}
import spray.json.{JsObject, JsString}
import spray.routing.{HttpServiceActor, MethodRejection, RejectionHandler}

import floodmark.jvm.Refusal

/** One actor serves every connection and holds the counter, as published. */
class Answers extends HttpServiceActor {
  private var counter = 0L

  def receive: Receive = tooLong orElse numbers orElse json orElse runRoute(routes)

  private def tooLong: Receive = {
    case request: HttpRequest if request.entity.data.length > Refusal.LONGEST_BODY => sender ! refused(Refusal.TOO_LONG)
  }

  private def numbers: Receive = {
    case HttpRequest(GET, Uri.Path("/dispatcher"), _, _, _) =>
      counter = counter + 1
      sender ! HttpResponse(entity = counter.toString)
  }

  private def json: Receive = {
    case HttpRequest(GET, Uri.Path("/json"), _, _, _) =>
      val greeting = JsObject("message" -> JsString("Hello, World!")).compactPrint
      sender ! HttpResponse(entity = HttpEntity(`application/json`, greeting))
  }

  // GET requests for the last two paths are handled above. Here, the paths define the allowed method.
  private def routes =
    path("") {
      get {
        complete("Hello World")
      }
    } ~ path("dispatcher" | "json") {
      get {
        reject
      }
    }

  private implicit def rejections: RejectionHandler = RejectionHandler {
    case rejected if rejected.exists(_.isInstanceOf[MethodRejection]) =>
      complete(refused(Refusal.METHOD).withHeaders(Allow(GET)))
    case _ => complete(refused(Refusal.NO_PATH))
  }

  private def refused(refusal: Refusal) =
    HttpResponse(refusal.status, HttpEntity(`application/json`, refusal.json))
}
