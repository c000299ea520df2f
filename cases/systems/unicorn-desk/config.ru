# A small Rack application. APP selects the handler; see system.toml.
require "net/http"
require "pstore"

ROWS = 10_000

# Starts the upstream, which responds after 50 ms. The upstream ends with the last worker.
def upstream
  command = ["python3", File.expand_path("../slow-upstream/upstream.py", __dir__), "50"]
  $upstream = IO.popen(command, "r+")
  Integer($upstream.gets)
end

def connect
  require "pg"
  host, port = ENV.fetch("STORE").split(":")
  PG.connect(host: host, port: port, user: "bars", dbname: "bars")
end

# Returns a lambda that updates a ticket in a transaction that takes 10 ms.
def book(rows)
  store = connect
  store.exec("CREATE TABLE tickets AS SELECT id, 0 AS seats FROM generate_series(1, #{ROWS}) AS id")
  store.exec("ALTER TABLE tickets ADD PRIMARY KEY (id)")
  # The master runs this code. The workers must not share its connection.
  store.close
  lambda do
    $store ||= connect
    $store.transaction do
      $store.exec_params("UPDATE tickets SET seats = seats + 1 WHERE id = $1", [1 + rand(rows)])
      sleep 0.01
    end
  end
end

# Returns a lambda that holds the file lock of a PStore for 10 ms.
def count(read_only)
  path = File.join(ENV.fetch("RUN"), "visits.pstore")
  PStore.new(path).transaction { |store| store[:visits] = 0 }
  lambda do
    $visits ||= PStore.new(path)
    $visits.transaction(read_only) do |store|
      visits = store[:visits]
      sleep 0.01
      store[:visits] = visits + 1 unless read_only
    end
  end
end

work =
  case ENV.fetch("APP")
  when "hello" then -> {}
  when "sleep" then -> { sleep 0.05 }
  when "page"
    lambda do
      rows = (1..2000).map { |i| format("<tr><td>%d<td>ticket %d<td>%.2f", i, i, i * 1.25) }
      raise "too short" if rows.join.size < 1000
    end
  when "price"
    port = upstream
    lambda do
      # Keep one connection per worker.
      $price ||= Net::HTTP.start("127.0.0.1", port)
      raise "unexpected response" unless $price.get("/price").body == "price"
    end
  when "read-visits" then count(true)
  when "count-visits" then count(false)
  when "book" then book(ROWS)
  when "book-one" then book(1)
  end

use Rack::CommonLogger, $stderr if ENV.fetch("LOG") == "on"
run(lambda do |_env|
  work.call
  [200, { "content-type" => "text/plain", "content-length" => "11" }, ["Hello World"]]
end)
