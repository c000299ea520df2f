"""Responds after one of PERMITS threads has slept for MS milliseconds: pool.py PORT PERMITS MS."""
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

port, permits, ms = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
pool = ThreadPoolExecutor(permits)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        pool.submit(time.sleep, ms / 1000).result()
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"ok\n")

    def log_message(self, *arguments):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True


Server(("127.0.0.1", port), Handler).serve_forever()
