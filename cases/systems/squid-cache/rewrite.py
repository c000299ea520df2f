"""A URL rewriter for Squid that looks up each URL, which takes 20 ms, and never changes it."""
import sys
import time

for _ in sys.stdin:
    time.sleep(0.02)
    print("ERR", flush=True)
