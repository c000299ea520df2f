"""A small Twisted Web application. The environment variable APP selects the handler; see system.toml."""
import http.client
import os
import random
import subprocess
import sys
import threading
import time

from twisted.internet import defer, reactor, task, threads
from twisted.python import log
from twisted.web import resource, server

APP = os.environ["APP"]
CLOSE = os.environ["CONNECTION"] == "close"
LISTEN = (sys.argv[1], int(sys.argv[2]))


def hello():
    return b"Hello World"


def page():
    rows = "".join(f"<tr><td>{row}<td>customer {row}<td>{row * 1.25:.2f}</tr>" for row in range(500))
    assert len(rows) > 1000
    return b"Hello World"


def sleep(seconds):
    return lambda: task.deferLater(reactor, seconds, hello)


def in_thread(call):
    return lambda: threads.deferToThread(call)


def thread_sleep():
    time.sleep(0.05)
    return b"Hello World"


def tokens():
    semaphore = defer.DeferredSemaphore(int(os.environ["TOKENS"]))
    return lambda: semaphore.run(sleep(0.02))


def turns():
    turn = defer.DeferredLock()
    return lambda: turn.run(sleep(0.01))


def price():
    """Returns a blocking call of an upstream that responds after 50 ms."""
    command = [sys.executable, "../slow-upstream/upstream.py", "50"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    port = int(process.stdout.readline())
    local = threading.local()

    def call():
        # Keep a reference to the process, because it ends when its stdin is closed.
        assert process.stdin
        # Keep one connection per thread.
        if not hasattr(local, "upstream"):
            local.upstream = http.client.HTTPConnection("127.0.0.1", port)
        local.upstream.request("GET", "/price")
        local.upstream.getresponse().read()
        return b"Hello World"

    return call


def export():
    numbers = random.Random(1)
    report = "\n".join(f"{row},customer {numbers.randrange(100_000)},{numbers.random():.6f}" for row in range(4000))
    return lambda: report.encode()


HANDLERS = {
    "hello": lambda: hello,
    "page": lambda: page,
    "sleep": lambda: sleep(0.02),
    "thread-sleep": lambda: in_thread(thread_sleep),
    "tokens": tokens,
    "turns": turns,
    "price": lambda: in_thread(price()),
    "price-on-reactor": price,
    "export": export,
}


class Index(resource.Resource):
    isLeaf = True
    work = staticmethod(HANDLERS[APP]())

    def render_GET(self, request):
        request.setHeader("Content-Type", "text/plain")
        defer.maybeDeferred(self.work).addCallback(self.respond, request)
        return server.NOT_DONE_YET

    def respond(self, body, request):
        request.setHeader("Content-Length", str(len(body)))
        channel = request.channel
        if CLOSE:
            request.setHeader("Connection", "close")
        request.write(body)
        request.finish()
        if CLOSE:
            channel.loseConnection()


class Compressed(server.GzipEncoderFactory):
    compressLevel = int(os.environ["LEVEL"])

    def encoderForRequest(self, request):
        # Compress although the client does not ask for it.
        request.requestHeaders.setRawHeaders("Accept-Encoding", ["gzip"])
        return super().encoderForRequest(request)


class Quiet(server.Site):
    def log(self, request):
        pass


root = Index()
if APP == "export":
    root = resource.EncodingResourceWrapper(root, [Compressed()])
if os.environ["LOG"] == "on":
    log.startLogging(sys.stdout)
    site = server.Site(root)
else:
    site = Quiet(root)
reactor.suggestThreadPoolSize(int(os.environ["THREADS"]))
reactor.listenTCP(LISTEN[1], site, interface=LISTEN[0], backlog=1024)
reactor.run()
