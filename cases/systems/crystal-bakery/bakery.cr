# A bakery on Crystal's HTTP server. The environment variable HANDLER selects the handler; see
# system.toml.
require "compress/gzip"
require "http/client"
require "http/server"

SIZE = ENV["SIZE"].to_i
# Processes that end when they are collected as garbage.
PROCESSES = [] of Process

def table(rows)
  String.build do |html|
    rows.times { |i| html << "<tr><td>" << i << "<td>loaf " << i * 7919 % rows << "<td>" << i * 1.25 << '\n' }
  end
end

# Returns a channel that contains SIZE permits.
def permits
  Channel(Nil).new(SIZE).tap { |free| SIZE.times { free.send(nil) } }
end

# Returns a channel of SIZE clients for the upstream, which responds after 20 ms and ends with this
# process.
def clients
  command = ["../slow-upstream/upstream.py", "20"]
  upstream = Process.new("python3", command, input: :pipe, output: :pipe)
  PROCESSES << upstream
  port = upstream.output.gets.not_nil!.to_i
  Channel(HTTP::Client).new(SIZE).tap do |free|
    SIZE.times { free.send(HTTP::Client.new("127.0.0.1", port)) }
  end
end

def journal(durable)
  file = File.open(File.join(ENV["RUN"], "journal"), "a")
  file.sync = true
  -> do
    file.puts("loaf sold")
    file.fsync if durable
  end
end

def handler(name) : ->
  case name
  when "hello" then ->{}
  when "sleep" then ->{ sleep 20.milliseconds }
  when "page"  then ->{ table(1000); nil }
  when "permits"
    free = permits
    -> do
      free.receive
      sleep 20.milliseconds
      free.send(nil)
      nil
    end
  when "turns"
    mutex = Mutex.new
    ->{ mutex.synchronize { sleep 10.milliseconds } }
  when "price"
    idle = clients
    -> do
      client = idle.receive
      raise "unexpected response" unless client.get("/price").body == "price"
      idle.send(client)
      nil
    end
  when "export"
    text = table(3000)
    level = ENV["LEVEL"].to_i
    -> do
      Compress::Gzip::Writer.open(IO::Memory.new, level: level) { |gzip| gzip << text }
      nil
    end
  when "journal"         then journal(false)
  when "durable-journal" then journal(true)
  else                        raise "unknown handler #{name}"
  end
end

work = handler(ENV["HANDLER"])
close = ENV["CONNECTION"] == "close"
server = HTTP::Server.new do |context|
  work.call
  context.response.headers["Connection"] = "close" if close
  context.response.content_type = "text/plain"
  context.response.print "Hello World"
end
server.bind_tcp ENV["HOST"], ENV["PORT"].to_i
server.listen
