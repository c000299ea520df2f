#!/usr/bin/env python3
"""HTTP server with a pool of threads and a pool of connections to a store.

Each request occupies a thread, and then a connection until the store has sent a byte back.
"""

import argparse
import queue
import select
import socket
import threading

BODY = b"ok"
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)

parser = argparse.ArgumentParser()
parser.add_argument("--listen", required=True)
parser.add_argument("--store", required=True)
parser.add_argument("--threads", type=int, required=True)
parser.add_argument("--connections", type=int, required=True)
parser.add_argument("--cache", type=int, help="has no effect")
arguments = parser.parse_args()


def address(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


store = queue.Queue()
for _ in range(arguments.connections):
    connection = socket.create_connection(address(arguments.store))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    store.put(connection)

requests = queue.Queue()
clients = {}
epoll = select.epoll()


def work():
    while True:
        client = requests.get()
        try:
            if not client.recv(65536):
                del clients[client.fileno()]
                client.close()
                continue
            connection = store.get()
            try:
                connection.sendall(b"?")
                connection.recv(1)
            finally:
                store.put(connection)
            client.sendall(RESPONSE)
            epoll.modify(client.fileno(), select.EPOLLIN | select.EPOLLONESHOT)
        except OSError:
            clients.pop(client.fileno(), None)
            client.close()


for _ in range(arguments.threads):
    threading.Thread(target=work, daemon=True).start()

listener = socket.create_server(address(arguments.listen), backlog=1024)
epoll.register(listener.fileno(), select.EPOLLIN)
while True:
    for descriptor, _ in epoll.poll():
        if descriptor == listener.fileno():
            client, _ = listener.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            clients[client.fileno()] = client
            epoll.register(client.fileno(), select.EPOLLIN | select.EPOLLONESHOT)
        else:
            requests.put(clients[descriptor])
