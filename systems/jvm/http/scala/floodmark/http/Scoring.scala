package floodmark.http

import scala.concurrent.Future
import scala.concurrent.duration._

import akka.actor.{ActorRef, ActorSystem, Props}
import akka.http.scaladsl.marshalling.ToResponseMarshallable
import akka.pattern.ask
import akka.util.Timeout

import floodmark.http.Json._

/** Records scores. */
trait Scoring {

  /** Waits for recovery of earlier scores. */
  def recovered: Future[Any]

  /** Records a score and returns the response. */
  def record(score: Double): ToResponseMarshallable
}

/** Three variables changed by all threads without a lock, as published: concurrent requests can lose a score. */
final class PlainScoring extends Scoring {
  private var averageScore: Double = 0
  private var totalScore: Double = 0
  private var numberOfTrials: Long = 0

  def recovered: Future[Any] = Future.unit

  def record(score: Double): ToResponseMarshallable = {
    totalScore = totalScore + score
    numberOfTrials = numberOfTrials + 1
    averageScore = totalScore / numberOfTrials
    ScoreResponse(averageScore, totalScore, numberOfTrials)
  }
}

/** One persistent actor that responds after its event is in the journal, as published. */
final class PersistentScoring(system: ActorSystem) extends Scoring {
  private implicit val timeout: Timeout = 3.seconds
  private val actor: ActorRef = system.actorOf(Props[ScoringActor](), "scoring")

  def recovered: Future[Any] = actor.ask(ScoringActor.AreYouThere)(PersistentScoring.Recovery)

  def record(score: Double): ToResponseMarshallable =
    (actor ? ScoringActor.Score(score)).mapTo[ScoreResponse]
}

object PersistentScoring {

  /** Timeout for connecting to the journal and reading its events. */
  val Recovery: Timeout = 55.seconds
}
