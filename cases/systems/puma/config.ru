# A small Rack application. APP selects the handler; see system.toml.
require "erb"
require "logger"
require "net/http"

POOL = Integer(ENV.fetch("POOL"))
STORE = ENV.fetch("STORE")

# Returns a lambda that responds with "Hello World" after it has called the block.
def page(&work)
  lambda do |_env|
    work.call
    [200, { "content-type" => "text/plain", "content-length" => "11" }, ["Hello World"]]
  end
end

# Starts the upstream, which responds after 50 ms. The upstream ends with this process.
def upstream
  command = ["python3", File.expand_path("../slow-upstream/upstream.py", __dir__), "50"]
  $upstream = IO.popen(command, "r+")
  Integer($upstream.gets)
end

# Returns a pool of connections to PostgreSQL.
def store
  require "connection_pool"
  require "pg"
  host, port = STORE.split(":")
  connect = -> { PG.connect(host: host, port: port, user: "bars", dbname: "bars") }
  ConnectionPool.new(size: POOL, timeout: 30, &connect)
end

# A file that writes each line to the disk at once.
class DurableFile < File
  def write(*lines)
    super.tap { fsync }
  end
end

case ENV.fetch("APP")
when "hello"
  run page {}
when "sleep"
  run page { sleep 0.01 }
when "rack-lock"
  # Rack::Lock allows one request at a time.
  require "rack/lock"
  use Rack::Lock
  run page { sleep 0.01 }
when "log", "durable-log"
  # The logger's lock allows one thread to write at a time.
  file = ENV["APP"] == "log" ? File : DurableFile
  log = Logger.new(file.open(File.join(ENV.fetch("RUN"), "app.log"), "a"))
  run(page do
    log.info('Started GET "/"')
    log.info("Processing by HelloController#index")
    log.info("Completed 200 OK")
  end)
when "upstream"
  port = upstream
  run(page do
    # Keep one connection per thread, as net-http-persistent does.
    http = Thread.current[:http] ||= Net::HTTP.start("127.0.0.1", port)
    raise "unexpected response" unless http.get("/price").body == "price"
  end)
when "report"
  rows = Array.new(400) { |i| { id: i, name: "item #{i}", price: i * 1.25 } }
  report = ERB.new(<<~HTML)
    <table>
    <% rows.each do |row| %>
      <tr><td><%= row[:id] %></td><td><%= ERB::Util.h(row[:name]) %></td><td><%= format("%.2f", row[:price]) %></td></tr>
    <% end %>
    </table>
  HTML
  run page { report.result_with_hash(rows: rows) }
when "slow-query"
  pool = store
  run page { pool.with { |connection| connection.exec("SELECT pg_sleep(0.02)") } }
when "one-counter", "many-counters"
  # Each request increments a counter in a transaction that takes 10 ms.
  rows = ENV["APP"] == "one-counter" ? 1 : 10_000
  pool = store
  pool.with do |connection|
    connection.exec("CREATE TABLE counters AS SELECT id, 0 AS hits FROM generate_series(1, 10000) AS id")
    connection.exec("ALTER TABLE counters ADD PRIMARY KEY (id)")
    connection.exec("VACUUM ANALYZE counters")
  end
  run(page do
    pool.with do |connection|
      connection.transaction do
        connection.exec_params("UPDATE counters SET hits = hits + 1 WHERE id = $1", [1 + rand(rows)])
        sleep 0.01
      end
    end
  end)
end
