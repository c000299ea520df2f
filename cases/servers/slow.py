"""Reads its stdin at a limited rate: a slow reader of a log."""
import sys
import time

per_s = float(sys.argv[1])
while block := sys.stdin.buffer.read1(4096):
    time.sleep(len(block) / per_s)
