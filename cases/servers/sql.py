"""A server that sends PostgreSQL one query per request: one thread per client, one shared connection pool. See ../README.md."""
import argparse
import queue
import random
import socket
import struct
import threading
import time

options = argparse.ArgumentParser()
options.add_argument("port", type=int)
options.add_argument("store")
options.add_argument("--host", default="127.0.0.1")
options.add_argument("--connections", type=int, default=16)
options.add_argument("--rows", type=int, default=1000)
options.add_argument("--update", choices=["one", "any"])
options.add_argument("--hold", type=float, default=0)
options.add_argument("--scan", action="store_true")
options.add_argument("--durable", choices=["on", "off"], default="on")
options = options.parse_args()

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 11\r\n\r\nhello world"


class Session:
    """A connection to PostgreSQL: protocol 3.0, no password, simple queries; only errors are read from responses."""

    def __init__(self):
        host, port = options.store.rsplit(":", 1)
        self.stream = socket.create_connection((host, int(port)))
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        said = b"user\0bars\0database\0bars\0synchronous_commit\0%s\0\0" % options.durable.encode()
        self.stream.sendall(struct.pack("!II", 8 + len(said), 196608) + said)
        self.read()

    def ask(self, query):
        query = query.encode() + b"\0"
        self.stream.sendall(b"Q" + struct.pack("!I", 4 + len(query)) + query)
        self.read()

    def read(self):
        """Reads until ReadyForQuery."""
        data, at = b"", 0
        while True:
            if len(data) >= at + 5:
                end = at + 1 + int.from_bytes(data[at + 1:at + 5], "big")
                if len(data) >= end:
                    if data[at] == ord("E"):
                        raise OSError(data[at + 5:end].replace(b"\0", b" ").decode())
                    if data[at] == ord("Z"):
                        return
                    at = end
                    continue
            more = self.stream.recv(65536)
            if not more:
                raise OSError("the store closed the connection")
            data += more


def work(session):
    """Handles a request."""
    row = 1 if options.update == "one" else random.randint(1, options.rows)
    if options.scan:
        session.ask("SELECT id FROM entries WHERE value = %d" % row)
    elif not options.update:
        session.ask("SELECT value FROM entries WHERE id = %d" % row)
    elif not options.hold:
        session.ask("UPDATE entries SET value = value + 1 WHERE id = %d" % row)
    else:
        session.ask("BEGIN; UPDATE entries SET value = value + 1 WHERE id = %d" % row)
        time.sleep(options.hold / 1000)
        session.ask("COMMIT")


def serve(stream):
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    rest = b""
    try:
        while data := stream.recv(65536):
            rest += data
            while (end := rest.find(b"\r\n\r\n")) >= 0:
                rest = rest[end + 4:]
                session = free.get()
                work(session)
                free.put(session)
                stream.sendall(ANSWER)
    except ConnectionError:
        pass
    stream.close()


free = queue.SimpleQueue()
for _ in range(options.connections):
    free.put(Session())
first = free.get()
first.ask("CREATE TABLE entries AS SELECT id, id AS value FROM generate_series(1, %d) AS id" % options.rows)
first.ask("ALTER TABLE entries ADD PRIMARY KEY (id)")
# Write dirty pages now. Otherwise, the first reads would have to write them.
first.ask("VACUUM ANALYZE entries")
free.put(first)

listener = socket.create_server((options.host, options.port), backlog=1024)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
