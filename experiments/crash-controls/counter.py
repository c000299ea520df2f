"""counter.py WORKLOAD FAULT FILE PORT: counts requests in a file, with a fault.

WORKLOAD is `dispatcher` or `scoring`. The file has one byte per counted request, and is written
before the response. A file that was written survives `kill -9`, even if it was not synced.

FAULT is one of:
  none      durable
  volatile  keeps the count in memory only
  forgets   forgets the last 50 counted requests at each start
  early     responds before it writes
  refuses   does not start if the file has content
"""
import json, os, socket, sys, threading, time

workload, fault, path, port = sys.argv[1:5]
lock = threading.Lock()
file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
count = os.fstat(file).st_size
unwritten = 0

if fault == 'refuses' and count:
    sys.exit('the state is damaged')
if fault == 'volatile':
    count = 0
if fault == 'forgets':
    count = max(count - 50, 0)
    os.truncate(path, count)


def next_number():
    global count, unwritten
    with lock:
        if fault == 'early':
            unwritten += 1
        elif fault != 'volatile':
            os.write(file, b'x')
        count += 1
        return count


def write_later():
    global unwritten
    while True:
        time.sleep(0.05)
        with lock:
            os.write(file, b'x' * unwritten)
            unwritten = 0


def body_of(number, request):
    if workload == 'dispatcher':
        return str(number)
    total = number * json.loads(request.split(b'\r\n\r\n')[1])['score']
    return json.dumps({'averageScore': total / number, 'totalScore': total, 'numberOfTrials': number})


def is_complete(data):
    if data.startswith(b'POST'):
        return data.endswith(b'}')
    return data.endswith(b'\r\n\r\n')


def serve(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    data = b''
    while True:
        while not is_complete(data):
            more = connection.recv(65536)
            if not more:
                return
            data += more
        # The readiness check is a GET request, which the `scoring` workload does not count.
        counts = workload == 'dispatcher' or data.startswith(b'POST')
        body = body_of(next_number(), data) if counts else ''
        data = b''
        connection.sendall(f'HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}'.encode())


if fault == 'early':
    threading.Thread(target=write_later, daemon=True).start()
listener = socket.create_server(('127.0.0.1', int(port)), backlog=200)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
