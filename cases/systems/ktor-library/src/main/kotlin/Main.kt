/** A library service on Ktor. See system.toml for the arguments. */
package app

import com.zaxxer.hikari.HikariConfig
import com.zaxxer.hikari.HikariDataSource
import io.ktor.client.HttpClient
import io.ktor.client.engine.cio.CIO as ClientCIO
import io.ktor.client.engine.cio.endpoint
import io.ktor.client.request.get
import io.ktor.client.statement.bodyAsText
import io.ktor.server.application.install
import io.ktor.server.cio.CIO
import io.ktor.server.engine.embeddedServer
import io.ktor.server.plugins.ratelimit.RateLimit
import io.ktor.server.response.header
import io.ktor.server.response.respondText
import io.ktor.server.routing.get
import io.ktor.server.routing.routing
import java.sql.Connection
import java.util.concurrent.ThreadLocalRandom
import kotlin.time.Duration.Companion.seconds
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.delay
import kotlinx.coroutines.sync.Mutex
import kotlinx.coroutines.sync.Semaphore
import kotlinx.coroutines.sync.withLock
import kotlinx.coroutines.sync.withPermit
import kotlinx.coroutines.withContext

private const val BOOKS = 10_000

private lateinit var options: Map<String, String>

private fun number(name: String) = options.getValue(name).toInt()

fun main(args: Array<String>) {
    options = args.toList().chunked(2).associate { (name, value) -> name.removePrefix("--") to value }
    val work = handler(options.getValue("handler"))
    val close = options.getValue("connection") == "close"
    val rate = number("rate")
    embeddedServer(CIO, port = number("port"), host = options.getValue("host")) {
        if (rate > 0) {
            install(RateLimit) { global { rateLimiter(limit = rate, refillPeriod = 1.seconds) } }
        }
        routing {
            get("/") {
                work()
                if (close) call.response.header("Connection", "close")
                call.respondText("Hello World")
            }
        }
    }.start(wait = true)
}

private fun handler(name: String): suspend () -> Unit = when (name) {
    "hello" -> { {} }
    "delay" -> { { delay(20) } }
    "permits" -> {
        val permits = Semaphore(number("size"))
        suspend { permits.withPermit { delay(20) } }
    }
    "turns" -> {
        val mutex = Mutex()
        suspend { mutex.withLock { delay(10) } }
    }
    "blocking" -> {
        val dispatcher = Dispatchers.IO.limitedParallelism(number("size"))
        suspend { withContext(dispatcher) { Thread.sleep(20) } }
    }
    "price" -> price()
    "report" -> query { it.createStatement().use { statement -> statement.execute("SELECT pg_sleep(0.02)") } }
    "shelf" -> query { read(it, "id <= 20") }
    "shelf-each" -> query { for (book in 1..20) read(it, "id = $book") }
    "lend" -> query { lend(it, 1 + ThreadLocalRandom.current().nextInt(BOOKS)) }
    "lend-one" -> query { lend(it, 1) }
    else -> error("unknown handler $name")
}

/** Starts the upstream, which responds after 20 ms and ends with this process. */
private fun price(): suspend () -> Unit {
    val process = ProcessBuilder("python3", "../slow-upstream/upstream.py", "20").start()
    val url = "http://127.0.0.1:${process.inputStream.bufferedReader().readLine()}/price"
    val client = HttpClient(ClientCIO) {
        expectSuccess = true
        engine { endpoint { maxConnectionsPerRoute = number("size") } }
    }
    return { client.get(url).bodyAsText() }
}

/** Connects to PostgreSQL, and returns a function that runs the query on one connection of the pool. */
private fun query(query: (Connection) -> Unit): suspend () -> Unit {
    val config = HikariConfig()
    config.jdbcUrl = "jdbc:postgresql://${options.getValue("store")}/bars"
    config.username = "bars"
    config.maximumPoolSize = number("size")
    val pool = HikariDataSource(config)
    pool.connection.use {
        it.createStatement().use { statement ->
            statement.execute("CREATE TABLE books AS SELECT id, 0 AS loans FROM generate_series(1, $BOOKS) AS id")
            statement.execute("ALTER TABLE books ADD PRIMARY KEY (id)")
            statement.execute("VACUUM ANALYZE books")
        }
    }
    return { withContext(Dispatchers.IO) { pool.connection.use(query) } }
}

private fun read(connection: Connection, condition: String) {
    connection.createStatement().use { it.executeQuery("SELECT loans FROM books WHERE $condition").next() }
}

/** Updates a book in a transaction that takes 10 ms. */
private fun lend(connection: Connection, book: Int) {
    connection.autoCommit = false
    connection.prepareStatement("UPDATE books SET loans = loans + 1 WHERE id = ?").use {
        it.setInt(1, book)
        it.executeUpdate()
    }
    Thread.sleep(10)
    connection.commit()
}
