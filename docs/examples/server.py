# A minimal server in Python: python3 server.py PORT
import http.server
import sys


class Hello(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # 1.0 closes the connection after each response
    wbufsize = -1  # one write for header and body; the second of two waits 40 ms for a delayed ACK

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "12")
        self.end_headers()
        self.wfile.write(b"Hello World!")

    def log_message(self, *_):  # printing a line per request would dominate the measurement
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Hello).serve_forever()
