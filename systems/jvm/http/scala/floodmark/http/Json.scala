package floodmark.http

import akka.http.scaladsl.marshallers.sprayjson.SprayJsonSupport
import spray.json.{DefaultJsonProtocol, RootJsonFormat}

/** `{"score": 10}`; a missing score is NaN, one too large for a double is infinite. */
final case class ScoringRequest(score: Double) {
  require(!score.isNaN && !score.isInfinite, "score is not a finite number")
}

final case class ScoreResponse(averageScore: Double, totalScore: Double, numberOfTrials: Long)

final case class Greeting(message: String)

object Json extends DefaultJsonProtocol with SprayJsonSupport {
  implicit val scoringRequestFormat: RootJsonFormat[ScoringRequest] = jsonFormat1(ScoringRequest.apply)
  implicit val scoreResponseFormat: RootJsonFormat[ScoreResponse] = jsonFormat3(ScoreResponse.apply)
  implicit val greetingFormat: RootJsonFormat[Greeting] = jsonFormat1(Greeting.apply)
}
