# A server of one's own in Python: python3 server.py PORT
import http.server
import sys


class Hello(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # or every connection is closed after one answer
    wbufsize = -1  # header and body in one write: in two, the second one waits 40 ms for a delayed ACK

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "12")
        self.end_headers()
        self.wfile.write(b"Hello World!")

    def log_message(self, *_):  # a line on the terminal for each request would be what is measured
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Hello).serve_forever()
