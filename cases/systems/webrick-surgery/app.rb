# A veterinary surgery's service on WEBrick and PostgreSQL. See system.toml for the settings.
require "connection_pool"
require "erb"
require "pg"
require "socket"
require "webrick"
require "zlib"

ROWS = 10_000

def pool
  host, port = ENV.fetch("STORE").split(":")
  ConnectionPool.new(size: Integer(ENV.fetch("POOL")), timeout: 10) do
    PG.connect(host: host, port: port, user: "bars", dbname: "bars")
  end
end

# Returns a lambda that books one of COUNT rooms in a transaction that takes 10 ms.
def book(count)
  connections = pool
  connections.with do |store|
    store.exec("CREATE TABLE rooms AS SELECT id, 0 AS visits FROM generate_series(1, #{ROWS}) AS id")
    store.exec("ALTER TABLE rooms ADD PRIMARY KEY (id)")
  end
  lambda do
    connections.with do |store|
      store.transaction do
        store.exec_params("UPDATE rooms SET visits = visits + 1 WHERE id = $1", [1 + rand(count)])
        sleep 0.01
      end
    end
  end
end

def report
  connections = pool
  -> { connections.with { |store| store.exec("SELECT pg_sleep(0.02)") } }
end

# Returns a lambda that looks up a price, which takes 10 ms, in a cache. If IS_LOCKED is true, a
# mutex protects each lookup.
def price(is_locked)
  mutex = Mutex.new
  lookup = -> { sleep 0.01 }
  is_locked ? -> { mutex.synchronize(&lookup) } : lookup
end

# Returns a lambda that renders a list of 300 animals.
def list
  template = ERB.new("<% rows.each do |row| %><li><%= ERB::Util.h(row[:name]) %>: <%= row[:age] %> years<% end %>")
  rows = (1..300).map { |i| { name: "dog <#{i}>", age: i * 7919 % 15 } }
  -> { raise "too short" if template.result_with_hash(rows: rows).size < 1000 }
end

# Returns a lambda that checks the owner's name with PATTERN. The name ends with a digit, so it is
# invalid.
def check(pattern)
  name = "anna maria lopez ruiz1"
  -> { raise "valid" if pattern.match?(name) }
end

# Returns a lambda that appends a line to the treatment record.
def record(is_durable)
  file = File.open(File.join(ENV.fetch("RUN"), "record"), "a")
  file.sync = true
  mutex = Mutex.new
  lambda do
    mutex.synchronize do
      file.write("#{Time.now} treated\n")
      file.fsync if is_durable
    end
  end
end

# Returns a lambda that allocates 50 strings of 4 kB while 100,000 objects are in use.
def scan
  $animals = Array.new(100_000) { |i| "animal #{i}" }
  -> { Array.new(50) { |i| i.to_s * 4000 } }
end

# Returns a lambda that compresses a treatment history.
def history
  level = Integer(ENV.fetch("LEVEL"))
  random = Random.new(1)
  text = Array.new(2000) { |i| "#{i},animal #{random.rand(ROWS)},#{random.rand(100)} EUR\n" }.join
  -> { Zlib.gzip(text, level: level) }
end

# Returns a lambda that sends a reminder in 20 ms. Sometimes, the mail server rejects it.
def remind
  failures = Integer(ENV.fetch("FAILURES"))
  lambda do
    sleep 0.02
    :failed if rand(100) < failures
  end
end

WORK =
  case ENV.fetch("APP")
  when "hello" then -> {}
  when "x-ray" then -> { sleep 0.02 }
  when "list" then list
  when "check" then check(/\A[a-z]+( [a-z]+)*\z/)
  when "check-nested" then check(/\A([a-z]+ ?)+\z/)
  when "scan" then scan
  when "history" then history
  when "record" then record(false)
  when "durable-record" then record(true)
  when "price" then price(false)
  when "price-locked" then price(true)
  when "remind" then remind
  when "report" then report
  when "book" then book(ROWS)
  when "book-one" then book(1)
  end

server = WEBrick::HTTPServer.new(
  BindAddress: ENV.fetch("HOST"),
  Port: Integer(ENV.fetch("PORT")),
  MaxClients: Integer(ENV.fetch("CLIENTS")),
  Logger: WEBrick::Log.new($stderr, WEBrick::Log::WARN),
  AccessLog: ENV.fetch("LOG") == "on" ? [[$stderr, WEBrick::AccessLog::COMBINED_LOG_FORMAT]] : [],
  AcceptCallback: lambda do |socket|
    # WEBrick does not set TCP_NODELAY.
    socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1) if ENV.fetch("NODELAY") == "true"
  end
)
server.mount_proc("/") do |_, response|
  response.status = 500 if WORK.call == :failed
  response.keep_alive = false if ENV.fetch("KEEP_ALIVE") == "false"
  response["Content-Type"] = "text/plain"
  response.body = "Hello World"
end
trap("TERM") { server.shutdown }
server.start
