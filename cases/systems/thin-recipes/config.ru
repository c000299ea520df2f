# Recipes on Sinatra. The environment variable APP selects the handler; see system.toml. APP has one
# more value: `book` responds with 100 kB.
require "connection_pool"
require "erb"
require "logger"
require "net/http"
require "sinatra/base"

ROWS = 10_000

# Starts an upstream and returns a lambda that calls it: over a fresh connection, or over a
# connection per thread.
def shop(is_fresh)
  port = Integer(ENV.fetch("UPSTREAM"))
  lambda do
    response =
      if is_fresh
        Net::HTTP.start("127.0.0.1", port) { |http| http.get("/price") }
      else
        http = Thread.current.thread_variable_get(:shop) || Net::HTTP.start("127.0.0.1", port)
        Thread.current.thread_variable_set(:shop, http)
        http.get("/price")
      end
    raise "unexpected response" unless response.body == "price"
  end
end

def pool
  require "pg"
  host, port = ENV.fetch("STORE").split(":")
  ConnectionPool.new(size: Integer(ENV.fetch("POOL")), timeout: 10) do
    PG.connect(host: host, port: port, user: "bars", dbname: "bars")
  end
end

# Returns a lambda that rates one of COUNT recipes in a transaction that takes 10 ms.
def rate(count)
  connections = pool
  connections.with do |store|
    store.exec("CREATE TABLE recipes AS SELECT id, 0 AS stars FROM generate_series(1, #{ROWS}) AS id")
    store.exec("ALTER TABLE recipes ADD PRIMARY KEY (id)")
  end
  lambda do
    connections.with do |store|
      store.transaction do
        store.exec_params("UPDATE recipes SET stars = stars + 1 WHERE id = $1", [1 + rand(count)])
        sleep 0.01
      end
    end
  end
end

# Returns a lambda that renders a list of 500 recipes.
def page
  template = ERB.new("<% rows.each do |row| %><li><%= ERB::Util.h(row[:name]) %>: <%= row[:time] %> min<% end %>")
  rows = (1..500).map { |i| { name: "recipe <#{i}>", time: i * 7919 % 120 } }
  -> { raise "too short" if template.result_with_hash(rows: rows).size < 1000 }
end

# Returns a lambda that appends a line to the journal.
def journal(is_durable)
  file = File.open(File.join(ENV.fetch("RUN"), "journal"), "a")
  file.sync = true
  lambda do
    file.write("#{Time.now} recipe read\n")
    file.fsync if is_durable
  end
end

# Returns a lambda that allocates 100 objects while 20,000 are in use.
def search(collects)
  $recipes = Array.new(20_000) { |i| "recipe #{i}" }
  count = 0
  lambda do
    Array.new(100) { |i| "result #{i}" }
    GC.start if collects && (count += 1) % 20 == 0
  end
end

def report
  connections = pool
  -> { connections.with { |store| store.exec("SELECT pg_sleep(0.02)") } }
end

WORK =
  case ENV.fetch("APP")
  when "hello", "book" then -> {}
  when "pause" then -> { sleep 0.02 }
  when "turn" then -> { sleep 0.01 }
  when "page" then page
  when "search" then search(false)
  when "search-collect" then search(true)
  when "journal" then journal(false)
  when "durable-journal" then journal(true)
  when "shop" then shop(false)
  when "shop-fresh" then shop(true)
  when "report" then report
  when "rate" then rate(ROWS)
  when "rate-one" then rate(1)
  end

BODY = ENV.fetch("APP") == "book" ? "recipe\n" * 14_000 : "Hello World"

class Recipes < Sinatra::Base
  set :environment, :production
  # Whether requests run one at a time, under a mutex.
  set :lock, ENV.fetch("LOCK") == "true"

  get "/" do
    WORK.call
    content_type "text/plain"
    BODY
  end
end

class RequestLog
  def initialize(app)
    @app = app
    @logger = Logger.new($stderr)
  end

  def call(env)
    response = @app.call(env)
    @logger.info("#{env["REQUEST_METHOD"]} #{env["PATH_INFO"]} #{response[0]}")
    response
  end
end

use RequestLog if ENV.fetch("LOG") == "on"
run Recipes
