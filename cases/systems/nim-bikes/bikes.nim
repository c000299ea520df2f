## A bicycle rental on Nim's asynchttpserver. The environment variable APP selects the application;
## see system.toml.
import std/[asyncdispatch, asynchttpserver, asyncnet, deques, httpclient, os, osproc, posix, sequtils, streams, strutils]

{.passL: "-lz".}
proc compress2(target: cstring, length: var culong, source: cstring, size: culong, level: cint): cint {.importc.}
proc compressBound(size: culong): culong {.importc.}

type
  Work = proc (): Future[void] {.gcsafe.}
  ## Values that one request at a time can use. Requests wait for a free value in their order.
  Pool[T] = ref object
    free: Deque[T]
    waiting: Deque[Future[T]]

proc number(name: string): int = parseInt(getEnv(name))

proc newPool[T](values: seq[T]): Pool[T] =
  Pool[T](free: values.toDeque, waiting: initDeque[Future[T]]())

proc take[T](pool: Pool[T]): Future[T] =
  result = newFuture[T]("take")
  if pool.free.len > 0:
    result.complete(pool.free.popFirst)
  else:
    pool.waiting.addLast(result)

proc giveBack[T](pool: Pool[T], value: T) =
  if pool.waiting.len > 0:
    pool.waiting.popFirst.complete(value)
  else:
    pool.free.addLast(value)

proc table(rows: int): string =
  for i in 0 ..< rows:
    result.add("<tr><td>" & $i & "<td>bike " & $(i * 7919 mod rows) & "<td>" & $(float(i) * 1.25) & "\n")

proc hello(): Work =
  result = proc () {.async.} = discard

proc ride(): Work =
  result = proc () {.async.} = await sleepAsync(20)

proc rideOnLoop(): Work =
  result = proc () {.async.} = sleep(20)

proc page(): Work =
  let rows = number("ROWS")
  result = proc () {.async.} =
    if table(rows).len == 0: raise newException(ValueError, "empty page")

## Sleeps for 20 ms on one of BIKES bicycles.
proc rent(): Work =
  let bikes = newPool(toSeq(1 .. number("BIKES")))
  result = proc () {.async.} =
    let bike = await bikes.take
    await sleepAsync(20)
    bikes.giveBack(bike)

## Compresses the list of bicycles, as for a download.
proc list(): Work =
  let text = table(3000)
  let level = number("LEVEL")
  var file = newString(int(compressBound(culong(text.len))))
  result = proc () {.async.} =
    var length = culong(file.len)
    if compress2(cstring(file), length, cstring(text), culong(text.len), cint(level)) != 0:
      raise newException(IOError, "compression failed")

## Appends a line to the journal, and flushes every SYNC_EVERY lines to disk.
proc journal(): Work =
  let file = open(getEnv("RUN") / "journal", fmAppend)
  let every = number("SYNC_EVERY")
  var lines = 0
  result = proc () {.async.} =
    file.writeLine("bike returned")
    file.flushFile
    lines += 1
    if lines mod every == 0 and fsync(file.getFileHandle) != 0:
      raiseOSError(osLastError())

proc log(): Work =
  result = proc () {.async.} =
    stdout.writeLine("GET / 200: bike 17 of the station at the market, 11 bytes")
    stdout.flushFile

## Calls an upstream, which responds after 20 ms and ends with this process, with one of CLIENTS
## clients. Each client has one connection.
proc fare(): Work =
  let upstream = startProcess("python3", options = {poUsePath},
    args = ["../slow-upstream/upstream.py", "20"])
  let url = "http://127.0.0.1:" & upstream.outputStream.readLine & "/fare"
  let clients = newPool(newSeqWith(number("CLIENTS"), newAsyncHttpClient()))
  let isClosed = getEnv("UPSTREAM_CONNECTION") == "close"
  result = proc () {.async.} =
    let client = await clients.take
    let text = await client.getContent(url)
    if isClosed: client.close
    clients.giveBack(client)
    if text != "price": raise newException(IOError, "unexpected response")

proc work(app: string): Work =
  case app
  of "hello": hello()
  of "ride": ride()
  of "ride-on-loop": rideOnLoop()
  of "page": page()
  of "rent": rent()
  of "list": list()
  of "journal": journal()
  of "log": log()
  of "fare": fare()
  else: raise newException(ValueError, "unknown application")

proc main() {.async.} =
  let work = work(getEnv("APP"))
  let isClosed = getEnv("CONNECTION") == "close"
  let headers = {"Content-Type": "text/plain", "Connection": getEnv("CONNECTION")}.newHttpHeaders

  proc answer(request: Request) {.async.} =
    await work()
    await request.respond(Http200, "Hello World", headers)
    if isClosed: request.client.close

  await newAsyncHttpServer().serve(Port(number("PORT")), answer, getEnv("HOST"))

waitFor main()
