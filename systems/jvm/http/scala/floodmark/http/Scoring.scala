package floodmark.http

import scala.concurrent.Future
import scala.concurrent.duration._

import akka.actor.{ActorRef, ActorSystem, Props}
import akka.http.scaladsl.marshalling.ToResponseMarshallable
import akka.pattern.ask
import akka.util.Timeout

import floodmark.http.Json._

/** What becomes of a score. */
trait Scoring {

  /** Waits until what was recorded before is known again. */
  def recovered: Future[Any]

  /** Records a score; the answer is with it. */
  def record(score: Double): ToResponseMarshallable
}

/** Three plain variables that all threads change without a lock, as published: two requests at once can lose one. */
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

/** One persistent actor that is asked, and answers when its event is in the journal, as published. */
final class PersistentScoring(system: ActorSystem) extends Scoring {
  private implicit val timeout: Timeout = 3.seconds
  private val actor: ActorRef = system.actorOf(Props[ScoringActor](), "scoring")

  def recovered: Future[Any] = actor.ask(ScoringActor.AreYouThere)(PersistentScoring.Recovery)

  def record(score: Double): ToResponseMarshallable =
    (actor ? ScoringActor.Score(score)).mapTo[ScoreResponse]
}

object PersistentScoring {

  /** Longest wait for the first connection to the journal and for all its events. */
  val Recovery: Timeout = 55.seconds
}
