"""Reads its standard input at so many bytes a second: the other end of a log that nobody takes away fast enough."""
import sys
import time

per_s = float(sys.argv[1])
while block := sys.stdin.buffer.read1(4096):
    time.sleep(len(block) / per_s)
