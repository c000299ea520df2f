package floodmark.http

import java.nio.ByteBuffer

import akka.persistence.PersistentActor
import akka.serialization.SerializerWithStringManifest

/** Event: a score was added. */
final case class Scored(score: Double)

/** Persists scores one event at a time: each waits until the previous one is in the journal. */
class ScoringActor extends PersistentActor {
  import ScoringActor._

  private var averageScore: Double = 0
  private var totalScore: Double = 0
  private var numberOfTrials: Long = 0

  def persistenceId = "scoring"

  private def updateState(score: Double): Unit = {
    totalScore = totalScore + score
    numberOfTrials = numberOfTrials + 1
    averageScore = totalScore / numberOfTrials
  }

  // Nothing arrives before recovery is complete.
  def receiveCommand: Receive = {
    case Score(score) =>
      val asker = sender()
      persist(Scored(score)) { event =>
        updateState(event.score)
        asker ! ScoreResponse(averageScore, totalScore, numberOfTrials)
      }
    case AreYouThere => sender() ! Here
  }

  def receiveRecover: Receive = { case event: Scored => updateState(event.score) }
}

object ScoringActor {
  final case class Score(score: Double)
  case object AreYouThere
  case object Here
}

class ScoredSerializer extends SerializerWithStringManifest {
  def identifier = 20180312
  def manifest(event: AnyRef): String = "scored"
  def toBinary(event: AnyRef): Array[Byte] =
    ByteBuffer.allocate(java.lang.Double.BYTES).putDouble(event.asInstanceOf[Scored].score).array
  def fromBinary(bytes: Array[Byte], manifest: String): AnyRef = Scored(ByteBuffer.wrap(bytes).getDouble)
}
